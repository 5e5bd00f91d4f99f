"""What a flush tells the application."""

from __future__ import annotations

from dataclasses import dataclass

from paxosblock.protocol.types import BlockId, Durability, Generation, StorageId


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
