"""The steps of the demo: real processes, real signals, real bytes."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final

from examples.demo.source import PIECE_BYTES, Source, digest_of_start, pieces
from paxosblock.api.file_pages import GET_FILE, GetFile
from paxosblock.api.namenode import BlockMember, BlockRequest
from paxosblock.api.status import EXPLAIN, BlockExplanation, VoteLine
from paxosblock.base.units import MIB
from paxosblock.cli.progress_bar import Advance
from paxosblock.client import Client
from paxosblock.client.blocking.sync import FileWriter
from paxosblock.client.writing.receipt import FlushReceipt
from paxosblock.errors import UnavailableError
from paxosblock.local.cluster import LocalCluster
from paxosblock.local.node_process import START_TIMEOUT_S, Node, wait_until
from paxosblock.net.calls.control import BlockingNameNodes
from paxosblock.protocol.types import BlockId, StorageId

FIRST: Final = "/demo/first"
SECOND: Final = "/demo/second"
AFTER_FAIL_OVER: Final = "/demo/made-after-the-leader-was-killed"
COPIED_WITHIN_S: Final = 60.0
ACKNOWLEDGED_BYTES: Final = 16 * MIB
"""The second file's writer is killed once so much of it is acknowledged."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, in milliseconds since the epoch."""

    time_ms: float
    what: str


@dataclass(frozen=True, slots=True)
class Check:
    """One claim that was verified, or found to be false."""

    claim: str
    holds: bool


@dataclass
class Report:
    """The events of a run and the checks of it, as they become known."""

    on_event: Callable[[Event], None]
    events: list[Event] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    recovered: list[BlockExplanation] = field(default_factory=list)

    def mark(self, what: str, time_ms: float | None = None) -> float:
        """Add an event that happened now, or when it says; returns its time."""
        event = Event(now_ms() if time_ms is None else time_ms, what)
        self.events.append(event)
        self.on_event(event)
        return event.time_ms

    def check(self, claim: str, holds: bool) -> None:
        """Add a claim."""
        self.checks.append(Check(claim, holds))

    @property
    def verified(self) -> bool:
        """True if every claim holds."""
        return bool(self.checks) and all(check.holds for check in self.checks)


def now_ms() -> float:
    """Wall-clock time, which all processes of a machine share."""
    return time.time_ns() / 1e6


@dataclass(frozen=True, slots=True)
class Stage:
    """The cluster and the client that the demo plays with."""

    cluster: LocalCluster
    client: Client
    source: Source
    report: Report
    advance: Advance

    def send(self, out: FileWriter, file: BinaryIO, size_bytes: int) -> None:
        """Write the next bytes of the source."""
        for piece in pieces(file, size_bytes):
            out.write(piece)
            self.advance(len(piece))

    def node_of(self, storage: StorageId) -> Node:
        """Return the DataNode that owns a storage."""
        for seen in self.cluster.status().datanodes:
            if any(volume.storage == storage for volume in seen.storages):
                return next(at for at in self.cluster.datanodes if at.address == seen.address)
        raise UnavailableError(f"no DataNode owns the storage {storage}")

    def explain(self, block: BlockId) -> BlockExplanation:
        """Return a block's record and the history of its recovery."""
        return BlockingNameNodes(self.cluster.addresses).call(EXPLAIN, BlockRequest(block))


# --- the first file: a DataNode and a NameNode are killed, a second process follows --------------


