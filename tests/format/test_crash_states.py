"""Every state that a power cut can leave of a replica's files, loaded again.

A scenario runs the real acceptor on a recording disk. Then, for each point of its journal and each
state the disk may be in there, the volume is loaded under another boot id, and what comes back is
compared with what had been promised and voted at that point (PROTOCOL.md 5).
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from paxosblock.api.datanode import CreateAndWrite
from paxosblock.datanode.store.chunk_records import check_records
from paxosblock.datanode.store.disk_format import Loaded, SmallLimits, Stored
from paxosblock.datanode.store.file_store import FileStore
from paxosblock.datanode.store.identity import enter_cluster, give_identity, read_identity
from paxosblock.datanode.store.layout import ReplicaFiles
from paxosblock.datanode.store.open_file import OpenFile
from paxosblock.datanode.volumes.group_commit import GroupCommit
from paxosblock.net.wire import record_start
from paxosblock.protocol.messages import Create, Created, Delete, Nack, Read, Short
from paxosblock.protocol.register import Replica
from paxosblock.protocol.types import (
    BlockId,
    ChunkName,
    Durability,
    Generation,
    ReplicaState,
)
from tests.datanode.node import (
    BLOCK,
    WINDOW,
    Holder,
    Node,
    chunk,
    frame,
    hold_group_commit,
    name,
    running,
)
from tests.disks.power_cut import Files, Moment
from tests.disks.simulated import SimulatedDisk
from tests.disks.simulated_syncs import SimulatedSyncs
from tests.format.loading import load_all
from tests.shares import IN_SHARES, share
from tests.waiting import wait_until_async

FOLDER = Path("/volume")
OTHER = BlockId(8)
STATES_PER_POINT = 60
SHORT_SEGMENTS = SmallLimits(segment_bytes=200, worth_bytes=1, worth_share=0)
"""Each control step begins another segment of the log of small replicas, and what does not count
in one is room worth to be won back."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The answers so far: this replica, of which `synced` chunks were told to be durable.

    No replica: one may be there or not, unless it was told that it is `gone`. It may be `dead`.
    """

    replica: Replica | None
    synced: int
    gone: bool = False
    dead: bool = False


@dataclass(frozen=True, slots=True)
class Issued:
    """From here on this chunk may be on the disk, in a record of this generation."""

    name: ChunkName
    generation: Generation


class Scenario:
    """A node on a recording disk, and words for what happens to it."""

    def __init__(self, node: Node, disk: SimulatedDisk) -> None:
        self.node = node
        self.disk = disk

    def issue(self, *names: ChunkName, generation: int = 0) -> None:
        for named in names:
            self.disk.note(Issued(named, Generation(generation)))

    async def does(self, work: Awaitable[object]) -> None:
        """Wait for an answer, which must be no refusal, and note what it claims."""
        answer = await work
        answers = answer if isinstance(answer, list) else [answer]
        assert not any(isinstance(one, Nack | Short) for one in answers), answer
        self.claim()

    def claim(self, *, dead: bool = False) -> None:
        block = self.node.acceptor.find(BLOCK, self.node.storage)
        replica = block.replica if block is not None else None
        synced = block.synced if block is not None else 0
        if replica is not None and replica.registers.state is ReplicaState.FINALIZED:
            synced = replica.length
        elif replica is not None and replica.registers.durability is Durability.DISK and not dead:
            assert synced == replica.length, "in disk mode nothing is told that is not durable"
        self.disk.note(Claim(replica, synced, gone=replica is None, dead=dead))

    def claim_nothing(self) -> None:
        self.disk.note(Claim(None, 0))

    async def write(self, indexes: range, generation: int = 0) -> None:
        self.issue(*(name(index) for index in indexes), generation=generation)
        await self.does(self.node.write(len(indexes), indexes.start, generation))


async def _write_and_recover(scenario: Scenario, durability: Durability) -> None:
    """A writer, a promise, a recovery that cuts a chunk, the next writer, a finalization."""
    node = scenario.node
    await scenario.does(node.create(durability=durability))
    await scenario.write(range(2))
    await scenario.write(range(2, 4))
    await scenario.does(node.next_gs(1))
    await scenario.does(node.recover(1, [name(i) for i in range(3)], durability=durability))
    scenario.issue(name(3, salt=1), generation=1)
    await scenario.does(node.send(frame(3, chunk(3, salt=1), generation=1)))
    decided = [name(0), name(1), name(2), name(3, salt=1)]
    await scenario.does(node.finalize(2, decided))


async def disk_votes(scenario: Scenario) -> None:
    await _write_and_recover(scenario, Durability.DISK)


async def memory_votes(scenario: Scenario) -> None:
    await _write_and_recover(scenario, Durability.MEMORY)


async def memory_votes_and_one_synced(scenario: Scenario) -> None:
    node = scenario.node
    await scenario.does(node.create(durability=Durability.MEMORY))
    await scenario.write(range(2))
    scenario.issue(name(2))
    await scenario.does(node.send(frame(2, sync=True)))
    await scenario.write(range(3, 5))


async def promise_beside_a_vote(scenario: Scenario) -> None:
    """The step makes durable what it tells of; no sync of the vote has done it before."""
    node = scenario.node
    await scenario.does(node.create())
    await scenario.write(range(2))
    may_go = hold_group_commit(node.volumes[0])
    scenario.issue(name(2))
    vote = node.send(frame(2))
    await scenario.does(node.next_gs(1))
    may_go.set()
    await scenario.does(vote)


async def recovery_that_extends(scenario: Scenario) -> None:
    """Chunks of a holder are appended behind the replica's own, more than a window of them."""
    node = scenario.node
    node.holder.payloads = [chunk(i) for i in range(8)]
    await scenario.does(node.create())
    await scenario.write(range(2))
    scenario.issue(*(name(i) for i in range(8)))
    await scenario.does(node.recover(1, [name(i) for i in range(8)]))
    await scenario.write(range(8, 10), generation=1)


