"""Looking over the files below a path, some at a time: which blocks are not as they should be.

It judges as replication does (`needs.py`). A page may end anywhere, even within a file of many
blocks; the next one goes on after the path at which it ended, whatever became of that meanwhile.
Nothing is remembered here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from paxosblock.api.fsck_call import CheckedFiles, Condition, Finding, FsckCursor
from paxosblock.base import paths
from paxosblock.namenode.blocks.replication.needs import Need
from paxosblock.namenode.catalog import keys, tree
from paxosblock.namenode.catalog.draft import Reads
from paxosblock.namenode.catalog.members import Demand
from paxosblock.namenode.catalog.permissions import ITSELF
from paxosblock.namenode.catalog.records import BlockEntry, FileInode

SLICE: Final = 200
"""Names and blocks that are looked at before others get a turn."""

Assess = Callable[[Demand], Need]
"""Tells what a finalized block needs."""


def check_slice(
    reads: Reads, path: str, after: FsckCursor | None, assess: Assess, page: CheckedFiles
) -> FsckCursor | None:
    """Look at some files after `after`; return where to go on, None at the end.

    Raises:
        NotFoundError, NotDirectoryError: nothing is at `path`.
    """
    enough = page.work + SLICE
    for step in _walk(reads, path, after):
        if step.target.is_directory:
            page.directories += 1
        elif (left := _check_file(reads, step, assess, page)) is not None:
            return left
        if page.work >= enough:
            return FsckCursor(step.path)
    return None


@dataclass(frozen=True, slots=True)
class _CheckedPart:
    """A file or directory, and the place in it from which its blocks are still to come."""

    target: tree.Target
    path: str
    place: int = 0


@dataclass(slots=True)
class _Level:
    """A directory on the way, and the name up to which it was seen."""

    directory: int
    path: str
    name: str = ""


def _walk(reads: Reads, path: str, after: FsckCursor | None) -> Iterator[_CheckedPart]:
    """Yield what is at `path` and below it, a directory before what is in it, behind `after`.

    A path may be deeper than calls may be nested, so this has a stack of its own.
    """
    first, levels = _begin(reads, path, after)
    yield from first
    while levels:
        level = levels[-1]
        found = tree.next_entry(reads, level.directory, level.name)
        if found is None:
            levels.pop()
            continue
        level.name, target = found
        here = f"{level.path.rstrip('/')}/{level.name}"
        yield _CheckedPart(target, here)
        if target.is_directory:
            levels.append(_Level(target.number, here))


def _begin(
    reads: Reads, path: str, after: FsckCursor | None
) -> tuple[list[_CheckedPart], list[_Level]]:
    """Return the first steps, and the directories that are begun. The one that `after` names, and
    all on the way to it, may be gone by now.
    """
    target = tree.find(reads, path, ITSELF)
    if after is None:
        return [_CheckedPart(target, path)], [
            _Level(target.number, path)
        ] if target.is_directory else []
    levels: list[_Level] = []
    here = path
    for name in paths.split(after.path)[len(paths.split(path)) :]:
        if not target.is_directory:
            return [], levels
        levels.append(_Level(target.number, here, name))
        child = tree.child(reads, target.number, name)
        if child is None:
            return [], levels
        here, target = f"{here.rstrip('/')}/{name}", child
    if target.is_directory:
        return [], [*levels, _Level(target.number, here)]
    return [_CheckedPart(target, here, after.place)] if after.place else [], levels


def _check_file(
    reads: Reads, step: _CheckedPart, assess: Assess, page: CheckedFiles
) -> FsckCursor | None:
    """Look at a page of a file's blocks; return where its next one begins, if it has another."""
    path, number = step.path, step.target.number
    inode = tree.load(reads.get(keys.inode(number)), path)
    assert isinstance(inode, FileInode), "an entry holds the kind of what it names"
    if not step.place:
        page.files += 1
        if inode.open:
            page.findings.append(Finding(path, number, Condition.OPEN))
    blocks = tree.block_page(reads, number, step.place, SLICE)
    for located in blocks.blocks:
        page.blocks += 1
        if located.entry.record.finalized or located.entry.record.restored:
            need = assess(Demand(located.entry, inode.replication))
            page.size_bytes += located.entry.record.size_bytes
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
