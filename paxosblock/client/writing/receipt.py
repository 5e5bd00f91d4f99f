"""The receipt that a flush gives the application."""

from __future__ import annotations

from dataclasses import dataclass

from paxosblock.api.namenode import NO_BLOCK
from paxosblock.client.writing.block_writer import BlockWriter
from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.quorum import recovery_quorum
from paxosblock.protocol.types import (
    FIRST_GENERATION,
    BlockId,
    Durability,
    Generation,
    StorageId,
)


@dataclass(frozen=True, slots=True)
class BlockReceipt:
    """One block's safety as far as it is sure: at least `on_disk` of its `members` (both counts)
    have everything on stable storage that the block holds of the file.

    All members, for a block whose chunks they voted for after a sync. A recovery quorum, for one
    that a recovery ended (P4). As many as said so, and at least a read quorum, for one that was
    closed without a sync and asked about by `hsync` (D5). 0: no sync was asked for yet.
    """

    block: BlockId
    members: int
    on_disk: int


@dataclass(frozen=True, slots=True)
class FlushReceipt:
    """Everything written before the flush is acknowledged: no reader will see less (W3).

    `chunk` is the last acknowledged chunk of `block` (-1: nothing was written yet, then `block` is
    0), accepted in `generation` by the storages `replicas`: by all members, but where a recovery
    ended the block only those are named that the writer itself heard vote for the chunk and that
    did not fail it. `size` counts the bytes of the file up to the flush. `durability` says where
    all of them are: on stable storage, of each block at as many members as `blocks` says, or
    handed to the operating systems of the replicas' machines. `blocks` has the current block, those
    that ended since the receipt before, and those that this flush asked about.
    """

    block: BlockId
    generation: Generation
    chunk: int
    size: int
    replicas: tuple[StorageId, ...]
    durability: Durability
    blocks: tuple[BlockReceipt, ...]


class Ledger:
    """The last acknowledged chunk of a file, and at how many members the blocks that ended between
    two receipts are on the disk.
    """

    def __init__(self) -> None:
        self._last: tuple[BlockId, Generation, int, tuple[StorageId, ...]]
        self._last = NO_BLOCK, FIRST_GENERATION, -1, ()
        self._ended: dict[BlockId, BlockReceipt] = {}
        self.unsynced: list[BlockId] = []
        """Blocks that may not be on any disk yet."""

    def reached(self, block: BlockWriter) -> None:
        """Note that all that was sent in a block is acknowledged."""
        self._last = block.block, block.generation, block.sent - 1, block.members

    def closed(self, block: BlockWriter) -> None:
        """Note that a block was closed by its writer (W6)."""
        self._end(block, block.on_disk)

    def sealed(
        self, block: BlockWriter, record: BlockRecord, failed: tuple[StorageId, ...]
    ) -> None:
        """Note that a recovery ended a block as `record` tells; these members of it `failed`."""
        by_close = block.asked_to_close and not block.on_disk  # and perhaps by no recovery
        self._end(block, 0 if by_close else recovery_quorum(len(block.members)))
        voters = tuple(at for at in block.voters(record.length) if at not in failed)
        self._last = block.block, record.finalized_generation, record.length - 1, voters

    def _end(self, block: BlockWriter, on_disk: int) -> None:
        self._ended[block.block] = BlockReceipt(block.block, len(block.members), on_disk)
        if not on_disk:
            self.unsynced.append(block.block)

    def synced(self, receipt: BlockReceipt) -> None:
        """Note that an unsynced block is on as many disks as `receipt` says."""
        self._ended[receipt.block] = receipt
        self.unsynced.remove(receipt.block)

    def receipt(self, size: int, durability: Durability, block: BlockWriter | None) -> FlushReceipt:
        """Return the receipt for a file of this many acknowledged bytes that goes on in `block`.

        It tells of blocks that ended, or were asked about, since the one before.
        """
        ended, self._ended = tuple(self._ended.values()), {}
        if block is not None and block.sent:
            ended = (*ended, BlockReceipt(block.block, len(block.members), block.on_disk))
        number, generation, chunk, replicas = self._last
        return FlushReceipt(number, generation, chunk, size, replicas, durability, ended)
