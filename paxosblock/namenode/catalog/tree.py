"""Reading the namespace: from a path to an inode and back, and what `stat` and `list` show.

The value of an entry holds the kind and the id of what it names, so that a superuser's path is
walked without reading any inode; for others each directory on the way is checked. A way that was
walked is remembered (`trails.py`). Renaming a directory changes only its own entry and inode,
because the entries below it are kept under its id.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from paxosblock.api.namenode import FileStatus, Kind, ListDirectory, Listing
from paxosblock.api.snapshot_calls import SNAPSHOT_DIRECTORY
from paxosblock.base import paths
from paxosblock.errors import (
    ExistsError,
    InvalidRequestError,
    IsDirectoryError,
    LeaseError,
    NotDirectoryError,
    NotFoundError,
    PaxosBlockError,
    PermissionDeniedError,
)
from paxosblock.namenode.catalog import keys, permissions, trails
from paxosblock.namenode.catalog.draft import Draft, Reads, inode_of
from paxosblock.namenode.catalog.permissions import ITSELF, Action, Actor
from paxosblock.namenode.catalog.records import (
    ROOT_ID,
    BlockEntry,
    DirectoryInode,
    FileInode,
    Inode,
    Place,
    decode_place,
    entry_in,
    inode_in,
)
from paxosblock.namenode.kv.interface import Versioned, View
from paxosblock.namenode.kv.past import PastView
from paxosblock.protocol.types import Durability

_TARGET = struct.Struct(">cQ")
_LINKED = struct.Struct(">Q")
"""Behind the target of an entry that was written again: the change that gave it its name."""
_DIRECTORY = b"d"
_FILE = b"f"


class SnapshotView(PastView):
    """The catalog at the revision of a snapshot. The first names of each path, as many as `depth`,
    lead to the snapshot, so the others begin at its directory."""

    def __init__(self, reads: Reads, revision: int, directory: int, depth: int) -> None:
        """Show `directory` as it was, at paths with so many names."""
        super().__init__(reads, revision)
        self.directory = directory
        self.depth = depth


class Target(msgspec.Struct, frozen=True, gc=False):
    """The file or directory that an entry names."""

    number: int
    is_directory: bool


def pack_target(inode: Inode) -> bytes:
    """Encode the value of the entry that names `inode`."""
    kind = _DIRECTORY if isinstance(inode, DirectoryInode) else _FILE
    return _TARGET.pack(kind, inode.number)


def unpack_target(value: bytes) -> Target:
    """Decode the value of an entry."""
    kind, number = _TARGET.unpack_from(value)
    return Target(number, kind == _DIRECTORY)


def linked(entry: Versioned) -> int:
    """Return the revision of the change that gave an entry its name, also if it was written again
    since."""
    if len(entry.value) == _TARGET.size:
        return entry.revision
    return int(_LINKED.unpack_from(entry.value, _TARGET.size)[0])


def write_again(draft: Draft, key: bytes) -> None:
    """Write an entry as it is, so that what was decided by it is decided again.

    What `linked` tells of it stays: streams go by that to read each file once.
    """
    entry = draft.get(key)
    draft.put(key, entry.value[: _TARGET.size] + _LINKED.pack(linked(entry)))


def missing(path: str) -> NotFoundError:
    """Return the error for a path that names nothing."""
    return NotFoundError(f"{paths.shown(path)}: no such file or directory", path=path)


def not_directory(path: str) -> NotDirectoryError:
    """Return the error for a file where a directory is meant."""
    return NotDirectoryError(f"{paths.shown(path)}: is a file, not a directory", path=path)


def is_directory(path: str) -> IsDirectoryError:
    """Return the error for a directory where a file is meant."""
    return IsDirectoryError(f"{paths.shown(path)}: is a directory", path=path)


def exists(path: str) -> ExistsError:
    """Return the error for a path that is taken."""
    return ExistsError(f"{paths.shown(path)}: exists already", path=path)


def being_written(path: str, inode: FileInode) -> LeaseError:
    """Return the error for a file that has a writer."""
    return LeaseError(
        f"{paths.shown(path)}: is being written by {inode.writer}; take_over ends that",
        path=path,
        writer=inode.writer,
    )


def descend(reads: Reads, names: tuple[str, ...], actor: Actor) -> tuple[Target, int]:
    """Follow `names` from the root as far as they exist, and as far as `actor` may go.

    Returns:
        The last target that exists, and how many of the names led to it.

    Raises:
        NotDirectoryError: a name that others follow names a file.
        PermissionDeniedError: the actor may not go through a directory on the way; or the path is
            below `.snapshot`, where only `snapshots.at` leads.
        InvalidRequestError: the path ends there.
    """
    get, kind, number, free, begin = reads.get, _DIRECTORY, ROOT_ID, actor.superuser, 0
    read: dict[bytes, Versioned] | None = None
    if isinstance(reads, SnapshotView):
        number, begin = reads.directory, reads.depth
    elif len(names) > 1:
        directory = trails.follow(reads, names[:-1], actor)
        if directory is None:
            read = {}
        else:
            number, free, begin = directory, True, len(names) - 1
    for depth, name in enumerate(names[begin:], begin):
        if kind != _DIRECTORY:
            raise not_directory(paths.join(names[:depth]))
        if not free:
            key = keys.inode(number)
            passed = get(key)
            inode = permissions.directory_in(passed)
            permissions.check(inode, Action.EXECUTE, names[:depth], actor)
            if read is not None:
                read[key] = passed
        if read is not None and depth == len(names) - 1:
            trails.remember(names[:-1], actor, number, read)
            read = None
        key = keys.entry(number, name)
        found = get(key)
        if not found.exists:
            if name == SNAPSHOT_DIRECTORY:
                raise _read_only(names)
            return Target(number, True), depth
        if read is not None and free:
            read[key] = found
        kind, number = _TARGET.unpack_from(found.value)
    return Target(number, kind == _DIRECTORY), len(names)


def _read_only(names: tuple[str, ...]) -> PaxosBlockError:
    """Return the error for what would change a snapshot, or the name that all are below."""
    if names[-1] == SNAPSHOT_DIRECTORY:
        return InvalidRequestError(f'"{SNAPSHOT_DIRECTORY}" is a reserved name.')
    text = "Modification on a read-only snapshot is disallowed"
    return PermissionDeniedError(text, path=paths.join(names))


def find(reads: Reads, path: str, actor: Actor) -> Target:
    """Return what `path` names.

    Raises:
        InvalidRequestError: it is not a valid path.
        NotFoundError: it names nothing.
        NotDirectoryError: it goes through a file.
        PermissionDeniedError: it goes through a directory that the actor may not pass.
    """
    names = paths.split(path)
    target, depth = descend(reads, names, actor)
    if depth < len(names):
        raise missing(path)
    return target


def find_directory(reads: Reads, names: tuple[str, ...], actor: Actor) -> int:
    """Return the id of an existing directory; errors like `find`."""
    target, depth = descend(reads, names, actor)
    if depth < len(names):
        raise missing(paths.join(names[: depth + 1]))
    if not target.is_directory:
        raise not_directory(paths.join(names))
    return target.number


def child(reads: Reads, directory: int, name: str) -> Target | None:
    """Return what the entry `name` of a directory names; None if there is no such entry."""
    found = reads.get(keys.entry(directory, name))
    return unpack_target(found.value) if found.exists else None


def entries(
    reads: Reads, directory: int, at_once: int, *, start: str = "", behind: str = ""
) -> Iterator[tuple[str, Target]]:
    """Yield the entries of a directory whose names begin with `start` and are greater than
    `behind`, in order of name. So many are read `at_once`, when the first of them is wanted."""
    first, end = keys.entries_of_prefix(directory, start)
    more = True
    while more and (first := max(first, keys.entries(directory, behind)[0])) < end:
        page = list(reads.scan(first, end, at_once))
        for key, found in page:
            yield keys.name_in(key), unpack_target(found.value)
        if more := len(page) == at_once:
            behind = keys.name_in(page[-1][0])


def next_entry(reads: Reads, directory: int, after: str) -> tuple[str, Target] | None:
    """Return the first entry of a directory after the name `after`; None if there is none."""
    found = next(reads.scan(*keys.entries(directory, after), 1), None)
    return None if found is None else (keys.name_in(found[0]), unpack_target(found[1].value))


def load(found: Versioned, what: str) -> Inode:
    """Return an inode that was just read.

    Raises:
        NotFoundError: the inode is gone; `what` names it.
    """
    if not found.exists:
        raise missing(what)
    return inode_in(found)


def find_inode(reads: Reads, path: str, actor: Actor, action: Action | None = None) -> Inode:
    """Return the inode that `path` names, if the actor may do `action`. Raises like `find`."""
    inode = load(reads.get(keys.inode(find(reads, path, actor).number)), path)
    if action is not None:
        permissions.check(inode, action, paths.split(path), actor)
    return inode


def find_closed(reads: Reads, path: str, actor: Actor, action: Action | None = None) -> FileInode:
    """Return the closed file that `path` names, with which the actor may do `action`.

    Raises:
        IsDirectoryError: it names a directory.
        LeaseError: the file is being written.
        Others: like `find`.
    """
    inode = find_inode(reads, path, actor, action)
    if not isinstance(inode, FileInode):
        raise is_directory(path)
    if inode.open:
        raise being_written(path, inode)
    return inode


def stat(reads: Reads, path: str, actor: Actor) -> FileStatus:
    """Return what `stat` shows of `path`. Raises like `find`."""
    return status(reads, path, find_inode(reads, path, actor))


def path_of(reads: Reads, inode: Inode) -> str | None:
    """Return the path of an inode; None if it or a directory above it was deleted."""
    names: list[str] = []
    while inode.number != ROOT_ID:
        names.append(inode.name)
        above = inode_of(reads, inode.parent)
        if above is None:
            return None
        inode = above
    return paths.join(tuple(reversed(names)))


def names_file(value: bytes) -> bool:
    """True if the value of an entry names a file."""
    return value.startswith(_FILE)


@dataclass(frozen=True, slots=True)
class Located:
    """A block of a file, and the byte of the file at which it begins. In the past, only its first
    `shown_bytes` were there: it may have got others since, in this file or another."""

    offset: int
    entry: BlockEntry
    shown_bytes: int | None = None

    @property
    def end(self) -> int:
        """Return where the file's next block begins, once the length of this one is decided."""
        shown = self.shown_bytes
        return self.offset + (self.entry.user_bytes if shown is None else shown)


