"""Step 5 of a chunk's way: quorum reads of an unfinalized block, and reads of a finalized one.

R2 is the default: linearizable and available with a majority. R1 is the seed's read (all members).
R3, the relaxed read, is not used here. A read first gets the block's record, after it was invoked
(K10).
"""

from __future__ import annotations

import enum

import msgspec
from msgspec.structs import replace

from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.messages import ReadReply
from paxosblock.protocol.quorum import Tally, read_quorum, tally
from paxosblock.protocol.types import (
    NO_GENERATION,
    BlockId,
    Generation,
    ReplicaState,
    StorageId,
)


class ReadProgress(enum.Enum):
    """The next thing that a quorum read needs."""

    WAITING = "waiting"
    """More answers; ask again the members that have not shown enough chunks."""
    DONE = "done"
    """`goal` is the answer."""
    STALE_RECORD = "stale_record"
    """Too many members have left the writer's generation: get the record and start over."""


class QuorumRead(msgspec.Struct, frozen=True, gc=False):
    """R2 (quorum = floor(n/2)+1) or R1 (quorum = n) of one block under construction.

    `answers` are the latest good answers: storage, chunks, bytes. `bad` are the members whose
    answer does not count; the others may still be enough. `restarted` are the members whose good
    answers are final, because they take no Write. `goal` is the length in chunks that a quorum must
    show, -1 until a quorum has answered; `goal_bytes` is the same length in bytes.
    """

    block: BlockId
    writer_generation: Generation
    members: tuple[StorageId, ...]
    quorum: int
    answers: tuple[tuple[StorageId, int, int], ...] = ()
    goal: int = -1
    goal_bytes: int = 0
    progress: ReadProgress = ReadProgress.WAITING
    bad: tuple[StorageId, ...] = ()
    restarted: tuple[StorageId, ...] = ()


def quorum_read(record: BlockRecord) -> QuorumRead:
    """R2 of the config in `record`."""
    count = len(record.members)
    return QuorumRead(record.block, record.writer_generation, record.members, read_quorum(count))


def all_replica_read(record: BlockRecord) -> QuorumRead:
    """R1: the seed's read in the form that may be mixed with R2 (return only if min == max)."""
    return replace(quorum_read(record), quorum=len(record.members))


def is_good(reply: ReadReply, writer_generation: Generation) -> bool:
    """R2: True if MaxGS == accepted == wgs, and the replica is being written and not weak."""
    now = reply.registers
    return (
        now.max_generation == now.accepted_generation == writer_generation
        and not now.weak
        and now.state is ReplicaState.RBW
    )


def on_read_reply(read: QuorumRead, reply: ReadReply) -> QuorumRead:
    """R2: find a length that a quorum has, and that no other quorum can have exceeded before."""
    if read.progress is not ReadProgress.WAITING or reply.storage not in read.members:
        return read
    if reply.block != read.block:
        return read
    return _concluded(_heard(read, reply))


def _heard(read: QuorumRead, reply: ReadReply) -> QuorumRead:
    """Return `read` with the answer of one member; chunks it has shown before still count."""
    storage = reply.storage
    if not is_good(reply, read.writer_generation):
        return read if storage in read.bad else replace(read, bad=(*read.bad, storage))
    if reply.restarted and storage not in read.restarted:
        read = replace(read, restarted=(*read.restarted, storage))
    if any(known == storage and length >= reply.length for known, length, _ in read.answers):
        return read
    others = tuple(answer for answer in read.answers if answer[0] != storage)
    return replace(read, answers=(*others, (storage, reply.length, reply.size_bytes)))


def _concluded(read: QuorumRead) -> QuorumRead:
    read = _with_goal(read)
    shown = sum(length >= read.goal for _, length, _ in read.answers)
    if read.goal >= 0 and shown >= read.quorum:
        return replace(read, progress=ReadProgress.DONE)
    lost = sum(not _may_show_goal(read, member) for member in read.members)
    if tally(shown, lost, len(read.members), read.quorum) is Tally.IMPOSSIBLE:
        return replace(read, progress=ReadProgress.STALE_RECORD)
    return read


