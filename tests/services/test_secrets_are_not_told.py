"""All that nodes, commands and clients say of a secure cluster, searched for what is secret."""

from __future__ import annotations

import base64
import contextlib
import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from urllib.request import HTTPSHandler, build_opener

import msgspec
import pytest

from paxosblock import Client, LocalCluster
from paxosblock.api.datanode import FIND_REPLICA, FindReplica
from paxosblock.api.reports import HEARTBEAT, Heartbeat, HeartbeatAnswer, StorageReport
from paxosblock.cli.main import run
from paxosblock.config import ClientConfig, DataNodeConfig
from paxosblock.errors import PaxosBlockError
from paxosblock.local.cluster_folder import NodeEntry, Settings
from paxosblock.net.calls import control
from paxosblock.net.port.access import Access, make_secret
from paxosblock.protocol.types import FIRST_GENERATION, ChunkIndex

pytestmark = pytest.mark.plain("a secure cluster of its own")

Told = Iterator[tuple[str, bytes]]
"""Names of texts, and the texts."""
SHORTEST = 12
"""Characters of the shortest piece that is searched for: half of a MAC in hex is longer."""


class Talkative(LocalCluster):
    """Its nodes log all that they can."""

    def command(self, member: NodeEntry) -> list[str]:
        return [*super().command(member), "--log-level", "debug"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("secrets")
    for name in ("users", "nodes"):
        make_secret(folder / name)
    files: dict[str, str | int] = {
        "access_file": str(folder / "users"),
        "node_file": str(folder / "nodes"),
    }
    audit: dict[str, str | int] = {
        "audit_file": str(folder / "audit.log"),
        "block_key_interval": "2s",
    }
    settings: Settings = {
        "namenode": {**files, **audit},
        "datanode": {**files, "heartbeat_interval": "200ms"},
    }
    with Talkative(3, 3, folder / "cluster", settings=settings, secure=True) as cluster:
        yield cluster


def config_of(cluster: LocalCluster) -> ClientConfig:
    users = str(cluster.path.parent / "users")
    return replace(cluster.client_config, access_file=users, chunk_size=20_000, retry_for_s=20.0)


def node_of(cluster: LocalCluster, name: str) -> Access:
    """The access of a DataNode as a caller."""
    files = cluster.path / "tls"
    config = DataNodeConfig(
        access_file=str(cluster.path.parent / "users"),
        node_file=str(cluster.path.parent / "nodes"),
        tls_cert=str(files / f"{name}.pem"),
        tls_ca=str(files / "ca.pem"),
    )
    return Access.of_node(config, serves=False)


# -- what is secret --------------------------------------------------------------------------------


def shapes(secret: bytes) -> set[bytes]:
    """All ways in which a secret may be printed."""
    shown = {secret, secret.hex().encode(), repr(secret)[2:-1].encode()}
    for begin in range(3):  # base64 of it within more bytes
        shown.add(base64.b64encode(b"\0" * begin + secret)[4 if begin else 0 :].rstrip(b"=")[:-1])
    shown |= {each.replace(b"+", b"-").replace(b"/", b"_") for each in shown}
    return shown


def secrets_of_files(cluster: LocalCluster) -> Iterator[bytes]:
    for file in (cluster.path.parent / "users", cluster.path.parent / "nodes"):
        line = file.read_bytes().strip()
        yield from (line, base64.b64decode(line))
    yield (cluster.path / "secret").read_bytes().strip()
    for pem in (*(cluster.path / "tls").glob("*.pem"), cluster.path / "tls" / "ca.key"):
        _, mark, key = pem.read_bytes().partition(b"-----BEGIN PRIVATE KEY-----\n")
        if mark:
            lines = key.partition(b"-----END")[0].split()
            # The first line of each begins alike: it names the curve.
            yield from lines[1:]
            yield base64.b64decode(b"".join(lines))[40:]


def capabilities(fs: Client) -> Iterator[bytes]:
    """All that is signed for this client at one moment, and the MACs alone."""
    view = fs.blocks.add()
    for member in (*view.members, *fs.blocks.get(view.record.block).members):
        yield bytes(member.capability)[-16:]
        yield bytes(member.capability)


def beat_of(cluster: LocalCluster, name: str) -> HeartbeatAnswer:
    """Return the answer to a DataNode, with the keys by which it knows capabilities."""
    leader = cluster.wait_leader()
    registered = re.findall(rf"datanode={name} .*incarnation=(\w+)", leader.log.read_text())
    known = next(node for node in cluster.status().datanodes if node.node == name)
    storages = tuple(StorageReport(each.storage, 1 << 40, 1 << 40, 0) for each in known.storages)
    beat = Heartbeat(name, registered[-1], storages, 0)
    return control.call(leader.address, HEARTBEAT, beat, 10.0, node_of(cluster, name))


def found_in(texts: Iterable[tuple[str, bytes]], secrets: Iterable[bytes]) -> list[str]:
    """Return the names of the texts in which a secret is."""
    wanted = {each for secret in secrets for each in shapes(secret) if len(each) >= SHORTEST}
    return sorted({name for name, text in texts for each in wanted if each in text})


def test_a_secret_is_found_in_each_shape() -> None:
    """The search itself."""
    secret = bytes(range(100, 132))
    for shown in (
        repr(secret),
        secret.hex(),
        base64.b64encode(b"ab" + secret + b"c").decode(),
        base64.urlsafe_b64encode(secret).decode(),
        repr({"capability": b"\0" + secret}),
    ):
        assert found_in([("log", f"it says {shown} here".encode())], [secret]) == ["log"]
    assert found_in([("log", b"it says nothing")], [secret]) == []


# -- what is told ----------------------------------------------------------------------------------


def work(cluster: LocalCluster) -> None:
    """Let all happen that makes nodes talk: writes, a killed DataNode and leader, refusals."""
    with Client(cluster.url, config_of(cluster)) as fs:
        fs.mkdirs("/d")
        with fs.create("/d/a") as out:
            out.write(b"x" * 50_000)
            out.hflush()
            cluster.datanodes[0].kill()
            out.write(b"y" * 50_000)
        cluster.datanodes[0].start()
        leader = cluster.wait_leader()
        leader.kill()
        with fs.append("/d/a") as out:
            out.write(b"z" * 50_000)
        leader.start()
        cluster.wait_registered()
        fs.rename("/d/a", "/d/b")
        with fs.open("/d/b") as file:
            assert len(file.read()) == 150_000
        with contextlib.suppress(PaxosBlockError):
            fs.open("/none")


def refusals(cluster: LocalCluster, fs: Client) -> Iterator[bytes]:
    """All that callers are told whose capability, certificate or secret is another's."""
    view = fs.blocks.add()
    block, (first, second, *_) = view.record.block, view.members
    stolen = msgspec.structs.replace(first, capability=second.capability)
    damaged = bytearray(first.capability)
    damaged[-1] ^= 1
    forged = msgspec.structs.replace(first, capability=bytes(damaged))
    with Client(cluster.url, config_of(cluster)) as other:
        for member in (stolen, forged):
            with pytest.raises(PaxosBlockError) as error:
                other.blocks.datanode(member).write(block, FIRST_GENERATION, ChunkIndex(0), b"a")
            yield _told(error.value)
    asked = FindReplica(block, first.storage)
    for access in (Access(), Access(tls=node_of(cluster, "datanode-1").tls)):
        with pytest.raises(PaxosBlockError) as error:
            control.call(first.address, FIND_REPLICA, asked, 10.0, access)
        yield _told(error.value)


def _told(error: BaseException) -> bytes:
    return f"{error!r} {error} {getattr(error, 'details', '')}".encode()


def printed(cluster: LocalCluster, capfd: pytest.CaptureFixture[str]) -> Told:
    """All that commands print."""
    for words in (
        ["admin", "report"],
        ["admin", "namenodes"],
        ["fs", "ls", "-R", "/"],
        ["fs", "stat", "/d/b"],
        ["fs", "cat", "/none"],
        ["explain", "/d/b"],
        ["fsck", "/"],
        ["cluster", "status", "--path", str(cluster.path)],
        ["cluster", "env", "--path", str(cluster.path)],
    ):
        for asked in (words, [*words, "--json"]):
            run(asked)
            out, err = capfd.readouterr()
            assert out or err
            yield " ".join(asked), f"{out}{err}".encode()


def shown(cluster: LocalCluster, config: ClientConfig) -> Told:
    """All that nodes log, and show over HTTP."""
    tls = Access.of_client(config).tls
    assert tls is not None
    http = build_opener(HTTPSHandler(context=tls.client))
    for node in cluster.nodes:
        for path in ("metrics", "healthz"):
            with http.open(f"https://{node.address}/{path}", timeout=30) as answer:
                yield f"{path} of {node.name}", answer.read()
        yield f"log of {node.name}", node.log.read_bytes()
    yield "audit", (cluster.path.parent / "audit.log").read_bytes()
    for name in ("cluster.json", "config.toml"):
        yield name, (cluster.path / name).read_bytes()


def test_nothing_that_is_said_has_a_secret_in_it(
    cluster: LocalCluster,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.DEBUG)
    config = config_of(cluster)
    for name, value in {
        "NAMENODES": ",".join(cluster.addresses),
        "TLS_CERT": config.tls_cert,
        "TLS_CA": config.tls_ca,
        "ACCESS_FILE": config.access_file,
    }.items():
        monkeypatch.setenv(f"PAXOSBLOCK_{name}", value)
    secrets = list(secrets_of_files(cluster))
    told: list[tuple[str, bytes]] = []

    with Client(cluster.url, config) as fs:
        secrets += capabilities(fs)
        work(cluster)
        told += [(f"refusal {n}", said) for n, said in enumerate(refusals(cluster, fs))]
        secrets += capabilities(fs)
        view = fs.blocks.add()
        secrets += [bytes(member.capability) for member in view.members]
        told += [("what a program prints", repr([fs, config, view]).encode())]
    beaten = beat_of(cluster, "datanode-1")
    assert beaten.keys
    secrets += [key.key for key in beaten.keys]
    told += [("the keys of a DataNode", repr(beaten).encode())]

    assert run(["admin", "token", "issue", "--for", "1min"]) == 0
    token = capfd.readouterr().out.strip().encode()
    secrets += [token, token.partition(b".")[2]]
    told += [*printed(cluster, capfd), *shown(cluster, config)]
    told += [("log of the client", caplog.text.encode())]
    assert any(b"debug" in text for name, text in told if name.startswith("log of namenode"))
    assert any(b"cmd=rename" in text for name, text in told if name == "audit")
    assert found_in(told, secrets) == []
