"""What an acceptor's answer must have made durable before it is given; the shell carries it out."""

from __future__ import annotations

from dataclasses import dataclass

from paxosblock.protocol.types import ChunkName
from paxosblock.protocol.values import made_often


@made_often
@dataclass(frozen=True, slots=True)
class AppendChunk:
    """Append the bytes of chunk `name`, under a header of the accepted generation."""

    name: ChunkName
    sync: bool


@dataclass(frozen=True, slots=True)
class SyncChunks:
    """Bring every chunk that was appended so far to stable storage."""


@dataclass(frozen=True, slots=True)
class StoreMetadata:
    """Replace the metadata atomically and durably (creating the replica if it is not there)."""


@dataclass(frozen=True, slots=True)
class AdoptLog:
    """Keep `keep` chunks, append `append`; data durable, then metadata, then cut what is beyond.

    The replica moves to the folder of its new state as part of this.
    """

    keep: int
    append: tuple[ChunkName, ...]


@dataclass(frozen=True, slots=True)
class DropReplica:
    """Delete the replica."""


Effect = AppendChunk | SyncChunks | StoreMetadata | AdoptLog | DropReplica
