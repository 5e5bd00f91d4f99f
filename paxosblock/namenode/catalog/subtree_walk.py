"""Walking over all that is below a path, in slices that a path ends.

A slice may end behind any name, and the next one goes on there. The directories of the path at
which it went on may be gone by then, unless both slices have the view of one moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from paxosblock.api.namenode import FileStatus
from paxosblock.api.subtree import ContentSummary, Summed, Unread
from paxosblock.base import paths
from paxosblock.errors import PermissionDeniedError
from paxosblock.namenode.catalog import keys, permissions, tree
from paxosblock.namenode.catalog.draft import Reads
from paxosblock.namenode.catalog.permissions import ITSELF, Action, Actor
from paxosblock.namenode.catalog.records import FileInode

SLICE: Final = 200
"""Names that are looked at before others get a turn."""


@dataclass(frozen=True, slots=True)
class WalkedEntry:
    """A file or directory on a walk."""

    target: tree.Target
    path: str


def _entries(reads: Reads, directory: WalkedEntry, behind: str = "") -> Iterator[WalkedEntry]:
    """Yield the entries of a directory whose names are greater than `behind`."""
    stem = directory.path.rstrip("/")
    for name, target in tree.entries(reads, directory.target.number, SLICE, behind=behind):
        yield WalkedEntry(target, f"{stem}/{name}")


def walk(
    reads: Reads,
    path: str,
    after: str = "",
    enter: Callable[[WalkedEntry], bool] = lambda _: True,
) -> Iterator[WalkedEntry]:
    """Yield what is at `path` and below it behind the path `after` ("": all of it), a directory
    before what is in it, if `enter` lets it in there.

    A path may be deeper than calls may be nested, so this has a stack of its own.

    Raises:
        NotFoundError, NotDirectoryError: nothing is at `path`.
    """
    levels: list[Iterator[WalkedEntry]] = []
    inside = WalkedEntry(tree.find(reads, path, ITSELF), path)
    for name in paths.split(after)[len(paths.split(path)) :] if after else ():
        if not inside.target.is_directory:
            break
        levels.append(_entries(reads, inside, name))
        child = tree.child(reads, inside.target.number, name)
        if child is None:
            break
        inside = WalkedEntry(child, f"{inside.path.rstrip('/')}/{name}")
    else:
        if not after:
            yield inside
        if inside.target.is_directory and enter(inside):
            levels.append(_entries(reads, inside))
    while levels:
        step = next(levels[-1], None)
        if step is None:
            levels.pop()
            continue
        yield step
        if step.target.is_directory and enter(step):
            levels.append(_entries(reads, step))


def list_slice(
    reads: Reads, path: str, after: str, actor: Actor, unread: list[Unread]
) -> tuple[list[FileStatus], str]:
    """Return some entries below `path`, behind `after`, and the path at which to go on, "" at the
    end. Directories that the actor may not read are added to `unread`, and not entered.

    Raises:
        NotFoundError, NotDirectoryError: nothing is at `path`.
        PermissionDeniedError: the actor may not come there.
    """

    def enter(step: WalkedEntry) -> bool:
        try:
            _check_readable(reads, step, actor)
        except PermissionDeniedError as error:
            unread.append(Unread(step.path, str(error)))
            return False
        return True

    tree.find(reads, path, actor)
    steps = list(islice(walk(reads, path, after, enter), SLICE))
    found = [_status(reads, step) for step in steps]
    return found, steps[-1].path if len(steps) == SLICE else ""


@dataclass(slots=True)
class _Sum:
    """The sum of what is at and below one path."""

    status: FileStatus
    files: int = 0
    directories: int = 0
    size: int = 0
    space: int = 0

    def add(self, reads: Reads, step: WalkedEntry) -> None:
        """Count a file or directory."""
        if step.target.is_directory:
            self.directories += 1
            return
        inode = tree.load(reads.get(keys.inode(step.target.number)), step.path)
        assert isinstance(inode, FileInode), "an entry holds the kind of what it names"
        length = tree.length(reads, inode)
        self.files += 1
        self.size += length
        self.space += length * inode.replication


class Sums:
    """The sums of one part: of what is at `path`, or with `each` of every entry in the directory
    there.
    """

    def __init__(self, path: str, *, each: bool, actor: Actor) -> None:
        """Begin with none."""
        self._path, self._each, self._actor = path, each, actor
        self._sums: list[_Sum] = []

    @property
    def done(self) -> tuple[Summed, ...]:
        """The sums, in order of path."""
        return tuple(
            Summed(one.status, ContentSummary(one.files, one.directories, one.size, one.space))
            for one in self._sums
        )

    def add_slice(self, reads: Reads, after: str) -> str:
        """Sum up some of what is behind `after`; return the path at which to go on, "" at the end.

        Raises:
            NotFoundError, NotDirectoryError: nothing is at `path`.
            PermissionDeniedError: the actor may not read a directory there, or not come there.
        """

        def enter(step: WalkedEntry) -> bool:
            _check_readable(reads, step, self._actor)
            return True

        top = WalkedEntry(tree.find(reads, self._path, self._actor), self._path)
        depth = len(paths.split(self._path))
        apart = self._each and top.target.is_directory
        count = 0
        for step in islice(walk(reads, self._path, after, enter), SLICE):
            count, after = count + 1, step.path
            if not apart:
                self._of(reads, top.path).add(reads, step)
            elif step.path != top.path:
                entry = paths.join(paths.split(step.path)[: depth + 1])
                self._of(reads, entry).add(reads, step)
        return after if count == SLICE else ""

    def _of(self, reads: Reads, path: str) -> _Sum:
        """Return the sum of what is at `path`, which is the last one or a new one."""
        if not self._sums or self._sums[-1].status.path != path:
            self._sums.append(_Sum(tree.stat(reads, path, ITSELF)))
        return self._sums[-1]


def _status(reads: Reads, step: WalkedEntry) -> FileStatus:
    inode = tree.load(reads.get(keys.inode(step.target.number)), step.path)
    return tree.status(reads, step.path, inode)


def _check_readable(reads: Reads, step: WalkedEntry, actor: Actor) -> None:
    names = paths.split(step.path)
    permissions.check_at(reads, step.target.number, Action.READ_EXECUTE, names, actor)