async def full_copy_over_another_log(scenario: Scenario) -> None:
    """A replica that missed its config's own recovery takes a full copy, chunk 0 and all."""
    node = scenario.node
    node.holder.payloads = [chunk(i, salt=2) for i in range(3)]
    await scenario.does(node.create())
    await scenario.write(range(2))
    scenario.issue(*(name(i, salt=2) for i in range(3)))
    await scenario.does(node.finalize(4, [name(i, salt=2) for i in range(3)], epoch=3))


async def full_copy_to_an_empty_storage(scenario: Scenario) -> None:
    node = scenario.node
    node.holder.payloads = [chunk(i) for i in range(3)]
    scenario.issue(*(name(i) for i in range(3)))
    await scenario.does(node.recover(1, [name(i) for i in range(3)]))
    await scenario.does(node.finalize(2, [name(i) for i in range(3)]))


async def full_copy_over_a_log_that_was_not_decided(scenario: Scenario) -> None:
    """D9: a member whose own log is another one than was decided takes all of that."""
    node = scenario.node
    decided = [name(i, size=90, salt=2) for i in range(3)]
    node.holder.payloads = [chunk(i, size=90, salt=2) for i in range(3)]
    await scenario.does(node.create())
    await scenario.write(range(2))
    scenario.issue(*decided)
    scenario.claim(dead=True)
    await scenario.does(node.finalize(4, decided))


async def full_copy_over_damaged_bytes(scenario: Scenario) -> None:
    """D9: a finalized replica was found to be dead."""
    node = scenario.node
    node.holder.payloads = [chunk(i) for i in range(2)]
    await scenario.does(node.create())
    await scenario.write(range(2))
    await scenario.does(node.finalize(1, [name(0), name(1)]))
    block = node.acceptor.find(BLOCK, node.storage)
    assert block is not None
    scenario.claim(dead=True)
    block.mark_corrupt("a bit has flipped")
    await scenario.does(node.finalize(1, [name(0), name(1)]))
    assert isinstance(block.files, ReplicaFiles)
    assert (block.files.copy, block.corrupt) == (1, "")


