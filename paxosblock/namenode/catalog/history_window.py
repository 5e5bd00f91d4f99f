"""The window of history: the whole catalog as it was at each revision since one, which moves on.

The leader notes which revision the map has at a time, begins the window, lets it begin later bit
by bit, and ends it when it is no longer asked for. What was removed is linked again in one edit
with all that is below it, as a directory that the window shows is not swept (`garbage.py`).
"""

from __future__ import annotations

from typing import Final

import msgspec

from paxosblock.api.namenode import NO_BLOCK, FileStatus
from paxosblock.api.snapshot_calls import Undelete
from paxosblock.base import paths
from paxosblock.errors import InvalidRequestError, NotFoundError
from paxosblock.namenode.catalog import kept_blocks, keys, namespace, permissions, quotas, tree
from paxosblock.namenode.catalog.draft import Draft, Reads
from paxosblock.namenode.catalog.kept_blocks import OF_WINDOW
from paxosblock.namenode.catalog.namespace import Context
from paxosblock.namenode.catalog.permissions import Action
from paxosblock.namenode.catalog.records import DirectoryInode, FileInode, Inode, decode_inode
from paxosblock.namenode.kv import past

TIMES_AT_ONCE: Final = 2000
"""Times that one edit forgets."""
MOVES: Final = 24
"""Times that the window moves while a revision comes to its end."""


def is_due(reads: Reads, window_ms: int, now_ms: int, revision: int) -> bool:
    """True if `keep` would change something."""
    horizon = kept_blocks.window(reads)
    if not window_ms:
        return horizon is not None or _newest_time(reads) is not None
    newest = _newest_time(reads)
    return (
        horizon is None
        or newest is None
        or newest[1] != revision
        or bool(_next_begin(reads, window_ms, now_ms))
    )


def since_s(reads: Reads) -> float:
    """Return when the window begins, in seconds since the epoch; 0 if there is none."""
    if kept_blocks.window(reads) is None:
        return 0.0
    first = next(reads.scan(*keys.HISTORY_TIMES, 1), None)
    return 0.0 if first is None else keys.number_of(first[0]) / 1000


def keep(draft: Draft, window_ms: int, now_ms: int) -> None:
    """Begin the window, move it on, or end it if `window_ms` is 0, and note the time."""
    if not window_ms:
        _end(draft)
        return
    if not draft.get(keys.HISTORY).exists:
        _begin(draft)
    elif target := _next_begin(draft, window_ms, now_ms):
        _move(draft, target)
    newest = _newest_time(draft)
    if newest is None or newest[0] < now_ms:  # a clock that was set back waits
        draft.put(keys.history_time(now_ms), b"")


def _begin(draft: Draft) -> None:
    ended = keys.ended_snapshot(OF_WINDOW)
    kept_blocks.change_count(draft, 0 if draft.get(ended).exists else 1)
    draft.put(keys.HISTORY, past.hold_value(0, b""))
    draft.counters.end(keys.NO_COUNTER)  # stops NameNodes that would keep nothing, as of snapshots


def _move(draft: Draft, begin: bytes) -> None:
    """Let the window begin at the revision of a time."""
    revision = draft.get(begin).revision
    kept_blocks.change_count(draft, 0)
    draft.put(keys.HISTORY, past.hold_value(revision, b""))
    for key, _ in list(draft.scan(keys.HISTORY_TIMES[0], begin)):
        draft.delete(key)
    _look_for_what_ended(draft)


def _end(draft: Draft) -> None:
    if draft.get(keys.HISTORY).exists:
        draft.delete(keys.HISTORY)
        kept_blocks.change_count(draft, 0)
        _look_for_what_ended(draft)
    for key, _ in list(draft.scan(*keys.HISTORY_TIMES, TIMES_AT_ONCE)):
        draft.delete(key)


def _look_for_what_ended(draft: Draft) -> None:
    """Let the sweep look for what the window no longer shows, unless it is about it."""
    ended = keys.ended_snapshot(OF_WINDOW)
    if not draft.get(ended).exists:
        draft.put(ended, b"")


def _next_begin(reads: Reads, window_ms: int, now_ms: int) -> bytes:
    """Return the key of the time at which the window should begin; b"": where it does."""
    start, _ = keys.HISTORY_TIMES
    times = [
        key
        for key, _ in reads.scan(
            start, keys.history_time(max(0, now_ms - window_ms)), TIMES_AT_ONCE
        )
    ]
    if not times:
        return b""
    moved_ms = keys.number_of(times[-1]) - keys.number_of(times[0])
    return times[-1] if moved_ms >= window_ms // MOVES or len(times) == TIMES_AT_ONCE else b""


