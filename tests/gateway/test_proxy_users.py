"""Users who act for others by `doas`, as the setting `proxy_users` lets them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.config import ClientConfig
from paxosblock.errors import ConfigError, InvalidRequestError
from paxosblock.gateway.proxy_users import ImpersonationError, ProxyUsers
from paxosblock.gateway.user_clients import Principal
from paxosblock.gateway.who_asks import Identification
from paxosblock.net.port.own_names import OwnNames
from tests.gateway.gateways import content, gateway_of

RULES = " hue@10.0.0.5, 10.1.0.0/16 = ann , bob;knox@*=*; hue@::1=eve;"


@pytest.mark.parametrize(
    ("name", "other", "address", "refusal"),
    [
        ("hue", "ann", "10.0.0.5", ""),
        ("hue", "bob", "10.1.255.1", ""),
        ("hue", "bob", "::ffff:10.1.0.1", ""),
        ("hue", "eve", "::1", ""),
        ("knox", "anybody", "fe80::1%eth0", ""),
        ("hue", "cy", "10.0.0.5", "User: hue is not allowed to impersonate cy"),
        ("ann", "hue", "10.0.0.5", "User: ann is not allowed to impersonate hue"),
        ("hue", "ann", "::1", "Unauthorized connection for super-user: hue from IP ::1"),
        ("hue", "eve", "10.0.0.5", "Unauthorized connection for super-user: hue from IP 10.0.0.5"),
        ("hue", "ann", "", "Unauthorized connection for super-user: hue from IP "),
    ],
)
def test_a_user_acts_for_those_and_from_there_as_a_rule_says(
    name: str, other: str, address: str, refusal: str
) -> None:
    proxies = ProxyUsers.of(RULES)
    if not refusal:
        proxies.check(name, other, address)
        return
    with pytest.raises(ImpersonationError) as error:
        proxies.check(name, other, address)
    assert str(error.value) == refusal


@pytest.mark.parametrize(
    "setting",
    [
        *("hue", "hue@*", "hue=ann", "@*=ann", "hue@*=", "hue@=ann", "*@*=ann", "hue@*=ann,*"),
        *("hue@*=a:b", "hue@gw1=ann", "hue@10.0.0.5/8=ann", "hue@*=ann;x"),
    ],
)
def test_a_rule_that_is_none_is_refused(setting: str) -> None:
    with pytest.raises(ConfigError, match="proxy_users: "):
        ProxyUsers.of(setting)


def test_nobody_acts_for_another_where_users_prove_who_they_are() -> None:
    proven = dataclasses.replace(ClientConfig(), access_file="/secret")
    with pytest.raises(ConfigError, match="prove who they are"):
        Identification.at(proven, OwnNames(), RULES)
    believing = Identification.at(ClientConfig(), OwnNames(), RULES)
    with pytest.raises(ImpersonationError):
        believing.acting_for(Principal("knox", "a token"), "ann", "10.0.0.5")
    with pytest.raises(InvalidRequestError):
        believing.acting_for(Principal("knox"), "a:b", "10.0.0.5")


def test_the_log_tells_who_acted_for_whom(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    believing = Identification.at(ClientConfig(), OwnNames(), RULES)
    believing.acting_for(Principal("hue"), "ann", "10.0.0.5")
    assert [each.facts for each in caplog.records] == [  # type: ignore[attr-defined]  # of `facts`
        {"user": "hue", "acts_for": "ann", "at": "10.0.0.5"}
    ]


def test_a_program_acts_for_its_users_in_both_steps(
    cluster: LocalCluster, fs: Client, home: str, tmp_path: Path
) -> None:
    rules = {"PAXOSBLOCK_GATEWAY_PROXY_USERS": "hue@127.0.0.1=ann;knox@10.0.0.7=*"}
    fs.set_permission(home, 0o777)
    with gateway_of(cluster, tmp_path, **rules) as gateway:
        assert gateway.write(f"{home}/f", b"x", user="hue", doas="ann").status == 201
        assert (fs.stat(f"{home}/f").owner, content(fs, f"{home}/f")) == ("ann", b"x")
        told = gateway.ask("GET", "/", "GETHOMEDIRECTORY", user="hue", doas="ann")
        assert told.json == {"Path": "/user/ann"}
        for user, other, words in (
            ("hue", "bob", "User: hue is not allowed to impersonate bob"),
            ("knox", "ann", "Unauthorized connection for super-user: knox from IP 127.0.0.1"),
        ):
            refused = gateway.ask("DELETE", f"{home}/f", "DELETE", user=user, doas=other)
            assert (refused.status, refused.exception) == (403, "AuthorizationException")
            assert refused.message == words
        assert fs.exists(f"{home}/f")