async def open_again(scenario: Scenario) -> None:
    """Finalize two chunks, and open the block again under a new epoch."""
    node = scenario.node
    await scenario.does(node.create())
    await scenario.write(range(2))
    await scenario.does(node.finalize(1, [name(0), name(1)]))
    await scenario.does(node.reopen(2, [name(0), name(1)], finalized=1))


async def append_to_a_finalized_block(scenario: Scenario) -> None:
    """FINALIZED, opened again under a new epoch, written, finalized again."""
    await open_again(scenario)
    await scenario.write(range(2, 4), generation=2)
    await scenario.does(scenario.node.finalize(3, [name(i) for i in range(4)], epoch=2))


async def opened_again_and_again(scenario: Scenario) -> None:
    """Its metadata goes to and fro, and is written over what earlier metadata was in."""
    node, names = scenario.node, [name(0), name(1)]
    await open_again(scenario)
    for generation in (3, 5, 7):
        await scenario.does(node.finalize(generation, names, epoch=generation - 1))
        await scenario.does(node.reopen(generation + 1, names, finalized=generation))
    for generation in (9, 10, 11):  # given up, and asked for once more
        await scenario.does(node.reopen(generation, names, finalized=7))


async def opened_again_and_deleted(scenario: Scenario) -> None:
    """The files in the folder that it moved from are as gone as it is, and what comes is new."""
    node = scenario.node
    await open_again(scenario)
    scenario.claim_nothing()
    await scenario.does(node.ask(Delete(BLOCK, Generation(2))))
    scenario.claim_nothing()
    await scenario.does(node.create())
    await scenario.write(range(1))


async def promises_of_an_empty_replica(scenario: Scenario) -> None:
    await scenario.does(scenario.node.next_gs(3))
    await scenario.does(scenario.node.next_gs(5))


async def delete_and_come_back(scenario: Scenario) -> None:
    node = scenario.node
    await scenario.does(node.create())
    await scenario.write(range(1))
    scenario.claim_nothing()
    await scenario.does(node.ask(Delete(BLOCK, Generation(0))))
    scenario.claim_nothing()
    await scenario.does(node.create())
    await scenario.write(range(1))


async def members_that_leave(scenario: Scenario) -> None:
    """K13, seen from one who stays: the same chunks under one generation after the other (P5)."""
    node = scenario.node
    await scenario.does(node.create())
    await scenario.write(range(3))
    for generation in (1, 2, 3):
        await scenario.does(node.finalize(generation, [name(i) for i in range(3)]))


async def leave_and_come_back_by_a_copy(scenario: Scenario) -> None:
    """K13, D7, then D5 and K12; the Delete comes once more, and does nothing."""
    node = scenario.node
    await scenario.does(node.create())
    await scenario.write(range(3))
    await scenario.does(node.finalize(1, [name(i) for i in range(3)]))
    scenario.claim_nothing()
    await scenario.does(node.ask(Delete(BLOCK, Generation(1))))
    scenario.claim_nothing()
    node.holder.payloads = [chunk(i) for i in range(3)]
    await scenario.does(node.finalize(2, [name(i) for i in range(3)]))
    assert isinstance(await node.ask(Delete(BLOCK, Generation(1))), Nack)
    scenario.claim()


# -- replicas of one short chunk, in the log that they share ---------------------------------------


async def small_disk_votes(scenario: Scenario) -> None:
    await scenario.does(scenario.node.create(small=True))
    await scenario.write(range(1))
    await scenario.does(scenario.node.finalize(1, [name(0)]))


async def small_memory_votes(scenario: Scenario) -> None:
    await scenario.does(scenario.node.create(durability=Durability.MEMORY, small=True))
    await scenario.write(range(1))
    await scenario.does(scenario.node.finalize(1, [name(0)]))


