"""`recover-lease` on real processes whose machines lost power: told, refused, forced, read."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.api.datanode import ACCEPT, LIST_REPLICAS, Envelope, ListReplicas
from paxosblock.base.units import KIB
from paxosblock.config import ClientConfig
from paxosblock.local.cluster_folder import NodeEntry, NodeKind
from paxosblock.net.calls import control
from paxosblock.protocol.messages import Finalize, LastVote, Nack, NextGS, Short
from paxosblock.protocol.types import (
    FIRST_GENERATION,
    LEAP_MAX,
    BlockId,
    Durability,
    Generation,
    ReplicaState,
    StorageId,
)
from tests.children import without_waiting
from tests.fork_server import ended
from tests.services.content import content

QUICK = ClientConfig(chunk_size=16 * KIB, rpc_timeout_s=2.0, retry_for_s=20.0)
LENGTH = 5 * 16 * KIB


WRITE = """
import os, sys
from paxosblock import Client
from tests.services.content import content
from tests.services.test_recover_lease import LENGTH, QUICK

url, path = sys.argv[1:]
out = Client(url, QUICK).create(path, durability="memory")
out.write(content(path, 0, LENGTH))
assert out.hflush().size == LENGTH
os._exit(0)
"""
"""A writer that dies after its last acknowledgement."""


class Machines(LocalCluster):
    """A cluster whose DataNodes run on machines that may lose power."""

    @property
    def boot(self) -> Path:
        return self.path / "boot_id"

    def command(self, member: NodeEntry) -> list[str]:
        command = super().command(member)
        if member.role is not NodeKind.DATANODE:
            return command
        if not self.boot.exists():
            self.boot.write_text("first boot")
        return [sys.executable, "-m", "tests.services.rebooted_node", str(self.boot), *command[3:]]

    def cut_power(self) -> None:
        """All machines of DataNodes lose power, and come up again; no node is started."""
        for node in self.datanodes:
            node.kill()
        self.boot.write_text("second boot")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Machines]:
    with Machines(datanodes=3, path=tmp_path) as cluster:
        yield cluster


def recover_lease(
    cluster: LocalCluster, *words: str, group: str = "admin", **options: Any
) -> subprocess.CompletedProcess[str]:
    named = ("--namenodes", ",".join(cluster.addresses))
    command = [sys.executable, "-m", "paxosblock", group, "recover-lease", *named, *words]
    return ended(command, **{"stdin": subprocess.DEVNULL, **options})


def half_written(cluster: LocalCluster, path: str) -> bytes:
    """A file in the memory of three machines, whose writer is gone."""
    assert ended([sys.executable, "-c", WRITE, cluster.url, path]).returncode == 0
    return content(path, 0, LENGTH)


def test_a_block_that_only_weak_members_could_end_is_told_and_ended_by_force(
    cluster: Machines,
) -> None:
    data = half_written(cluster, "/a")
    cluster.cut_power()
    gone, *left = cluster.datanodes
    for node in left:
        node.start()
    refused = recover_lease(cluster, "/a")
    assert refused.returncode == 1
    assert refused.stdout.count("weak: may have lost votes in a power cut") == 2
    assert refused.stdout.count("unreachable") == 1
    assert f"--force: it ends with 5 chunks, {LENGTH} bytes" in refused.stdout
    assert "may be lost: what was acknowledged behind these" in refused.stdout
    wanted = f"Bring back {gone.name} at {gone.address}, or end it without them: --force\n"
    assert without_waiting(refused.stderr) == f"recover-lease: '/a': is not closed. {wanted}"
    assert all(f" of {node.name} at {node.address}: " in refused.stdout for node in [gone, *left])

    facts = recover_lease(cluster, "/a", "--json")
    (block,) = [json.loads(line) for line in facts.stdout.splitlines()]
    answers = sorted(member["answer"] for member in block["members"])
    assert (facts.returncode, answers) == (1, ["unreachable", "weak", "weak"])

    forced = recover_lease(cluster, "/a", "--force", "--yes")
    assert (forced.returncode, without_waiting(forced.stderr)) == (0, "")
    assert forced.stdout.splitlines()[-1] == f"'/a' is closed: {LENGTH} bytes"
    with Client(cluster.url, QUICK) as reading, reading.open("/a") as file:
        assert file.read() == data
    gone.start()


def test_a_person_at_a_terminal_is_asked_and_may_say_no(cluster: Machines) -> None:
    half_written(cluster, "/b")
    cluster.cut_power()
    for node in cluster.datanodes[:2]:
        node.start()
    for said, code, told in (("n\n", 1, "is not closed: nothing was forced"), ("y\n", 0, "")):
        ours, theirs = pty.openpty()
        try:
            os.write(ours, said.encode())
            ended = recover_lease(cluster, "/b", "--force", stdin=theirs)
        finally:
            os.close(ours)
            os.close(theirs)
        assert (ended.returncode, told in ended.stderr) == (code, True)
        assert "End it with what is left? [y/N]" in ended.stderr


def test_a_file_whose_writer_is_gone_or_is_not_is_closed_and_stays_closed(
    cluster: Machines,
) -> None:
    half_written(cluster, "/c")
    for group in ("fs", "admin"):
        closed = recover_lease(cluster, "/c", group=group)
        assert (closed.returncode, without_waiting(closed.stderr)) == (0, "")
        assert closed.stdout == f"'/c' is closed: {LENGTH} bytes\n"


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (("/nothing",), 1, "recover-lease: '/nothing': no such file or directory"),
        (("/",), 1, "recover-lease: '/': is a directory"),
        (("",), 1, "recover-lease: an empty path"),
        (("/x", "--force"), 2, "--force asks for a yes: where nobody can be asked, add --yes"),
        (("/x", "--force", "--json"), 2, "--force asks for a yes"),
        (("/x", "--yes"), 2, "--yes goes with --force"),
        ((), 2, "Missing argument 'PATH'"),
    ],
)
def test_what_makes_no_sense_is_one_line(
    shared: LocalCluster, words: tuple[str, ...], code: int, reason: str
) -> None:
    ended = recover_lease(shared, *words)
    assert (ended.returncode, ended.stdout) == (code, "")
    assert reason in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """For what changes nothing."""
    with LocalCluster(datanodes=1, path=tmp_path_factory.mktemp("shared")) as cluster:
        yield cluster


@pytest.mark.plain("it asks DataNodes for what NameNodes ask")
def test_stray_promises_do_not_keep_what_was_flushed_from_being_read(cluster: Machines) -> None:
    """Some caller asks each DataNode for promises to generations that no NameNode allocated."""
    data = half_written(cluster, "/stray")
    for node in cluster.datanodes:
        (storage, block) = opened_at(node.address)
        for generation in (2**63 - 1, LEAP_MAX, 2 * LEAP_MAX):
            asked = NextGS(block, Generation(generation), FIRST_GENERATION, 16, Durability.MEMORY)
            answer = control.call(node.address, ACCEPT, Envelope(storage, asked))
            assert isinstance(answer, Nack if generation > 2 * LEAP_MAX else LastVote), answer
        longer = Finalize(
            block,
            finalized_generation=Generation(2**63 - 1),
            epoch=FIRST_GENERATION,
            length=1000,
            size_bytes=1000 * LENGTH,
            holders=(),
            window=16,
            durability=Durability.MEMORY,
        )
        answer = control.call(node.address, ACCEPT, Envelope(storage, longer))
        assert isinstance(answer, Short), answer
    done = recover_lease(cluster, "/stray")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (
        0,
        f"'/stray' is closed: {LENGTH} bytes",
    ), done
    with Client(cluster.url, QUICK) as reading, reading.open("/stray") as file:
        assert file.read() == data


def opened_at(address: str) -> tuple[StorageId, BlockId]:
    """The replica of a DataNode that is being written."""
    for each in control.call(address, LIST_REPLICAS, ListReplicas()).replicas:
        if each.state.registers.state is ReplicaState.RBW:
            return each.state.storage, each.state.block
    raise AssertionError(f"{address}: nothing is open")
