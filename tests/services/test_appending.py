"""A log that is appended to line by line is one block, whatever dies in between."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.local.node_process import Node
from paxosblock.protocol.types import BlockId
from tests.fork_server import ended
from tests.services.conftest import wait_other_leader
from tests.waiting import wait_until

OLD = b"what was there before\n"
LINE = b"appended\n"
SETTINGS = {
    "namenode": {
        "safe_mode_extension": "0s",
        "heartbeat_interval": "200ms",
        "datanode_stale_after": "60s",
        "datanode_dead_after": "120s",
    }
}
"""A new leader does not wait long in safe mode, in which no member may be left out; and none is
left out for being slow."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(3, 3, tmp_path_factory.mktemp("cluster"), settings=SETTINGS) as cluster:
        yield cluster


def old_file(fs: Client, path: str) -> None:
    with fs.create(path) as out:
        out.write(OLD)


def whole_file(cluster: LocalCluster, fs: Client, path: str) -> BlockId:
    """A file whose one block all members have reported, to a leader out of safe mode."""
    wait_until(lambda: not cluster.status().safe_mode.on, what="the end of safe mode")
    old_file(fs, path)
    (block,) = blocks(fs, path)
    wait_until(lambda: fs.blocks.check(block).sound_count == 3, what="three replicas")
    return block


def read(fs: Client, path: str) -> bytes:
    with fs.open(path) as file:
        return file.read()


def append(fs: Client, path: str, data: bytes) -> None:
    with fs.append(path) as out:
        out.write(data)


def blocks(fs: Client, path: str) -> list[BlockId]:
    return [each.block for each in fs.locations(path)]


def told(cluster: LocalCluster, *words: str) -> str:
    """Return what the command line prints."""
    command = [sys.executable, "-m", "paxosblock", *words, "--namenodes", cluster.url]
    return ended(command).stdout


def appended(fs: Client, path: str, count: int) -> None:
    """Append 1 KiB so many times, each time as a writer of its own; it is one block then."""
    old_file(fs, path)
    before = blocks(fs, path)
    lines = [b"%1023d\n" % number for number in range(count)]
    for line in lines:
        append(fs, path, line)
    assert blocks(fs, path) == before
    assert read(fs, path) == OLD + b"".join(lines)


def test_a_log_that_is_appended_to_is_one_block_and_explain_tells_it_in_a_few_lines(
    cluster: LocalCluster, fs: Client
) -> None:
    appended(fs, "/log", 20)
    lines = told(cluster, "explain", "/log").splitlines()
    assert len(lines) < 25
    assert any("opened again" in line and "times before the next line" in line for line in lines)
    assert "21 chunks" in lines[0]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_thousand_appends_are_one_block(cluster: LocalCluster, fs: Client) -> None:
    appended(fs, "/long-log", 1000)
    assert len(told(cluster, "explain", "/long-log").splitlines()) < 25


STEPS = {
    "before it asked for the block": "next_block.NextBlock.ask",
    "before it reached the members": "block_writer.BlockWriter.open",
    "before it sent a chunk": "block_writer.BlockWriter.send",
    "before it recorded the length": "block_writer.BlockWriter.close_request",
}
KILLED = """
import os, signal, sys
from functools import reduce
import paxosblock.client.writing.block_writer, paxosblock.client.writing.next_block
from paxosblock import Client

*owner, name = sys.argv[1].split(".")
place = reduce(getattr, owner, paxosblock.client.writing)
setattr(place, name, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
with Client(sys.argv[2]) as fs, fs.append(sys.argv[3]) as out:
    out.write(sys.argv[4].encode())
"""


@pytest.mark.parametrize("step", STEPS)
def test_an_appender_that_is_killed_leaves_at_least_what_was_there(
    cluster: LocalCluster, fs: Client, step: str
) -> None:
    path = f"/killed-{STEPS[step]}"
    old_file(fs, path)
    words = [STEPS[step], cluster.url, path, LINE.decode()]
    appender = ended([sys.executable, "-c", KILLED, *words])
    assert appender.returncode == -signal.SIGKILL
    assert fs.stat(path).size >= len(OLD), "never less than before"
    length = fs.take_over(path)
    found = read(fs, path)
    assert found in (OLD, OLD + LINE)
    assert (fs.stat(path).open, length) == (False, len(found))
    append(fs, path, LINE)
    assert read(fs, path) == found + LINE


def test_a_leader_that_dies_between_k4_and_k7_costs_nothing(
    cluster: LocalCluster, fs: Client
) -> None:
    """A DataNode that hangs keeps the APPEND from being installed until the leader is dead."""
    answer = ""
    for number in range(5):  # on a slow machine others may be taken for dead, too
        path = f"/failed-over-{number}"
        block = whole_file(cluster, fs, path)
        answer = append_while_one_hangs(cluster, fs, path, block)
        assert read(fs, path) == OLD + LINE
        append(fs, path, LINE)
        assert read(fs, path) == OLD + 2 * LINE
        if "append starts" in answer:
            return
    pytest.fail(f"no APPEND was begun: {answer}")


