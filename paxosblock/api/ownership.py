"""Calls about who owns a file or directory, who may do what with it, and when it changed."""

from __future__ import annotations

import msgspec

from paxosblock.api.methods import Done, Method, Once
from paxosblock.api.namenode import FileStatus


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
    """Ask if the caller may read what is at a path, or write it, or both."""

    path: str
    read: bool = False
    write: bool = False


SET_PERMISSION = Method("set_permission", SetPathPermission, FileStatus)
SET_OWNER = Method("set_owner", SetPathOwner, FileStatus)
SET_TIMES = Method("set_times", SetPathTimes, FileStatus)
CHECK_ACCESS = Method("check_access", CheckAccess, Done, any_namenode=True)
