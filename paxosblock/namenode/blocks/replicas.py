"""The storages that reported a block finalized: soft state, rebuilt from block reports.

`judge`, which is pure, decides what to do about one reported replica. `Replicas` remembers the
storages that hold the decided version, and wakes tasks that wait for a block to be complete.
"""

from __future__ import annotations

import asyncio
import enum
import sys
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

import msgspec
from sortedcontainers import SortedList

from paxosblock.api.datanode import ReplicaSummary
from paxosblock.api.reports import BlockRange
from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.types import (
    NO_GENERATION,
    BlockId,
    Generation,
    ReplicaState,
    StorageId,
)

PARTS: Final = 256
"""Dictionaries that share the blocks (`_ByBlock`)."""


class Verdict(enum.Enum):
    """The verdict on a reported replica, which tells what to do about it."""

    FINE = "fine"
    HOLDS = "holds"
    """A member has exactly the decided version, which counts for completeness."""
    COPIED = "copied"
    """A storage that is not a member yet has a finished copy of the decided version (K12)."""
    FINALIZE = "finalize"
    """A member is not at the decided version yet: tell it again (P5)."""
    DELETE = "delete"
    """The storage is not a member of the block, or the block is gone."""
    KNOWN = "known"
    """It is not known yet what became of the block since a backup; here is a replica (K14)."""
    DAMAGED = "damaged"
    """A member's replica is dead: a full copy must replace it (D9)."""
    ALARM = "alarm"
    """An invariant is broken: touch nothing, an operator must look."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict and its reason. DELETE takes replicas up to `up_to` (D7)."""

    verdict: Verdict
    why: str = ""
    up_to: Generation = NO_GENERATION


FINE = Judgement(Verdict.FINE)


def judge(record: BlockRecord | None, ours: bool, summary: ReplicaSummary) -> Judgement:
    """Compare a reported replica with the block's record (K12, K14, I6, I7, I9).

    `ours` is True if this cluster ever allocated the block; it matters if `record` is None.
    """
    state = summary.state.registers
    if state.state is ReplicaState.TEMPORARY:
        return FINE
    if record is not None and record.restored:
        return _judge_restored(record, summary)
    if record is None or state.max_generation > record.generation:
        return _judge_unknown(record, ours, state.max_generation)
    if record.finalized:
        return _judge_finalized(record, summary)
    return _judge_open(record, summary)


def judge_dead(
    record: BlockRecord | None, ours: bool, storage: StorageId, promised: Generation
) -> Judgement:
    """Compare a dead replica at `storage`, which promised that generation, with the block's record
    (D7, D9, I9). `record` and `ours` are as in `judge`.

    A copy that died before it became a member is made again. It may be a member by now, so its
    replica of the current version must not be deleted (D7).
    """
    if record is not None and record.restored and storage not in record.members:
        return FINE
    if record is None or (promised > record.generation and not record.restored):
        return _judge_unknown(record, ours, promised)
    if storage in record.members:
        return Judgement(Verdict.DAMAGED)
    if promised == record.finalized_generation == record.generation:
        return Judgement(Verdict.FINALIZE, "is a damaged copy")
    return _judge_stranger(record, promised)


def _judge_unknown(record: BlockRecord | None, ours: bool, promised: Generation) -> Judgement:
    """Judge a replica of a block without a record, or of a generation that the record is not at."""
    if record is not None:
        return Judgement(Verdict.ALARM, "I9 a generation that was never allocated")
    if not ours:
        return Judgement(Verdict.ALARM, "I9 a block that this cluster never allocated")
    return Judgement(Verdict.DELETE, "the block was deleted", promised)


def _judge_restored(record: BlockRecord, summary: ReplicaSummary) -> Judgement:
    """K14: the record tells what was. A member may have just that; whatever else there is, no
    storage is told to change or to delete it."""
    reply = summary.state
    state, decided = reply.registers, record.finalized_generation
    current = state.state is ReplicaState.FINALIZED and state.accepted_generation == decided
    as_recorded = (reply.length, reply.size_bytes) == (record.length, record.size_bytes)
    member = summary.storage in record.members
    return Judgement(Verdict.HOLDS if member and current and as_recorded else Verdict.KNOWN)


def _judge_finalized(record: BlockRecord, summary: ReplicaSummary) -> Judgement:
    reply, decided = summary.state, record.finalized_generation
    state = reply.registers
    current = state.state is ReplicaState.FINALIZED and state.accepted_generation == decided
    stranger = summary.storage not in record.members
    if stranger and not current:
        return _judge_stranger(record, state.max_generation)
    if not current:
        of_epoch = state.accepted_generation >= record.writer_generation
        if state.state is ReplicaState.FINALIZED and of_epoch and reply.length < record.length:
            return Judgement(Verdict.ALARM, "I7 what is finalized later in an epoch is longer")
        return Judgement(Verdict.FINALIZE, f"is at generation {state.accepted_generation}")
    if (reply.length, reply.size_bytes) != (record.length, record.size_bytes):
        return Judgement(Verdict.ALARM, "I7 equal generations and different lengths")
    return Judgement(Verdict.COPIED if stranger else Verdict.HOLDS)


