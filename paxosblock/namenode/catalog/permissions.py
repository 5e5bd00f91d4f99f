"""HDFS's rights of users on files and directories.

`tree` checks each directory on a path while it walks; each operation then demands what it needs at
the end of the path. The class of a user at an inode decides: the owner, else the group, else
others; or its access control list (`acls.py`). A superuser may do everything.
"""

from __future__ import annotations

import enum
import stat
from contextvars import ContextVar
from functools import lru_cache
from typing import Final

import msgspec
from msgspec import UnsetType

from paxosblock.base import paths
from paxosblock.errors import PermissionDeniedError
from paxosblock.namenode.catalog import acls, keys
from paxosblock.namenode.catalog.draft import Reads
from paxosblock.namenode.catalog.records import (
    DirectoryInode,
    FileInode,
    Inode,
    decode_inode,
    inode_in,
)
from paxosblock.namenode.kv.interface import Versioned


class Action(enum.IntEnum):
    """The bits that a request needs, by the names of HDFS's messages."""

    EXECUTE = 1
    WRITE = 2
    READ = 4
    READ_EXECUTE = 5
    ALL = 7


class Actor(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """The user for whom something is done."""

    user: str
    groups: frozenset[str] = frozenset()
    superuser: bool = False


DIRECTORIES_KEPT: Final = 4096
"""Records of directories that are kept decoded."""
ITSELF: Final = Actor("", superuser=True)
"""The NameNode, for what it does by itself."""
ACTOR: ContextVar[Actor] = ContextVar("paxosblock_actor", default=ITSELF)
"""The user of the call that is being answered."""


_directory_of = lru_cache(DIRECTORIES_KEPT)(decode_inode)


def directory_in(found: Versioned) -> Inode:
    """Return a directory that was just read: those on many ways are decoded once."""
    return inode_in(found) if type(found) is not Versioned else _directory_of(found.value)


def allowed(inode: Inode, action: int, actor: Actor) -> bool:
    """True if an inode's bits let its owner, its group or others do this; or its ACL does."""
    if not isinstance(inode.acl, UnsetType):
        return acls.lets(inode, inode.acl, action, actor.user, actor.groups)
    mode = inode.permission
    if actor.user == inode.owner:
        mode >>= 6
    elif inode.group in actor.groups:
        mode >>= 3
    return mode & action == action


def check(inode: Inode, action: Action, names: tuple[str, ...], actor: Actor) -> None:
    """Demand `action` on the inode that `names` lead to.

    Raises:
        PermissionDeniedError: the actor may not do this.
    """
    if not (actor.superuser or allowed(inode, action, actor)):
        raise PermissionDeniedError(
            f"Permission denied: user={actor.user}, access={action.name}, "
            f"inode={_shown(inode, names)}",
            path=paths.join(names),
        )


def check_at(
    reads: Reads, number: int, action: Action, names: tuple[str, ...], actor: Actor
) -> None:
    """Demand `action` on the directory of this number, as `check`."""
    if not actor.superuser:
        check(directory_in(reads.get(keys.inode(number))), action, names, actor)


def check_new_entry(reads: Reads, number: int, names: tuple[str, ...], actor: Actor) -> None:
    """Demand that an entry may be made in the directory of this number, to which `names` lead.

    Raises as `check`.
    """
    if not actor.superuser:
        directory = directory_in(reads.get(keys.inode(number)))
        check(directory, Action.EXECUTE, names, actor)
        check(directory, Action.WRITE, names, actor)


def check_entry(reads: Reads, inode: Inode, names: tuple[str, ...], actor: Actor) -> None:
    """Demand that the entry `names` of `inode` may be taken away. Raises as `check`."""
    if actor.superuser:
        return
    directory, above = directory_in(reads.get(keys.inode(inode.parent))), names[:-1]
    check_sticky(directory, inode, names, actor)
    check(directory, Action.WRITE, above, actor)


def check_sticky(directory: Inode, inode: Inode, names: tuple[str, ...], actor: Actor) -> None:
    """Demand that a directory in which users delete only what is theirs lets this one go.

    Raises:
        PermissionDeniedError: it is of neither the owner of the directory nor that of the inode.
    """
    if actor.superuser or not directory.permission & stat.S_ISVTX:
        return
    if actor.user not in (directory.owner, inode.owner):
        raise PermissionDeniedError(
            f"Permission denied by sticky bit: user={actor.user}, path={_shown(inode, names)}, "
            f"parent={_shown(directory, names[:-1])}",
            path=paths.join(names),
        )


def check_owner(inode: Inode, names: tuple[str, ...], actor: Actor) -> None:
    """Demand that the inode is the actor's.

    Raises:
        PermissionDeniedError: it is another user's.
    """
    if not actor.superuser and actor.user != inode.owner:
        path = paths.join(names)
        raise PermissionDeniedError(
            f"Permission denied. user={actor.user} is not the owner of inode={path}", path=path
        )


def check_given(path: str, owner: str, group: str, actor: Actor) -> None:
    """Demand that what is the actor's stays so, and goes to a group of theirs; "" changes nothing.

    Raises:
        PermissionDeniedError: only a superuser may give it away.
    """
    if actor.superuser:
        return
    if owner not in ("", actor.user):
        raise PermissionDeniedError(
            f"User {actor.user} is not a super user (non-super user cannot change owner).",
            path=path,
        )
    if group and group not in actor.groups:
        raise PermissionDeniedError(f"User {actor.user} does not belong to {group}", path=path)


def check_writer(inode: FileInode, names: tuple[str, ...], actor: Actor) -> None:
    """Demand that the actor may write a file that is asked for by its id.

    Its owner may always: HDFS asks nothing of the writer of an open file, even if its mode is 0.
    """
    if actor.user != inode.owner:
        check(inode, Action.WRITE, names, actor)


def check_superuser(actor: Actor) -> None:
    """Demand that the actor may do everything.

    Raises:
        PermissionDeniedError: it is a user like others.
    """
    if not actor.superuser:
        raise PermissionDeniedError(
            f"Access denied for user {actor.user}. Superuser privilege is required"
        )


def _shown(inode: Inode, names: tuple[str, ...]) -> str:
    kind = stat.S_IFDIR if isinstance(inode, DirectoryInode) else stat.S_IFREG
    mode = stat.filemode(kind | inode.permission)
    extended = "+" if acls.entries_of(inode) else ""
    return f'"{paths.join(names)}":{inode.owner}:{inode.group}:{mode}{extended}'
