"""Finds out what a caller may do: whether they are a superuser, and their groups.

A NameNode looks up the groups, as in HDFS: in its setting `groups`, or else in its system, which
may ask a directory service and take long; so that is done in a thread, for one user at a time.
"""

from __future__ import annotations

import asyncio
import grp
import os
import pwd
from collections.abc import Callable
from typing import Final

from paxosblock.config import NameNodeConfig
from paxosblock.namenode.catalog.permissions import ITSELF, Actor, check_superuser
from paxosblock.net.port.caller import HERE, Caller

KEPT_S: Final = 300.0
"""Seconds for which groups are believed, as in HDFS."""
KEPT_MAX: Final = 10_000
"""Callers whose groups are kept."""


def groups_of_system(user: str) -> tuple[str, ...]:
    """Return the groups of a user in the operating system; none if it does not know them."""
    try:
        numbers = os.getgrouplist(user, pwd.getpwnam(user).pw_gid)
    except (KeyError, OSError):
        return ()
    return tuple(name for number in numbers if (name := _group_name(number)))


def _group_name(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except (KeyError, OSError):
        return ""


class Users:
    """The users of one NameNode."""

    def __init__(
        self,
        superuser: str,
        config: NameNodeConfig,
        clock_s: Callable[[], float],
        groups_of: Callable[[str], tuple[str, ...]] = groups_of_system,
    ) -> None:
        """`superuser` started this NameNode; `groups_of` asks the system, and may take long."""
        self.superuser = superuser
        self._config = config
        self._table = dict(config.groups)
        self._clock_s = clock_s
        self._groups_of = groups_of
        self._known: dict[Caller, tuple[Actor, float]] = {HERE: (ITSELF, float("inf"))}
        self._asking = asyncio.Lock()

    def known(self, caller: Caller) -> Actor | None:
        """Return the one for whom `caller` calls, without waiting; None if that takes longer."""
        found = self._known.get(caller)
        return found[0] if found is not None and found[1] > self._clock_s() else None

    async def look_up(self, caller: Caller) -> Actor:
        """Return the one for whom `caller` calls."""
        async with self._asking:
            if (known := self.known(caller)) is not None:
                return known
            actor = await self._found(caller)
        if len(self._known) >= KEPT_MAX:
            self._known = {HERE: self._known[HERE]}
        self._known[caller] = actor, self._clock_s() + KEPT_S
        return actor

    async def demand_superuser(self, caller: Caller) -> None:
        """Raise PermissionDeniedError unless `caller` may do everything."""
        check_superuser(self.known(caller) or await self.look_up(caller))

    async def _found(self, caller: Caller) -> Actor:
        user = caller.user
        if user == self.superuser or not self._config.permissions:
            return Actor(user, superuser=True)
        groups = caller.groups or self._table.get(user)
        if groups is None:
            groups = await asyncio.to_thread(self._groups_of, user)
        return Actor(user, frozenset(groups), superuser=self._config.supergroup in groups)
