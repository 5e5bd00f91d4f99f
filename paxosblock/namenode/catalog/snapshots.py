"""Paths that lead through snapshots of directories, as HDFS has them: `/dir/.snapshot/NAME/...`.

Such a path is looked up in the present state as far as `/dir`, and from there on in a view of the
past. All that reads gets that view (`at`), and need not know of it. What changes names finds no
`.snapshot`, and is refused (`tree.descend`).
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from paxosblock.api.namenode import FileStatus, ListDirectory, Listing
from paxosblock.api.snapshot_calls import (
    REVISION,
    SNAPSHOT_DIRECTORY,
    AskKeptRoom,
    ListSnapshots,
    SnapshotList,
    SnapshotRoom,
    SnapshotStatus,
)
from paxosblock.base import paths
from paxosblock.errors import InvalidRequestError, NotFoundError
from paxosblock.namenode.catalog import kept_blocks, keys, permissions, tree
from paxosblock.namenode.catalog.draft import Draft, Reads, inode_of
from paxosblock.namenode.catalog.permissions import Action, Actor
from paxosblock.namenode.catalog.records import (
    ROOT_ID,
    DirectoryInode,
    Inode,
    Snapshot,
    decode_snapshot,
)
from paxosblock.namenode.kv import past
from paxosblock.namenode.kv.interface import Moment, Versioned, View

_OF_WINDOW: Final = f"/{SNAPSHOT_DIRECTORY}/{REVISION}"

R = TypeVar("R", bound=Reads)


def check_may_go(draft: Draft, inode: Inode, path: str) -> None:
    """Demand that neither a directory nor one below it has a snapshot.

    Raises:
        InvalidRequestError: one has.
    """
    if not isinstance(inode, DirectoryInode) or not draft.get(keys.SNAPSHOT_COUNT).exists:
        return
    seen: set[int] = set()
    for key, _ in draft.scan(*keys.SNAPSHOTS):
        directory = number = keys.number_of(key)
        while number not in seen:
            if number == inode.number:
                above = inode_of(draft, directory)
                shown = path if above is None else tree.path_of(draft, above)
                raise InvalidRequestError(
                    f"The directory {path} cannot be deleted since {shown} is snapshottable and "
                    "already has snapshots",
                    path=path,
                )
            seen.add(number)
            below = inode_of(draft, number)
            if number == ROOT_ID or below is None:
                break
            number = below.parent


def at(view: R, path: str, actor: Actor) -> R | tree.SnapshotView:
    """Return what shows a path: the present state, or a snapshot that the path leads through.

    Raises:
        NotFoundError, NotDirectoryError: there is no such snapshot, or no such directory.
        PermissionDeniedError: the actor may not come there.
        InvalidRequestError: the path ends at `.snapshot`, which only `stat` and `listed` show.
    """
    if f"/{SNAPSHOT_DIRECTORY}" not in path:
        return view
    names = paths.split(path)
    if SNAPSHOT_DIRECTORY not in names:
        return view
    depth = names.index(SNAPSHOT_DIRECTORY) + 2
    if len(names) < depth:
        raise tree.is_directory(path)
    directory = _above(view, names, actor)
    name = names[depth - 1]
    found = view.get(keys.snapshot(directory, name))
    if not found.exists:
        if directory == ROOT_ID and name.startswith(REVISION):
            return tree.SnapshotView(view, _revision(view, name), directory, depth)
        raise tree.missing(paths.join(names[:depth]))
    return tree.SnapshotView(view, past.held_revision(found), directory, depth)


def _revision(view: View | Moment | Reads, name: str) -> int:
    """Return the revision that a name of the window's asks for.

    Raises:
        NotFoundError: it is none, or the window does not hold it.
    """
    horizon, said = kept_blocks.window(view), name.removeprefix(REVISION)
    if horizon is None:
        raise NotFoundError("no history is kept: see the setting `history`")
    try:
        time_ms = round(float(said[1:]) * 1000) if said.startswith("t") else None
        revision = _at_time(view, time_ms) if time_ms is not None else int(said)
    except (ValueError, OverflowError):
        raise NotFoundError(f"'{name}' is no revision and no time") from None
    if revision < horizon:
        raise NotFoundError(f"'{name}' is before the history that is kept")
    newest = getattr(view, "revision", past.EVER)
    if revision > newest:
        raise NotFoundError(f"'{name}' has not come yet")
    return revision


def _at_time(reads: Reads, time_ms: int) -> int:
    """Return the revision at a time, as it was last noted before; 0 if it was not."""
    end = keys.history_time(time_ms + 1)
    for _, found in reads.scan(keys.HISTORY_TIMES[0], end, 1, reverse=True):
        return found.revision
    return 0


def stat(view: View, path: str, actor: Actor) -> FileStatus:
    """Return what `stat` shows of a path, also of one that leads through a snapshot.

    Raises: as `tree.stat`.
    """
    if path.endswith(f"/{SNAPSHOT_DIRECTORY}"):
        return _of_all(view, paths.split(path), actor)
    shown = at(view, path, actor)
    found = tree.stat(shown, path, actor)
    if path.startswith(_OF_WINDOW) and "/" not in path.removeprefix(_OF_WINDOW):
        assert isinstance(shown, tree.SnapshotView), "the path leads to one"
        # A time, too, comes back as a revision.
        found = msgspec.structs.replace(found, path=f"{_OF_WINDOW}{shown.revision}")
    return found


def listed(view: View, request: ListDirectory, limit_max: int, actor: Actor) -> Listing:
    """Return a page of a directory, also of one that a snapshot shows, or of all snapshots.

    Raises: as `tree.list_directory`.
    """
    path = request.path
    if not path.endswith(f"/{SNAPSHOT_DIRECTORY}"):
        return tree.list_directory(at(view, path, actor), request, limit_max, actor)
    if request.limit < 1:
        raise InvalidRequestError(f"{paths.shown(path)}: a page has at least one entry")
    directory = _of_all(view, paths.split(path), actor).file_id
    start, end = keys.snapshots(directory)
    start = keys.snapshot(directory, request.after) + b"\0" if request.after else start
    found = list(view.scan(start, end, min(request.limit, limit_max) + 1))
    page = tuple(
        tree.stat(at(view, where, actor), where, actor)
        for key, _ in found[: min(request.limit, limit_max)]
        for where in (f"{path}/{keys.name_in(key)}",)
    )
    linked = tuple(hold.revision for _, hold in found[: len(page)])
    changed = view.get(keys.SNAPSHOT_COUNT).revision
    return Listing(page, len(found) > len(page), view.revision, linked, directory, changed)


def show_all(view: View, request: ListSnapshots, actor: Actor) -> SnapshotList:
    """Return the snapshots of a directory, the oldest first.

    Raises:
        NotFoundError, NotDirectoryError: there is no such directory.
        PermissionDeniedError: the actor may not read it, or not come there.
    """
    names = paths.split(request.path)
    directory = tree.find_directory(view, names, actor)
    permissions.check_at(view, directory, Action.READ_EXECUTE, names, actor)
    found = [
        status(request.path, keys.name_in(key), record(hold))
        for key, hold in view.scan(*keys.snapshots(directory))
    ]
    return SnapshotList(tuple(sorted(found, key=lambda each: each.number)))


def kept_room(view: View, request: AskKeptRoom, actor: Actor) -> SnapshotRoom:
    """Return some of the room that would be free if a snapshot went, as far as the sweep has found
    what it keeps.

    Raises:
        NotFoundError, NotDirectoryError: there is no such directory, or no such snapshot.
        PermissionDeniedError: the actor may not read the directory, or not come there.
    """
    names = paths.split(request.path)
    directory = tree.find_directory(view, names, actor)
    permissions.check_at(view, directory, Action.READ_EXECUTE, names, actor)
    found = view.get(keys.snapshot(directory, request.name))
    if not found.exists:
        raise tree.missing(paths.join((*names, SNAPSHOT_DIRECTORY, request.name)))
    number = record(found).number
    return SnapshotRoom(*kept_blocks.only_kept_by(Draft(view), number, request.file, request.place))


def _of_all(view: View, names: tuple[str, ...], actor: Actor) -> FileStatus:
    """Return the status of the directory `.snapshot`, which is there once there is a snapshot."""
    if SNAPSHOT_DIRECTORY in names[:-1]:
        raise tree.missing(paths.join(names))
    directory = _above(view, names, actor)
    if next(view.scan(*keys.snapshots(directory), 1), None) is None:
        raise tree.missing(paths.join(names))
    inode = inode_of(view, directory)
    assert isinstance(inode, DirectoryInode), "it was found as a directory"
    return tree.directory_status(paths.join(names), inode, inode.created_ms)


def _above(view: Reads, names: tuple[str, ...], actor: Actor) -> int:
    """Return the directory whose snapshots a path leads through; the actor may pass it."""
    above = names[: names.index(SNAPSHOT_DIRECTORY)]
    directory = tree.find_directory(view, above, actor)
    permissions.check_at(view, directory, Action.EXECUTE, above, actor)
    return directory


def record(hold: Versioned) -> Snapshot:
    """Return the record of a snapshot."""
    return decode_snapshot(past.hold_rest(hold))


def status(path: str, name: str, about: Snapshot) -> SnapshotStatus:
    """Return what is told of a snapshot of the directory at a path."""
    stem = "" if path == paths.ROOT else path
    where = f"{stem}/{SNAPSHOT_DIRECTORY}/{name}"
    return SnapshotStatus(where, name, about.number, about.created_ms / 1000, about.owner)