def _judge_open(record: BlockRecord, summary: ReplicaSummary) -> Judgement:
    state, epoch = summary.state.registers, record.writer_generation
    if summary.storage not in record.members:
        return _judge_stranger(record, state.max_generation)
    if state.state is ReplicaState.FINALIZED and state.accepted_generation >= epoch:
        return Judgement(Verdict.ALARM, "I6 finalized before the block was decided")
    return FINE


def _judge_stranger(record: BlockRecord, promised: Generation) -> Judgement:
    """Judge the replica of a storage that is not a member: it is deleted (D7), unless it may be
    about to make its storage a member.

    A copy of the decided version becomes a member by K12. A target of an APPEND or REBUILD under
    way has promised more than the current generation.
    """
    up_to = leftovers_up_to(record)
    if promised > up_to:
        return FINE
    return Judgement(Verdict.DELETE, "no member of the block", up_to)


def leftovers_up_to(record: BlockRecord) -> Generation:
    """Return the last version whose leftovers may be deleted, however late the Delete arrives: the
    one before the current version (D7)."""
    current = record.finalized_generation if record.finalized else record.writer_generation
    return Generation(current - 1)


class _HeldVersion(msgspec.Struct, frozen=True, gc=False):
    """The holders of the version `generation`, and the CRC32C of its last chunk, once known.

    `before` has the storages that have reported only an earlier version. Every block has one of
    these: a garbage collection that visited them all would stop the loop.
    """

    generation: Generation
    storages: tuple[StorageId, ...]
    last_crc: int | None = None
    before: _HeldVersion | None = None

    def versions(self) -> Iterator[_HeldVersion]:
        """Yield this version and the earlier ones, the latest first."""
        held: _HeldVersion | None = self
        while held is not None:
            yield held
            held = held.before


def _noted(
    held: _HeldVersion | None, generation: Generation, storage: StorageId, crc: int | None
) -> _HeldVersion:
    """Return `held` with one more holder, which leaves any other version."""
    if held is None or held.generation < generation:
        return _HeldVersion(generation, (storage,), crc, _without(held, storage))
    if held.generation > generation:
        before = _noted(held.before, generation, storage, crc)
        return _HeldVersion(held.generation, held.storages, held.last_crc, before)
    known = storage in held.storages and held.before is None
    if known and (crc is None or crc == held.last_crc):
        return held
    crc = held.last_crc if crc is None else crc
    storages = held.storages if storage in held.storages else (*held.storages, storage)
    return _HeldVersion(generation, storages, crc, _without(held.before, storage))


def _without(held: _HeldVersion | None, storage: StorageId) -> _HeldVersion | None:
    if held is None:
        return None
    before = _without(held.before, storage)
    left = tuple(other for other in held.storages if other != storage)
    return _HeldVersion(held.generation, left, held.last_crc, before) if left else before