@dataclass(frozen=True, slots=True)
class BlockPage:
    """Some blocks of a file in order; `next_place` begins the next page, None after the last."""

    blocks: tuple[Located, ...]
    next_place: int | None


def block_page(reads: Reads, file: int, start: int, limit: int) -> BlockPage:
    """Return the blocks of a file from place `start` on, at most `limit`."""
    found = list(reads.scan(*keys.places(file, start), limit + 1))
    located = tuple(_located(reads, decode_place(value.value)) for _, value in found[:limit])
    return BlockPage(located, keys.place_sequence(found[limit][0]) if found[limit:] else None)


def past_page(reads: PastView, file: FileInode, start: int, limit: int) -> BlockPage:
    """Return the blocks that a file had bytes in, as `block_page` does."""
    found = list(reads.scan(*keys.places(file.number, start), limit + 1))
    places = [decode_place(value.value) for _, value in found]
    end = length(reads, file)
    ends = [*(place.offset for place in places), end][1:]
    located = tuple(
        Located(place.offset, entry_in(reads.get(keys.block(place.block))), shown)
        for place, behind in zip(places[:limit], ends, strict=False)
        if (shown := min(behind, end) - place.offset) > 0
    )
    return BlockPage(located, keys.place_sequence(found[limit][0]) if found[limit:] else None)