async def _made_with_its_chunk(scenario: Scenario, durability: Durability) -> None:
    """Both records are there, or one, before any sync; it takes a segment that has room."""
    node, create = scenario.node, Create(BLOCK, WINDOW, durability, small=True)
    store = node.volumes[0].store
    assert isinstance(store, FileStore)
    await node.volumes[0].run(store.small.log.begin_segment)
    scenario.issue(name(0))
    making = node.acceptor.begin_whole(CreateAndWrite(node.storage, create, frame(0)[1]))
    assert making is not None
    await scenario.does(making)
    await scenario.does(node.finalize(1, [name(0)]))


async def small_made_with_its_chunk(scenario: Scenario) -> None:
    await _made_with_its_chunk(scenario, Durability.DISK)


async def small_made_with_its_chunk_in_memory(scenario: Scenario) -> None:
    await _made_with_its_chunk(scenario, Durability.MEMORY)


async def small_and_empty(scenario: Scenario) -> None:
    await scenario.does(scenario.node.create(small=True))
    await scenario.does(scenario.node.finalize(1, []))


async def small_and_fetched(scenario: Scenario) -> None:
    """The chunk that was decided is not here: it comes from a holder, to files of its own."""
    node = scenario.node
    node.holder.payloads = [chunk(0)]
    await scenario.does(node.create(small=True))
    scenario.issue(name(0))
    await scenario.does(node.finalize(1, [name(0)]))


async def small_deleted_beside_a_sync(scenario: Scenario) -> None:
    """The kernel syncs the log for another replica; what a delete says meanwhile it need not have
    seen."""
    node, volume = scenario.node, scenario.node.volumes[0]
    await scenario.does(node.create(small=True))
    await scenario.write(range(1))
    await scenario.does(node.finalize(1, [name(0)]))
    store, ends = volume.store, list[Callable[[], None]]()
    assert isinstance(store, FileStore)
    with ThreadPoolExecutor(1) as threads:
        store.small.log.limits = SmallLimits(4096, worth_bytes=1, worth_share=0)
        volume.commit = GroupCommit(threads, 1, SimulatedSyncs(scenario.disk, ends.append))
        creating = asyncio.ensure_future(node.create(OTHER, small=True))
        await wait_until_async(lambda: bool(ends))
        scenario.claim_nothing()
        deleting = asyncio.ensure_future(node.ask(Delete(BLOCK, Generation(1))))
        await wait_until_async(lambda: BLOCK not in store.small)
        ends.pop()()
        await scenario.does(deleting)
        assert isinstance(await creating, Created)


async def small_and_recovered(scenario: Scenario) -> None:
    """A promise takes it to files of its own, where it stays."""
    await scenario.does(scenario.node.create(small=True))
    await scenario.write(range(1))
    await scenario.does(scenario.node.next_gs(1))
    await scenario.does(scenario.node.recover(1, [name(0)]))
    await scenario.does(scenario.node.finalize(2, [name(0)]))


async def small_and_opened_again(scenario: Scenario) -> None:
    """It grows beyond what is small."""
    node = scenario.node
    await scenario.does(node.create(small=True))
    await scenario.write(range(1))
    await scenario.does(node.finalize(1, [name(0)]))
    await scenario.does(node.reopen(2, [name(0)], finalized=1))
    await scenario.write(range(1, 3), generation=2)
    await scenario.does(node.finalize(3, [name(i) for i in range(3)], epoch=2))


async def small_and_finalized_again(scenario: Scenario) -> None:
    await scenario.does(scenario.node.create(small=True))
    await scenario.write(range(1))
    for generation in (1, 2):
        await scenario.does(scenario.node.finalize(generation, [name(0)]))


async def small_deleted_and_back(scenario: Scenario) -> None:
    node = scenario.node
    for _ in range(2):
        await scenario.does(node.create(small=True))
        await scenario.write(range(1))
        await scenario.does(node.finalize(1, [name(0)]))
        scenario.claim_nothing()
        await scenario.does(node.ask(Delete(BLOCK, Generation(1))))
        scenario.claim_nothing()
    await scenario.does(node.create())
    await scenario.write(range(2))


