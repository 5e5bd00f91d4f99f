"""What a flush tells the application."""

from __future__ import annotations

from dataclasses import dataclass

from paxosblock.namenode_api import NO_BLOCK
from paxosblock.protocol.types import (
    FIRST_GENERATION,
    BlockId,
    Durability,
    Generation,
    StorageId,
)


@dataclass(frozen=True, slots=True)
class FlushReceipt:
    """Everything written before the flush is acknowledged: no reader will see less (W3).

    `chunk` is the last acknowledged chunk of `block` (-1: nothing was written yet, then `block` is
    0), accepted in `generation` by the storages `replicas`. `length` counts the bytes of the
    file up to the flush. `durability` says where all of them are: on stable storage, or handed to
    the operating systems of the replicas' machines.
    """

    block: BlockId
    generation: Generation
    chunk: int
    length: int
    replicas: tuple[StorageId, ...]
    durability: Durability


@dataclass(frozen=True, slots=True)
class Place:
    """The last acknowledged chunk of a file, by whom."""

    block: BlockId = NO_BLOCK
    generation: Generation = FIRST_GENERATION
    chunk: int = -1
    replicas: tuple[StorageId, ...] = ()

    def receipt(self, length: int, durability: Durability) -> FlushReceipt:
        """The receipt for a file whose acknowledged `length` bytes end here."""
        return FlushReceipt(
            self.block, self.generation, self.chunk, length, self.replicas, durability
        )
