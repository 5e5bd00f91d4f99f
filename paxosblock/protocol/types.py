"""Kinds of numbers and names, so that a type checker can tell a generation from a chunk index."""

from __future__ import annotations

import enum
from typing import NewType

import msgspec

BlockId = NewType("BlockId", int)
Generation = NewType("Generation", int)
ChunkIndex = NewType("ChunkIndex", int)
StorageId = NewType("StorageId", str)
"""One volume of one DataNode, for ever: a volume that lost its data comes back under a new id."""
WriterId = NewType("WriterId", str)
"""One instance of a writer, never reused."""

NO_WRITER = WriterId("")
"""No writer: the caller is a reader, or no process may write."""

FIRST_GENERATION = Generation(0)
"""The first writer's generation. A compare-and-set in the KV allocates each later one."""
NO_GENERATION = Generation(-1)
"""Below the first generation: it stands for "was never finalized"."""
LEAP_MAX = 2**32
"""A promise rises by no more than this at once (D3, D4), and so does a record's generation (K2)."""
SMALL_BYTES_MAX = 64 * 1024
"""The most user bytes in a block that its writer calls small (D1)."""


class Durability(enum.Enum):
    """The meaning of a vote: on stable storage, or handed to the operating system."""

    DISK = "disk"
    MEMORY = "memory"


class ReplicaState(enum.Enum):
    """The folder a replica lives in: `tmp/`, `rbw/` or `current/`."""

    TEMPORARY = "temporary"
    RBW = "rbw"
    FINALIZED = "finalized"


class BlockState(enum.Enum):
    """State of the block's record in the KV."""

    UNDER_CONSTRUCTION = "under_construction"
    UNDER_RECOVERY = "under_recovery"
    FINALIZED = "finalized"


class Reason(enum.Enum):
    """The reason why an acceptor refused."""

    FENCED = "fenced"
    """A higher generation was promised, this one is too far above the promise (D3, D4), or the
    replica no longer takes writes."""
    GAP = "gap"
    """The chunk is not the next one, or chunks below it must be fetched first."""
    NO_REPLICA = "no_replica"
    """The replica should be here, but was lost."""
    STALE = "stale"
    """The replica belongs to another version of the block than the request."""
    CORRUPT = "corrupt"
    """Two values for one register, or bytes that do not match their checksum."""
    NO_SPACE = "no_space"
    """The volume is full. The shell says so, never the acceptor; there was no vote."""


class Registers(msgspec.Struct, frozen=True, gc=False):
    """The durable values that votes and reads go by (PROTOCOL.md 1), kept in the replica's metadata
    file (datanode/FORMAT.md 3).

    `accepted_generation` is the vote for every chunk of the log at once: accepting a recovery's log
    votes for all of it. `base_length` chunks were on stable storage when the log was accepted. A
    `weak` replica may have lost votes. `finalized_generation` and `finalized_length` name the
    finalized version that its log extends (-1 and 0 if there is none).
    """

    max_generation: Generation
    accepted_generation: Generation
    epoch: Generation
    base_length: int
    state: ReplicaState
    window: int
    durability: Durability
    weak: bool = False
    finalized_generation: Generation = NO_GENERATION
    finalized_length: int = 0


class ChunkName(msgspec.Struct, frozen=True, gc=False):
    """The name of a chunk in votes: its place, its length in bytes and its CRC32C.

    Recovery never carries user data; a DataNode that lacks a chunk fetches the bytes of this name
    from a holder.
    """

    index: ChunkIndex
    size_bytes: int
    crc: int
