"""Effects that must be durable before an acceptor answers; the shell carries them out."""

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
    """Replace the metadata atomically and durably.

    This creates the replica if there is none: a `small` one if its writer said so.
    """

    small: bool = False


class AdoptLog(msgspec.Struct, frozen=True, gc=False):
    """Keep the first `keep` chunks and append `append`; the replica moves to its state's folder.

    The data becomes durable first, then the metadata; then chunks beyond the log are cut off.
    """

    keep: int
    append: tuple[ChunkName, ...]


class DropReplica(msgspec.Struct, frozen=True, gc=False):
    """Delete the replica."""


Effect = AppendChunk | SyncChunks | StoreMetadata | AdoptLog | DropReplica
