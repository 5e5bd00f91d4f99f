"""Recoveries that gave up, and the APPEND of the leader before, end though no client asks: real
processes, paused and killed."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.api.file_pages import GET_FILE, GetFile
from paxosblock.api.namenode import APPEND, AppendFile, BlockRequest, BlockView
from paxosblock.api.status import EXPLAIN
from paxosblock.config import ClientConfig
from paxosblock.errors import UnavailableError
from paxosblock.local.cluster_folder import Settings
from paxosblock.net.calls import control
from paxosblock.protocol.types import BlockState, WriterId
from tests.children import killed_at_the_end
from tests.files import read, write
from tests.fork_server import Program
from tests.services.conftest import wait_other_leader
from tests.waiting import wait_until

QUICK: Settings = {
    "namenode": {
        "heartbeat_interval": "200ms",
        "datanode_stale_after": "1s",
        "datanode_dead_after": "3s",
        "replicate_after": "1s",
        "safe_mode_extension": "500ms",
        "recovery_timeout": "2s",
    },
    "datanode": {"heartbeat_interval": "200ms"},
}
PATH = "/log"
DATA = b"a line of a log that is being written\n" * 1000
WRITER = f"""
import sys, threading
from paxosblock import Client

out = Client(sys.argv[1]).create({PATH!r})
out.write({DATA!r})
out.hflush()
print("flushed", flush=True)
threading.Event().wait()
"""


@contextlib.contextmanager
def flushed(cluster: LocalCluster) -> Iterator[subprocess.Popen[str]]:
    """A writer in a process of its own, which flushed DATA and is idle."""
    command = [sys.executable, "-c", WRITER, cluster.url]
    with killed_at_the_end(
        Program(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "flushed\n"
        yield process


def last_block(cluster: LocalCluster) -> BlockView:
    """The only block of the file, as the NameNode that leads shows it."""
    namenodes = control.BlockingNameNodes(cluster.addresses, 20.0)
    (block,) = namenodes.call(GET_FILE, GetFile(PATH)).blocks
    return block


def test_what_a_dead_writer_flushed_is_read_once_its_datanodes_answer_again() -> None:
    """Three DataNodes hang until the recovery gave up; the lease lives for minutes after that."""
    hasty = ClientConfig(retry_for_s=1.0)
    with LocalCluster(datanodes=3, settings=QUICK) as cluster:
        with flushed(cluster):
            for node in cluster.datanodes:
                node.pause()
            wait_until(lambda: "the last try failed" in last_block(cluster).trouble)
        reason = r"is under recovery, for \d+ s or longer; the last try failed: .* 2 needed"
        with Client(cluster.url, hasty) as fs, pytest.raises(UnavailableError, match=reason):
            read(fs, PATH)
        for node in cluster.datanodes:
            node.resume()
        with Client(cluster.url) as fs:
            assert read(fs, PATH) == DATA
        assert last_block(cluster).record.state is BlockState.FINALIZED


def test_the_leader_ends_a_recovery_that_gave_up_though_nobody_reads() -> None:
    with LocalCluster(datanodes=3, settings=QUICK) as cluster:
        with flushed(cluster):
            for node in cluster.datanodes:
                node.pause()
            wait_until(lambda: "the last try failed" in last_block(cluster).trouble)
            block = last_block(cluster).record.block
        # As long as that takes, the try that the writer asked for last is over, too.
        patient = ClientConfig(retry_for_s=4.0)
        with Client(cluster.url, patient) as fs, pytest.raises(UnavailableError):
            read(fs, PATH)
        for node in cluster.datanodes:
            node.resume()

        def is_ended() -> bool:
            explained = control.call(cluster.namenode.address, EXPLAIN, BlockRequest(block))
            return "recovered" in [line.event for line in explained.history]

        wait_until(is_ended, what="the end of the recovery")


def test_a_member_of_a_block_that_the_leader_before_was_opening_is_replaced() -> None:
    """The appender is idle, and its lease lives for minutes."""
    with (
        LocalCluster(datanodes=4, namenodes=3, settings=QUICK) as cluster,
        Client(cluster.url) as fs,
    ):
        write(fs, PATH, DATA)
        wait_until(lambda: len(fs.locations(PATH)[0].hosts) == 3, what="three replicas")
        leader, record = cluster.wait_leader(), last_block(cluster).record
        request = AppendFile(PATH, WriterId("idle"), record.window, record.length + 1)
        control.call(leader.address, APPEND, request)
        leader.kill()
        wait_other_leader(cluster, leader)
        (lost, *_), before = fs.locations(PATH)[0].hosts, last_block(cluster).record
        assert before.generation > record.generation, "the APPEND was begun"
        next(node for node in cluster.datanodes if node.address == lost).kill()
        wait_until(
            lambda: len(set(last_block(cluster).record.members) - set(record.members)) == 1,
            what="another member in the place of the one that was lost",
        )
        assert read(fs, PATH) == DATA
