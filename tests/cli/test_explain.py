"""`paxosblock explain`: replicas side by side, and the votes of a recovery."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from msgspec.structs import replace

from paxosblock import Client, LocalCluster
from paxosblock.api.namenode import BlockMember, BlockView
from paxosblock.api.status import BlockExplanation
from paxosblock.cli.explain import BlockStory, _lines, _replica_lines
from paxosblock.errors import FencedError
from paxosblock.net.port.access import OPEN as OPEN_ACCESS
from paxosblock.protocol.types import BlockId, StorageId
from tests.cli.conftest import Paxosblock, Result
from tests.namenode.test_replicas import OPEN


@pytest.fixture
def explain(
    cluster: LocalCluster, paxosblock: Paxosblock, monkeypatch: pytest.MonkeyPatch
) -> Paxosblock:
    def command(*words: str) -> Result:
        monkeypatch.setenv("PAXOSBLOCK_NAMENODES", ",".join(cluster.addresses))
        return paxosblock("explain", *words)

    return command


def test_explain_shows_every_replica_of_every_block(
    explain: Paxosblock, client: Client, folder: str
) -> None:
    with client.create(f"{folder}/a", block_size=1000, chunk_size=500) as out:
        out.write(bytes(1700))
    result = explain(f"{folder}/a")
    assert (result.code, result.err) == (0, "")
    first, second = result.out.split("block ")[1:]
    assert f" of {folder}/a: finalized (complete), 2 chunks, 1000 bytes\n" in first
    assert f" of {folder}/a: finalized (complete), 2 chunks, 700 bytes\n" in second
    rows = first.partition("  votes:")[0].splitlines()[3:]
    assert {row.split()[1] for row in rows} == {"datanode-0", "datanode-1", "datanode-2"}


def test_explain_says_how_many_replicas_are_missing(
    explain: Paxosblock, client: Client, folder: str
) -> None:
    for name, replication in (("enough", 3), ("short", 5)):
        with client.create(f"{folder}/{name}", replication=replication) as out:
            out.write(b"123")
    assert "  only" not in explain(f"{folder}/enough").out
    assert explain(f"{folder}/short").out.splitlines()[2] == "  only 3 of 5 replicas"


def test_explain_shows_a_block_that_is_being_written(
    explain: Paxosblock, client: Client, folder: str
) -> None:
    with client.create(f"{folder}/a") as out:
        out.write(b"12345")
        receipt = out.hflush()
        result = explain(str(receipt.block))
    head, written, columns, *rows = result.out.splitlines()
    assert head.startswith(f"block {receipt.block} of {folder}/a: under_construction")
    assert written == "  written in generation 0, generation 0 is the latest"
    assert columns.split()[:5] == ["storage", "node", "rack", "state", "promised"]
    assert [row.split()[3:8] for row in rows] == [["rbw", "0", "0", "1", "5"]] * 3


def test_explain_tells_the_votes_of_a_recovery(
    explain: Paxosblock, client: Client, folder: str
) -> None:
    out = client.create(f"{folder}/a")
    out.write(b"12345")
    out.hflush()
    assert client.take_over(f"{folder}/a") == 5
    with pytest.raises(FencedError):
        out.close()
    result = explain(f"{folder}/a")
    assert "length decided in generation 2\n" in result.out
    votes = result.out.split("votes:\n")[1]
    for step in ("recovery starts", "last vote", "chose", "recovery vote", "recovered"):
        assert step in votes
    assert votes.splitlines()[1].split()[:2] == ["+0", "ms"]


def test_explain_tells_that_a_block_was_truncated_and_in_which_generation(
    explain: Paxosblock, client: Client, folder: str
) -> None:
    with client.create(f"{folder}/a", chunk_size=2) as out:
        out.write(b"12345")
    client.truncate(f"{folder}/a", 2)
    _, written, *rest = explain(f"{folder}/a").out.splitlines()
    told = "length decided in generation 2, truncated last in generation 2"
    assert written == f"  written in generation 0, {told}"
    (line,) = (each for each in rest if "truncated" in each)
    assert line.split()[2:] == ["generation", "2", "truncated", "length", "1,", "2", "bytes"]


def test_explain_with_json_tells_record_replicas_and_history(
    explain: Paxosblock, client: Client, folder: str
) -> None:
    with client.create(f"{folder}/a") as out:
        out.write(b"12345")
    fact = json.loads(explain("--json", f"{folder}/a").out)
    assert fact["explanation"]["view"]["record"]["size_bytes"] == 5
    assert [line["replica"]["state"]["length"] for line in fact["replicas"]] == [1, 1, 1]


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("/nope", "explain: '/nope': no such file or directory\n"),
        ("/", "explain: '/': is a directory\n"),
        ("987654321", "explain: '987654321': block 987654321: no such block\n"),
        (f"{1 << 64}", f"explain: '{1 << 64}': a number has more than 64 bits\n"),
        ("", "explain: an empty path\n"),
    ],
)
def test_explain_of_nothing_is_one_line(explain: Paxosblock, word: str, line: str) -> None:
    result = explain(word)
    assert (result.code, result.out, result.err) == (1, "", line)


def test_explain_of_an_empty_file_says_so(explain: Paxosblock, client: Client, folder: str) -> None:
    with client.create(f"{folder}/a"):
        pass
    result = explain(f"{folder}/a")
    assert result.code == 1
    assert result.err == f"explain: '{folder}/a': has no blocks: nothing was written to it yet\n"


def test_a_replica_that_is_being_copied_is_shown_as_temporary() -> None:
    storage = StorageId("s9")
    view = BlockView(replace(OPEN, members=()), ())
    explanation = BlockExplanation(
        view, "complete", "/a", (), BlockMember(storage, "dn-9", "h:1", True, "/r1")
    )
    (line,) = [row for row in _lines(BlockStory(explanation, None, ())) if "s9" in row]
    assert line.split() == ["s9", "dn-9", "/r1", "temporary"]


@pytest.fixture
def wounded() -> Iterator[LocalCluster]:
    """A cluster of its own: one of its DataNodes is killed."""
    with LocalCluster(datanodes=2) as cluster:
        yield cluster


def test_explain_names_a_datanode_that_does_not_answer(
    wounded: LocalCluster, paxosblock: Paxosblock
) -> None:
    with Client(wounded.url) as client, client.create("/a", replication=2) as out:
        out.write(b"12345")
    wounded.datanodes[1].kill()
    result = paxosblock("explain", "--namenodes", wounded.namenode.address, "/a")
    assert result.code == 0
    assert f"cannot connect to {wounded.datanodes[1].address}: connection refused" in result.out


def test_explain_asks_all_members_together() -> None:
    """Each of these leaves its caller only once every one of them was called."""
    called = threading.Barrier(3)

    def leave(listening: socket.socket) -> None:
        with listening.accept()[0]:
            called.wait(60)

    with ExitStack() as stack:
        members = []
        for number in range(3):
            listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            at = f"127.0.0.1:{listening.getsockname()[1]}"
            members.append(BlockMember(StorageId(f"s{number}"), f"n{number}", at, live=True))
            threading.Thread(target=leave, args=(listening,), daemon=True).start()
        lines = _replica_lines(OPEN_ACCESS, BlockId(7), tuple(members))
    assert [line.member for line in lines] == members
    assert not any("did not answer" in line.problem for line in lines)
