"""Step 1 of a chunk's way: the client proposes chunk after chunk in a writer generation.

There is no phase 1: the generation belongs to this writer alone. A chunk is acknowledged when ALL
members have voted for it. Up to `window` chunks may be on the way; a window of 1 is the seed's own
protocol.
"""

from __future__ import annotations

import enum

import msgspec
from msgspec.structs import replace

from paxosblock.protocol.chunk_log import acknowledged_before
from paxosblock.protocol.invariants import invariant
from paxosblock.protocol.messages import Create, Created, Grant, Vote, Write
from paxosblock.protocol.types import (
    FIRST_GENERATION,
    NO_GENERATION,
    BlockId,
    ChunkIndex,
    Durability,
    Generation,
    StorageId,
)


class WriterState(enum.Enum):
    """The step that the writer of a block is at."""

    OPENING = "opening"
    """Create is on its way to the members."""
    OPEN = "open"
    """Chunks may be sent."""
    REBUILDING = "rebuilding"
    """Something failed; the writer waits for a new generation or the sealed length."""
    CLOSING = "closing"
    """FinalizeBlock(b, length) is on its way."""
    CLOSED = "closed"
    """The record has all chunks that were sent."""
    SEALED = "sealed"
    """A recovery ended the block; `acknowledged` is its length."""
    FENCED = "fenced"
    """Another writer owns the block now; the outcome of the last chunks sent is unknown."""


class Writer(msgspec.Struct, frozen=True, gc=False):
    """The proposer of one block's writer generations.

    `voted[i]` and `synced[i]` count the chunks that `members[i]` voted for, and has on stable
    storage, in `generation`.
    """

    block: BlockId
    generation: Generation
    members: tuple[StorageId, ...]
    window: int
    state: WriterState
    created: tuple[bool, ...]
    voted: tuple[int, ...]
    synced: tuple[int, ...]
    sent: int = 0
    acknowledged: int = 0

    @property
    def acknowledged_synced(self) -> int:
        """Return the number of chunks on stable storage at all members (hsync, W3)."""
        return min(self.synced)

    @property
    def can_send(self) -> bool:
        """W2: True if the window has room for one more chunk."""
        known = acknowledged_before(self.sent, self.window)
        return self.state is WriterState.OPEN and self.acknowledged >= known

    @property
    def can_close(self) -> bool:
        """W6: True if no chunk is in flight; a reader may have seen a chunk that is."""
        return self.state is WriterState.OPEN and self.acknowledged == self.sent


def open_writer(block: BlockId, members: tuple[StorageId, ...], window: int) -> Writer:
    """W1: the writer of a new block; the shell sends `create_message` to all members."""
    count = len(members)
    return Writer(
        block=block,
        generation=FIRST_GENERATION,
        members=members,
        window=window,
        state=WriterState.OPENING,
        created=(False,) * count,
        voted=(0,) * count,
        synced=(0,) * count,
    )


def create_message(writer: Writer, durability: Durability, *, small: bool = False) -> Create:
    """Return the Create that W1 sends to every member; `small` is as in `Create`."""
    return Create(writer.block, writer.window, durability, small)


def on_created(writer: Writer, message: Created) -> Writer:
    """W1: OPEN once all members have an empty replica on stable storage."""
    if writer.state is not WriterState.OPENING or message.block != writer.block:
        return writer
    created = tuple(
        done or member == message.storage
        for done, member in zip(writer.created, writer.members, strict=True)
    )
    state = WriterState.OPEN if all(created) else WriterState.OPENING
    return replace(writer, created=created, state=state)


def send(writer: Writer, size_bytes: int, crc: int, *, sync: bool = False) -> tuple[Writer, Write]:
    """W2: propose the next chunk. The same Write goes to all members."""
    invariant(writer.can_send, "W2 a chunk is sent only when the window has room", writer)
    return _proposed(writer, size_bytes, crc, sync=sync)


def send_with_create(writer: Writer, size_bytes: int, crc: int) -> tuple[Writer, Write]:
    """W1: propose the first chunk before all members have made a replica, behind Create."""
    invariant(writer.state is WriterState.OPENING, "W1 the block is being created", writer)
    invariant(writer.sent == 0, "W1 the first chunk alone goes with Create", writer)
    return _proposed(writer, size_bytes, crc)


def _proposed(
    writer: Writer, size_bytes: int, crc: int, *, sync: bool = False
) -> tuple[Writer, Write]:
    message = write_message(writer, writer.sent, size_bytes, crc, sync=sync)
    return replace(writer, sent=writer.sent + 1), message


