"""Looking over the files below a path, some at a time: which blocks are not as they should be.

It judges as replication does (`needs.py`). A page may end anywhere, even within a file of many
blocks; the next one goes on after the path at which it ended, whatever became of that meanwhile.
Nothing is remembered here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain
from typing import Final

from paxosblock.api.fsck_call import CheckedFiles, Condition, Finding, FsckCursor
from paxosblock.errors import NotDirectoryError, NotFoundError
from paxosblock.namenode.blocks.replication.needs import Need
from paxosblock.namenode.catalog import keys, tree
from paxosblock.namenode.catalog.draft import Reads
from paxosblock.namenode.catalog.members import Demand
from paxosblock.namenode.catalog.permissions import ITSELF
from paxosblock.namenode.catalog.records import BlockEntry, FileInode
from paxosblock.namenode.catalog.subtree_walk import WalkedEntry, walk

SLICE: Final = 200
"""Names and blocks that are looked at before others get a turn."""

Assess = Callable[[Demand], Need]
"""Tells what a finalized block needs."""


def check_slice(
    reads: Reads,
    path: str,
    after: FsckCursor | None,
    assess: Assess,
    page: CheckedFiles,
    *,
    at_once: int = SLICE,
) -> FsckCursor | None:
    """Look at some files after `after`, `at_once` names and blocks; return where to go on, None at
    the end.

    Raises:
        NotFoundError, NotDirectoryError: nothing is at `path`.
    """
    enough = page.work + at_once
    begun = after or FsckCursor("")
    for step in chain(_begun(reads, begun), walk(reads, path, begun.path)):
        place = begun.place if step.path == begun.path else 0
        if step.target.is_directory:
            page.directories += 1
        elif (left := _check_file(reads, step, place, assess, page, at_once=at_once)) is not None:
            return left
        if page.work >= enough:
            return FsckCursor(step.path)
    return None


def _begun(reads: Reads, after: FsckCursor) -> Iterator[WalkedEntry]:
    """Yield the file some of whose blocks were checked, unless it is gone by now."""
    if not after.place:
        return
    with suppress(NotFoundError, NotDirectoryError):
        target = tree.find(reads, after.path, ITSELF)
        if not target.is_directory:
            yield WalkedEntry(target, after.path)


def _check_file(
    reads: Reads,
    step: WalkedEntry,
    place: int,
    assess: Assess,
    page: CheckedFiles,
    *,
    at_once: int,
) -> FsckCursor | None:
    """Look at a page of a file's blocks; return where its next one begins, if it has another."""
    path, number = step.path, step.target.number
    inode = tree.load(reads.get(keys.inode(number)), path)
    assert isinstance(inode, FileInode), "an entry holds the kind of what it names"
    if not place:
        page.files += 1
        if inode.open:
            page.findings.append(Finding(path, number, Condition.OPEN))
    blocks = tree.block_page(reads, number, place, at_once)
    for located in blocks.blocks:
        page.blocks += 1
        if located.entry.record.finalized or located.entry.record.restored:
            need = assess(Demand(located.entry, inode.replication))
            page.size_bytes += located.entry.user_bytes
            page.asked_replicas += need.wanted
            page.replicas += need.counted
            page.lacking_replicas += need.lacks
            page.findings += block_findings(path, located.entry, need)
    return None if blocks.next_place is None else FsckCursor(path, blocks.next_place)


def block_findings(path: str, entry: BlockEntry, need: Need) -> Iterator[Finding]:
    """Yield what is wrong with a decided block of the file at `path`."""
    for condition in conditions(need):
        yield Finding(
            path,
            entry.file,
            condition,
            entry.record.block,
            entry.record.size_bytes,
            need.wanted,
            need.counted,
            len(need.sound),
            len(need.damaged),
            len(need.elsewhere),
        )


def conditions(need: Need) -> Iterator[Condition]:
    """Yield the conditions of a block that has these needs."""
    if need.elsewhere:  # also beside damaged ones: what may be sound elsewhere is not lost
        yield Condition.UNCLEAR
    elif need.missing:
        yield Condition.CORRUPT if need.damaged else Condition.MISSING
    elif need.lacks:
        yield Condition.UNDER_REPLICATED
    if need.surplus:
        yield Condition.OVER_REPLICATED
    if need.misplaced:
        yield Condition.MIS_REPLICATED