def _with_goal(read: QuorumRead) -> QuorumRead:
    """Lower the goal to the longest log among the `quorum` shortest answers.

    Every quorum has a member with all that was acknowledged or read before, so the longest log of
    any quorum will do. The goal never grows, so a read does not chase a writer that goes on.
    """
    if len(read.answers) < read.quorum:
        return read
    by_length = sorted(read.answers, key=lambda answer: answer[1])
    _, goal, goal_bytes = by_length[read.quorum - 1]
    if 0 <= read.goal <= goal:
        return read
    return replace(read, goal=goal, goal_bytes=goal_bytes)


def _may_show_goal(read: QuorumRead, member: StorageId) -> bool:
    """True if this member has shown `goal` chunks, or may yet, or the goal may sink to its log."""
    known = {storage: length for storage, length, _ in read.answers}
    if member not in known:
        return member not in read.bad
    unheard = any(each not in known and each not in read.bad for each in read.members)
    ended = member in read.bad or member in read.restarted
    return known[member] >= read.goal or unheard or not ended


def to_ask(read: QuorumRead) -> tuple[StorageId, ...]:
    """Return the members that have not shown `goal` chunks so far, and still may."""
    if read.progress is not ReadProgress.WAITING:
        return ()
    known = {storage: length for storage, length, _ in read.answers}
    short = tuple(m for m in read.members if known.get(m, -1) < max(read.goal, 0))
    return tuple(member for member in short if member not in (*read.bad, *read.restarted))


class Version(msgspec.Struct, frozen=True, gc=False):
    """The part of a block that a reader may fetch: chunks [0, length) of a writer epoch.

    `finalized_generation` is NO_GENERATION while the block is not finalized.
    """

    epoch: Generation
    finalized_generation: Generation
    length: int


def finalized_version(record: BlockRecord) -> Version:
    """Return the last version that `record` decided; a block that is open again extends it."""
    return Version(record.writer_generation, record.finalized_generation, record.length)


def unfinalized_version(read: QuorumRead) -> Version:
    """Return the version that a quorum read found."""
    return Version(read.writer_generation, NO_GENERATION, read.goal)


def version_now(version: Version, record: BlockRecord) -> Version | None:
    """Return the version that has the chunks of `version` now; None if the block was cut (K8).

    An APPEND and a REBUILD begin another epoch with the chunks there are. The length alone does not
    suffice, because an APPEND after a cut gives the same indexes to other chunks. A block that is
    open again is found by its epoch: a log that a REBUILD wrote does not name the version that the
    APPEND extended.
    """
    if record.cut_generation > max(version.epoch, version.finalized_generation):
        return None
    if record.finalized:
        return finalized_version(record)
    return Version(record.writer_generation, NO_GENERATION, version.length)


def holds(version: Version, reply: ReadReply) -> bool:
    """True if a replica in this state serves the chunks of `version` (R-fin, bytes below a length).

    For a finalized version, the replica is exactly this version; or it extends it while an append
    is being set up; or it is a strong replica of the epoch with enough chunks that has not yet been
    told of the decision; or it is FINALIZED in the epoch under a later generation, and as long,
    because a member has left since (K13). Within an epoch a finalized block only gets shorter (K8),
    so its bytes are the same. For an unfinalized version, the replica is strong, of the same epoch,
    and has enough chunks.
    """
    now, decided = reply.registers, version.finalized_generation
    strong_in_epoch = not now.weak and now.epoch == version.epoch
    if decided == NO_GENERATION:
        return strong_in_epoch and reply.length >= version.length
    if now.state is ReplicaState.FINALIZED and now.accepted_generation == decided:
        return reply.length == version.length
    if (now.finalized_generation, now.finalized_length) == (decided, version.length):
        return reply.length >= version.length
    decided_since = now.state is ReplicaState.FINALIZED and now.accepted_generation > decided
    told_nothing = version.epoch <= now.accepted_generation <= decided
    in_line = strong_in_epoch and (told_nothing or decided_since)
    return in_line and reply.length >= version.length