def past_last(reads: PastView, file: FileInode) -> Located | None:
    """Return the last block that a file had bytes in."""
    behind = length(reads, file)
    for key, found in reads.scan(*keys.places(file.number), None, reverse=True):
        if decode_place(found.value).offset < behind:
            return past_page(reads, file, keys.place_sequence(key), 1).blocks[-1]
    return None


def place_of_offset(reads: Reads, file: int, offset: int) -> int:
    """Return the place of the block that holds byte `offset`: the last block that begins there or
    before; 0 if there is none.

    The search looks at some twenty places, however long the file is. Places may have gaps.
    """
    low, high = 0, next_sequence(reads, file)
    while low < high:
        middle = (low + high) // 2
        key, found = next(reads.scan(*keys.places(file, middle), 1))
        if decode_place(found.value).offset <= offset:
            low = keys.place_sequence(key) + 1
        else:
            high = middle
    # All places from `low` on begin after the byte, and none before it does.
    before = keys.place(file, 0), keys.place(file, low)
    return next((keys.place_sequence(key) for key, _ in reads.scan(*before, 1, reverse=True)), 0)


def last_places(reads: Reads, file: int, count: int) -> tuple[Place, ...]:
    """Return the last places of a file, the last one first."""
    found = reads.scan(*keys.places(file), count, reverse=True)
    return tuple(decode_place(value.value) for _, value in found)


def last_block(reads: Reads, file: int) -> Located | None:
    """Return the last block of a file: the only one that may not be finalized (K1)."""
    return next((_located(reads, place) for place in last_places(reads, file, 1)), None)


