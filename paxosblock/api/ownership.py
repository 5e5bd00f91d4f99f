"""Calls about who owns a file or directory, who may do what with it, and when it changed."""

from __future__ import annotations

import msgspec

from paxosblock.api.methods import Done, Method, Once
from paxosblock.api.namenode import FileStatus, PathRequest
from paxosblock.api.transaction import AclChange
from paxosblock.base.acl_entries import AclEntry, full_acl


class SetPathPermission(msgspec.Struct, frozen=True):
    """Give a file or directory other permission bits (with the sticky bit, up to 0o1777)."""

    path: str
    permission: int
    once: Once | None = None


class SetPathOwner(msgspec.Struct, frozen=True):
    """Give a file or directory another owner, group, or both; "" leaves what is there."""

    path: str
    owner: str = ""
    group: str = ""
    once: Once | None = None


class SetPathTimes(msgspec.Struct, frozen=True):
    """Say when a file or directory was changed last, in seconds since the epoch."""

    path: str
    modified_s: float
    once: Once | None = None


class CheckAccess(msgspec.Struct, frozen=True):
    """Ask if the caller may read what is at a path, write it or execute it, or several of these."""

    path: str
    read: bool = False
    write: bool = False
    execute: bool = False


class ChangePathAcl(msgspec.Struct, frozen=True):
    """Change the access control list of a file or directory; `entries` as the change needs them."""

    path: str
    change: AclChange
    entries: tuple[AclEntry, ...] = ()
    once: Once | None = None


class AclStatus(msgspec.Struct, frozen=True):
    """The access control list of a file or directory, as HDFS's `getAclStatus` shows it.

    `entries` are those that the `permission` does not tell; while some of them are no default
    entries, its bits of the group are the mask.
    """

    owner: str
    group: str
    permission: int
    entries: tuple[AclEntry, ...] = ()

    @property
    def acl(self) -> tuple[AclEntry, ...]:
        """All entries, in order."""
        return full_acl(self.permission, self.entries)


SET_PERMISSION = Method("set_permission", SetPathPermission, FileStatus)
SET_OWNER = Method("set_owner", SetPathOwner, FileStatus)
SET_TIMES = Method("set_times", SetPathTimes, FileStatus)
CHECK_ACCESS = Method("check_access", CheckAccess, Done, any_namenode=True)
CHANGE_ACL = Method("change_acl", ChangePathAcl, FileStatus)
GET_ACL_STATUS = Method("get_acl_status", PathRequest, AclStatus, any_namenode=True)
