"""The power goes at every disk operation of a scenario: what was durable is there afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from paxosblock.errors import NoSpaceError, StorageError
from paxosblock.namenode.kv.interface import Edit
from paxosblock.namenode.kv.table import Table
from paxosblock.namenode.raft.entry import Entry, EntryKind
from paxosblock.namenode.raft.log import RaftLog
from paxosblock.namenode.raft.member_folder import OpenedFolder, open_folder
from paxosblock.namenode.raft.vote_file import ElectionVote
from tests.disks.simulated import Burns, SimulatedDisk
from tests.memory_table import MEMORY
from tests.raft.rig import stream_after
from tests.raft.simulation import virtual_loop

FOLDER = Path("/member")
SEGMENT_BYTES = 270
OPERATIONS_MAX = 130
LEFTOVERS = range(6)


@dataclass(slots=True)
class Promised:
    """Promises made by the time the power went: terms by index, snapshot, vote."""

    terms: dict[int, int] = field(default_factory=dict)
    snapshot: int = 0
    vote: ElectionVote = field(default_factory=lambda: ElectionVote(0, None))


def _never_full(error: NoSpaceError | None) -> None:
    raise AssertionError(f"the disk has room, and still: {error}")


@dataclass(slots=True)
class Life:
    """A log, and all it goes through until the power goes."""

    disk: SimulatedDisk
    promised: Promised = field(default_factory=Promised)
    finished: bool = False

    async def run(self, story: Story) -> None:
        opened = open_folder(self.disk, FOLDER, SEGMENT_BYTES, MEMORY)
        opened.votes.write(ElectionVote(99, "a:1"))
        self.promised.vote = opened.votes.vote
        log = RaftLog(opened.tail, opened.journal, ThreadPoolExecutor(1))
        flushing = asyncio.ensure_future(log.flush(lambda: self._durable(log), _never_full))
        try:
            await story(self, opened, log)
            self.finished = True
        finally:
            flushing.cancel()

    async def replace(self, opened: OpenedFolder, log: RaftLog, index: int, term: int) -> None:
        """Install the table after entry `index` of `term`, which the log does not have, while a
        last entry of before is on its way to the disk."""
        log.append(Entry(log.term_at(log.last_log_index) or 0, EntryKind.NOOP, b"some bytes"))
        await asyncio.sleep(0)
        self.promised.terms = {}  # void as soon as the table is there
        before = opened.machine.adopt(received(opened, index, term))
        self.promised.snapshot = index
        log.reset(index, term)
        before.discard()
        await asyncio.sleep(0)

    def compact(self, opened: OpenedFolder, log: RaftLog, index: int, cut_to: int | None) -> None:
        """Flush the table after entry `index`; with `cut_to`, what follows is cut meanwhile, and an
        entry of that term takes its place, which is not on disk yet when records are removed."""
        term = log.term_at(index)
        assert term is not None
        for each in range(opened.machine.revision + 1, index + 1):
            opened.machine.apply(each, Edit(), log.term_at(each) or 0)
        opened.machine.flush().write()
        self.promised.snapshot = index
        if cut_to is not None:
            self._cut(log, index + 1)
            log.append(Entry(cut_to, EntryKind.NOOP, b"some bytes"))
        log.compact(index, index - 1)

    async def grow(self, log: RaftLog, term: int, cut: int | None = None, count: int = 4) -> None:
        if cut is not None:
            self._cut(log, cut)
        for _ in range(count):
            log.append(Entry(term, EntryKind.NOOP, b"some bytes"))
            await asyncio.sleep(0)
        while log.durable_index < log.last_log_index:
            if self.disk.dead:
                raise StorageError("the power is gone")
            await asyncio.sleep(0)

    def _cut(self, log: RaftLog, index: int) -> None:
        self.promised.terms = {i: t for i, t in self.promised.terms.items() if i < index}
        log.cut_from(index)

    def _durable(self, log: RaftLog) -> None:
        for index in range(log.base_index + 1, log.durable_index + 1):
            term = log.term_at(index)
            assert term is not None
            self.promised.terms[index] = term


Story = Callable[[Life, OpenedFolder, RaftLog], Coroutine[Any, Any, None]]


async def grows_is_cut_and_compacted(life: Life, opened: OpenedFolder, log: RaftLog) -> None:
    for term, cut in ((1, None), (2, 6), (4, None)):
        await life.grow(log, term, cut)
    life.compact(opened, log, 8, None)
    await life.grow(log, 5, 12)
    await life.replace(opened, log, 30, 7)
    await life.grow(log, 8)


async def is_overtaken(life: Life, opened: OpenedFolder, log: RaftLog) -> None:
    """A deposed leader has more entries than the snapshot of its successor, and other ones."""
    await life.grow(log, 1, count=14)
    await life.replace(opened, log, 5, 3)
    await life.grow(log, 3)


async def is_cut_while_a_snapshot_is_written(
    life: Life, opened: OpenedFolder, log: RaftLog
) -> None:
    await life.grow(log, 1, count=14)
    life.compact(opened, log, 5, 2)
    await life.grow(log, 2)


def anything(rng: random.Random) -> Story:
    """Whatever may happen to a log, in any order."""

    async def story(life: Life, opened: OpenedFolder, log: RaftLog) -> None:
        committed = opened.machine.revision
        for _ in range(rng.randint(2, 8)):
            last = log.last_log_index
            later = (log.term_at(last) or 0) + 1
            match rng.randrange(4):
                case 0:
                    committed = rng.randint(committed + 1, last + 3)
                    await life.replace(opened, log, committed, later)
                case 1 if log.durable_index > committed:
                    committed = rng.randint(committed + 1, log.durable_index)
                    life.compact(opened, log, committed, rng.choice((None, later)))
                case 2 if last > committed:
                    cut = rng.randint(committed + 1, last)
                    await life.grow(log, later, cut, rng.randint(1, 6))
                case _:
                    await life.grow(log, later, count=rng.randint(1, 6))

    return story


def received(opened: OpenedFolder, index: int, term: int) -> Table:
    """The table of another member, after entry `index` of `term`, as it is installed."""
    receiver = opened.receive()
    receiver.write(stream_after(index, term))
    assert receiver.check() == index
    return receiver.install()


def check(disk: SimulatedDisk, promised: Promised) -> None:
    opened = open_folder(disk, FOLDER, SEGMENT_BYTES, MEMORY)
    assert promised.vote in (opened.votes.vote, ElectionVote(0, None))
    assert opened.machine.revision >= promised.snapshot
    for index, term in promised.terms.items():
        if index > opened.machine.revision:
            assert opened.tail.term_at(index) == term
    terms = [opened.tail.base_term, *(entry.term for entry in opened.tail.entries)]
    assert terms == sorted(terms), "void entries follow the snapshot: votes would be wrong"
    opened.close()


def lives_until(story: Story, operation: int, leftover: int) -> bool:
    """Cut the power at this operation, check what is left; tell if the story ended before."""
    disk = SimulatedDisk()
    disk.light(operation, (*Burns,)[leftover % 3])
    life = Life(disk)
    with virtual_loop() as loop, contextlib.suppress(StorageError, NoSpaceError):
        loop.run_until_complete(life.run(story))
    rng = random.Random(f"{operation}/{leftover}")
    left = disk.power_cut(rng)
    check(left, life.promised)
    check(left.power_cut(rng), life.promised)
    return life.finished


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_what_was_durable_is_there_after_any_life_and_the_lives_after_it(first: int) -> None:
    finished = 0
    for seed in range(first, first + 50):
        rng = random.Random(seed)
        disk, promised = SimulatedDisk(), Promised()
        for _ in range(4):
            disk.light(rng.randint(20, 150), rng.choice((*Burns,)))
            life = Life(disk, promised)
            with virtual_loop() as loop, contextlib.suppress(StorageError, NoSpaceError):
                loop.run_until_complete(life.run(anything(rng)))
            finished += life.finished
            disk = disk.power_cut(rng)
            check(disk, promised)
            disk = disk.power_cut(rng)
    assert 20 < finished < 180, "some lives end well, some do not"


@pytest.mark.parametrize("leftover", LEFTOVERS)
@pytest.mark.parametrize(
    "story", [grows_is_cut_and_compacted, is_overtaken, is_cut_while_a_snapshot_is_written]
)
def test_what_was_durable_is_there_whenever_the_power_goes(story: Story, leftover: int) -> None:
    ends = [lives_until(story, operation, leftover) for operation in range(1, OPERATIONS_MAX)]
    assert not ends[0]
    assert ends[-1], "the story has more operations than were tried"
