"""Calls about who owns a file or directory, and who may do what with it."""

from __future__ import annotations

import msgspec

from paxosblock.api.methods import Method, Once
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


SET_PERMISSION = Method("set_permission", SetPathPermission, FileStatus)
SET_OWNER = Method("set_owner", SetPathOwner, FileStatus)
