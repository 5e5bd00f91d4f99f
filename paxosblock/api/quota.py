"""Quotas of directories: how many names one may hold, and how much room its replicas may take."""

from __future__ import annotations

from typing import Final

import msgspec

from paxosblock.api.methods import Method, Once

NO_QUOTA: Final = -1
"""The limit where there is none."""


class QuotaUsage(msgspec.Struct, frozen=True):
    """The limits of a directory, and how much of each is used; -1: there is no such limit, and
    without any nothing is counted.

    Names are files and directories, the directory itself included. Room is the bytes of files, as
    often as they have replicas; a block that is being written counts as a whole one.
    """

    path: str
    names_max: int = NO_QUOTA
    names: int = 0
    space_max: int = NO_QUOTA
    space: int = 0

    @property
    def limited(self) -> bool:
        """True if there is a limit."""
        return self.names_max >= 0 or self.space_max >= 0


class SetQuota(msgspec.Struct, frozen=True):
    """Change the limits of a directory; None leaves one as it is, -1 takes it away."""

    path: str
    names: int | None = None
    space: int | None = None
    once: Once | None = None


class ListQuotas(msgspec.Struct, frozen=True):
    """Ask for the limits of a directory; with "" for those of all directories that have some."""

    path: str = ""


class Quotas(msgspec.Struct, frozen=True):
    """Limits of directories, in order of path."""

    found: tuple[QuotaUsage, ...] = ()


class CheckQuotas(msgspec.Struct, frozen=True):
    """Count again what is below each directory with a quota, at or below `path`; with `repair` a
    counter that is wrong gets what it lacks."""

    path: str
    repair: bool = False


class CheckedQuota(msgspec.Struct, frozen=True):
    """A directory with a quota: what is there, and what its counters had at the same moment."""

    usage: QuotaUsage
    names: int
    space: int
    repaired: bool = False

    @property
    def right(self) -> bool:
        """True if the counters had what is there."""
        return (self.names, self.space) == (self.usage.names, self.usage.space)


class CheckedQuotas(msgspec.Struct, frozen=True):
    """The directories with quotas that were looked at, in order of path."""

    checked: tuple[CheckedQuota, ...] = ()


SET_QUOTA = Method("set_quota", SetQuota, QuotaUsage)
LIST_QUOTAS = Method("list_quotas", ListQuotas, Quotas)
CHECK_QUOTAS = Method("check_quotas", CheckQuotas, CheckedQuotas)