def append_while_one_hangs(cluster: LocalCluster, fs: Client, path: str, block: BlockId) -> str:
    """Append, and kill the leader once it begins to open the block again; what it said of that."""
    hung = cluster.datanodes[0]
    hung.pause()
    try:
        with ThreadPoolExecutor(1) as pool:
            appending = pool.submit(append, fs, path, LINE)
            answer = wait_until(lambda: of_append(cluster, block), what="the APPEND to begin")
            if "append starts" in answer:
                cluster.wait_leader().kill()
                assert read_by_anybody(cluster, path).startswith(OLD)
            hung.resume()
            appending.result(60)
    finally:
        hung.resume()
        cluster.start_missing()
        cluster.wait_registered()
    return answer


def of_append(cluster: LocalCluster, block: BlockId) -> str:
    """Return what the NameNodes say first of opening the block again."""
    for node in cluster.namenodes:
        for line in node.log.read_text(encoding="utf-8").splitlines():
            named = f"block={block} " in line
            if named and ("append starts" in line or "left_alone=" in line):
                return line
    return ""


def read_by_anybody(cluster: LocalCluster, path: str) -> bytes:
    with Client(cluster.url) as fs:
        return read(fs, path)


def test_an_append_goes_on_when_a_datanode_dies_before_and_while_it_writes(
    cluster: LocalCluster, fs: Client
) -> None:
    block = whole_file(cluster, fs, "/two-of-three")
    victim = cluster.datanodes[1]
    victim.kill()
    try:
        append(fs, "/two-of-three", LINE)
        assert blocks(fs, "/two-of-three") == [block], "the others go on"
        assert "2 of 3 replicas" in told(cluster, "explain", "/two-of-three")
    finally:
        victim.start()
        cluster.wait_registered()
    with fs.append("/two-of-three") as out:
        out.write(LINE)
        out.hflush()
        killed = member(cluster, fs, "/two-of-three")
        killed.kill()
        try:
            out.write(LINE)
            out.close()
        finally:
            killed.start()
            cluster.wait_registered()
    assert read(fs, "/two-of-three") == OLD + 3 * LINE


def test_a_log_that_lost_a_member_goes_on_in_one_more_block_once_the_node_is_back() -> None:
    """Three nodes. Else the log stays at two replicas while it grows.

    The NameNode is started again, so that it is in safe mode when the node is back: nothing is
    copied until the next line is there.
    """
    # A report that came while the NameNode began to lead comes again after `datanode_stale_after`.
    changed = {"safe_mode_extension": "1h", "datanode_stale_after": "10s"}
    settings = {"namenode": SETTINGS["namenode"] | changed}
    with LocalCluster(datanodes=3, settings=settings) as cluster, Client(cluster.url) as fs:
        block = whole_file(cluster, fs, "/log")
        victim, leader = cluster.datanodes[1], cluster.wait_leader()
        victim.kill()
        append(fs, "/log", LINE)
        assert blocks(fs, "/log") == [block], "there is nothing better"
        leader.kill()
        leader.start()
        victim.start()
        cluster.wait_registered()
        assert cluster.status().safe_mode.on
        assert fs.blocks.check(block).sound_count == 2
        append(fs, "/log", LINE)
        assert len(blocks(fs, "/log")) == 2, "one more block"
        told(cluster, "admin", "safemode", "leave")

        def is_whole_while_it_grows() -> bool:
            append(fs, "/log", LINE)
            return all(fs.blocks.check(each).sound_count == 3 for each in blocks(fs, "/log"))

        wait_until(is_whole_while_it_grows, 60, "three replicas of a log that grows")
        for _ in range(10):
            append(fs, "/log", LINE)
        assert len(blocks(fs, "/log")) == 2, "one more block"
        lines = read(fs, "/log").removeprefix(OLD)
        assert lines == LINE * (len(lines) // len(LINE))


def member(cluster: LocalCluster, fs: Client, path: str) -> Node:
    """A DataNode that holds the last block of the file."""
    hosts = fs.locations(path)[-1].hosts
    return next(node for node in cluster.datanodes if node.address in hosts)


def test_the_next_leader_answers_an_appender_as_the_first_one_did(
    cluster: LocalCluster, fs: Client
) -> None:
    """The block was opened again before the fail-over, and is written on behind it."""
    block = whole_file(cluster, fs, "/kept-open")
    leader = cluster.wait_leader()
    with fs.append("/kept-open") as out:
        out.write(LINE)
        out.hflush()
        leader.kill()
        try:
            out.write(LINE)
            out.hflush()
            wait_other_leader(cluster, leader)
            assert fs.stat("/kept-open").size >= len(OLD)
            out.close()
        finally:
            leader.start()
            cluster.wait_registered()
    assert read(fs, "/kept-open") == OLD + 2 * LINE
    assert blocks(fs, "/kept-open") == [block]
