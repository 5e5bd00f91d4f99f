"""Step 5 of a chunk's way: quorum reads of an unfinalized block, and reads of a finalized one.

R2 is the default: linearizable and available with a majority. R1 is the seed's read (all members),
R3 is relaxed: never lost later, but not linearizable. A read first gets the block's record,
after it was invoked (K10).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.messages import ReadReply
from paxosblock.protocol.quorum import read_quorum
from paxosblock.protocol.types import BlockId, Generation, ReplicaState, StorageId


class Progress(enum.Enum):
    """What a quorum read needs next."""

    WAITING = "waiting"
    """More answers; ask the members that have not said enough again."""
    DONE = "done"
    """`length` is the answer."""
    STALE_RECORD = "stale_record"
    """A member has left the writer's generation: get the record again and start over."""


@dataclass(frozen=True, slots=True)
class QuorumRead:
    """R2 (quorum = floor(n/2)+1) or R1 (quorum = n) of one block under construction.

    `lengths` are the latest good answers in chunks; `goal` is the length that a quorum must show,
    -1 until a quorum has answered.
    """

    block: BlockId
    writer_generation: Generation
    members: tuple[StorageId, ...]
    quorum: int
    lengths: tuple[tuple[StorageId, int], ...] = ()
    goal: int = -1
    length: int = -1
    progress: Progress = Progress.WAITING


def quorum_read(record: BlockRecord) -> QuorumRead:
    """R2 of the config in `record`."""
    count = len(record.members)
    return QuorumRead(record.block, record.writer_generation, record.members, read_quorum(count))


def all_replica_read(record: BlockRecord) -> QuorumRead:
    """R1: the seed's read in the form that may be mixed with R2 (return only if min == max)."""
    return replace(quorum_read(record), quorum=len(record.members))


def is_good(reply: ReadReply, writer_generation: Generation) -> bool:
    """R2: MaxGS == accepted == wgs and not weak [M05, M07, M29, M30]."""
    return (
        reply.max_generation == reply.accepted_generation == writer_generation
        and not reply.weak
        and reply.state is ReplicaState.RBW
    )


def on_read_reply(read: QuorumRead, reply: ReadReply) -> QuorumRead:
    """R2: equal answers of a quorum, or a quorum that has reached the longest of the first."""
    if read.progress is not Progress.WAITING or reply.storage not in read.members:
        return read
    if reply.block != read.block:
        return read
    if not is_good(reply, read.writer_generation):
        return replace(read, progress=Progress.STALE_RECORD)
    others = tuple(pair for pair in read.lengths if pair[0] != reply.storage)
    known = dict(read.lengths).get(reply.storage, 0)
    lengths = (*others, (reply.storage, max(known, reply.length)))
    return _concluded(replace(read, lengths=lengths))


def _concluded(read: QuorumRead) -> QuorumRead:
    if len(read.lengths) < read.quorum:
        return read
    found = tuple(length for _, length in read.lengths)
    goal = read.goal if read.goal >= 0 else max(found)
    if sum(length >= goal for length in found) >= read.quorum:
        return replace(read, goal=goal, length=goal, progress=Progress.DONE)
    return replace(read, goal=goal)


def to_ask(read: QuorumRead) -> tuple[StorageId, ...]:
    """Members that have not answered, or not yet with `goal` chunks."""
    if read.progress is not Progress.WAITING:
        return ()
    known = dict(read.lengths)
    return tuple(member for member in read.members if known.get(member, -1) < max(read.goal, 0))


def relaxed_length(record: BlockRecord, reply: ReadReply, seen: int = 0) -> int | None:
    """R3: chunks that will never be lost, from one strong member; None when it may not say.

    `seen` is the largest result of this session so far, which makes the session monotonic (I10).
    """
    strong = not reply.weak and reply.storage in record.members
    if not strong or reply.epoch < record.writer_generation:
        return None
    return max(seen, reply.acknowledged_count)


def serves_finalized(record: BlockRecord, reply: ReadReply) -> bool:
    """R-fin: whether this member serves chunks [0, length) of a FINALIZED record.

    It holds exactly this version; or extends it while an append is being set up; or (the block is
    committed, nobody was told yet) it is a strong member of the epoch with enough chunks.
    """
    if not record.finalized or reply.storage not in record.members:
        return False
    version = (record.finalized_generation, record.length)
    if reply.state is ReplicaState.FINALIZED and reply.accepted_generation == version[0]:
        return reply.length == record.length
    if (reply.finalized_generation, reply.finalized_length) == version:
        return reply.length >= record.length
    in_epoch = (
        reply.epoch == record.writer_generation
        and record.writer_generation <= reply.accepted_generation <= record.finalized_generation
    )
    return in_epoch and not reply.weak and reply.length >= record.length