def first_file(stage: Stage) -> None:
    """Write the source while somebody follows and nodes die; compare every byte."""
    report, source = stage.report, stage.source
    report.mark(f"writing {FIRST}")
    out = stage.client.create(FIRST, overwrite=True)
    with _role("follow", stage.cluster.url, FIRST) as follower, ThreadPoolExecutor(1) as aside:
        with out, open(source.path, "rb") as file:
            stage.send(out, file, PIECE_BYTES)
            out.hflush()
            report.mark(f"a second process follows it: it has {_word(follower)['length']} bytes")
            stage.send(out, file, source.size_bytes * 4 // 10)
            victim = _kill_in_mid_write(stage, out, file)
            stage.send(out, file, source.size_bytes * 2 // 10)
            restarts = [aside.submit(_start_again, stage, victim)]
            if len(stage.cluster.namenodes) > 1:
                leader = _kill_the_leader(stage, out, file)
                restarts.append(aside.submit(_follow_again, stage, leader))
            stage.send(out, file, source.size_bytes)
        closed_ms = report.mark(f"{FIRST} closed")
        seen = _word(follower)
    report.mark(f"the follower has seen the end, {now_ms() - closed_ms:.0f} ms after the close")
    for restart in restarts:
        restart.result()
    written = (source.size_bytes, source.digest)
    report.check(
        f"the follower saw all {source.size_bytes} bytes of {FIRST} as they were written",
        (seen["length"], seen["digest"]) == written,
    )
    report.check(
        f"{FIRST} reads back as the {source.size_bytes} bytes that were written",
        _read_back(stage.client, FIRST) == written,
    )


def _kill_in_mid_write(stage: Stage, out: FileWriter, file: BinaryIO) -> Node:
    """SIGKILL a DataNode while chunks are on their way to it, and wait for the next receipt."""
    report = stage.report
    before = _flush_inside_a_block(stage, out, file)
    victim = stage.node_of(before.replicas[0])
    stage.send(out, file, PIECE_BYTES)
    killed_ms = report.mark(f"{victim.name} gets SIGKILL in mid-write (block {before.block})")
    victim.kill()
    stage.send(out, file, PIECE_BYTES)
    after = out.hflush()
    next_ms = now_ms()
    explanation = stage.explain(before.block)
    report.recovered.append(explanation)
    _tell_recovery(report, explanation.history, killed_ms)
    report.mark(
        f"the next chunks are acknowledged, in block {after.block}: "
        f"{next_ms - killed_ms:.0f} ms after the kill",
        next_ms,
    )
    report.check(
        f"the writer went on in another block ({before.block}, then {after.block})",
        after.block != before.block and after.size > before.size,
    )
    return victim


def _kill_the_leader(stage: Stage, out: FileWriter, file: BinaryIO) -> Node:
    """SIGKILL the NameNode that leads while chunks are on their way; wait for the next one."""
    report = stage.report
    _flush_inside_a_block(stage, out, file)
    old = stage.cluster.wait_leader()
    stage.send(out, file, PIECE_BYTES)
    killed_ms = report.mark(f"{old.name}, which leads, gets SIGKILL in mid-write")
    old.kill()
    stage.send(out, file, PIECE_BYTES)
    out.hflush()
    after_ms = now_ms() - killed_ms
    report.mark(f"the next chunks are acknowledged, no NameNode needed: {after_ms:.0f} ms after")
    stage.client.mkdirs(AFTER_FAIL_OVER)
    after_ms = now_ms() - killed_ms
    new = stage.cluster.wait_leader()
    report.mark(f"fail-over: {new.name} leads and has made a directory, {after_ms:.0f} ms after")
    report.check(
        f"another NameNode took over ({old.name}, then {new.name})",
        new is not old and stage.client.exists(AFTER_FAIL_OVER),
    )
    return old


def _flush_inside_a_block(stage: Stage, out: FileWriter, file: BinaryIO) -> FlushReceipt:
    """Flush at a place where the next pieces go to the same block."""
    receipt = out.hflush()
    while -receipt.size % stage.client.config.block_size < 4 * PIECE_BYTES:
        stage.send(out, file, PIECE_BYTES)
        receipt = out.hflush()
    return receipt


def _tell_recovery(report: Report, history: tuple[VoteLine, ...], killed_ms: float) -> None:
    """Times of the NameNode's own record: its clock is ours."""
    if history:
        first, last = history[0], _decision(history)
        after_ms = first.time_ms - killed_ms
        report.mark(
            f"detected by the client, recovery started: {after_ms:.0f} ms after the kill",
            first.time_ms,
        )
        took_ms = last.time_ms - first.time_ms
        report.mark(f"sealed with {last.detail} (chunks): recovery took {took_ms} ms", last.time_ms)


def _decision(history: tuple[VoteLine, ...]) -> VoteLine:
    return next((step for step in history if step.event == "recovered"), history[-1])


def _start_again(stage: Stage, node: Node) -> None:
    started_ms = stage.report.mark(f"{node.name} is started again")
    node.start()
    stage.cluster.wait_registered([node])
    stage.report.mark(f"{node.name} is back after {now_ms() - started_ms:.0f} ms")


def _follow_again(stage: Stage, node: Node) -> None:
    """Start a NameNode again and wait until it has what was decided without it."""
    leader = stage.cluster.namenode_status(stage.cluster.wait_leader())
    goal = leader.commit_index if leader else 0
    started_ms = stage.report.mark(f"{node.name} is started again")
    node.start()

    def caught_up() -> bool:
        standing = stage.cluster.namenode_status(node)
        return standing is not None and standing.commit_index >= goal

    wait_until(caught_up, START_TIMEOUT_S, f"{node.name} does not catch up")
    stage.report.mark(f"{node.name} is back as a follower after {now_ms() - started_ms:.0f} ms")


def _read_back(client: Client, path: str) -> tuple[int, str]:
    digest, length = hashlib.sha256(), 0
    with client.open(path) as file:
        while piece := file.read(PIECE_BYTES):
            digest.update(piece)
            length += len(piece)
    return length, digest.hexdigest()


# --- the second file: its writer is killed, we take over -----------------------------------------


def second_file(stage: Stage) -> None:
    """Kill the writer of a file; what it was told to be safe must be there after a take-over."""
    report, source = stage.report, stage.source
    acknowledged = _kill_the_writer(stage, min(ACKNOWLEDGED_BYTES, source.size_bytes // 2))
    started_ms = now_ms()
    stage.client.take_over(SECOND)
    report.mark(f"{SECOND} taken over and closed in {now_ms() - started_ms:.0f} ms")
    length, digest = _read_back(stage.client, SECOND)
    report.check(
        f"{SECOND} has all {acknowledged} bytes that its writer was told to be safe ({length})",
        length >= acknowledged,
    )
    report.check(
        f"the {length} bytes of {SECOND} are those that were written",
        digest == digest_of_start(source.path, length),
    )
    report.recovered.append(stage.explain(_last_members(stage)[0]))


def _kill_the_writer(stage: Stage, enough_bytes: int) -> int:
    """Let a second process write until so much is acknowledged, SIGKILL it, count its receipts."""
    acknowledged = 0
    with _role("write", stage.cluster.url, SECOND, str(stage.source.path)) as writer:
        stage.report.mark(f"writing {SECOND} in a second process")
        for receipt in _words(writer):
            acknowledged = receipt["length"]
            if acknowledged >= enough_bytes:
                break
        writer.kill()
        killed_ms = stage.report.mark(f"the writer of {SECOND} gets SIGKILL")
        for receipt in _words(writer):
            acknowledged = receipt["length"]
    stage.report.mark(f"it had {acknowledged} bytes acknowledged", killed_ms)
    return acknowledged


# --- a DataNode is killed for good: what it held is made again ------------------------------------


def lost_replica(stage: Stage) -> None:
    """Kill a holder of the second file and do not start it again; wait for the replica."""
    report = stage.report
    block, before = _last_members(stage)
    victim = stage.node_of(before[0].storage)
    length, digest = _read_back(stage.client, SECOND)
    killed_ms = report.mark(f"{victim.name} gets SIGKILL, and is not started again")
    victim.kill()

    def live() -> list[BlockMember]:
        return [member for member in _last_members(stage)[1] if member.live]

    def whole_again() -> bool:
        return victim.address not in {each.address for each in live()} and len(live()) >= 3

    wait_until(whole_again, COPIED_WITHIN_S, f"block {block} did not get its replica back")
    known = {member.storage for member in before}
    places = [stage.node_of(each.storage).name for each in live() if each.storage not in known]
    report.mark(
        f"block {block} has {len(live())} live members again, a new one at {', '.join(places)}: "
        f"{now_ms() - killed_ms:.0f} ms after the kill"
    )
    report.check(f"the replica that {victim.name} had came back elsewhere", bool(places))
    report.check(
        f"{SECOND} reads back as before", _read_back(stage.client, SECOND) == (length, digest)
    )


def _last_members(stage: Stage) -> tuple[BlockId, tuple[BlockMember, ...]]:
    """Return the last block of the second file and its members."""
    last = BlockingNameNodes(stage.cluster.addresses).call(GET_FILE, GetFile(SECOND)).last_block
    assert last is not None, "a file with bytes has a block"
    return last.record.block, last.members


# --- second processes ----------------------------------------------------------------------------


@contextmanager
def _role(role: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "examples.demo.roles", role, *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _words(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    for line in process.stdout:
        yield json.loads(line)


def _word(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Return the next thing a process says.

    Raises:
        UnavailableError: it ended instead; the message quotes it.
    """
    for word in _words(process):
        return word
    assert process.stderr is not None
    reason = process.stderr.read().strip().splitlines()[-1:]
    raise UnavailableError(f"the second process failed: {' '.join(reason)}")
