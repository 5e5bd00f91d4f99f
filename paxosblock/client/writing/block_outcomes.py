"""The outcomes of a block that its writer cannot close: it failed, or a recovery ended it."""

from __future__ import annotations

from dataclasses import dataclass

from paxosblock.api.namenode import BlockView
from paxosblock.client.writing.chunks import Chunk
from paxosblock.protocol.types import BlockId, StorageId


class BlockFailed(Exception):
    """W4: no more chunks for this block; `failed` are the storages to blame (none when fenced)."""

    def __init__(self, block: BlockId, failed: tuple[StorageId, ...], reason: str) -> None:
        super().__init__(f"block {block}: {reason}")
        self.block = block
        self.failed = failed
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Sealed:
    """W7: how a recovery ended the block, and the chunks that the next block begins with."""

    view: BlockView
    rest: tuple[Chunk, ...]
