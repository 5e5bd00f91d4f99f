"""Changing who owns a file or directory, what others may do with it, and when it was changed.

Each function decides one operation on a `Draft`; what changes nothing writes nothing. The time at
which a file changed stays, as in HDFS, unless it is what changes.
"""

from __future__ import annotations

import msgspec

from paxosblock.api.methods import Done
from paxosblock.api.namenode import FileStatus
from paxosblock.api.ownership import (
    AclStatus,
    ChangePathAcl,
    CheckAccess,
    SetPathOwner,
    SetPathPermission,
    SetPathTimes,
)
from paxosblock.api.transaction import ChangeAcl, SetOwner, SetPermission, SetTimes
from paxosblock.base import paths
from paxosblock.errors import InvalidRequestError
from paxosblock.namenode.catalog import acls, keys, permissions, snapshots, tree
from paxosblock.namenode.catalog.draft import Draft
from paxosblock.namenode.catalog.namespace import Context
from paxosblock.namenode.catalog.permissions import Action, Actor
from paxosblock.namenode.catalog.records import FileInode, Inode, asked_for
from paxosblock.namenode.kv.interface import View


def change_permission(draft: Draft, request: SetPathPermission, context: Context) -> FileStatus:
    """`chmod`. Raises NotFoundError."""
    return tree.status(draft, request.path, set_permission(draft, request, context.actor))


def change_owner(draft: Draft, request: SetPathOwner, context: Context) -> FileStatus:
    """`chown`, `chgrp`. Raises NotFoundError."""
    return tree.status(draft, request.path, set_owner(draft, request, context.actor))


def change_times(draft: Draft, request: SetPathTimes, context: Context) -> FileStatus:
    """`touch`. Raises NotFoundError."""
    return tree.status(draft, request.path, set_times(draft, request, context.actor))


def check_access(view: View, request: CheckAccess, actor: Actor) -> Done:
    """Demand that the actor may do what is asked.

    Raises:
        NotFoundError: nothing is at the path.
        PermissionDeniedError: the actor may not.
    """
    shown, names = snapshots.at(view, request.path, actor), paths.split(request.path)
    inode = tree.find_inode(shown, request.path, actor)
    asked = {
        Action.READ: request.read,
        Action.WRITE: request.write,
        Action.EXECUTE: request.execute,
    }
    for action, wanted in asked.items():
        if wanted:
            permissions.check(inode, action, names, actor)
    return Done()


def set_permission(draft: Draft, wanted: SetPathPermission | SetPermission, actor: Actor) -> Inode:
    """Change the bits of what is at a path; return it as it is then.

    Raises:
        NotFoundError: nothing is there.
        PermissionDeniedError: it is another user's.
    """
    inode = tree.find_inode(draft, wanted.path, actor)
    permissions.check_owner(inode, paths.split(wanted.path), actor)
    changed: Inode = msgspec.structs.replace(inode, permission=wanted.permission)
    return _put(draft, inode, changed)


def set_owner(draft: Draft, wanted: SetPathOwner | SetOwner, actor: Actor) -> Inode:
    """Change the owner and group of what is at a path, where they are named; return it as it is
    then.

    Raises:
        NotFoundError: nothing is there.
        PermissionDeniedError: it is another user's; or the actor, who is no superuser, would give
            it away, or to a group of others.
    """
    inode = tree.find_inode(draft, wanted.path, actor)
    permissions.check_owner(inode, paths.split(wanted.path), actor)
    permissions.check_given(wanted.path, wanted.owner, wanted.group, actor)
    changed: Inode = msgspec.structs.replace(
        inode, owner=wanted.owner or inode.owner, group=wanted.group or inode.group
    )
    return _put(draft, inode, changed)


def set_times(draft: Draft, wanted: SetPathTimes | SetTimes, actor: Actor) -> Inode:
    """Change the time at which what is at a path was changed last; return it as it is then.

    Raises:
        NotFoundError: nothing is there.
        PermissionDeniedError: the actor may not write it.
    """
    inode = tree.find_inode(draft, wanted.path, actor, Action.WRITE)
    modified_ms = round(wanted.modified_s * 1000)
    if isinstance(inode, FileInode):
        return _put(draft, inode, msgspec.structs.replace(inode, modified_ms=modified_ms))
    key, value = keys.touched(inode.number), keys.pack_number(modified_ms)
    if draft.get(key).value != value:
        draft.put(key, value)
    return inode


def change_path_acl(draft: Draft, request: ChangePathAcl, context: Context) -> FileStatus:
    """`setfacl`. Raises as `change_acl`."""
    return tree.status(draft, request.path, change_acl(draft, request, context.actor))


def change_acl(draft: Draft, wanted: ChangePathAcl | ChangeAcl, actor: Actor) -> Inode:
    """Change the access control list of what is at a path; return it as it is then.

    Raises:
        NotFoundError: nothing is there.
        PermissionDeniedError: it is another user's.
        InvalidRequestError: HDFS takes no such list, or not here.
    """
    inode = tree.find_inode(draft, wanted.path, actor)
    permissions.check_owner(inode, paths.split(wanted.path), actor)
    try:
        after = acls.changed(inode, wanted.change, wanted.entries)
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{error} Path: {wanted.path}", path=wanted.path) from None
    return _put(draft, inode, after)


def acl_status(view: View, path: str, actor: Actor) -> AclStatus:
    """`getfacl`: all who may go to a path see its access control list. Raises NotFoundError."""
    inode = tree.find_inode(snapshots.at(view, path, actor), path, actor)
    return AclStatus(inode.owner, inode.group, inode.permission, acls.entries_of(inode))


def _put(draft: Draft, before: Inode, after: Inode) -> Inode:
    after = asked_for(after)
    if after != before:
        draft.put_inode(after)
    return after
