"""The calls about all that is below a path: a part for each call, all of one moment.

What one slice ends is answered from the view itself. A larger subtree is gone through at a moment
that is kept from there on (`moments.py`), so its parts fit together whatever happens meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from paxosblock.api.namenode import FileStatus
from paxosblock.api.snapshot_calls import DiffSnapshots, SnapshotDifference, SnapshotDifferences
from paxosblock.api.subtree import (
    KEYS_MAX,
    NO_MOMENT,
    KeyListing,
    ListedKey,
    ListKeys,
    ListSubtree,
    SubtreeListing,
    SubtreeSums,
    SumSubtree,
    Unread,
)
from paxosblock.namenode.catalog import snapshots
from paxosblock.namenode.catalog.key_order import KeyWalk
from paxosblock.namenode.catalog.permissions import ACTOR
from paxosblock.namenode.catalog.snapshot_diff import Comparison
from paxosblock.namenode.catalog.subtree_walk import Sums, list_slice
from paxosblock.namenode.kv.interface import Moment, View
from paxosblock.namenode.name_node import NameNode

Shown = View | Moment
SLICES_OF_SUMS: Final = 100
SLICES_OF_LISTING: Final = 10
KEYS_AT_ONCE: Final = 100
"""Steps of a list of keys before others get a turn."""
SUMS_MAX: Final = 2000
"""Entries of a directory that one part sums up by themselves."""


async def sum_subtree(node: NameNode, request: SumSubtree) -> SubtreeSums:
    """Sum up some of what is at and below a path."""
    actor = ACTOR.get()
    sums = Sums(request.path, each=request.each, actor=actor)

    def go_on(reads: Shown, after: str) -> str:
        return sums.add_slice(snapshots.at(reads, request.path, actor), after)

    place = await _slices(node, request, go_on, SLICES_OF_SUMS, lambda: len(sums.done) >= SUMS_MAX)
    return SubtreeSums(gone=True) if place is None else SubtreeSums(sums.done, *place)


async def list_subtree(node: NameNode, request: ListSubtree) -> SubtreeListing:
    """List some of what is at and below a path."""
    entries: list[FileStatus] = []
    unread: list[Unread] = []
    actor, revision = ACTOR.get(), 0

    def go_on(reads: Shown, after: str) -> str:
        nonlocal revision
        revision = reads.revision
        shown = snapshots.at(reads, request.path, actor)
        found, after = list_slice(shown, request.path, after, actor, unread)
        entries.extend(found)
        return after

    place = await _slices(node, request, go_on, SLICES_OF_LISTING)
    if place is None:
        return SubtreeListing(gone=True)
    return SubtreeListing(tuple(entries), tuple(unread), *place, revision=revision)


async def diff_snapshots(node: NameNode, request: DiffSnapshots) -> SnapshotDifferences:
    """Compare some of two states of a directory."""
    found: list[SnapshotDifference] = []
    actor = ACTOR.get()

    def go_on(reads: Shown, after: str) -> str:
        return Comparison(reads, request, actor).add_slice(after, found)

    place = await _slices(node, request, go_on, SLICES_OF_SUMS)
    return (
        SnapshotDifferences(gone=True)
        if place is None
        else SnapshotDifferences(tuple(found), *place)
    )


async def list_keys(node: NameNode, request: ListKeys) -> KeyListing:
    """List some keys below a directory, all of one moment, with turns for others in between."""
    moment = (await node.catalog.view(anywhere=True)).moment()
    try:
        found: list[ListedKey] = []
        most = min(request.limit, KEYS_MAX)
        actor = ACTOR.get()
        shown = snapshots.at(moment, request.path, actor)
        for count, listed in enumerate(KeyWalk(shown, request, actor).listed(), 1):
            if listed is not None:
                if len(found) == most:
                    return KeyListing(tuple(found), found[-1].key, moment.revision)
                found.append(listed)
            if count % KEYS_AT_ONCE == 0:
                await asyncio.sleep(0)
        return KeyListing(tuple(found), revision=moment.revision)
    finally:
        moment.release()


async def _slices(
    node: NameNode,
    request: SumSubtree | ListSubtree | DiffSnapshots,
    go_on: Callable[[Shown, str], str],
    most: int,
    enough: Callable[[], bool] = lambda: False,
) -> tuple[str, str] | None:
    """Go through slices, with turns for others in between; return the moment and the path behind
    which the next call goes on. None if the moment of the request is gone.
    """
    name, after = request.moment, request.after
    if name == NO_MOMENT:
        view = await node.catalog.view()
        after = go_on(view, after)
        if not after:
            return NO_MOMENT, ""
        name, _ = node.moments.take(view)
    for _ in range(most):
        moment = node.moments.find(name)
        if moment is None:
            return None
        after = go_on(moment, after)
        if not after:
            node.moments.drop(name)
            return NO_MOMENT, ""
        if enough():
            break
        await asyncio.sleep(0)
    return name, after
