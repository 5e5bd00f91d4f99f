"""Changing who owns a file or directory and what others may do with it.

Each function decides one operation on a `Draft`; what changes nothing writes nothing. The time at
which a file changed stays, as in HDFS.
"""

from __future__ import annotations

import msgspec

from paxosblock.api.namenode import FileStatus
from paxosblock.api.ownership import SetPathOwner, SetPathPermission
from paxosblock.api.transaction import SetOwner, SetPermission
from paxosblock.base import paths
from paxosblock.namenode.catalog import permissions, tree
from paxosblock.namenode.catalog.draft import Draft
from paxosblock.namenode.catalog.namespace import Context
from paxosblock.namenode.catalog.permissions import Actor
from paxosblock.namenode.catalog.records import Inode


def change_permission(draft: Draft, request: SetPathPermission, context: Context) -> FileStatus:
    """`chmod`. Raises NotFoundError."""
    return tree.status(draft, request.path, set_permission(draft, request, context.actor))


def change_owner(draft: Draft, request: SetPathOwner, context: Context) -> FileStatus:
    """`chown`, `chgrp`. Raises NotFoundError."""
    return tree.status(draft, request.path, set_owner(draft, request, context.actor))


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


def _put(draft: Draft, before: Inode, after: Inode) -> Inode:
    if after != before:
        draft.put_inode(after)
    return after
