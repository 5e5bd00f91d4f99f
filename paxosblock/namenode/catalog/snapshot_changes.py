"""Taking, ending and renaming snapshots of directories. Each function decides one on a `Draft`.

A snapshot is one key: it holds the revision of the entry of the log that wrote it (`kv/past.py`),
so taking one costs the same for any directory. The words of refusals are HDFS's. A directory need
not be allowed to have snapshots: its owner takes them.
"""

from __future__ import annotations

import time
from typing import Final

from paxosblock.api.snapshot_calls import (
    REVISION,
    SNAPSHOT_DIRECTORY,
    CreateSnapshot,
    DeleteSnapshot,
    RenameSnapshot,
    SnapshotStatus,
)
from paxosblock.base import paths
from paxosblock.errors import ExistsError, InvalidRequestError, NotFoundError
from paxosblock.namenode.catalog import kept_blocks, keys, permissions, snapshots, tree
from paxosblock.namenode.catalog.draft import Draft
from paxosblock.namenode.catalog.namespace import Context
from paxosblock.namenode.catalog.permissions import Actor
from paxosblock.namenode.catalog.records import DirectoryInode, Snapshot, asked_for, encode
from paxosblock.namenode.kv import past

SNAPSHOTS_MAX: Final = 65_536
"""Snapshots of one directory."""


def create(draft: Draft, request: CreateSnapshot, context: Context) -> SnapshotStatus:
    """Take a snapshot of a directory. It shows the directory as it is after this change.

    Raises:
        NotFoundError, NotDirectoryError: there is no such directory.
        ExistsError: it has a snapshot of this name.
        InvalidRequestError: the name is none, or the directory has too many snapshots.
        PermissionDeniedError: the directory is another user's.
    """
    inode, now_ms = _directory(draft, request.path, context.actor), context.now_ms
    name = request.name or _name_of(now_ms)
    _check_name(name)
    key = keys.snapshot(inode.number, name)
    if draft.get(key).exists:
        raise ExistsError(
            f"{paths.shown(request.path)}: Failed to add snapshot: there is already a snapshot "
            f'with the same name "{name}".',
            path=request.path,
        )
    kept_blocks.change_count(draft, 1)
    span = keys.snapshots(inode.number)
    if len(list(draft.scan(*span, SNAPSHOTS_MAX))) >= SNAPSHOTS_MAX:
        raise InvalidRequestError(
            f"{paths.shown(request.path)}: Failed to add snapshot: there are already "
            f"{SNAPSHOTS_MAX} snapshot(s) and the snapshot quota is {SNAPSHOTS_MAX}",
            path=request.path,
        )
    record = Snapshot(next(context.numbers), now_ms, context.actor.user)
    draft.put(key, past.hold_value(0, encode(record)))
    # A NameNode of a version before snapshots would keep nothing of what later entries replace, and
    # lead with such a map some day. It stops at an entry that changes counters, even one that does
    # nothing.
    draft.counters.end(keys.NO_COUNTER)
    if (kept := asked_for(inode)) is not inode:
        draft.put_inode(kept)
    return snapshots.status(request.path, name, record)


def delete(draft: Draft, request: DeleteSnapshot, context: Context) -> SnapshotStatus:
    """End a snapshot; what only it showed goes behind the scenes (`garbage.sweep`).

    Raises:
        NotFoundError, NotDirectoryError: there is no such directory, or no such snapshot.
        PermissionDeniedError: the directory is another user's.
    """
    inode = _directory(draft, request.path, context.actor)
    key = keys.snapshot(inode.number, request.name)
    found = draft.get(key)
    if not found.exists:
        raise NotFoundError(
            f"Cannot delete snapshot {request.name} from path {request.path}: the snapshot does "
            "not exist.",
            path=request.path,
        )
    record = snapshots.record(found)
    draft.delete(key)
    draft.put(keys.ended_snapshot(record.number), b"")
    kept_blocks.change_count(draft, 0)  # one that ended counts until all is cleared
    return snapshots.status(request.path, request.name, record)


def rename(draft: Draft, request: RenameSnapshot, context: Context) -> SnapshotStatus:
    """Give a snapshot another name.

    Raises:
        NotFoundError, NotDirectoryError: there is no such directory, or no such snapshot.
        ExistsError: the directory has a snapshot of the new name.
        InvalidRequestError: the new name is none.
        PermissionDeniedError: the directory is another user's.
    """
    inode = _directory(draft, request.path, context.actor)
    _check_name(request.new_name)
    found = draft.get(keys.snapshot(inode.number, request.name))
    if not found.exists:
        raise NotFoundError(
            f"The snapshot {request.name} does not exist for directory {request.path}",
            path=request.path,
        )
    record = snapshots.record(found)
    if request.new_name != request.name:
        target = keys.snapshot(inode.number, request.new_name)
        if draft.get(target).exists:
            raise ExistsError(
                f"The snapshot {request.new_name} already exists for directory {request.path}",
                path=request.path,
            )
        draft.delete(keys.snapshot(inode.number, request.name))
        draft.put(target, past.hold_value(past.held_revision(found), encode(record)))
        kept_blocks.change_count(draft, 0)
    return snapshots.status(request.path, request.new_name, record)


def _check_name(name: str) -> None:
    """Demand that a snapshot may have a name.

    Raises:
        InvalidRequestError: it may not.
    """
    if "/" in name:
        raise InvalidRequestError('Snapshot name cannot contain "/"')
    if name == SNAPSHOT_DIRECTORY or name.startswith(REVISION):
        raise InvalidRequestError(f'"{name}" is a reserved name.')
    paths.split(f"/{name}")


def _directory(draft: Draft, path: str, actor: Actor) -> DirectoryInode:
    inode = tree.find_inode(draft, path, actor)
    if not isinstance(inode, DirectoryInode):
        raise tree.not_directory(path)
    permissions.check_owner(inode, paths.split(path), actor)
    return inode


def _name_of(now_ms: int) -> str:
    """Return the name that HDFS gives a snapshot that is taken without one."""
    seconds, rest = divmod(now_ms, 1000)
    return time.strftime("s%Y%m%d-%H%M%S", time.gmtime(seconds)) + f".{rest:03}"
