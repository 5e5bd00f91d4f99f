"""Things that end by themselves: directories with a time to live, known applications and sessions,
and the maintenance of a DataNode.

Their records say when, in `expires_ms`, and keys that sort by time lead to them. An edit that
changes one of the two changes the other as well (`Draft.move_deadline`).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator

from paxosblock.errors import InvalidRequestError
from paxosblock.namenode.catalog import keys, namespace, snapshots, tree
from paxosblock.namenode.catalog.draft import Draft, inode_of
from paxosblock.namenode.catalog.namespace import Context
from paxosblock.namenode.catalog.records import (
    ROOT_ID,
    DirectoryInode,
    FileInode,
    Inode,
    decode_answered,
    decode_application,
    decode_inode,
    decode_node,
)
from paxosblock.namenode.kv.interface import View


class Ended(enum.Enum):
    """The outcome of a deadline that is over."""

    GONE = "gone"
    """The subject had ended before, or was given another time."""
    HELD = "held"
    """A file below the directory is being written, the directory or one below it has snapshots, or
    safe mode is on: ask again later."""
    DELETED = "deleted"
    FORGOTTEN = "forgotten"


def due(view: View, after: bytes, now_ms: int, limit: int) -> tuple[bytes, ...]:
    """Return keys of deadlines that are over and come after the key `after`, oldest first."""
    start = max(after + b"\0", keys.DEADLINES[0])
    return tuple(key for key, _ in view.scan(start, keys.deadline(now_ms + 1, b""), limit))


def end(draft: Draft, key: bytes, context: Context) -> Ended:
    """End the subject of the deadline `key`.

    A directory stays while a writer below it renews its lease, while there are snapshots, and while
    an operator wants safe mode.
    """
    subject = keys.deadline_subject(key)
    found = draft.get(subject)
    if not found.exists:
        return _gone(draft, key)
    if keys.is_application(subject):
        return _forget(draft, key, decode_application(found.value).expires_ms)
    if keys.is_session(subject):
        return _forget(draft, key, decode_answered(found.value).expires_ms)
    if keys.is_node(subject):
        return _forget(draft, key, decode_node(found.value).expires_ms)
    inode = decode_inode(found.value)
    assert isinstance(inode, DirectoryInode), "only directories have a time to live"
    if inode.expires_ms != keys.number_of(key) or tree.path_of(draft, inode) is None:
        return _gone(draft, key)
    if namespace.in_safe_mode(draft) or _is_held(draft, inode.number, context.is_held):
        return Ended.HELD
    try:
        snapshots.check_may_go(draft, inode, inode.name)
    except InvalidRequestError:
        return Ended.HELD
    namespace.unlink(draft, inode, context)
    namespace.discard(draft, inode)
    return Ended.DELETED


def _forget(draft: Draft, key: bytes, expires_ms: int) -> Ended:
    if expires_ms != keys.number_of(key):
        return _gone(draft, key)
    draft.delete(keys.deadline_subject(key))
    draft.delete(key)
    return Ended.FORGOTTEN


def _gone(draft: Draft, key: bytes) -> Ended:
    draft.delete(key)
    return Ended.GONE


def _is_held(draft: Draft, directory: int, is_live: Callable[[FileInode], bool]) -> bool:
    """True if a file below a directory is open and its writer alive.

    False becomes a precondition: until the edit is applied, no other change may open a file below
    the directory, or move an open file there.
    """
    start, stop = keys.OPEN_FILES
    for key, _ in draft.scan(start, stop):
        draft.expect_empty((start, key))
        start = key + b"\0"
        inode = tree.load(draft.get(keys.inode(keys.number_of(key))), "an open file")
        assert isinstance(inode, FileInode), "only files are open"
        if is_live(inode) and directory in _above(draft, inode):
            return True
    draft.expect_empty((start, stop))
    return False


def _above(draft: Draft, inode: Inode) -> Iterator[int]:
    """Yield the ids of the directories above an inode, as far as they exist."""
    while inode.number != ROOT_ID:
        yield inode.parent
        above = inode_of(draft, inode.parent)
        if above is None:
            return
        inode = above
