"""Every message of the protocol (PROTOCOL.md 2): a frozen value, identified by its tag on the wire.

The bytes of a chunk travel beside `Write`, never inside a message of a recovery: a recovery names
chunks by length and CRC32C (`ChunkName`).
"""

from __future__ import annotations

import msgspec

from paxosblock.protocol.types import (
    NO_GENERATION,
    BlockId,
    ChunkIndex,
    ChunkName,
    Durability,
    Generation,
    Reason,
    Registers,
    StorageId,
)


class Create(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Writer -> DataNode: make an empty replica of the first config (D1).

    `small` promises that the writer sends one chunk of at most `SMALL_BYTES_MAX` bytes, and ends.
    """

    block: BlockId
    window: int
    durability: Durability
    small: bool = False


class Created(msgspec.Struct, frozen=True, tag=True, gc=False):
    """DataNode -> writer: the empty replica is on stable storage."""

    block: BlockId
    storage: StorageId


class Write(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Writer -> all members: vote for chunk `index` in the writer's generation (D2).

    `acknowledged_count` is the number of chunks that, to the writer's knowledge, all members have
    voted for. `sync` asks for the chunk to be on stable storage before the vote (hsync).
    """

    block: BlockId
    generation: Generation
    index: ChunkIndex
    size_bytes: int
    crc: int
    acknowledged_count: int = 0
    sync: bool = False


class Vote(msgspec.Struct, frozen=True, tag=True, gc=False):
    """DataNode -> writer: voted for chunk `index` and, since votes are in order, all below it."""

    block: BlockId
    generation: Generation
    index: ChunkIndex
    storage: StorageId
    synced: bool


class NextGS(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Proposer -> members of the base config: promise `generation`, tell your last vote (D3)."""

    block: BlockId
    generation: Generation
    base: Generation
    window: int
    durability: Durability


class LastVote(msgspec.Struct, frozen=True, tag=True, gc=False):
    """DataNode -> proposer: the promise is durable, and this is what I hold.

    `tail` names the last `window` chunks; `size_bytes` is the length of the whole log in bytes.
    """

    block: BlockId
    generation: Generation
    storage: StorageId
    registers: Registers
    length: int
    size_bytes: int
    acknowledged_count: int
    tail: tuple[ChunkName, ...]


class RecoveryWrite(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Proposer -> targets: accept the log of `length` chunks that ends with `tail` (D4, "Sync").

    `members` are those of the `base` config: each of them keeps what it accepted since `base`; any
    other target takes a full copy. A target that lacks chunks fetches them from one of `holders`,
    whose log was accepted in `chosen_generation` (or already in `generation`).
    `finalized_generation` names the finalized version that an APPEND continues.
    """

    block: BlockId
    generation: Generation
    base: Generation
    epoch: Generation
    length: int
    size_bytes: int
    tail: tuple[ChunkName, ...]
    chosen_generation: Generation
    members: tuple[StorageId, ...]
    holders: tuple[StorageId, ...]
    window: int
    durability: Durability
    finalized_generation: Generation = NO_GENERATION


class RecoveryVote(msgspec.Struct, frozen=True, tag=True, gc=False):
    """DataNode -> proposer: the whole log is accepted at `generation`, durably ("Synced")."""

    block: BlockId
    generation: Generation
    length: int
    storage: StorageId


class Finalize(msgspec.Struct, frozen=True, tag=True, gc=False):
    """NameNode -> members: the KV decided `length` under `finalized_generation` (D5).

    A replica that is shorter, or of another version, fetches the missing chunks from one of
    `holders`. Versions from `beginning` on, if it is named, are beginnings of this one, whatever
    their epoch: nothing was cut since.
    """

    block: BlockId
    finalized_generation: Generation
    epoch: Generation
    length: int
    size_bytes: int
    holders: tuple[StorageId, ...]
    window: int
    durability: Durability
    beginning: Generation = NO_GENERATION


class Finalized(msgspec.Struct, frozen=True, tag=True, gc=False):
    """DataNode -> NameNode: the replica has exactly the decided chunks, durably, in `current/`."""

    block: BlockId
    finalized_generation: Generation
    storage: StorageId
    length: int


class Short(msgspec.Struct, frozen=True, tag=True, gc=False):
    """DataNode -> NameNode: fenced, but only `length` chunks are here; the rest must be copied."""

    block: BlockId
    finalized_generation: Generation
    storage: StorageId
    length: int


class Read(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Reader -> DataNode: tell the state of your replica (D6).

    `sync` asks for the reported chunks to be on stable storage first (an R2 read in memory mode).
    """

    block: BlockId
    sync: bool = False


class ReadReply(msgspec.Struct, frozen=True, tag=True, gc=False):
    """DataNode -> reader: the registers of a replica, and the length of its log.

    A read of an unfinalized block does not count a weak replica. It does count a replica that is
    only `restarted`, which has all its votes but takes no Write: its log keeps its length until a
    recovery (D8).
    """

    block: BlockId
    storage: StorageId
    registers: Registers
    restarted: bool
    length: int
    size_bytes: int
    acknowledged_count: int


class Nack(msgspec.Struct, frozen=True, tag=True, gc=False):
    """DataNode -> anyone: the request is refused for this reason."""

    block: BlockId
    generation: Generation
    storage: StorageId
    reason: Reason
    max_generation: Generation
    accepted_generation: Generation
    length: int


class Delete(msgspec.Struct, frozen=True, tag=True, gc=False):
    """NameNode -> DataNode that is not a member: drop the replica (D7)."""

    block: BlockId
    up_to_generation: Generation


class Deleted(msgspec.Struct, frozen=True, tag=True, gc=False):
    """DataNode -> NameNode: no replica is left here."""

    block: BlockId
    storage: StorageId


class Grant(msgspec.Struct, frozen=True, gc=False):
    """NameNode -> the writer that asked: go on in `generation` from chunk `length`."""

    block: BlockId
    generation: Generation
    members: tuple[StorageId, ...]
    length: int


Request = Create | Write | NextGS | RecoveryWrite | Finalize | Read | Delete
"""Requests to a DataNode."""

Reply = Created | Vote | LastVote | RecoveryVote | Finalized | Short | ReadReply | Deleted | Nack
"""Answers of a DataNode."""
