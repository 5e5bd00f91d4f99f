"""Step 4 of a chunk's way: the block's length is decided once.

Each function is one compare-and-set on the block's record in the KV (PROTOCOL.md 3, K): it gets the
record as it is when the change is applied, and returns the next one or a `Refused`. Nothing else
changes a record.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec
from msgspec.structs import replace

from paxosblock.protocol.invariants import invariant, invariants
from paxosblock.protocol.messages import Finalize, Grant
from paxosblock.protocol.types import (
    FIRST_GENERATION,
    LEAP_MAX,
    NO_GENERATION,
    BlockId,
    BlockState,
    Durability,
    Generation,
    StorageId,
    WriterId,
)

SKIPPED: Final = 1 << 20
"""Generations that no writer or recovery gets after a restore (K14): more than a block can have
been given since the backup. A DataNode believes in a jump of many times that."""


class BlockRecord(msgspec.Struct, frozen=True, gc=False):
    """The KV's record of one block (PROTOCOL.md 1 and 3, K).

    `generation` is the highest allocated so far; `members` are the storages of the epoch
    `writer_generation`; `length` (chunks) and `size_bytes` hold once FINALIZED; `base_length` is
    the length at which the epoch started. `forced` says that an operator gave up members of this
    epoch (P2), so its writer may no longer end the block. `cut_generation` is the finalized
    generation under which the block was last cut (K8): a reader that knew the block before must
    look again. `restored` says that the record is of a backup, and that what became of the block
    since is not learned yet (K14).
    """

    block: BlockId
    state: BlockState
    generation: Generation
    writer_generation: Generation
    members: tuple[StorageId, ...]
    writer: WriterId
    window: int
    durability: Durability
    base_length: int = 0
    finalized_generation: Generation = NO_GENERATION
    length: int = 0
    size_bytes: int = 0
    forced: bool = False
    cut_generation: Generation = NO_GENERATION
    restored: bool = False

    @property
    def finalized(self) -> bool:
        """True if the length is decided."""
        return self.state is BlockState.FINALIZED

    @property
    def reopening(self) -> bool:
        """True from K4 until the APPEND is installed (K7) or ended (K9, K13)."""
        newer = self.generation > self.finalized_generation
        return self.finalized and newer and not self.restored

    @property
    def may_be_empty(self) -> bool:
        """True if a backup brought it back as a block without a chunk that was decided (K14)."""
        decided = self.length if self.finalized else self.base_length
        return self.restored and not decided

    def check_follows(self, before: BlockRecord) -> None:
        """I8: check the rules between two successive versions of a record."""
        holds = invariants(self, before)
        holds(self.finalized_generation <= self.generation, "I8 fgs <= gs")
        holds(self.writer_generation <= self.generation, "I8 wgs <= gs")
        holds(self.generation >= before.generation, "I8 gs is monotone")
        holds(self.cut_generation >= before.cut_generation, "I8 the last cut is remembered")
        if not (before.finalized and self.finalized):
            same = self.members == before.members
            renewed = self.writer_generation > before.writer_generation
            holds(same or renewed, "I8 R changes only with wgs")
            return
        if before.restored:
            return  # what was recorded is what was once (K14)
        anew = self.finalized_generation > before.finalized_generation
        cut = anew and self.cut_generation == self.finalized_generation
        holds(cut or self.length == before.length, "I8 L changes only by K8")
        stayed = all(member in self.members for member in before.members)
        holds(anew or stayed, "I8 a member leaves only with fgs")


class Why(enum.Enum):
    """The reason why a compare-and-set did not apply."""

    FINALIZED = "finalized"
    """The length is decided already; adopt it."""
    NOT_FINALIZED = "not_finalized"
    """The block is still being written or recovered."""
    NEWER = "newer"
    """A later generation was allocated; give way to it."""
    NOT_WRITER = "not_writer"
    """Another writer may use this block's writer generation."""
    BAD_LENGTH = "bad_length"
    """The block cannot have the length asked for."""
    TOO_FEW = "too_few"
    """Too few other members are known to hold the block."""
    RESTORED = "restored"
    """The record is of a backup, and what became of the block since is not known yet (K14)."""


