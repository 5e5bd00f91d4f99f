"""Keeps the requests that wait for changes of names, by path and user: an audience gets one answer.

All requests of an audience were told everything up to the same revision. So an answer is made once
for all of them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Final

import msgspec

from paxosblock.api.watching import NameChange, NameChanges
from paxosblock.base import paths
from paxosblock.errors import NotReadyError, PaxosBlockError
from paxosblock.namenode.catalog.changes import Decided
from paxosblock.namenode.catalog.permissions import Actor

WATCHERS_MAX: Final = 10_000
"""Watchers that wait at one NameNode."""

Answer = Decided[NameChanges]


class AudienceKind(msgspec.Struct, frozen=True, gc=False):
    """A kind of request: for changes at and below a path that an actor may see, on a timeline of
    revisions."""

    path: str
    actor: Actor
    timeline: int


class Audience:
    """Requests of one kind that wait."""

    __slots__ = ("after", "kind", "waiting")

    def __init__(self, kind: AudienceKind, after: int) -> None:
        self.kind = kind
        self.after = after
        """All of them have heard of what concerns them up to this revision."""
        self.waiting: dict[asyncio.Future[Answer | None], None] = {}
        """The future of each: its answer, or None when its time is over."""

    def refuse(self, error: PaxosBlockError) -> None:
        """Raise an error at all of them."""
        for told in self.waiting:
            if not told.done():
                told.set_exception(error.reworded(error.message))


class Audiences:
    """All who wait at one NameNode."""

    def __init__(self) -> None:
        """Begin without any."""
        self._at: dict[str, dict[AudienceKind, Audience]] = {}
        """Audiences that have heard of all that concerns them, by path."""
        self.due: deque[Audience] = deque()
        """Audiences that something concerns which they have not heard of."""
        self.waiting = 0
        """The number of requests that wait."""

    async def wait(self, kind: AudienceKind, heard: int, until_s: float) -> Answer | None:
        """Return the answer to one who has heard of all up to the revision `heard`; None once the
        loop's clock shows `until_s`.

        It needs no task of its own (`InlineCoroutine`).

        Raises:
            NotReadyError: too many wait.
            PaxosBlockError: the error with which the audience was refused.
        """
        if self.waiting >= WATCHERS_MAX:
            raise NotReadyError(f"{WATCHERS_MAX} watchers wait here")
        loop = asyncio.get_running_loop()
        told: asyncio.Future[Answer | None] = loop.create_future()
        self._audience(kind, heard).waiting[told] = None
        end = loop.call_at(until_s, _end, told)
        self.waiting += 1
        try:
            return await told
        finally:
            self.waiting -= 1
            end.cancel()
            self._leave(kind, told)

    def join(self, audience: Audience) -> None:
        """Let an audience, which has heard of all that is known by now, wait for more, together
        with others of its kind."""
        waiting = {told: None for told in audience.waiting if not told.done()}
        if waiting:
            self._audience(audience.kind, audience.after).waiting.update(waiting)

    def _audience(self, kind: AudienceKind, heard: int) -> Audience:
        """Return the audience of a kind, which has heard of all up to a revision."""
        others = self._at.setdefault(kind.path, {})
        audience = others.get(kind)
        if audience is None:
            audience = others[kind] = Audience(kind, heard)
        audience.after = heard
        return audience

    def _leave(self, kind: AudienceKind, told: asyncio.Future[Answer | None]) -> None:
        """Forget one who waited; it is in no audience here if that is being told."""
        others = self._at.get(kind.path, {})
        audience = others.get(kind)
        if audience is None or told not in audience.waiting:
            return
        del audience.waiting[told]
        if not audience.waiting:
            del others[kind]
            if not others:
                del self._at[kind.path]

    def concern(self, change: NameChange) -> None:
        """Note which audiences a change concerns; one that has heard of it is left out."""
        for path in _concerned(change, self._at):
            others = self._at[path]
            for kind, audience in tuple(others.items()):
                if audience.after < change.revision:
                    audience.after = change.revision - 1
                    self.due.append(audience)
                    del others[kind]
            if not others:
                del self._at[path]

    def refuse(self, error: PaxosBlockError) -> None:
        """Raise an error at all who wait."""
        for others in self._at.values():
            for audience in others.values():
                audience.refuse(error)
        while self.due:
            self.due.popleft().refuse(error)


def _end(told: asyncio.Future[Answer | None]) -> None:
    if not told.done():
        told.set_result(None)


def _concerned(
    change: NameChange, watched: dict[str, dict[AudienceKind, Audience]]
) -> Iterator[str]:
    """Yield those of the `watched` paths that a change concerns."""
    if not watched:
        return
    ends = {change.path, change.source} - {""}
    found: set[str] = set()
    for end in ends:
        path = end
        while path:
            if path in watched:
                found.add(path)
            path = path.rpartition("/")[0]
    if paths.ROOT in watched:
        found.add(paths.ROOT)
    if change.concerns_below:
        found.update(path for path in watched if any(paths.is_below(path, each) for each in ends))
    yield from found
