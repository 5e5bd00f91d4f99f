"""Open blocks that their writers should leave for another one."""

from __future__ import annotations

from paxosblock.api.care import AdminState
from paxosblock.api.namenode import OpenBlock
from paxosblock.namenode.blocks.placement import Wish, is_placed_fresh
from paxosblock.namenode.catalog.records import FileInode
from paxosblock.namenode.name_node import NameNode
from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.types import BlockId

SLICE = 256
"""Blocks that are looked at before other tasks get a turn."""


async def blocks_to_leave(
    node: NameNode, open_blocks: tuple[OpenBlock, ...]
) -> tuple[BlockId, ...]:
    """Return the blocks that a better one could follow now.

    A better block has more members than a short one (HDFS-6867), or as many members without those
    whose DataNodes are to leave.
    """
    candidates = [each for each in open_blocks if each.short or node.datanodes.admin]
    found: list[BlockId] = []
    for start in range(0, len(candidates), SLICE):
        some = {each.block: each for each in candidates[start : start + SLICE]}
        for entry, inode in await node.catalog.written(tuple(some)):
            if _would_be_better(node, entry.record, inode, some[entry.record.block]):
                found.append(entry.record.block)
    return tuple(found)


def _would_be_better(
    node: NameNode, record: BlockRecord, inode: FileInode, block: OpenBlock
) -> bool:
    """True if the next block would be placed better, on nodes that are all fresh."""
    now_s, wanted = node.clock_s(), inode.replication
    stays = all(
        node.datanodes.admin_state(member, now_s) is AdminState.IN_SERVICE
        for member in record.members
    )
    if stays and len(record.members) >= wanted:
        return False
    least = min(wanted, len(record.members) + stays)
    candidates = node.datanodes.candidates(now_s, block.excluded)
    return is_placed_fresh(Wish(wanted, least, inode.block_size), candidates)