class Refused(msgspec.Struct, frozen=True, gc=False):
    """The guard did not hold; `record` stays as it is."""

    why: Why
    record: BlockRecord


def add_block(
    block: BlockId,
    members: tuple[StorageId, ...],
    writer: WriterId,
    window: int,
    durability: Durability,
) -> BlockRecord:
    """K1: the record of a new block, whose generation 0 belongs to `writer`."""
    return BlockRecord(
        block=block,
        state=BlockState.UNDER_CONSTRUCTION,
        generation=FIRST_GENERATION,
        writer_generation=FIRST_GENERATION,
        members=members,
        writer=writer,
        window=window,
        durability=durability,
    )


def allocate_seal(
    record: BlockRecord, *, forced: bool = False, above: Generation = NO_GENERATION
) -> BlockRecord | Refused:
    """K2: a fresh generation for a SEAL; the record says that a recovery is under way.

    `forced` says that the recovery gives up members (P2). `above` is the highest promise that
    members named (P7), which may never have been allocated: the generation is above it, or as near
    as it may be.
    """
    if record.restored:
        return Refused(Why.RESTORED, record)
    if record.finalized:
        return Refused(Why.FINALIZED, record)
    reached = min(max(record.generation + 1, above + 1), record.generation + LEAP_MAX)
    return replace(
        record,
        generation=Generation(reached),
        state=BlockState.UNDER_RECOVERY,
        forced=record.forced or forced,
    )


def allocate_rebuild(
    record: BlockRecord, writer: WriterId, generation: Generation
) -> BlockRecord | Refused:
    """K3: a fresh generation for the writer that holds `generation`."""
    if record.restored:
        return Refused(Why.RESTORED, record)
    if record.finalized:
        return Refused(Why.FINALIZED, record)
    if record.state is not BlockState.UNDER_CONSTRUCTION:
        return Refused(Why.NEWER, record)
    if record.writer != writer or record.writer_generation != generation:
        return Refused(Why.NOT_WRITER, record)
    return replace(record, generation=_next(record))


def allocate_append(record: BlockRecord) -> BlockRecord | Refused:
    """K4: a fresh generation for an APPEND; the block stays FINALIZED until K7."""
    if record.restored:
        return Refused(Why.RESTORED, record)
    if not record.finalized:
        return Refused(Why.NOT_FINALIZED, record)
    return replace(record, generation=_next(record))


def finalize_by_recovery(
    record: BlockRecord, base: Generation, generation: Generation, length: int, size_bytes: int
) -> BlockRecord | Refused:
    """K5: the SEAL of `generation` has its quorum. Only the latest generation may decide."""
    if record.restored:
        return Refused(Why.RESTORED, record)
    if record.finalized:
        return Refused(Why.FINALIZED, record)
    if record.state is not BlockState.UNDER_RECOVERY or record.writer_generation != base:
        return Refused(Why.NEWER, record)
    if record.generation != generation:
        return Refused(Why.NEWER, record)
    return _finalized(record, length, size_bytes)


def finalize_by_writer(
    record: BlockRecord, writer: WriterId, generation: Generation, length: int, size_bytes: int
) -> BlockRecord | Refused:
    """K6: the writer closes with all members holding exactly `length` chunks.

    It wins over recoveries that were only allocated: each of them would propose the same
    length, unless an operator gave members up. A repeated request finds the same record and
    succeeds again.
    """
    if record.restored:
        return Refused(Why.RESTORED, record)
    if record.writer != writer or record.writer_generation != generation:
        return Refused(Why.FINALIZED if record.finalized else Why.NOT_WRITER, record)
    if not record.finalized:
        # The forced recovery may have chosen the log of a member that lost votes, and other members
        # may have cut their logs to it.
        return (
            Refused(Why.NEWER, record) if record.forced else _finalized(record, length, size_bytes)
        )
    same = (record.length, record.size_bytes) == (length, size_bytes)
    return record if same else Refused(Why.FINALIZED, record)