class _ByBlock:
    """A `_HeldVersion` by block, in many dictionaries: one that grows is copied in one turn of
    the loop, which takes 25 ms at a million blocks."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: tuple[dict[BlockId, _HeldVersion], ...] = tuple({} for _ in range(PARTS))

    def get(self, block: BlockId) -> _HeldVersion | None:
        return self._parts[block % PARTS].get(block)

    def put(self, block: BlockId, held: _HeldVersion | None) -> None:
        """Keep `held`; None: nothing."""
        part = self._parts[block % PARTS]
        if held is not None:
            part[block] = held
        else:
            part.pop(block, None)


class Replicas:
    """The holders of each finalized version, as far as it was reported to this NameNode."""

    def __init__(self, min_replication: int = 1) -> None:
        """Start knowing nothing; DataNodes report when they register.

        With `min_replication` holders a block counts as complete.
        """
        self._min_replication = min_replication
        self.complete = 0
        """Blocks with enough holders; kept up to date, as counting them all would take too long."""
        self._held = _ByBlock()
        self._by_storage: dict[StorageId, SortedList] = {}  # of BlockId, each once
        self._damaged: dict[BlockId, frozenset[StorageId]] = {}
        self._unclear: dict[BlockId, frozenset[StorageId]] = {}
        """Storages with a replica that does not fit the block's record, or is not FINALIZED."""
        self._waiting: dict[BlockId, asyncio.Event] = {}

    def count(self, storages: Iterable[StorageId]) -> int:
        """Return how many finalized replicas these storages hold."""
        return sum(len(self._by_storage.get(storage, ())) for storage in storages)

    def note(
        self,
        block: BlockId,
        storage: StorageId,
        generation: Generation,
        last_crc: int | None = None,
    ) -> bool:
        """Note that `storage` holds the version `generation`; False if another holder's bytes
        differ (I7).
        """
        storage = StorageId(sys.intern(storage))
        held = self._held.get(block)
        for other in held.versions() if held is not None else ():
            if other.generation > generation and storage in other.storages:
                return True
            known = other.last_crc if other.generation == generation else None
            if known is not None and last_crc not in (None, known):
                return False
        noted = _noted(held, generation, storage, last_crc)
        if noted is held:
            return True
        self._keep(block, noted)
        if block in self._damaged:
            self._mend(block, {storage})
        if (unclear := self._unclear.get(block)) is not None:
            self._keep_unclear(block, unclear - {storage})
        if (blocks := self._by_storage.get(storage)) is None:
            blocks = self._by_storage[storage] = SortedList()
        if block not in blocks:
            blocks.add(block)
        if (waiting := self._waiting.pop(block, None)) is not None:
            waiting.set()
        return True

    def forget(self, block: BlockId, storage: StorageId) -> None:
        """Note that `storage` no longer holds the block, or that its replica cannot be trusted."""
        if (blocks := self._by_storage.get(storage)) is not None:
            blocks.discard(block)
        if (held := self._held.get(block)) is not None:
            self._keep(block, _without(held, storage))
        if (unclear := self._unclear.get(block)) is not None:
            self._keep_unclear(block, unclear - {storage})

    def note_unclear(self, block: BlockId, storage: StorageId) -> None:
        """Note that a storage has a replica whose worth is not clear."""
        self._keep_unclear(block, self._unclear.get(block, frozenset()) | {storage})

    def _keep_unclear(self, block: BlockId, storages: frozenset[StorageId]) -> None:
        if storages:
            self._unclear[block] = storages
        else:
            self._unclear.pop(block, None)

    def known(self, block: BlockId) -> frozenset[StorageId]:
        """Return all storages that are known to have a replica that is not damaged, members or not,
        whatever it is worth."""
        held = self._held.get(block)
        versions = held.versions() if held is not None else ()
        finalized = frozenset(storage for each in versions for storage in each.storages)
        return finalized | self._unclear.get(block, frozenset())

    def note_damaged(self, block: BlockId, storage: StorageId) -> None:
        """Note that the replica at `storage` is damaged, until it reports that it holds a version
        again.
        """
        self.forget(block, storage)
        self._damaged[block] = self._damaged.get(block, frozenset()) | {storage}

    def damaged(self, record: BlockRecord) -> frozenset[StorageId]:
        """Return the members whose replicas are known to be damaged."""
        known = self._damaged.get(record.block)
        if known is None:
            return frozenset()
        self._mend(record.block, known.difference(record.members))
        return self._damaged.get(record.block, frozenset())

    def _mend(self, block: BlockId, storages: Collection[StorageId]) -> None:
        left = self._damaged[block].difference(storages)
        if left:
            self._damaged[block] = left
        else:
            del self._damaged[block]

    def forget_block(self, block: BlockId) -> None:
        """Forget a block that was deleted."""
        self._damaged.pop(block, None)
        self._unclear.pop(block, None)
        if (held := self._held.get(block)) is not None:
            for version in held.versions():
                for storage in version.storages:
                    self._by_storage[storage].discard(block)
            self._keep(block, None)
        self._waiting.pop(block, None)

    def _keep(self, block: BlockId, held: _HeldVersion | None) -> None:
        """Remember the holders that the block has now, and count it; None if it has none."""
        self.complete += self._has_enough(held) - self._has_enough(self._held.get(block))
        self._held.put(block, held)

    def _has_enough(self, held: _HeldVersion | None) -> bool:
        if held is None:
            return False
        if held.before is None:
            return len(held.storages) >= self._min_replication
        return sum(len(each.storages) for each in held.versions()) >= self._min_replication

    def blocks_of(self, storage: StorageId, covers: BlockRange, limit: int) -> tuple[BlockId, ...]:
        """Return the first `limit` blocks of a range that the storage holds, in order."""
        blocks = self._by_storage.get(storage)
        if blocks is None:
            return ()
        return tuple(islice(blocks.irange(covers.after, covers.last, (False, True)), limit))

    def holders(self, record: BlockRecord) -> tuple[StorageId, ...]:
        """Return the members that hold the decided version: others may fetch it from them (D5)."""
        held = self._held.get(record.block)
        for version in held.versions() if held is not None else ():
            if version.generation == record.finalized_generation:
                return tuple(each for each in version.storages if each in record.members)
        return ()

    def whole(self, record: BlockRecord) -> tuple[StorageId, ...]:
        """Return the members that hold all chunks of a finalized block, under any generation.

        A replica that was finalized before in the same epoch is at least as long as what is decided
        now. So members stay whole after another one left (K13), or after a cut (K8), even before
        they hear of it.
        """
        held = self._held.get(record.block)
        if held is None or not record.finalized:
            return ()
        return tuple(
            storage
            for version in held.versions()
            if version.generation >= record.writer_generation
            for storage in version.storages
            if storage in record.members
        )

    def is_complete(self, record: BlockRecord, min_replication: int) -> bool:
        """True if enough members hold the decided version (HDFS: complete)."""
        needed = min(min_replication, len(record.members))
        return record.finalized and len(self.whole(record)) >= needed

    async def wait_complete(self, record: BlockRecord, min_replication: int) -> None:
        """Return once `record`'s version is complete. Bound it with a time-out."""
        while not self.is_complete(record, min_replication):
            changed = self._waiting.setdefault(record.block, asyncio.Event())
            await changed.wait()