async def small_and_damaged(scenario: Scenario) -> None:
    """D9: a full copy in files takes the place of one that was found to be dead."""
    node = scenario.node
    node.holder.payloads = [chunk(0)]
    await scenario.does(node.create(small=True))
    await scenario.write(range(1))
    await scenario.does(node.finalize(1, [name(0)]))
    block = node.acceptor.find(BLOCK, node.storage)
    assert block is not None
    scenario.claim(dead=True)
    block.mark_corrupt("a bit has flipped")
    await scenario.does(node.finalize(1, [name(0)]))


async def small_in_many_segments(scenario: Scenario) -> None:
    """Room is won back with every step: records are copied, segments go."""
    node, store = scenario.node, scenario.node.volumes[0].store
    for durability in (Durability.MEMORY, Durability.DISK):
        await scenario.does(node.create(durability=durability, small=True))
        await scenario.does(node.volumes[0].run(store.tidy))
        await scenario.write(range(1))
        await scenario.does(node.volumes[0].run(store.tidy))
        await scenario.does(node.finalize(1, [name(0)]))
        for _ in range(6):
            await scenario.does(node.volumes[0].run(store.tidy))
        scenario.claim_nothing()
        await scenario.does(node.ask(Delete(BLOCK, Generation(1))))
        scenario.claim_nothing()
        await node.volumes[0].run(store.tidy)


SMALL_SCENARIOS = [
    small_disk_votes,
    small_memory_votes,
    small_made_with_its_chunk,
    small_made_with_its_chunk_in_memory,
    small_and_empty,
    small_and_fetched,
    small_deleted_beside_a_sync,
    small_and_recovered,
    small_and_opened_again,
    small_and_finalized_again,
    small_deleted_and_back,
    small_and_damaged,
    small_in_many_segments,
]

SCENARIOS = [
    disk_votes,
    memory_votes,
    memory_votes_and_one_synced,
    promise_beside_a_vote,
    recovery_that_extends,
    full_copy_over_another_log,
    full_copy_to_an_empty_storage,
    full_copy_over_a_log_that_was_not_decided,
    full_copy_over_damaged_bytes,
    append_to_a_finalized_block,
    opened_again_and_again,
    opened_again_and_deleted,
    promises_of_an_empty_replica,
    delete_and_come_back,
    members_that_leave,
    leave_and_come_back_by_a_copy,
    *SMALL_SCENARIOS,
]


@dataclass(frozen=True, slots=True)
class Truth:
    """The content that must be on the disk at some point of a journal, and the content that may."""

    claim: Claim
    issued: frozenset[Issued]

    def check(self, files: Files, boot: str = "boot-2", *, records: bool = False) -> SimulatedDisk:
        """Load `files` as after a crash of the machine; return the disk as it was left."""
        disk = SimulatedDisk(files, records=records)
        store = FileStore(disk, FOLDER, boot)
        loaded = _of_block(load_all(store))
        self._check_loaded(loaded, store)
        assert _told_by(tuple(disk.files().items())) == [_told(one) for one in loaded]
        return disk

    def _check_loaded(self, loaded: list[Loaded], store: FileStore) -> None:
        promised = self.claim.replica
        if promised is None:
            assert not (self.claim.gone and loaded), "a deleted replica came back"
        else:
            assert len(loaded) == 1, "a replica that was told to be there is gone"
        for one in loaded:
            assert one.corrupt == "" or self.claim.dead
            assert one.replica is not None
            self._check_replica(one.replica)
            self._check_bytes(one, store)

    def _check_replica(self, found: Replica) -> None:
        assert set(found.log) <= {one.name for one in self.issued}, "nobody wrote this chunk"
        now = found.registers
        voted = {one.name for one in self.issued if one.generation == now.accepted_generation}
        above = found.log.slice(now.base_length, found.length)
        assert set(above) <= voted, "nobody wrote this chunk in the accepted generation"
        rbw = now.state is ReplicaState.RBW
        assert now.weak == (rbw and now.durability is Durability.MEMORY)
        told = self.claim.replica
        if told is None:
            return
        before = told.registers
        assert now.max_generation >= before.max_generation, "a promise was forgotten"
        assert now.accepted_generation >= before.accepted_generation, "a vote was forgotten"
        if now.accepted_generation == before.accepted_generation:
            durable = told.log.truncate(self.claim.synced)
            assert found.log.starts_with(durable), "a durable vote was forgotten"
            assert now.state is before.state
        if before.state is ReplicaState.FINALIZED:
            assert found.log.starts_with(told.log), "a decided chunk was forgotten"

    def _check_bytes(self, one: Loaded, store: FileStore) -> None:
        assert one.files is not None
        assert one.replica is not None
        log = one.replica.log
        with closing_reader(store, one.files) as file:
            if len(log):
                data = store.read_stored(file, BLOCK, log, range(len(log))).whole
                check_records(BLOCK, log.slice(0, len(log)), data)
        if isinstance(one.files, ReplicaFiles):
            assert store.disk.size_of(one.files.path) == record_start(log, len(log))
        store.check_metadata(one.files, one.replica)


