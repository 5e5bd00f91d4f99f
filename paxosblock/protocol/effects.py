"""Effects that must be durable before an acceptor's answer is given; the shell carries them out."""

from __future__ import annotations

import msgspec

from paxosblock.protocol.types import ChunkName


class AppendChunk(msgspec.Struct, frozen=True, gc=False):
    """Append the bytes of chunk `name`, under a header of the accepted generation."""

    name: ChunkName
    sync: bool


class SyncChunks(msgspec.Struct, frozen=True, gc=False):
    """Bring every chunk that was appended so far to stable storage."""


class StoreMetadata(msgspec.Struct, frozen=True, gc=False):
    """Replace the metadata atomically and durably (creating the replica if it is not there: a
    `small` one if its writer said so)."""

    small: bool = False


class AdoptLog(msgspec.Struct, frozen=True, gc=False):
    """Keep `keep` chunks, append `append`; data durable, then metadata, then cut what is beyond.

    The replica moves to the folder of its new state as part of this.
    """

    keep: int
    append: tuple[ChunkName, ...]


class DropReplica(msgspec.Struct, frozen=True, gc=False):
    """Delete the replica."""


Effect = AppendChunk | SyncChunks | StoreMetadata | AdoptLog | DropReplica
