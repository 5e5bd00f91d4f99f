"""Finds out what a caller may do: whether they are a superuser, and their groups.

A NameNode looks up the groups, as in HDFS: in its setting `groups`, or else in its system, which
may ask a directory service and take long. So a thread of its own asks for each user: a service that
does not answer for one holds up neither others nor the end of the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import grp
import os
import pwd
import threading
from collections.abc import Callable
from typing import Final

from paxosblock.config import NameNodeConfig
from paxosblock.errors import NotReadyError
from paxosblock.namenode.catalog.permissions import ITSELF, Actor, check_superuser
from paxosblock.net.port.caller import HERE, NODES, Caller

KEPT_S: Final = 300.0
"""Seconds for which groups are believed, as in HDFS."""
KEPT_MAX: Final = 10_000
"""Callers whose groups are kept."""
ANSWER_S: Final = 5.0
"""Seconds that a call waits for the groups of its user."""
ASKED_MAX: Final = 16
"""Users for whom the system is asked at once; each takes a thread until it has answered."""


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
        *,
        answer_s: float = ANSWER_S,
    ) -> None:
        """`superuser` started this NameNode; `groups_of` asks the system, and may take long. A
        caller waits for `answer_s` seconds for it."""
        self.answer_s = answer_s
        self.superuser = superuser
        self._config = config
        self._table = dict(config.groups)
        self._clock_s = clock_s
        self._groups_of = groups_of
        self._known: dict[Caller, tuple[Actor, float]] = {HERE: (ITSELF, float("inf"))}
        self._asked: dict[str, asyncio.Future[tuple[str, ...]]] = {}

    def known(self, caller: Caller) -> Actor | None:
        """Return the one for whom `caller` calls, without waiting; None if that takes longer."""
        found = self._known.get(caller)
        return found[0] if found is not None and found[1] > self._clock_s() else None

    async def look_up(self, caller: Caller) -> Actor:
        """Return the one for whom `caller` calls.

        It needs no task of its own (`InlineCoroutine`).

        Raises:
            NotReadyError: the system has not told the user's groups yet.
        """
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
        if caller.role in NODES:
            # No user is called so: an id that is also the name of a user gives none of its rights.
            return Actor(f"{caller.role.value}:{user}", superuser=not self._config.permissions)
        if user == self.superuser or not self._config.permissions:
            return Actor(user, superuser=True)
        groups = caller.groups or self._table.get(user)
        if groups is None:
            groups = await self._told(user)
        return Actor(user, frozenset(groups), superuser=self._config.supergroup in groups)

    async def _told(self, user: str) -> tuple[str, ...]:
        """Return what the system tells of a user's groups; callers of one user wait together."""
        asked = self._asked.get(user)
        if asked is None:
            if len(self._asked) >= ASKED_MAX:
                raise NotReadyError(
                    f"the groups of {user} are not known yet: this NameNode's system does not"
                    f" answer for {ASKED_MAX} other users"
                )
            asked = self._asked[user] = asyncio.get_running_loop().create_future()
            threading.Thread(target=self._ask, args=(user, asked), daemon=True).start()
        await asyncio.wait((asked,), timeout=self.answer_s)
        if not asked.done():
            raise NotReadyError(
                f"the groups of {user} are not known yet: this NameNode's system has not told them"
                f" for {self.answer_s:g} s"
            )
        return asked.result()

    def _ask(self, user: str, asked: asyncio.Future[tuple[str, ...]]) -> None:
        groups = self._groups_of(user)

        def tell() -> None:
            del self._asked[user]
            asked.set_result(groups)

        with contextlib.suppress(RuntimeError):  # the loop is closed: no caller waits
            asked.get_loop().call_soon_threadsafe(tell)
