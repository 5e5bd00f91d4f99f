"""Users who come with a token of an OpenID issuer to real nodes, without a certificate: they write
and read, as the user whom the issuer names."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.api.datanode import LIST_REPLICAS, ListReplicas
from paxosblock.api.user_tokens import PREFIX
from paxosblock.cli.main import run
from paxosblock.client.session.namenodes import EXCHANGED
from paxosblock.errors import AccessDeniedError, PermissionDeniedError
from paxosblock.local.cluster_folder import Settings
from paxosblock.net.calls import control
from paxosblock.net.port.access import Access
from tests.openid_issuer import AUDIENCE, OpenIdIssuer, issuer_beside
from tests.services.content import content
from tests.waiting import wait_until

DATA = content("issuers", 0, 300_000)


@pytest.fixture(scope="module")
def issuer() -> Iterator[OpenIdIssuer]:
    with issuer_beside() as issuer:
        issuer.add_key("one")
        issuer.add_key("curve", "ES256")
        yield issuer


@pytest.fixture(scope="module")
def cluster(
    issuer: OpenIdIssuer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCluster]:
    settings: Settings = {
        "namenode": {
            "oidc_issuer": issuer.url,
            "oidc_audience": AUDIENCE,
            "oidc_groups_claim": "groups",
        },
    }
    folder = tmp_path_factory.mktemp("cluster")
    with LocalCluster(3, 3, folder, settings=settings, secure=True) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def me(cluster: LocalCluster) -> Iterator[Client]:
    """The superuser, by a certificate."""
    with Client(cluster.url, replace(cluster.client_config, retry_for_s=20.0)) as client:
        client.mkdirs("/open")
        client.set_permission("/open", 0o1777)
        yield client


Come = Callable[..., Client]


@pytest.fixture
def come(cluster: LocalCluster) -> Iterator[Come]:
    """Come without a certificate and with this token, or a file with one."""
    clients: list[Client] = []

    def make(word: str = "", file: str = "") -> Client:
        config = replace(
            cluster.client_config,
            tls_cert="",
            token=word,
            token_file=file,
            retry_for_s=20.0,
            chunk_size=20_000,
        )
        clients.append(Client(cluster.url, config))
        return clients[-1]

    yield make
    for each in clients:
        each.close()


@pytest.mark.parametrize(("key", "algorithm"), [("one", "RS256"), ("curve", "ES256")])
def test_who_brings_one_is_its_user_and_writes_and_reads(
    issuer: OpenIdIssuer, me: Client, come: Come, key: str, algorithm: str
) -> None:
    ann = come(issuer.token(key, algorithm, groups=["dev"]))
    path = f"/open/of-ann-{key}"
    with ann.create(path) as out:
        out.write(DATA)
    with ann.open(path) as file:
        assert file.read() == DATA
    assert me.stat(path).owner == "ann"
    me.mkdirs(f"/dev-{key}")
    me.set_permission(f"/dev-{key}", 0o770)
    me.set_owner(f"/dev-{key}", group="dev")
    ann.mkdirs(f"/dev-{key}/ours")
    with pytest.raises(PermissionDeniedError, match="user=ann, access=EXECUTE"):
        come(issuer.token(key, algorithm)).stat(f"/dev-{key}/ours")
    # For DataNodes it was exchanged, for one of ours that all clients of the user have.
    listed = [each.note for each in me.tokens() if each.note.purpose == EXCHANGED]
    assert [(each.user, each.groups) for each in listed if each.groups] == [("ann", ("dev",))]


def test_a_client_goes_on_when_the_agent_writes_the_next_one(
    issuer: OpenIdIssuer, me: Client, come: Come, tmp_path: Path
) -> None:
    """Also by a key that is new: nodes read it when it first comes."""
    file = tmp_path / "token"
    file.touch(0o600)
    file.write_text(issuer.token(sub="bob"))
    client = come(file=str(file))
    with client.create("/open/of-bob") as out:
        out.write(DATA)
    issuer.add_key("next", "ES256")
    file.write_text(issuer.token("next", "ES256", sub="carl"))

    tries = itertools.count()

    def served() -> bool:
        path = f"/open/try-{next(tries)}"
        try:
            client.mkdirs(path)
        except AccessDeniedError:  # the keys were read a moment ago
            return False
        return me.stat(path).owner == "carl"

    wait_until(served)
    with client.open("/open/of-bob") as read:
        assert read.read() == DATA


def test_datanodes_take_none_and_what_was_exchanged_can_be_revoked(
    issuer: OpenIdIssuer, cluster: LocalCluster, me: Client, come: Come
) -> None:
    word = issuer.token(sub="dora")
    access = Access.of_client(replace(cluster.client_config, tls_cert="", token=word))
    with pytest.raises(AccessDeniedError, match="takes no token of an issuer"):
        control.call(cluster.datanodes[0].address, LIST_REPLICAS, ListReplicas(), 10.0, access)
    dora = come(word)
    dora.stat("/")
    assert word not in repr(dora.config)
    (note,) = (each.note for each in me.tokens() if each.note.user == "dora")
    assert note.until_s <= time.time() + 3600 + 60
    me.revoke_token(note.serial)
    # The user is let in with what the issuer says until that ends; another one is asked for.
    other = come(word)
    with other.create("/open/of-dora") as out:
        out.write(DATA)
    for node in cluster.nodes:
        assert word not in node.log.read_text()


@pytest.mark.parametrize(
    ("claims", "told"),
    [
        ({"exp": 1}, "ago: get another one from http"),
        ({"iss": "https://elsewhere"}, "of another issuer"),
        ({"aud": "another"}, "for another program"),
        ({"sub": ""}, "names no user in 'sub'"),
    ],
)
def test_one_that_is_not_good_is_refused_in_one_line(
    issuer: OpenIdIssuer, come: Come, claims: dict[str, Any], told: str
) -> None:
    with pytest.raises(AccessDeniedError, match=told) as error:
        come(issuer.token(**claims)).stat("/")
    assert "\n" not in str(error.value)


def test_commands_come_with_one_and_get_one_of_the_cluster_for_it(
    issuer: OpenIdIssuer,
    cluster: LocalCluster,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "token"
    file.touch(0o600)
    file.write_text(issuer.token(sub="eve"))
    for name in ("PAXOSBLOCK_TLS_CERT", "PAXOSBLOCK_CLIENT_TLS_CERT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PAXOSBLOCK_NAMENODES", ",".join(cluster.addresses))
    monkeypatch.setenv("PAXOSBLOCK_TLS_CA", cluster.client_config.tls_ca)
    monkeypatch.setenv("PAXOSBLOCK_TOKEN_FILE", str(file))
    (tmp_path / "data").write_bytes(DATA)
    assert run(["fs", "put", str(tmp_path / "data"), "/open/of-eve"]) == 0
    assert run(["fs", "ls", "/open"]) == 0
    assert " eve " in capfd.readouterr().out
    assert run(["admin", "token", "issue", "--for", "7d", "--rights", "read", "--json"]) == 0
    made = json.loads(capfd.readouterr().out)
    assert made["token"].startswith(PREFIX)
    assert made["note"]["user"] == "eve"
    assert made["note"]["until_s"] <= time.time() + 3600 + 60, "no longer than that of the issuer"
    assert run(["admin", "safemode", "enter"]) == 1, "she is no superuser"