@contextmanager
def closing_reader(store: FileStore, files: Stored) -> Iterator[OpenFile]:
    file = store.open(files)
    try:
        yield file
    finally:
        file.retire()


@functools.cache
def _told_by(files: tuple[tuple[Path, bytes], ...]) -> list[object]:
    """Return what the next start finds. Most repairs end in the same files."""
    store = FileStore(SimulatedDisk(dict(files)), FOLDER, "boot-4")
    return [_told(one) for one in _of_block(load_all(store))]


def _of_block(loaded: list[Loaded]) -> list[Loaded]:
    return [one for one in loaded if one.block == BLOCK]


def _told(one: Loaded) -> object:
    assert one.replica is not None
    return replace(one.replica, restarted=True), one.corrupt


class Different:
    """Picks what was not met before: many moments leave the same states, and to load one of them
    again for the same truth tells nothing."""

    def __init__(self) -> None:
        self._met: set[tuple[frozenset[tuple[Path, bytes]], Truth]] = set()

    def of(self, states: Iterator[Files], truth: Truth) -> Iterator[Files]:
        """Yield those of the states in which this truth has not been looked for."""
        for files in states:
            met = frozenset(files.items()), truth
            if met not in self._met:
                self._met.add(met)
                yield files


def _truths(disk: SimulatedDisk) -> Iterator[tuple[Moment, Truth]]:
    """For each moment from the start of the scenario on."""
    claim, issued = Claim(None, 0), frozenset[Issued]()
    for moment in disk.history:
        if isinstance(moment.note, Claim):
            claim = moment.note
        elif isinstance(moment.note, Issued):
            issued |= {moment.note}
        yield moment, Truth(claim, issued)


async def _record(scenario: Callable[[Scenario], Awaitable[None]]) -> SimulatedDisk:
    disk = SimulatedDisk(records=True)
    async with running(FOLDER, disk=disk, holder=Holder(), limits=SHORT_SEGMENTS) as node:
        await scenario(Scenario(node, disk))
    return disk


@IN_SHARES
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_a_power_cut_takes_nothing_that_was_told_and_adds_nothing(
    scenario: Callable[[Scenario], Awaitable[None]], every: int
) -> None:
    disk = await _record(scenario)
    states, different = 0, Different()
    for seed, (moment, truth) in share(enumerate(_truths(disk)), every):
        for files in different.of(moment.states(STATES_PER_POINT, seed), truth):
            truth.check(files)
            states += 1
    assert states >= len(disk.history) / every


