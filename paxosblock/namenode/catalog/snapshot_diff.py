"""Comparing two states of a directory: snapshots, or what is there now.

The earlier state is walked; of each directory that the later one has, too, the entries are
compared, unless none of them changed. Who asks backwards gets the same the other way round. A file
or directory is known by its id. As in HDFS, one that came out of a directory that is gone is new,
and what is below a new directory is not shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import msgspec

from paxosblock.api.snapshot_calls import (
    SNAPSHOT_DIRECTORY,
    Difference,
    DiffSnapshots,
    SnapshotDifference,
)
from paxosblock.base import paths
from paxosblock.base.encoding import json_decoder
from paxosblock.errors import InvalidRequestError, NotFoundError
from paxosblock.namenode.catalog import keys, permissions, snapshots, tree
from paxosblock.namenode.catalog.draft import Reads, inode_of
from paxosblock.namenode.catalog.permissions import Action, Actor
from paxosblock.namenode.catalog.records import ROOT_ID, FileInode, Inode
from paxosblock.namenode.catalog.subtree_walk import SLICE, WalkedEntry, walk
from paxosblock.namenode.kv.interface import Moment, View


class _Place(msgspec.Struct, frozen=True, array_like=True):
    """The point that a comparison has reached: behind what this kind of difference says of the
    entry `name` of the directory at `path`; None: behind the whole directory, or file. `told`: it
    was said already that the directory is modified."""

    path: str
    kind: Difference | None = None
    name: str = ""
    told: bool = False


class Comparison:
    """The comparison of two states of a directory that the catalog shows at one moment."""

    def __init__(self, reads: View | Moment, request: DiffSnapshots, actor: Actor) -> None:
        """Look for both states.

        Raises:
            NotFoundError, NotDirectoryError: there is no such directory, or no such snapshot.
            PermissionDeniedError: the actor may not come there.
        """
        self._actor = actor
        self._directory = tree.find_directory(reads, paths.split(request.path), actor)
        states = [self._state(reads, request, name) for name in (request.before, request.later)]
        (self._top, self._before), (_, self._later) = sorted(
            states, key=lambda each: each[1].revision
        )
        self._backwards = states[0][1].revision > states[1][1].revision
        self._depth = len(paths.split(self._top))
        self._here = cache(self._way_here)

    def add_slice(self, after: str, found: list[SnapshotDifference]) -> str:
        """Add some differences behind `after` to those that were found; return where to go on, ""
        at the end.

        Raises:
            PermissionDeniedError: the actor may not read a directory that is compared.
        """
        for looked, (place, difference) in enumerate(self._compare(self._place_of(after)), 1):
            if difference is not None:
                found.append(_inverted(difference) if self._backwards else difference)
            if looked >= SLICE:
                return msgspec.json.encode(place).decode()
        return ""

    def _state(
        self, reads: View | Moment, request: DiffSnapshots, name: str
    ) -> tuple[str, View | Moment | tree.SnapshotView]:
        """Return the path of a state of the directory, and what shows it."""
        if not name:
            return request.path, reads
        if not reads.get(keys.snapshot(self._directory, name)).exists:
            raise NotFoundError(
                f"Cannot find the snapshot of directory {request.path} with name {name}",
                path=request.path,
            )
        path = f"{request.path.rstrip('/')}/{SNAPSHOT_DIRECTORY}/{name}"
        return path, snapshots.at(reads, path, self._actor)

    def _place_of(self, after: str) -> _Place:
        """Return where to go on.

        Raises:
            InvalidRequestError: no answer ever said so.
        """
        if not after:
            return _Place("")
        try:
            place = json_decoder(_Place).decode(after)
        except msgspec.DecodeError:
            place = _Place("")
        if not paths.is_below(place.path, self._top):
            raise InvalidRequestError(f"{paths.shown(self._top)}: cannot go on at another place")
        return place

    def _compare(self, place: _Place) -> Iterator[tuple[_Place, SnapshotDifference | None]]:
        """Yield each thing that is looked at, behind a place, with what differs there."""
        if place.kind is not None:
            target = tree.find(self._before, place.path, self._actor)
            yield from self._of_directory(WalkedEntry(target, place.path), place)
        for step in walk(self._before, self._top, place.path, self._is_compared):
            number = step.target.number
            if self._here(number) is None:
                yield _Place(step.path), None
            elif step.target.is_directory:
                yield from self._of_directory(step, _Place(step.path, Difference.CREATE))
            else:
                differs = self._differs(number)
                yield _Place(step.path), self._modified(step.path) if differs else None

    def _of_directory(
        self, step: WalkedEntry, place: _Place
    ) -> Iterator[tuple[_Place, SnapshotDifference | None]]:
        """Yield that a directory is modified, if it is, before what differs in it."""
        self._check_readable(step)
        told = place.told
        if not (told or place.name) and self._differs(step.target.number):
            told = True
            yield _Place(step.path, place.kind, "", told), self._modified(step.path)
        for at, difference in self._of_entries(step, place):
            if difference is not None and not told:
                told = True
                yield _Place(step.path, place.kind, place.name, told), self._modified(step.path)
            place = _Place(step.path, at.kind, at.name, told)
            yield place, difference
        yield _Place(step.path), None

    def _of_entries(
        self, step: WalkedEntry, place: _Place
    ) -> Iterator[tuple[_Place, SnapshotDifference | None]]:
        """Yield what there is to say of entries: of all new ones, then of those that are gone."""
        number, touched = step.target.number, keys.touched(step.target.number)
        if self._before.get(touched).revision == self._later.get(touched).revision:
            return
        if place.kind is Difference.CREATE:
            for name, target in tree.entries(self._later, number, SLICE, behind=place.name):
                at = _Place(step.path, Difference.CREATE, name)
                yield at, None if self._was_here(target.number) else self._created(at)
        behind = place.name if place.kind is Difference.DELETE else ""
        for name, target in tree.entries(self._before, number, SLICE, behind=behind):
            yield self._gone_or_renamed(_Place(step.path, Difference.DELETE, name), target)

    def _gone_or_renamed(
        self, at: _Place, target: tree.Target
    ) -> tuple[_Place, SnapshotDifference | None]:
        source, way = self._relative(at.path, at.name), self._here(target.number)
        if way is None:
            return at, SnapshotDifference(Difference.DELETE, source)
        states = (self._before, self._later)
        before, later = (tree.load(each.get(keys.inode(target.number)), at.path) for each in states)
        if (before.parent, before.name) == (later.parent, later.name):
            return at, None
        return at, SnapshotDifference(Difference.RENAME, source, "/".join(way))

    def _created(self, at: _Place) -> SnapshotDifference:
        return SnapshotDifference(Difference.CREATE, self._relative(at.path, at.name))

    def _modified(self, path: str) -> SnapshotDifference:
        return SnapshotDifference(Difference.MODIFY, self._relative(path))

    def _relative(self, path: str, name: str = "") -> str:
        names = paths.split(path)[self._depth :]
        return "/".join((*names, name) if name else names)

    def _is_compared(self, step: WalkedEntry) -> bool:
        """True if the later state has a directory, too, so that its entries are compared."""
        return self._here(step.target.number) is not None

    def _way_here(self, number: int) -> tuple[str, ...] | None:
        """Return the names on the way to something in the later state; None: it is not there."""
        return _way(self._later, number, self._directory)

    def _was_here(self, number: int) -> bool:
        """True if the walk through the earlier state comes to this."""
        while number != self._directory:
            inode = None if number == ROOT_ID else inode_of(self._before, number)
            if inode is None or self._here(inode.parent) is None:
                return False
            number = inode.parent
        return True

    def _check_readable(self, step: WalkedEntry) -> None:
        names = paths.split(step.path)
        for reads in (self._before, self._later):
            permissions.check_at(reads, step.target.number, Action.READ_EXECUTE, names, self._actor)

    def _differs(self, number: int) -> bool:
        """True if something other than its name, times and entries differs."""
        before, later = (reads.get(keys.inode(number)) for reads in (self._before, self._later))
        if before.revision == later.revision:
            inode = tree.load(before, self._top)
            if not (isinstance(inode, FileInode) and inode.open):
                return False
        return _shape(self._before, number) != _shape(self._later, number)


def _inverted(difference: SnapshotDifference) -> SnapshotDifference:
    """Return a difference for one who goes back: as in HDFS, the paths stay as they are."""
    match difference.kind:
        case Difference.CREATE:
            return SnapshotDifference(Difference.DELETE, difference.source)
        case Difference.DELETE:
            return SnapshotDifference(Difference.CREATE, difference.source)
        case Difference.RENAME:
            return SnapshotDifference(Difference.RENAME, difference.target, difference.source)
        case Difference.MODIFY:
            return difference


def _shape(reads: Reads, number: int) -> tuple[object, ...]:
    """Return what HDFS compares of a file or directory; and how often a file was cut, so that one
    that was cut and appended to differs in any case."""
    inode: Inode = tree.load(reads.get(keys.inode(number)), "")
    attributes = (
        [(key, found.value) for key, found in reads.scan(*keys.attributes(number))]
        if inode.attributes
        else []
    )
    rights = inode.owner, inode.group, inode.permission, inode.acl, attributes
    if not isinstance(inode, FileInode):
        return *rights, inode.quota
    of_file = inode.replication, inode.block_size, inode.durability, inode.truncations
    return *rights, *of_file, tree.length(reads, inode)


def _way(reads: Reads, number: int, top: int) -> tuple[str, ...] | None:
    """Return the names on the way from the directory `top` to something below it; None if it is
    not there."""
    names: list[str] = []
    while number != top:
        inode = None if number == ROOT_ID else inode_of(reads, number)
        if inode is None:
            return None
        names.append(inode.name)
        number = inode.parent
    return tuple(reversed(names))