def _newest_time(reads: Reads) -> tuple[int, int] | None:
    """Return the last time that was noted, and its revision."""
    for key, found in reads.scan(*keys.HISTORY_TIMES, 1, reverse=True):
        return keys.number_of(key), found.revision
    return None


# --- what was removed -----------------------------------------------------------------------------


def undelete(draft: Draft, request: Undelete, context: Context) -> FileStatus:
    """Link what was removed last under a path, with all that was below it.

    Raises:
        NotFoundError: the directory above is not there, or nothing of that name was removed since
            the window begins.
        ExistsError: something has that name now.
        InvalidRequestError: there is no window; or what was there is elsewhere now, was being
            written, or cannot be counted for a quota.
        PermissionDeniedError: the actor may not write the directory above, or what was there is
            another user's.
    """
    names = paths.split(request.path)
    if not names:
        raise tree.exists(request.path)
    directory, name = tree.find_directory(draft, names[:-1], context.actor), names[-1]
    permissions.check_at(draft, directory, Action.WRITE, names[:-1], context.actor)
    draft.get(keys.inode(directory))  # changes when the directory begins to count
    entry = keys.entry(directory, name)
    if draft.get(entry).exists:
        raise tree.exists(request.path)
    draft.get(keys.SNAPSHOT_COUNT)
    horizon = kept_blocks.window(draft)
    if horizon is None:
        raise InvalidRequestError("no history is kept: see the setting `history`")
    removed = [each for each in past.versions(draft.applied, entry) if (each.end or 0) > horizon]
    if not removed:
        raise NotFoundError(
            f"{paths.shown(request.path)}: nothing of this name was removed in the history that is "
            "kept",
            path=request.path,
        )
    version = removed[-1]
    assert version.end is not None, "there is no such entry now"
    before = past.PastView(draft.applied, version.end - 1)
    number = tree.unpack_target(version.value).number
    *_, last = past.versions(draft.applied, keys.inode(number))
    if draft.get(keys.inode(number)).exists or last.end != version.end:
        raise InvalidRequestError(
            f"{paths.shown(request.path)}: what was there was renamed", path=request.path
        )
    inode = decode_inode(before.get(keys.inode(number)).value)
    permissions.check_owner(inode, names, context.actor)
    if isinstance(inode, FileInode):
        inode = _file_again(draft, before, inode, request.path)
    else:
        inode = _directory_again(draft, before, inode, version.end, request.path)
    for key, found in list(before.scan(*keys.attributes(number))):
        draft.put(key, found.value)
    try:
        namespace.link(draft, inode, context)
    except quotas.UncountedError:
        raise InvalidRequestError(
            f"{paths.shown(request.path)}: it would have to be counted for a quota first: copy it",
            path=request.path,
        ) from None
    return tree.status(draft, request.path, inode)


def _file_again(draft: Draft, before: past.PastView, inode: FileInode, path: str) -> Inode:
    """Take a file out of what waits, and return it as it is linked again."""
    span = keys.places(inode.number)
    for backwards in (False, True):
        first, now = (next(reads.scan(*span, 1, backwards), None) for reads in (before, draft))
        if (first and first[0]) != (now and now[0]):
            raise InvalidRequestError(
                f"{paths.shown(path)}: its blocks are in another file now: copy it", path=path
            )
    if inode.open:
        raise InvalidRequestError(f"{paths.shown(path)}: it was being written: copy it", path=path)
    for key in (keys.garbage(inode.number), keys.kept_file(inode.number)):
        if draft.get(key).exists:
            draft.delete(key)
    return msgspec.structs.replace(inode, reserved=NO_BLOCK)


def _directory_again(
    draft: Draft, before: past.PastView, inode: DirectoryInode, end: int, path: str
) -> Inode:
    """Take a directory out of what waits, and return it as it is linked again."""
    number = inode.number
    touched = before.get(keys.touched(number))
    if touched.exists:
        draft.put(keys.touched(number), touched.value)
    if next(before.scan(*keys.entries(number), 1), None) is not None:
        places = keys.garbage(number), keys.waiting_until(end, number)
        there = [key for key in places if draft.get(key).exists]
        if not there:
            raise NotFoundError(f"{paths.shown(path)}: it was removed too long ago", path=path)
        draft.delete(there[0])
    return msgspec.structs.replace(inode, expires_ms=0, quota=msgspec.UNSET)