def install_rebuild(
    record: BlockRecord,
    base: Generation,
    generation: Generation,
    members: tuple[StorageId, ...],
    length: int,
) -> BlockRecord | Refused:
    """K7 for a REBUILD: all of `members` accepted the log, so the writer gets the generation."""
    if record.restored:
        return Refused(Why.RESTORED, record)
    if record.finalized:
        return Refused(Why.FINALIZED, record)
    current = (
        record.state is BlockState.UNDER_CONSTRUCTION
        and record.writer_generation == base
        and record.generation == generation
    )
    if not current:
        return Refused(Why.NEWER, record)
    return replace(record, writer_generation=generation, members=members, base_length=length)


def install_append(
    record: BlockRecord,
    base: Generation,
    generation: Generation,
    members: tuple[StorageId, ...],
    writer: WriterId,
) -> BlockRecord | Refused:
    """K7 for an APPEND: the block is open again, for `writer`, at its recorded length."""
    if record.restored:
        return Refused(Why.RESTORED, record)
    if not record.finalized:
        return Refused(Why.NOT_FINALIZED, record)
    if record.writer_generation != base or record.generation != generation:
        return Refused(Why.NEWER, record)
    return replace(
        record,
        state=BlockState.UNDER_CONSTRUCTION,
        writer_generation=generation,
        members=members,
        writer=writer,
        base_length=record.length,
        forced=False,  # the operator spoke of the epoch that has ended
    )


def truncate(record: BlockRecord, length: int, size_bytes: int) -> BlockRecord | Refused:
    """K8: decide a shorter length (or, K9, the same one).

    `length` is in chunks: to cut inside a chunk, cut before it and append the part that is kept.
    """
    if record.restored:
        return Refused(Why.RESTORED, record)
    if not record.finalized:
        return Refused(Why.NOT_FINALIZED, record)
    if not 0 <= length <= record.length or size_bytes > record.size_bytes:
        return Refused(Why.BAD_LENGTH, record)
    cut = _finalized(record, length, size_bytes)
    return replace(cut, cut_generation=cut.generation) if length < record.length else cut


def give_up_append(record: BlockRecord) -> BlockRecord | Refused:
    """K9: end an APPEND that is not installed, under a generation above all that were promised.

    The version stays the same. Nothing changes if no APPEND is being set up.
    """
    return truncate(record, record.length, record.size_bytes) if record.reopening else record


def add_replica(
    record: BlockRecord, storage: StorageId, finalized_generation: Generation
) -> BlockRecord | Refused:
    """K12: add a member that reported Finalized to a finalized block."""
    if record.restored:
        return Refused(Why.RESTORED, record)
    if not record.finalized:
        return Refused(Why.NOT_FINALIZED, record)
    if record.finalized_generation != finalized_generation:
        return Refused(Why.NEWER, record)
    if storage in record.members:
        return record
    return replace(record, members=(*record.members, storage))


def remove_replica(
    record: BlockRecord,
    storage: StorageId,
    finalized_generation: Generation,
    whole: tuple[StorageId, ...],
    wanted: int,
) -> BlockRecord | Refused:
    """K13: a member of a finalized block leaves, if enough others are known to hold it.

    `whole` are the other members that reported Finalized of `finalized_generation`; `wanted`, at
    least one, of them must stay. The version stays the same, under a fresh generation: a Delete
    still on its way to the member that left (D7) names an older generation, so it does nothing if
    that storage has become a member again by then (K12).
    """
    if record.restored:
        return Refused(Why.RESTORED, record)
    if not record.finalized:
        return Refused(Why.NOT_FINALIZED, record)
    if record.finalized_generation != finalized_generation:
        return Refused(Why.NEWER, record)
    if storage not in record.members:
        return record
    others = tuple(member for member in record.members if member != storage)
    holds = invariants(record, storage, whole, wanted)
    holds(wanted >= 1, "K13 a block is wanted at one storage at least")
    holds(all(member in others for member in whole), "K13 others, which are members, stay")
    if len(set(whole)) < wanted:
        return Refused(Why.TOO_FEW, record)
    generation = _next(record)
    return replace(record, generation=generation, finalized_generation=generation, members=others)


