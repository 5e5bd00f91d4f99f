"""The calls that show people the cluster: a function for each such row of `calls.py`."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterator

from paxosblock.api.fsck_call import Condition, Finding
from paxosblock.api.insight import (
    PATHS_SHOWN,
    ROWS_MAX,
    ChangedSetting,
    CopyUnderWay,
    ListUnwhole,
    ListWriters,
    NodeSettings,
    ShowSettings,
    ShowWork,
    UnwholeBlocks,
    Work,
    WriterLease,
    Writers,
)
from paxosblock.api.namenode import BlockRequest
from paxosblock.api.status import BlockExplanation, ClusterStatus, ClusterStatusRequest
from paxosblock.config import changed_settings
from paxosblock.namenode.blocks.replication.fsck import block_findings
from paxosblock.namenode.blocks.replication.needs import StorageView
from paxosblock.namenode.catalog import kept_votes, tree
from paxosblock.namenode.catalog.draft import inode_of
from paxosblock.namenode.catalog.members import Demand
from paxosblock.namenode.catalog.permissions import ACTOR, Actor
from paxosblock.namenode.catalog.records import FileInode
from paxosblock.namenode.kv.interface import View
from paxosblock.namenode.leases import Lease
from paxosblock.namenode.name_node import NameNode
from paxosblock.protocol.types import BlockId, WriterId

SLICE = 10_000
"""Numbers of blocks that are compared before others get a turn."""
LOOKED_AT = 50
"""Blocks, or files of writers, that are looked at before others get a turn."""


async def cluster_status(node: NameNode, request: ClusterStatusRequest) -> ClusterStatus:
    """Show the cluster."""
    counts = await (node.counts.recent() if request.recent else node.catalog.counts())
    return ClusterStatus(
        namenode=node.name,
        role="leader",
        files=counts.files,
        blocks=counts.blocks,
        open_files=counts.open_files,
        recoveries=node.recoverer.unended,
        datanodes=node.views.datanodes(),
        safe_mode=node.safe_mode.status(node.clock_s()),
        replication=node.monitor.status,
        to_learn=node.learner.left,
        past=counts.past,
    )


async def explain(node: NameNode, request: BlockRequest) -> BlockExplanation:
    """Show a block and its history."""
    entry = await node.catalog.get_block(request.block)
    kept = kept_votes.of_block(node.catalog.applied, request.block)
    return BlockExplanation(
        view=node.views.block(entry, with_key=False),
        hdfs_state=node.views.hdfs_state(entry),
        path=await node.catalog.block_path(entry),
        history=node.history.of(request.block, kept),
        copied_to=node.views.member(node.copies.target(request.block)),
    )


async def writers(node: NameNode, request: ListWriters) -> Writers:
    """Show who writes, for how long, and when they were last heard."""
    limit, actor = min(max(request.limit, 1), ROWS_MAX), ACTOR.get()
    shown, hidden, total = list[WriterLease](), 0, len(node.leases)
    page, view = node.leases.page(request.after, limit + 1), await node.catalog.view()
    for number, (writer, lease) in enumerate(page[:limit]):
        if number and not number % (LOOKED_AT // PATHS_SHOWN):
            await asyncio.sleep(0)
            view = await node.catalog.view()
        inodes = tuple(_inodes(view, lease, actor))
        if inodes or actor.superuser:
            paths = tuple(tree.path_of(view, each) or "" for each in inodes)
            shown.append(_described(node, writer, lease, paths))
        else:
            hidden += 1
    return Writers(tuple(shown), total, hidden, len(page) > limit)


def _inodes(view: View, lease: Lease, actor: Actor) -> Iterator[FileInode]:
    """Yield the first files of a writer that an actor may hear of: it owns them, or writes them."""
    own = actor.superuser or (lease.caller is not None and lease.caller.user == actor.user)
    for number in heapq.nsmallest(PATHS_SHOWN, lease.files):
        inode = inode_of(view, number)
        if isinstance(inode, FileInode) and (own or inode.owner == actor.user):
            yield inode


def _described(
    node: NameNode, writer: WriterId, lease: Lease, paths: tuple[str, ...]
) -> WriterLease:
    now_s = node.clock_s()
    return WriterLease(
        writer=writer,
        user=lease.caller.user if lease.caller else "",
        address=lease.caller.address if lease.caller else "",
        held_s=round(now_s - lease.began_s, 3),
        silent_s=round(now_s - lease.renewed_s, 3),
        soft_s=node.leases.soft_limit_s,
        files=len(lease.files),
        paths=paths,
    )


async def unwhole(node: NameNode, request: ListUnwhole) -> UnwholeBlocks:
    """Show blocks that lack something, as the monitor knows them: no walk over all files."""
    await node.catalog.view()  # raises where this NameNode does not lead any more
    limit = min(max(request.limit, 1), ROWS_MAX)
    troubled, status = node.monitor.troubled, node.monitor.status
    if not request.worst:
        wanted = await _first_behind(request.after, troubled, limit + 1)
    elif status.missing or status.corrupt:
        is_worst = node.monitor.is_worst
        wanted = await _first_behind(request.after, troubled, limit + 1, is_worst)
    else:
        wanted = []
    found, view = list[Finding](), node.assessor.view()
    for start in range(0, len(wanted[:limit]), LOOKED_AT):
        some = tuple(wanted[start : min(start + LOOKED_AT, limit)])
        demands = [each for each in node.catalog.demands(some) if each is not None]
        paths = await node.catalog.block_paths(tuple(each.entry for each in demands))
        for demand, path in zip(demands, paths, strict=True):
            found += _findings(demand, path, node, view)
        await asyncio.sleep(0)
    more = wanted[limit - 1] if len(wanted) > limit else None
    return UnwholeBlocks(tuple(found), len(troubled), more)


async def _first_behind(
    after: BlockId,
    blocks: tuple[BlockId, ...],
    count: int,
    wanted: Callable[[BlockId], bool] = lambda _: True,
) -> list[BlockId]:
    """Return the least numbers behind `after` that are `wanted`, without keeping others waiting."""
    least: list[BlockId] = []
    for start in range(0, len(blocks), SLICE):
        some = (each for each in blocks[start : start + SLICE] if each > after and wanted(each))
        least = heapq.nsmallest(count, (*least, *some))
        await asyncio.sleep(0)
    return least


def _findings(demand: Demand, path: str, node: NameNode, view: StorageView) -> Iterator[Finding]:
    record = demand.entry.record
    if not (record.finalized or record.restored):
        counted = sum(view.place(each).live for each in record.members)
        yield Finding(
            path,
            demand.entry.file,
            Condition.UNDER_REPLICATED,
            record.block,
            wanted=demand.wanted,
            counted=counted,
            sound=counted,
        )
        return
    yield from block_findings(path, demand.entry, node.monitor.need(demand, view))


async def settings(node: NameNode, _: ShowSettings) -> NodeSettings:
    """Show the settings of this NameNode that are not the default."""
    changed = (ChangedSetting(*each) for each in changed_settings(node.config))
    return NodeSettings(node.config.section, tuple(changed))


async def work(node: NameNode, _: ShowWork) -> Work:
    """Show the copies and the balancing under way."""
    await node.catalog.view()  # raises where this NameNode does not lead any more
    copies = tuple(
        CopyUnderWay(
            each.record.block,
            each.record.size_bytes,
            each.source,
            each.target,
            each.target_node,
        )
        for each in node.copies.under_way(ROWS_MAX)
    )
    made, failed = node.copies.outcomes["made"], node.copies.outcomes["failed"]
    rate = node.copies.rate.lately()
    return Work(copies, len(node.copies), made, failed, node.balancer.status, *rate)