def next_sequence(reads: Reads, file: int) -> int:
    """Return the place after the last block of a file."""
    found = reads.scan(*keys.places(file), 1, reverse=True)
    return next((keys.place_sequence(key) + 1 for key, _ in found), 0)


def _located(reads: Reads, place: Place) -> Located:
    return Located(place.offset, entry_in(reads.get(keys.block(place.block))))


def list_directory(
    view: View | PastView, request: ListDirectory, limit_max: int, actor: Actor
) -> Listing:
    """Return one page of a directory in byte order of the names; for a file, the file itself.

    Raises:
        InvalidRequestError: the path or the limit makes no sense.
        NotFoundError, NotDirectoryError: like `find`.
        PermissionDeniedError: the actor may not read the directory, or not come there.
    """
    if request.limit < 1:
        raise InvalidRequestError(f"{paths.shown(request.path)}: a page has at least one entry")
    target = find(view, request.path, actor)
    if not target.is_directory:
        return _listed_file(view, request.path)
    names = paths.split(request.path)
    permissions.check_at(view, target.number, Action.READ_EXECUTE, names, actor)
    limit = min(request.limit, limit_max)
    span = keys.entries(target.number, request.after)
    found = list(view.scan(*span, limit + 1))
    stem = "" if request.path == paths.ROOT else request.path
    page = tuple(
        _entry_status(view, f"{stem}/{keys.name_in(key)}", value) for key, value in found[:limit]
    )
    links = tuple(linked(value) for _, value in found[:limit])
    changed = view.get(keys.touched(target.number)).revision
    return Listing(page, len(found) > limit, view.revision, links, target.number, changed)


def _listed_file(view: View | PastView, path: str) -> Listing:
    parent, name = paths.split(path)[:-1], paths.split(path)[-1]
    entry = view.get(keys.entry(find_directory(view, parent, ITSELF), name))  # it was checked
    return Listing((_entry_status(view, path, entry),), False, view.revision, (linked(entry),))


def _entry_status(reads: Reads, path: str, entry: Versioned) -> FileStatus:
    return status(reads, path, load(reads.get(keys.inode(unpack_target(entry.value).number)), path))


def status(reads: Reads, path: str, inode: Inode) -> FileStatus:
    """Return what `stat` shows of `inode`, which `path` names."""
    if isinstance(inode, FileInode):
        return file_status(path, inode, length(reads, inode))
    touched = reads.get(keys.touched(inode.number))
    modified_ms = keys.unpack_number(touched.value) if touched.exists else inode.created_ms
    return directory_status(path, inode, modified_ms)


def directory_status(path: str, inode: DirectoryInode, modified_ms: int) -> FileStatus:
    """Return what `stat` shows of a directory whose entries last changed at `modified_ms`."""
    return FileStatus(
        path=path,
        kind=Kind.DIRECTORY,
        file_id=inode.number,
        size=0,
        replication=0,
        block_size=0,
        durability=Durability.DISK,
        open=False,
        modified_s=modified_ms / 1000,
        created_s=inode.created_ms / 1000,
        owner=inode.owner,
        group=inode.group,
        permission=inode.permission,
        expires_s=inode.expires_ms / 1000,
        has_acl=inode.acl is not msgspec.UNSET,
        encrypted=inode.zone != 0,
    )


def file_status(path: str, inode: FileInode, size: int) -> FileStatus:
    """Return what `stat` shows of a file that has `size` decided bytes."""
    return FileStatus(
        path=path,
        kind=Kind.FILE,
        file_id=inode.number,
        size=size,
        replication=inode.replication,
        block_size=inode.block_size,
        durability=inode.durability,
        open=inode.open,
        modified_s=inode.modified_ms / 1000,
        created_s=inode.created_ms / 1000,
        owner=inode.owner,
        group=inode.group,
        permission=inode.permission,
        truncations=inode.truncations,
        has_acl=inode.acl is not msgspec.UNSET,
        encrypted=inode.zone != 0,
    )


def length(reads: Reads, inode: FileInode) -> int:
    """Return the length of a file; of one that is being written only decided bytes count.

    In the past, the block that was the last of such a file then may have got bytes since, so none
    of it counts that was not there when the file was closed before.
    """
    if not inode.open:
        return inode.length
    if isinstance(reads, PastView):
        return max((inode.length, *(each.offset for each in last_places(reads, inode.number, 1))))
    last = last_block(reads, inode.number)
    return 0 if last is None else last.end