@IN_SHARES
@pytest.mark.parametrize(
    "scenario",
    [each for each in SCENARIOS if each is not small_in_many_segments],
    ids=lambda scenario: scenario.__name__,
)
async def test_a_second_power_cut_while_loading_takes_nothing_either(
    scenario: Callable[[Scenario], Awaitable[None]], every: int
) -> None:
    disk = await _record(scenario)
    repairs, different, half = 0, Different(), Different()
    for seed, (moment, truth) in share(enumerate(_truths(disk), start=1), every):
        for files in different.of(moment.states(4, seed), truth):
            loading = truth.check(files, records=True)
            for at, loaded in enumerate(loading.history[:-1]):
                for half_loaded in half.of(loaded.states(4, at), truth):
                    truth.check(half_loaded, "boot-3")
                    repairs += 1
    assert repairs > 0, "some crash must leave something to repair"


@IN_SHARES
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_a_power_cut_takes_nothing_that_a_restarted_process_told(
    scenario: Callable[[Scenario], Awaitable[None]], every: int
) -> None:
    """A process was killed in the middle of a step, the next one finds all that was handed to the
    system, and answers; then the power goes: while it begins, or after its answer."""
    disk = await _record(scenario)
    answers, different = 0, Different()
    for seed, (moment, truth) in share(enumerate(_truths(disk)), every):
        again = SimulatedDisk.when_killed_at(moment)
        async with running(FOLDER, disk=again, holder=Holder(), limits=SHORT_SEGMENTS) as node:
            begun = len(again.history)
            await node.ask(Read(BLOCK, sync=True))
            found = node.acceptor.find(BLOCK, node.storage)
            Scenario(node, again).claim(dead=found is not None and found.corrupt != "")
        for at, loading in enumerate(again.history[seed % 3 : begun : 3]):
            for files in different.of(loading.states(2, seed + at), truth):
                truth.check(files)
        last = next(each for each in again.history[begun:] if isinstance(each.note, Claim))
        assert isinstance(last.note, Claim)
        answers += last.note.replica is not None
        told = Truth(last.note, truth.issued)
        for files in different.of(last.states(8, seed), told):
            told.check(files)
    assert answers > 0


@pytest.mark.parametrize("again", [False, True], ids=["one process", "two processes"])
@pytest.mark.parametrize("dead", [False, True], ids=["sound", "dead"])
async def test_what_is_left_in_the_other_folder_is_as_gone_as_the_replica_that_is_deleted(
    dead: bool, again: bool
) -> None:
    disk = SimulatedDisk(records=True)
    async with running(FOLDER, disk=disk, holder=Holder(), limits=SHORT_SEGMENTS) as node:
        await node.create()
        await node.write(2)
        await node.finalize(1, [name(0), name(1)])
        deleted = None if again else await _delete(node, disk, dead=dead)
    if deleted is None:
        async with running(FOLDER, disk=disk, holder=Holder(), limits=SHORT_SEGMENTS) as node:
            deleted = await _delete(node, disk, dead=dead)
    for files in deleted.states(STATES_PER_POINT, 1):
        assert load_all(FileStore(SimulatedDisk(files), FOLDER, "boot-2")) == []


async def _delete(node: Node, disk: SimulatedDisk, *, dead: bool) -> Moment:
    """Delete the replica, which may be dead; return the moment of the answer."""
    block = node.acceptor.find(BLOCK, node.storage)
    assert block is not None
    if dead:
        block.mark_corrupt("a bit has flipped")
    assert not isinstance(await node.ask(Delete(BLOCK, Generation(1))), Nack)
    return disk.history[-1]


def test_a_power_cut_while_a_volume_enters_a_cluster_leaves_it_in_none_or_in_this_one() -> None:
    disk = SimulatedDisk(records=True)
    disk.make_folder(FOLDER)
    before = give_identity(disk, FOLDER, "node-1")
    given = len(disk.history)
    after = enter_cluster(disk, FOLDER, before, "cluster-1")
    found = set()
    for seed, moment in enumerate(disk.history[given - 1 :]):
        for files in moment.states(STATES_PER_POINT, seed):
            again = read_identity(SimulatedDisk(files), FOLDER)
            found.add(again)
            assert again == after or moment is not disk.history[-1], "what was answered is durable"
            again = enter_cluster(SimulatedDisk(files), FOLDER, before, "cluster-1")
            assert again == after, "the next start enters again"
    assert found == {before, after}