def write_message(
    writer: Writer, index: int, size_bytes: int, crc: int, *, sync: bool = False
) -> Write:
    """Return the Write of chunk `index`, to send or (D2, W5) to send again with the same bytes."""
    return Write(
        block=writer.block,
        generation=writer.generation,
        index=ChunkIndex(index),
        size_bytes=size_bytes,
        crc=crc,
        acknowledged_count=writer.acknowledged,
        sync=sync,
    )


def vote_is_sound(writer: Writer, vote: Vote) -> bool:
    """I5: True if a member can have sent this: no member votes for a chunk that was never sent."""
    return (
        vote.generation != writer.generation
        or vote.storage not in writer.members
        or vote.index < writer.sent
    )


def on_vote(writer: Writer, vote: Vote) -> Writer:
    """W3: acknowledge the chunks that every member has voted for.

    Votes of other generations, votes of strangers and repeated votes change nothing (W5). A member
    that votes has made its replica (W1).
    """
    counts = vote.block == writer.block and vote.generation == writer.generation
    if not counts or vote.storage not in writer.members or not vote_is_sound(writer, vote):
        return writer
    at = writer.members.index(vote.storage)
    voted = _raised(writer.voted, at, vote.index + 1)
    synced = _raised(writer.synced, at, vote.index + 1) if vote.synced else writer.synced
    acknowledged = max(writer.acknowledged, min(voted))
    after = replace(writer, voted=voted, synced=synced, acknowledged=acknowledged)
    invariant(after.acknowledged <= after.sent, "I5 acknowledged <= sent", after, writer, vote)
    if writer.state is WriterState.OPENING:
        return on_created(after, Created(vote.block, vote.storage))
    return after


def _raised(counts: tuple[int, ...], at: int, count: int) -> tuple[int, ...]:
    if counts[at] >= count:
        return counts
    return (*counts[:at], count, *counts[at + 1 :])


def on_failure(writer: Writer) -> Writer:
    """W4: a time-out, a Nack or a lost connection ends this generation for the writer.

    The shell then asks for Rebuild(b, g, failed), or gives up with FinalizeBlock(b).
    """
    if writer.state in (WriterState.OPENING, WriterState.OPEN, WriterState.CLOSING):
        return replace(writer, state=WriterState.REBUILDING)
    return writer


def on_grant(writer: Writer, grant: Grant) -> Writer:
    """W5: go on in a later generation; the shell re-sends from chunk `grant.length`.

    A Grant is old, and ignored, if its generation is not a later one or the writer did not ask for
    it.
    """
    asked = writer.state in (WriterState.REBUILDING, WriterState.OPEN, WriterState.CLOSING)
    if grant.block != writer.block or grant.generation <= writer.generation or not asked:
        return writer
    invariant(
        writer.acknowledged <= grant.length <= writer.sent,
        "I5 acknowledged <= L <= sent",
        writer,
        grant,
    )
    count = len(grant.members)
    return replace(
        writer,
        generation=grant.generation,
        members=grant.members,
        state=WriterState.OPEN,
        created=(True,) * count,
        voted=(grant.length,) * count,
        synced=(grant.length,) * count,
        acknowledged=grant.length,
        sent=grant.length,
    )


def granted_writer(grant: Grant, window: int) -> Writer:
    """W5 for an appender: its first generation is the granted one, from chunk `grant.length` on."""
    count = len(grant.members)
    waiting = Writer(
        block=grant.block,
        generation=NO_GENERATION,
        members=grant.members,
        window=window,
        state=WriterState.REBUILDING,
        created=(True,) * count,
        voted=(0,) * count,
        synced=(0,) * count,
        sent=grant.length,
    )
    return on_grant(waiting, grant)


def close(writer: Writer) -> Writer:
    """W6: the shell sends FinalizeBlock(b, generation, length=sent)."""
    invariant(writer.can_close, "W6 close only when every chunk sent is acknowledged", writer)
    return replace(writer, state=WriterState.CLOSING)


def on_finalized(writer: Writer, length: int, *, ours: bool = True) -> Writer:
    """W6, W7: the record is FINALIZED with `length` chunks.

    The writer is CLOSED if all that it sent is recorded; SEALED if a recovery decided, so that the
    next block starts with chunk `length`; FENCED if another writer has the block (not `ours`).
    """
    if not ours:
        return replace(writer, state=WriterState.FENCED)
    invariant(
        writer.acknowledged <= length <= writer.sent, "I5 acknowledged <= L <= sent", writer, length
    )
    closed = writer.state is WriterState.CLOSING and length == writer.sent
    state = WriterState.CLOSED if closed else WriterState.SEALED
    return replace(writer, state=state, acknowledged=length)
