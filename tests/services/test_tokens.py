"""Clients that come with a token of a user to real nodes that speak TLS: without a certificate they
are that user, and nodes that were told that the token is over believe it no more."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from paxosblock import Client, LocalCluster, TokenRight
from paxosblock.api.datanode import ACCEPT, LIST_REPLICAS, Envelope, ListReplicas
from paxosblock.api.namenode import STAT, PathRequest
from paxosblock.api.reports import HEARTBEAT, Heartbeat
from paxosblock.api.user_tokens import TokenIssued
from paxosblock.cli.main import run
from paxosblock.config import ClientConfig
from paxosblock.errors import AccessDeniedError, PermissionDeniedError
from paxosblock.net.calls import control
from paxosblock.net.port.access import Access
from paxosblock.net.port.bearer import SCHEME
from paxosblock.net.port.upgrade import split_address
from paxosblock.protocol.messages import Delete
from paxosblock.protocol.types import BlockId, Generation, StorageId
from tests.services.content import content
from tests.waiting import wait_until

READ, WRITE, BACKUP, ADMIN = (
    TokenRight.READ,
    TokenRight.WRITE,
    TokenRight.BACKUP,
    TokenRight.ADMIN,
)
DATA = content("tokens", 0, 300_000)


@pytest.fixture(scope="module", params=[False, True], ids=["plain blocks", "block tokens"])
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCluster]:
    tokens = str(request.param).lower()
    settings = {
        "namenode": {"block_tokens": tokens},
        "datanode": {"heartbeat_interval": "200ms", "block_tokens": tokens},
    }
    folder = tmp_path_factory.mktemp("cluster")
    with LocalCluster(3, 1, folder, settings=settings, secure=True) as cluster:
        yield cluster


@pytest.fixture
def me(cluster: LocalCluster) -> Iterator[Client]:
    """The superuser, by a certificate."""
    with Client(cluster.url, replace(cluster.client_config, retry_for_s=20.0)) as client:
        yield client


Bring = Callable[[str], Client]


@pytest.fixture
def bring(cluster: LocalCluster) -> Iterator[Bring]:
    """Come without a certificate and with this token."""
    clients: list[Client] = []

    def come(word: str) -> Client:
        config = replace(
            cluster.client_config, tls_cert="", token=word, retry_for_s=20.0, chunk_size=20_000
        )
        clients.append(Client(cluster.url, config))
        return clients[-1]

    yield come
    for each in clients:
        each.close()


def of_ann(me: Client, rights: TokenRight = READ | WRITE) -> TokenIssued:
    return me.issue_token(600, rights, user="ann", purpose="a test")


def write(fs: Client, path: str) -> None:
    with fs.create(path, overwrite=True) as out:
        out.write(DATA)


def read(fs: Client, path: str) -> bytes:
    with fs.open(path) as file:
        return file.read()


def test_who_brings_a_token_is_its_user_and_writes_and_reads(me: Client, bring: Bring) -> None:
    me.mkdirs("/ann", permission=0o755)
    me.set_owner("/ann", "ann")
    me.mkdirs("/mine", permission=0o700)
    ann = bring(of_ann(me).token)
    write(ann, "/ann/f")
    assert read(ann, "/ann/f") == DATA
    assert ann.stat("/ann/f").owner == "ann"
    with ann.append("/ann/f") as out:
        out.write(b"more")
    assert read(me, "/ann/f") == DATA + b"more"
    with pytest.raises(PermissionDeniedError, match="user=ann, access=EXECUTE"):
        ann.mkdirs("/mine/theirs")


def test_a_token_to_read_reads_and_writes_nothing(me: Client, bring: Bring) -> None:
    write(me, "/f")
    reader = bring(me.issue_token(600, READ).token)
    assert read(reader, "/f") == DATA
    with pytest.raises(AccessDeniedError, match="takes the right write"):
        write(reader, "/g")
    assert not me.exists("/g")
    # A token to write reads no bytes at a DataNode, either.
    writer = bring(me.issue_token(600, WRITE).token)
    writer.mkdirs("/made-by-writer")
    with pytest.raises(AccessDeniedError, match="takes the right read"):
        read(writer, "/f")


def test_without_a_token_and_with_a_bad_one_nothing_is_served(
    cluster: LocalCluster, me: Client, bring: Bring, tmp_path: Path
) -> None:
    good = of_ann(me).token
    last = "A" if good[-30] != "A" else "B"
    for word, why in (
        (good[:-30] + last + good[-29:], "this cluster did not sign the token"),
        (foreign_token(tmp_path), "this cluster did not sign the token"),
    ):
        with pytest.raises(AccessDeniedError, match=why) as error:
            bring(word).stat("/")
        assert "\n" not in str(error.value)
    for node in cluster.nodes:
        assert good not in node.log.read_text()


def foreign_token(tmp_path: Path) -> str:
    with LocalCluster(1, 1, tmp_path / "other") as other, Client(other.url) as client:
        return client.issue_token(600).token


def test_a_stolen_token_is_over_once_it_is_revoked(
    cluster: LocalCluster, me: Client, bring: Bring
) -> None:
    write(me, "/stolen")
    stolen = me.issue_token(600)
    thief = bring(stolen.token)
    with thief.open("/stolen") as file:
        assert file.read(10) == DATA[:10]  # its connections are open
        me.revoke_token(stolen.note.serial)
        with pytest.raises(AccessDeniedError, match="was revoked"):
            thief.stat("/stolen")

        def refused_everywhere() -> bool:
            return all(refuses(cluster, node.address, stolen.token) for node in cluster.datanodes)

        wait_until(refused_everywhere)
        with pytest.raises(AccessDeniedError, match="revoked"):
            file.pread(100_000, 1000)
    with pytest.raises(AccessDeniedError, match="was revoked"):
        bring(stolen.token).stat("/stolen")
    listed = {each.note.serial: each.revoked for each in me.tokens()}
    assert listed[stolen.note.serial]


def access_with(cluster: LocalCluster, word: str) -> Access:
    return Access.of_client(replace(cluster.client_config, tls_cert="", token=word))


def refuses(cluster: LocalCluster, address: str, word: str) -> bool:
    try:
        control.call(address, LIST_REPLICAS, ListReplicas(), 10.0, access_with(cluster, word))
    except AccessDeniedError:
        return True
    return False


def test_a_stolen_token_passes_for_no_node(cluster: LocalCluster, me: Client) -> None:
    """With the certificate of a node the same calls are answered: `test_roles_of_nodes.py`."""
    stolen = me.issue_token(600, READ | WRITE | BACKUP | ADMIN)
    access = access_with(cluster, stolen.token)
    node = cluster.datanodes[0]
    beat = Heartbeat("datanode-0", "run", (), 0)
    with pytest.raises(AccessDeniedError, match="is of a DataNode alone"):
        control.call(cluster.namenode.address, HEARTBEAT, beat, 10.0, access)
    asked = Envelope(StorageId("s"), Delete(BlockId(1), Generation(1)))
    with pytest.raises(AccessDeniedError, match="is of a NameNode alone"):
        control.call(node.address, ACCEPT, asked, 10.0, access)
    control.call(node.address, LIST_REPLICAS, ListReplicas(), 10.0, access)


def test_a_client_goes_on_with_the_token_that_its_file_has_now(
    cluster: LocalCluster, me: Client, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.touch(0o600)
    first, second = of_ann(me), of_ann(me)
    file.write_text(first.token)
    config = replace(cluster.client_config, tls_cert="", token_file=str(file), retry_for_s=20.0)
    with Client(cluster.url, config) as ann:
        ann.stat("/")
        file.write_text(second.token)
        me.revoke_token(first.note.serial)

        def served() -> bool:
            try:
                ann.stat("/")
            except AccessDeniedError:
                return False
            return True

        wait_until(served)


def test_tokens_end_under_load_and_writers_go_on(
    cluster: LocalCluster, me: Client, tmp_path: Path
) -> None:
    """Each is good for four seconds, and another one comes after two: no call fails."""
    me.mkdirs("/load")
    me.set_permission("/load", 0o1777)
    file = tmp_path / "token"
    file.touch(0o600)
    config = replace(cluster.client_config, tls_cert="", token_file=str(file), retry_for_s=20.0)
    stop = threading.Event()

    def renew() -> None:
        draft = tmp_path / "next"
        draft.touch(0o600)
        draft.write_text(me.issue_token(4, user="ann").token)
        draft.replace(file)

    def keep_renewing() -> None:
        while not stop.wait(2.0):
            renew()

    renew()
    renewing = threading.Thread(target=keep_renewing)
    renewing.start()
    rounds = 0
    try:
        with Client(cluster.url, config) as ann, ann.create("/load/long") as out:
            while rounds < 40 or _ended(me) < 3:
                out.write(DATA[:20_000])
                out.hflush()
                ann.stat("/load")
                rounds += 1
    finally:
        stop.set()
        renewing.join()
    assert read(me, "/load/long") == DATA[:20_000] * rounds


_FIRST: list[int] = []


def _ended(me: Client) -> int:
    """Return how many of the tokens that were seen have ended."""
    alive = {each.note.serial for each in me.tokens() if each.note.user == "ann"}
    _FIRST.extend(alive - {*_FIRST})
    return len({*_FIRST} - alive)


# -- over HTTP and by the command ------------------------------------------------------------------


def over_https(cluster: LocalCluster, path: str, word: str, body: bytes | None = None) -> int:
    context = ssl.create_default_context(cafile=cluster.client_config.tls_ca)
    host, port = split_address(cluster.namenode.address)
    connection = http.client.HTTPSConnection(host, port, context=context, timeout=30)
    headers = {"Authorization": SCHEME + word} if word else {}
    headers |= {"Content-Type": "application/msgpack"}
    connection.request("GET" if body is None else "POST", path, body, headers)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


def test_over_http_a_backup_takes_a_superuser_and_the_right(
    cluster: LocalCluster, me: Client
) -> None:
    for word, status in (
        ("", 403),
        (me.issue_token(600).token, 403),
        (of_ann(me, BACKUP).token, 403),
        (me.issue_token(600, BACKUP).token, 200),
    ):
        assert over_https(cluster, "/backup", word) == status
    stat = b"\x81\xa4path\xa1/"
    assert over_https(cluster, f"/rpc/{STAT.name}", me.issue_token(600, BACKUP).token, stat) == 403
    assert over_https(cluster, f"/rpc/{STAT.name}", of_ann(me, READ).token, stat) == 200
    assert PathRequest("/")


def test_the_command_issues_lists_and_revokes_and_comes_with_a_token(
    cluster: LocalCluster,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def command(*words: str, token: Path | None = None) -> tuple[int, str, str]:
        config = cluster.client_config
        monkeypatch.setenv("PAXOSBLOCK_NAMENODES", cluster.namenode.address)
        monkeypatch.setenv("PAXOSBLOCK_TLS_CA", config.tls_ca)
        monkeypatch.delenv("PAXOSBLOCK_TLS_CERT", raising=False)
        monkeypatch.delenv("PAXOSBLOCK_TOKEN_FILE", raising=False)
        if token is None:
            monkeypatch.setenv("PAXOSBLOCK_TLS_CERT", config.tls_cert)
        else:
            monkeypatch.setenv("PAXOSBLOCK_TOKEN_FILE", str(token))
        capfd.readouterr()
        code = run(list(words))
        said = capfd.readouterr()
        return code, said.out, said.err

    code, out, _ = command(
        "admin", "token", "issue", "--for", "10min", "--rights", "read,backup", "--user", "ann",
        "--purpose", "nightly job", "--json",
    )  # fmt: skip
    assert code == 0
    made = json.loads(out)
    file = tmp_path / "token"
    file.write_text(made["token"])
    file.chmod(0o644)
    code, _, err = command("fs", "ls", "/", token=file)
    assert (code, err.count("\n")) == (1, 1)
    assert f"token_file {file}: everybody may read the token: chmod o= it\n" in err
    file.chmod(0o600)
    assert command("fs", "ls", "/", token=file)[0] == 0
    code, _, err = command("fs", "mkdir", "/no", token=file)
    assert (code, err.count("\n")) == (1, 1)
    assert "takes the right write" in err
    code, _, err = command("admin", "backup", str(tmp_path / "backup"), token=file)
    assert (code, err.count("\n")) == (1, 1)
    assert "ann" in err
    serial = f"{made['note']['serial']:016x}"
    code, out, _ = command("admin", "token", "list")
    (line,) = (each for each in out.splitlines() if each.startswith(serial))
    assert " ann " in line
    assert line.endswith("  nightly job")
    assert command("admin", "token", "revoke", serial) == (0, "", "")
    code, _, err = command("fs", "ls", "/", token=file)
    assert (code, err.count("\n")) == (1, 1)
    assert f"the token {serial} of ann was revoked" in err
    code, _, err = command("admin", "token", "revoke", "nonsense")
    assert (code, err.count("\n")) == (1, 1)
    code, _, err = command("admin", "token", "issue", "--for", "8d")
    assert (code, err.count("\n")) == (1, 1)
    assert "for 8d: a token is good for some time, at most seven days" in err
    code, _, err = command("admin", "token", "issue", "--rights", "all")
    assert (code, err.count("\n")) == (2, 1)


def test_settings_of_a_client_show_no_token(me: Client) -> None:
    word = me.issue_token(600).token
    config = ClientConfig(token=word)
    assert word not in repr(config)