def granted(record: BlockRecord, writer: WriterId, generation: Generation) -> Grant | Refused:
    """P6: the answer to the Rebuild that `writer` asked for in `generation`, once K7 came, for each
    copy of it.

    Another writer's REBUILD may have ended meanwhile: its Grant is for that writer alone, as a
    generation has one proposer.
    """
    if record.finalized:
        return Refused(Why.FINALIZED, record)
    if record.state is not BlockState.UNDER_CONSTRUCTION:
        return Refused(Why.NEWER, record)
    if record.writer != writer or record.writer_generation <= generation:
        return Refused(Why.NOT_WRITER, record)
    return grant(record)


def bring_back(record: BlockRecord) -> BlockRecord:
    """Return the record as a restored catalog has it: generations go on far above those of the
    backup, and nothing is allocated or decided by it before `learn`."""
    generation = Generation(record.generation + SKIPPED)
    return replace(record, generation=generation, restored=True)


def allocate_learning(record: BlockRecord, heard: Generation) -> BlockRecord | Refused:
    """K14: a fresh generation for a LEARN, above the highest promise that was `heard` of.

    A promise above the record's generation was made after an earlier restore of the same backup:
    others of that time may be unheard, so what follows is skipped again.
    """
    if not record.restored:
        return Refused(Why.NEWER, record)
    highest = heard + SKIPPED if heard > record.generation else record.generation
    return replace(record, generation=Generation(highest + 1))


def learn(
    record: BlockRecord,
    generation: Generation,
    members: tuple[StorageId, ...],
    *,
    length: int,
    size_bytes: int,
    epoch: Generation,
) -> BlockRecord | Refused:
    """K14: all of `members` accepted the log that the LEARN of `generation` chose, of `epoch`.

    It is the block's from now on, in an epoch of its own. Unless it goes on with the log that the
    record knew, readers have to look again.
    """
    if not record.restored or record.generation != generation:
        return Refused(Why.NEWER, record)
    known = epoch == record.writer_generation and length >= record.length
    learned = _finalized(record, length, size_bytes)
    return replace(
        learned,
        writer_generation=generation,
        members=members,
        base_length=length,
        forced=False,
        cut_generation=record.cut_generation if known else learned.generation,
        restored=False,
    )


def grant(record: BlockRecord) -> Grant:
    """P6: the message to the writer of the installed config."""
    return Grant(record.block, record.writer_generation, record.members, record.base_length)


def goes_on(copied: BlockRecord, current: BlockRecord) -> bool:
    """True if all chunks of the version `copied` that `current` has room for are those of
    `current`: it is of the same epoch, which has one log (I3), or nothing was cut since.

    Both were read in one term of a leader: no backup was brought back in between, after which it is
    not known what was cut (K14).
    """
    if not current.finalized or current.restored:
        return False
    same_epoch = current.writer_generation == copied.writer_generation
    return same_epoch or current.cut_generation <= copied.finalized_generation


def finalize_message(
    record: BlockRecord,
    holders: tuple[StorageId, ...] = (),
    beginning: Generation = NO_GENERATION,
) -> Finalize:
    """P5: the message to every member of a FINALIZED block, until it reports Finalized.

    `holders` are storages that are known to hold the whole version. Nothing was cut since the
    version `beginning`, if that is named.
    """
    invariant(record.finalized, "P5 Finalize follows the decision", record)
    return Finalize(
        block=record.block,
        finalized_generation=record.finalized_generation,
        epoch=record.writer_generation,
        length=record.length,
        size_bytes=record.size_bytes,
        holders=holders,
        window=record.window,
        durability=record.durability,
        beginning=beginning,
    )


def _next(record: BlockRecord) -> Generation:
    return Generation(record.generation + 1)


def _finalized(record: BlockRecord, length: int, size_bytes: int) -> BlockRecord:
    generation = _next(record)
    return replace(
        record,
        state=BlockState.FINALIZED,
        generation=generation,
        finalized_generation=generation,
        length=length,
        size_bytes=size_bytes,
    )
