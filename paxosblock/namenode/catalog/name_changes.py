"""Makes out what entries of the log changed of names.

An entry has the keys that it writes. What that means shows the state before it: the values of an
earlier moment, and on top of them what the entries since have written. So every member makes the
same changes of the same entry, whenever it is asked.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final

import msgspec
from msgspec.structs import replace

from paxosblock.api.watching import ChangeKind, NameChange, Trait
from paxosblock.base.paths import is_below
from paxosblock.namenode.catalog import keys, permissions, tree
from paxosblock.namenode.catalog.permissions import Action, Actor
from paxosblock.namenode.catalog.records import (
    ROOT_ID,
    DirectoryInode,
    FileInode,
    Inode,
    decode_inode,
)
from paxosblock.namenode.kv.codec import decode_edit
from paxosblock.namenode.kv.interface import Values

SLICE: Final = 200
"""Keys of an entry that are looked at before others get a turn."""
WAYS_KEPT: Final = 10_000

_TELLING: Final = b"eiy"
"""The first bytes of the keys that tell of names."""
_ENTRY, _INODE, _ATTRIBUTE = _TELLING

_TRAITS: Final = (
    (Trait.PERMISSION, "permission"),
    (Trait.OWNER, "owner"),
    (Trait.GROUP, "group"),
    (Trait.ACL, "acl"),
)
_OF_FILES: Final = ((Trait.REPLICATION, "replication"),)
_OF_DIRECTORIES: Final = ((Trait.EXPIRY, "expires_ms"),)


class Way(msgspec.Struct, frozen=True, gc=False):
    """The directories down to one that has entries, as they were at a moment; `stem` is its path,
    "" for the root."""

    stem: str
    directories: tuple[Inode, ...]


class TracedChange(msgspec.Struct, frozen=True, gc=False):
    """A change, and the ways to its path and to its source, which say who may see it; None for one
    without a directory above it."""

    change: NameChange
    way: Way | None
    source_way: Way | None = None

    def told(self, path: str, actor: Actor) -> NameChange | None:
        """Return the change for one who watches `path`; None if they may not see it, or it is of
        nothing at `path` or below it."""
        change = self.change
        whole = change.concerns_below
        here = _concerns(change.path, path, whole=whole)
        if change.kind is not ChangeKind.RENAMED:
            # Who watches `path` knows the names on the way to it, and must know when what they may
            # see there is something else: until then nothing below was told.
            is_way = change.changes_rights and is_below(path, change.path)
            return change if here and (is_way or _seen(self.way, actor)) else None
        there = _concerns(change.source, path, whole=whole)
        if not (here or there):
            return None
        target_seen, source_seen = _seen(self.way, actor), _seen(self.source_way, actor)
        if target_seen and source_seen:
            return change
        if here and target_seen:
            return replace(change, source="")
        return replace(change, path="", size=None) if there and source_seen else None


def _concerns(changed: str, path: str, *, whole: bool) -> bool:
    """True if what changed is at `path`, below it, or (`whole`) a directory above it."""
    return is_below(changed, path) or (whole and is_below(path, changed))


def _seen(way: Way | None, actor: Actor) -> bool:
    """True if the actor can list the directory that the way leads to."""
    if actor.superuser or way is None:
        return True
    directories, allowed = way.directories, permissions.allowed
    return allowed(directories[-1], Action.READ, actor) and all(
        allowed(each, Action.EXECUTE, actor) for each in directories
    )


class ChangeReader:
    """Reads entries in order, from the one after `values` on."""

    def __init__(self, values: Values) -> None:
        self._ways: dict[int, Way | None] = {}
        self.go_on_from(values)

    def go_on_from(self, values: Values) -> None:
        """Read values there from now on, which are those after all that was read."""
        self._values = values
        self._known: dict[bytes, bytes | None] = {}
        """Values of keys after the last entry that was read; None: there is none."""
        self.revision = values.revision
        """The last entry that was read."""

    @property
    def known(self) -> int:
        """Return how many values are kept beside those of the beginning."""
        return len(self._known)

    def read(self, payload: bytes) -> Generator[None, None, list[TracedChange]]:
        """Read the next entry, `NO_CHANGE` if it changed nothing; return the changes of names. It
        yields where others may have a turn."""
        self.revision += 1
        touched = _touched(payload) if payload else {}
        if not touched:
            return []
        gone: dict[int, tuple[bytes, bool]] = {}
        came: dict[int, tuple[bytes, bool]] = {}
        inodes: dict[int, Inode | None] = {}
        attributes: set[int] = set()
        for count, (key, value) in enumerate(touched.items(), 1):
            if key[0] == _ENTRY:
                before = self._get(key)
                if before != value:
                    _note_entry(gone, key, before)
                    _note_entry(came, key, value)
            elif key[0] == _INODE:
                inodes[keys.number_of(key)] = self._inode(keys.number_of(key))
            else:
                attributes.add(keys.number_of(key))
            if count % SLICE == 0:
                yield
        sources = {number: self._way_above(key) for number, (key, _) in gone.items()}
        yield from self._write(touched)
        found = list(self._moved(gone, came, sources))
        for count, (number, before_it) in enumerate(inodes.items(), 1):
            after_it = self._inode(number)
            if before_it is not None and after_it is not None:
                touches = number in attributes
                found += self._altered(before_it, after_it, attributes=touches)
            if count % SLICE == 0:
                yield
        found.sort(key=_order)
        return found

    def _write(self, touched: dict[bytes, bytes | None]) -> Generator[None]:
        for count, (key, value) in enumerate(touched.items(), 1):
            if key[0] == _INODE and keys.number_of(key) in self._ways:
                self._ways.clear()
            self._known[key] = value
            if count % SLICE == 0:
                yield

    def _moved(
        self,
        gone: dict[int, tuple[bytes, bool]],
        came: dict[int, tuple[bytes, bool]],
        sources: dict[int, Way | None],
    ) -> Iterator[TracedChange]:
        """Yield what became of entries, but for those below a directory that was deleted: no
        watcher knows of them any more."""
        for number in {**gone, **came}:
            source_key, is_directory = gone.get(number, (b"", False))
            source_way = sources.get(number)
            key, is_directory = came.get(number, (b"", is_directory))
            way = self._way_above(key) if key else None
            if way is None and source_way is None:
                continue
            change = NameChange(
                self.revision,
                ChangeKind.RENAMED,
                _path(way, key),
                number,
                is_directory,
                _size(self._inode(number)) if way is not None else None,
                _path(source_way, source_key),
            )
            if way is None:
                change = replace(
                    change, kind=ChangeKind.REMOVED, path=change.source, source="", size=None
                )
                yield TracedChange(change, source_way)
            elif source_way is None:
                yield TracedChange(replace(change, kind=ChangeKind.CREATED), way)
            else:
                yield TracedChange(change, way, source_way)

    def _altered(self, before: Inode, after: Inode, *, attributes: bool) -> Iterator[TracedChange]:
        """Yield what changed of a file or directory itself."""
        way = None
        if after.number != ROOT_ID and (way := self._way_to(after.parent)) is None:
            return

        def traced(kind: ChangeKind, traits: tuple[Trait, ...] = ()) -> TracedChange:
            change = NameChange(
                self.revision,
                kind,
                "/" if way is None else f"{way.stem}/{after.name}",
                after.number,
                isinstance(after, DirectoryInode),
                _size(after),
                traits=traits,
            )
            return TracedChange(change, way)

        kind = _of_bytes(before, after)
        if kind is not None:
            yield traced(kind)
        traits = tuple(_traits(before, after, attributes=attributes, written=kind is not None))
        if traits:
            yield traced(ChangeKind.CHANGED, traits)

    def _get(self, key: bytes) -> bytes | None:
        if key in self._known:
            return self._known[key]
        found = self._values.get(key)
        value = self._known[key] = found.value if found.exists else None
        return value

    def _inode(self, number: int) -> Inode | None:
        value = self._get(keys.inode(number))
        return None if value is None else decode_inode(value)

    def _way_above(self, key: bytes) -> Way | None:
        """Return the way to the directory of an entry; None if it is not below the root."""
        return self._way_to(keys.number_of(key))

    def _way_to(self, number: int) -> Way | None:
        ways, below = self._ways, list[Inode]()
        if len(ways) > WAYS_KEPT:
            ways.clear()
        while number not in ways:
            inode = self._inode(number)
            if inode is None:
                ways[number] = None
            elif number == ROOT_ID:
                ways[number] = Way("", (inode,))
            else:
                below.append(inode)
                number = inode.parent
        way = ways[number]
        for inode in reversed(below):
            if way is not None:
                way = Way(f"{way.stem}/{inode.name}", (*way.directories, inode))
            ways[inode.number] = way
        return way


def _touched(payload: bytes) -> dict[bytes, bytes | None]:
    """Return the keys that an entry writes of those that tell of names, with what it writes."""
    edit = decode_edit(payload)
    touched: dict[bytes, bytes | None] = {
        key: None for key in edit.deletes if key and key[0] in _TELLING
    }
    touched.update((key, value) for key, value in edit.puts if key and key[0] in _TELLING)
    return touched


def _note_entry(entries: dict[int, tuple[bytes, bool]], key: bytes, value: bytes | None) -> None:
    if value is not None:
        target = tree.unpack_target(value)
        entries[target.number] = key, target.is_directory


def _path(way: Way | None, key: bytes) -> str:
    return "" if way is None else f"{way.stem}/{keys.name_in(key)}"


def _size(inode: Inode | None) -> int | None:
    return inode.length if isinstance(inode, FileInode) and not inode.open else None


def _of_bytes(before: Inode, after: Inode) -> ChangeKind | None:
    """Return what happened to the bytes of a file; None if nothing that is told."""
    if not (isinstance(before, FileInode) and isinstance(after, FileInode)):
        return None
    if before.open != after.open:
        return ChangeKind.OPENED if after.open else ChangeKind.CLOSED
    return ChangeKind.RESIZED if before.length != after.length else None


def _traits(before: Inode, after: Inode, *, attributes: bool, written: bool) -> Iterator[Trait]:
    """Yield what of a file or directory is another than before. The time at which a file changed is
    told only if nothing was `written`."""
    compared = _TRAITS + (_OF_FILES if isinstance(after, FileInode) else _OF_DIRECTORIES)
    for trait, field in compared:
        if getattr(before, field) != getattr(after, field):
            yield trait
    if attributes:
        yield Trait.ATTRIBUTES
    if written or not (isinstance(before, FileInode) and isinstance(after, FileInode)):
        return
    if before.modified_ms != after.modified_ms:
        yield Trait.MODIFIED


_RANKS: Final = {
    kind: rank
    for rank, kind in enumerate(
        (
            ChangeKind.REMOVED,
            ChangeKind.RENAMED,
            ChangeKind.CREATED,
            ChangeKind.OPENED,
            ChangeKind.CLOSED,
            ChangeKind.RESIZED,
            ChangeKind.CHANGED,
        )
    )
}


def _order(traced: TracedChange) -> tuple[int, int, str, int]:
    """Order the changes of one entry: what goes before what comes, what is below a directory that
    goes before the directory, and a directory that comes before what is in it."""
    change = traced.change
    goes = change.kind in (ChangeKind.REMOVED, ChangeKind.RENAMED)
    where = change.source or change.path
    depth = where.count("/")
    return _RANKS[change.kind], -depth if goes else depth, where, change.file_id
