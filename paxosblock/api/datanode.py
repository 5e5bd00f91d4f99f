"""What a DataNode is asked: protocol messages, states and bytes of replicas.

Chunks to write, and these calls, travel on the data stream (`stream.py`); the NameNode's protocol
messages come as control calls (`ACCEPT`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from paxosblock.api.methods import Method
from paxosblock.protocol.messages import (
    Create,
    Created,
    Delete,
    Deleted,
    Finalize,
    Finalized,
    LastVote,
    Nack,
    NextGS,
    Read,
    ReadReply,
    RecoveryVote,
    RecoveryWrite,
    Reply,
    Short,
    Vote,
)
from paxosblock.protocol.read import Version
from paxosblock.protocol.types import BlockId, ChunkName, Generation, StorageId


@dataclass(frozen=True, slots=True)
class StorageAddress:
    """Where a storage is reached: `address` is host:port of its DataNode."""

    storage: StorageId
    address: str


@dataclass(frozen=True, slots=True)
class Ask:
    """One protocol message for `storage`; exactly one of the messages is set.

    `peers` tells where the holders that the message names are reached.
    """

    storage: StorageId
    create: Create | None = None
    next_gs: NextGS | None = None
    recovery_write: RecoveryWrite | None = None
    finalize: Finalize | None = None
    read: Read | None = None
    delete: Delete | None = None
    peers: tuple[StorageAddress, ...] = ()


@dataclass(frozen=True, slots=True)
class Told:
    """The acceptor's reply; exactly one is set."""

    created: Created | None = None
    last_vote: LastVote | None = None
    recovery_vote: RecoveryVote | None = None
    finalized: Finalized | None = None
    short: Short | None = None
    read_reply: ReadReply | None = None
    deleted: Deleted | None = None
    nack: Nack | None = None

    @classmethod
    def of(cls, reply: Reply) -> Told:
        """The envelope for `reply`; a vote needs none, it travels as a frame."""
        match reply:
            case Created():
                return cls(created=reply)
            case LastVote():
                return cls(last_vote=reply)
            case RecoveryVote():
                return cls(recovery_vote=reply)
            case Finalized():
                return cls(finalized=reply)
            case Short():
                return cls(short=reply)
            case ReadReply():
                return cls(read_reply=reply)
            case Deleted():
                return cls(deleted=reply)
            case Nack():
                return cls(nack=reply)
            case Vote():
                raise ValueError("a vote travels as a frame")
            case _ as never:
                assert_never(never)


@dataclass(frozen=True, slots=True)
class Watch:
    """Stream call: the state of a replica once it has more than `known_length` chunks.

    Answered (`Told.read_reply` or `Told.nack`) at once when that is so already or when the replica
    is no longer a good rbw replica of `generation`, and after `wait_ms` in any case.
    """

    storage: StorageId
    read: Read
    generation: Generation
    known_length: int
    wait_ms: int


@dataclass(frozen=True, slots=True)
class ReadBytes:
    """Stream call: chunks of `version` that cover user bytes [offset, offset + size_bytes).

    The answer is `Chunks` and then the chunk frames as they are on disk. It may cover less than was
    asked (the DataNode bounds a reply), but at least one chunk unless `offset` is past the end.
    """

    block: BlockId
    storage: StorageId
    version: Version
    offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class FetchChunks:
    """Stream call between DataNodes: chunks `start` to `stop - 1` of the log accepted in one of
    `generations`, to complete a recovery or a finalization. Answered like `ReadBytes`.
    """

    block: BlockId
    storage: StorageId
    generations: tuple[Generation, ...]
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Chunks:
    """`count` chunk frames follow, from chunk `first` on, which starts at user byte `offset`."""

    first: int
    offset: int
    count: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ListReplicas:
    """Ask for the replicas of a DataNode, for people and tools."""


@dataclass(frozen=True, slots=True)
class FindReplica:
    """Ask for the replica of one block at one storage; answered like `ListReplicas`."""

    block: BlockId
    storage: StorageId


@dataclass(frozen=True, slots=True)
class ReplicaSummary:
    """A replica in a block report."""

    storage: StorageId
    state: ReadReply
    hdfs_state: str
    last: ChunkName | None


@dataclass(frozen=True, slots=True)
class Replicas:
    """Replicas of a DataNode: all of them, or the one that was asked for."""

    node: str
    replicas: tuple[ReplicaSummary, ...]


ACCEPT = Method("acceptor", Ask, Told)
LIST_REPLICAS = Method("replicas", ListReplicas, Replicas)
FIND_REPLICA = Method("replica", FindReplica, Replicas)

STREAM_CALLS: tuple[type, ...] = (Ask, Watch, ReadBytes, FetchChunks)
"""Requests that travel on the data stream as CALL frames (`Ask` for Create, and for tests)."""
STREAM_REPLIES: tuple[type, ...] = (Told, Chunks)
