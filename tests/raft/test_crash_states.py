"""The power goes at every disk operation of a scenario: what was durable is there afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from paxosblock.namenode.kv.snapshot import Pace
from paxosblock.namenode.raft.entry import Entry, EntryKind
from paxosblock.namenode.raft.log import RaftLog
from paxosblock.namenode.raft.machine import MachineSnapshot, ReplicatedMachine
from paxosblock.namenode.raft.storage import open_folder
from paxosblock.namenode.raft.vote_file import Vote
from tests.raft.simulated_disk import SimulatedDisk
from tests.raft.simulation import virtual_loop

FOLDER = Path("/member")
SEGMENT_BYTES = 150
OPERATIONS_MAX = 120
LEFTOVERS = range(5)


@dataclass(slots=True)
class Promised:
    """What had been said to be durable when the power went: terms by index, snapshot, vote."""

    terms: dict[int, int] = field(default_factory=dict)
    snapshot: int = 0
    vote: Vote = field(default_factory=lambda: Vote(0, None))


@dataclass(slots=True)
class Scenario:
    """A life of a log: growing, cut, compacted, replaced by a snapshot."""

    disk: SimulatedDisk
    promised: Promised = field(default_factory=Promised)
    finished: bool = False

    async def run(self) -> None:
        opened = open_folder(self.disk, FOLDER, SEGMENT_BYTES)
        opened.votes.write(Vote(9, "a:1"))
        self.promised.vote = opened.votes.vote
        log = RaftLog(opened.tail, opened.journal, ThreadPoolExecutor(1))
        flushing = asyncio.ensure_future(log.flush(lambda: self._durable(log)))
        try:
            for term, cut in ((1, None), (2, 6), (4, None)):
                await self._grow(log, term, cut)
            opened.write_snapshot(snapshot(8, 2), Pace(0))
            self.promised.snapshot = 8
            opened.forget(8, log.compact(8, 7))
            await self._grow(log, 5, 12)
            opened.write_snapshot(snapshot(30, 7), Pace(0))
            self.promised = Promised({}, 30, self.promised.vote)
            opened.forget(30, log.reset(30, 7))
            await self._grow(log, 8, None)
            self.finished = True
        finally:
            flushing.cancel()

    async def _grow(self, log: RaftLog, term: int, cut: int | None) -> None:
        if cut is not None:
            self.promised.terms = {i: t for i, t in self.promised.terms.items() if i < cut}
            log.cut_from(cut)
        for _ in range(4):
            log.append(Entry(term, EntryKind.NOOP, b"some bytes"))
            await asyncio.sleep(0)
        while log.durable_index < log.last_log_index:
            if self.disk.dead:
                raise OSError("the power is gone")
            await asyncio.sleep(0)

    def _durable(self, log: RaftLog) -> None:
        for index in range(log.base_index + 1, log.durable_index + 1):
            term = log.term_at(index)
            assert term is not None
            self.promised.terms[index] = term


def snapshot(index: int, term: int) -> MachineSnapshot:
    machine = ReplicatedMachine()
    for each in range(1, index + 1):
        machine.apply_entry(each, Entry(term, EntryKind.NOOP, b""))
    return machine.snapshot_after(term)


def check(disk: SimulatedDisk, promised: Promised) -> None:
    opened = open_folder(disk, FOLDER, SEGMENT_BYTES)
    assert promised.vote in (opened.votes.vote, Vote(0, None))
    assert opened.snapshot_index >= promised.snapshot
    for index, term in promised.terms.items():
        if index > opened.snapshot_index:
            assert opened.tail.term_at(index) == term
    opened.close()


def lives_until(operation: int, leftover: int) -> bool:
    """Cut the power at this operation, check what is left; tell if the scenario ended before."""
    disk = SimulatedDisk(fuse=operation, burns_before=bool(leftover % 2))
    disk.burn = disk.die
    scenario = Scenario(disk)
    with virtual_loop() as loop, contextlib.suppress(OSError):
        loop.run_until_complete(scenario.run())
    rng = random.Random(f"{operation}/{leftover}")
    left = disk.power_cut(rng)
    check(left, scenario.promised)
    check(left.power_cut(rng), scenario.promised)
    return scenario.finished


@pytest.mark.parametrize("leftover", LEFTOVERS)
def test_what_was_durable_is_there_whenever_the_power_goes(leftover: int) -> None:
    ends = [lives_until(operation, leftover) for operation in range(1, OPERATIONS_MAX)]
    assert not ends[0]
    assert ends[-1], "the scenario has more operations than were tried"
