"""A gateway at a cluster that wants a proof of its users: it lends its own to no caller."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from paxosblock import Client, LocalCluster, TokenRight
from paxosblock.api.user_tokens import unsealed
from paxosblock.host.user import current_user
from tests.gateway.gateways import RunningGateway, content, gateway_of


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A cluster whose nodes speak TLS and whose users have certificates."""
    with LocalCluster(path=tmp_path_factory.mktemp("cluster"), secure=True) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def fs(cluster: LocalCluster) -> Iterator[Client]:
    """The superuser's client."""
    with Client(cluster.url, cluster.client_config) as fs:
        yield fs


@pytest.fixture(scope="module")
def gateway(
    cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    """A gateway with the superuser's certificate."""
    config = cluster.client_config
    proof = {
        "PAXOSBLOCK_CLIENT_TLS_CERT": config.tls_cert,
        "PAXOSBLOCK_CLIENT_TLS_CA": config.tls_ca,
    }
    with gateway_of(cluster, tmp_path_factory.mktemp("gateway"), **proof) as gateway:
        yield gateway
        log = gateway.log
    assert "pb1." not in log, log


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_a_name_is_not_believed(gateway: RunningGateway, fs: Client, home: str) -> None:
    for method, op in (("GET", "LISTSTATUS"), ("PUT", "MKDIRS"), ("DELETE", "DELETE")):
        reply = gateway.ask(method, home, op, user=current_user(), recursive="true")
        assert (reply.status, reply.exception) == (401, "AuthenticationException")
        assert reply.headers["WWW-Authenticate"] == "Bearer"
    assert gateway.write(f"{home}/f", b"x", user=current_user()).status == 401
    assert fs.ls(home) == []
    assert "\npaxosblock_gateway_access_open 0.0\n" in gateway.send("GET", "/metrics").body.decode()


@pytest.mark.parametrize(
    "word", ["x", "pb1.", "pb1.AAAA", "Basic eDp4", "Bearer", "ü", "pb1." + "x" * 9000]
)
def test_what_is_no_token_opens_nothing(gateway: RunningGateway, home: str, word: str) -> None:
    sent = word.encode().decode("latin-1")
    reply = gateway.ask("GET", home, "LISTSTATUS", headers={"Authorization": f"Bearer {sent}"})
    assert reply.status in (400, 401, 403), reply
    reply = gateway.ask("GET", home, "LISTSTATUS", delegation=word)
    assert (reply.status, reply.exception) == (403, "AccessControlException")


def test_a_token_is_its_user_and_no_more(gateway: RunningGateway, fs: Client, home: str) -> None:
    fs.set_permission(home, 0o777)
    joe = fs.issue_token(600, user="joe").token
    made = gateway.ask("PUT", f"{home}/d", "MKDIRS", headers=bearer(joe), user=current_user())
    assert made.status == 200, made
    assert fs.stat(f"{home}/d").owner == "joe"
    fs.set_permission(home, 0o700)
    denied = gateway.ask("GET", home, "LISTSTATUS", headers=bearer(joe))
    assert (denied.status, denied.exception) == (403, "AccessControlException")
    told = gateway.ask("GET", "/", "GETHOMEDIRECTORY", headers=bearer(joe))
    assert told.json == {"Path": "/user/joe"}
    other = gateway.ask("GET", "/", "LISTSTATUS", headers=bearer(joe), doas=current_user())
    assert other.exception == "AuthorizationException"


def test_a_token_goes_with_the_redirect(gateway: RunningGateway, fs: Client, home: str) -> None:
    token = fs.issue_token(600).token
    data = bytes(range(256)) * 10_000
    assert gateway.write(f"{home}/f", data, delegation=token).status == 201
    assert content(fs, f"{home}/f") == data
    assert gateway.read(f"{home}/f", delegation=token) == data


def test_a_token_may_no_more_than_it_says(gateway: RunningGateway, fs: Client, home: str) -> None:
    reads = bearer(fs.issue_token(600, TokenRight.READ).token)
    assert gateway.ask("GET", home, "LISTSTATUS", headers=reads).status == 200
    refused = gateway.ask("PUT", f"{home}/d", "MKDIRS", headers=reads)
    assert (refused.status, refused.exception) == (403, "AccessControlException")
    issued = fs.issue_token(600)
    fs.revoke_token(issued.note.serial)
    gone = gateway.ask("GET", home, "LISTSTATUS", headers=bearer(issued.token))
    assert (gone.status, gone.exception) == (403, "AccessControlException")
    assert fs.ls(home) == []


def test_a_stolen_part_of_a_token_opens_nothing(
    gateway: RunningGateway, fs: Client, home: str
) -> None:
    """Not even where it can be read, as the signature for NameNodes does not fit."""
    token, place = fs.issue_token(600).token, -30
    other = "A" if token[place] != "A" else "B"
    changed = token[:place] + other + token[place + 1 :]
    reply = gateway.ask("GET", home, "LISTSTATUS", headers=bearer(changed))
    assert (reply.status, reply.exception) == (403, "AccessControlException")


def test_a_delegation_token_is_got_renewed_and_cancelled(
    gateway: RunningGateway, fs: Client, home: str
) -> None:
    first = bearer(fs.issue_token(600, user="joe").token)
    fs.set_permission(home, 0o777)
    token = gateway.ask("GET", "/", "GETDELEGATIONTOKEN", headers=first).json["Token"]["urlString"]
    assert gateway.write(f"{home}/f", b"x", delegation=token).status == 201
    assert fs.stat(f"{home}/f").owner == "joe"
    until_s = unsealed(token)[0].until_s
    renewed = gateway.ask("PUT", "/", "RENEWDELEGATIONTOKEN", headers=first, token=token)
    assert renewed.json == {"long": until_s * 1000}
    ann = bearer(fs.issue_token(600, user="ann").token)
    for op in ("RENEWDELEGATIONTOKEN", "CANCELDELEGATIONTOKEN"):  # of another user
        assert gateway.ask("PUT", "/", op, headers=ann, token=token).status == 403
        assert gateway.ask("PUT", "/", op, headers=ann, token="x").exception == "InvalidToken"
    gone = gateway.ask("PUT", "/", "CANCELDELEGATIONTOKEN", delegation=token, token=token)
    assert (gone.status, gone.body) == (200, b"")
    assert gateway.ask("GET", "/", "LISTSTATUS", delegation=token).status == 403
    again = gateway.ask("PUT", "/", "RENEWDELEGATIONTOKEN", headers=first, token=token)
    assert again.exception == "InvalidToken"


def test_a_gateway_that_others_reach_wants_a_certificate(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    started = gateway_of(cluster, tmp_path, "--listen", "0.0.0.0:0")
    with pytest.raises(AssertionError, match="https_cert in "), started:
        pass
