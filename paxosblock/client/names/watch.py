"""`watch`: the changes of names below a path, one after the other, from whichever NameNode answers.

A position in the log is all that a watcher needs: another NameNode goes on from there.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from paxosblock.api.namenode import FileStatus, Kind
from paxosblock.api.subtree import LIST_SUBTREE, NO_MOMENT, ListSubtree
from paxosblock.api.watching import POLL_S, WATCH, ChangeKind, NameChange, NameChanges, WatchNames
from paxosblock.client.session.backoff import Backoff
from paxosblock.client.session.shared_session import SharedSession
from paxosblock.errors import (
    GapError,
    InvalidRequestError,
    NotDirectoryError,
    NotFoundError,
    NotReadyError,
    PaxosBlockError,
)
from paxosblock.net.calls.leader_search import LONGEST_PAUSE_S

LISTINGS: Final = 10
"""Times that a listing is begun because the NameNode that kept its moment no longer leads."""


@dataclass(slots=True)
class Watcher:
    """The place of one who watches `path`; None: behind all changes, when it is first asked."""

    session: SharedSession
    path: str
    after: int | None
    listed: bool
    _skip: int = field(default=0, init=False)
    _timeline: int = field(default=0, init=False)

    async def run(self) -> AsyncGenerator[NameChange]:
        """Yield the changes, without end; if they are `listed`, before them what is there, also
        after a gap.

        Raises:
            GapError: changes are missing, and nothing is `listed`.
            PaxosBlockError: no NameNode answered for the client's `retry_for_s`.
        """
        if self.after is None and not self.listed:
            await self._fetch()
        while True:
            if self.after is None:
                for change in await self._list():
                    yield change
            try:
                answer = await self._fetch(_longest_wait_s(self.session, POLL_S))
            except GapError:
                if not self.listed:
                    raise
                before, self._timeline = self.after, 0
                self._go_on_from(None)
                yield NameChange(before or 0, ChangeKind.GAP, self.path, 0)
                continue
            for change in answer.changes:
                yield change

    def _go_on_from(self, after: int | None, skip: int = 0) -> None:
        self.after, self._skip = after, skip

    async def _fetch(self, wait_s: float = 0.0) -> NameChanges:
        """Ask until a NameNode answers, and go on behind what it says."""
        request = WatchNames(self.path, self.after, self._skip, wait_s, self._timeline)
        answer = await _ask(self.session, request)
        self._timeline = answer.timeline
        self._go_on_from(answer.revision, answer.skip)
        return answer

    async def _list(self) -> list[NameChange]:
        """Return what is there at one moment, and go on from there."""
        for _ in range(LISTINGS):
            found = await self._list_moment()
            if found is not None:
                return found
        raise NotReadyError(
            f"'{self.path}': another NameNode took the lead again and again while it was listed",
            path=self.path,
        )

    async def _list_moment(self) -> list[NameChange] | None:
        """Return None if the moment was gone, or nothing is at the path now, but was lately."""
        found: list[NameChange] = []
        moment, after = NO_MOMENT, ""
        self._go_on_from(None)
        await self._fetch()
        while True:
            try:
                request = ListSubtree(self.path, moment, after)
                part = await self.session.namenodes.call(LIST_SUBTREE, request)
            except (NotFoundError, NotDirectoryError):
                # It may come at any time. Nothing was there since the position if nothing changed.
                changed = await self._fetch()
                return None if changed.changes or changed.skip else found
            if part.gone:
                return None
            found += (_as_listed(each, part.revision) for each in part.entries)
            moment, after = part.moment, part.after
            if not after:
                self._go_on_from(part.revision)
                return found


def watcher(session: SharedSession, path: str, after: int | None, *, listed: bool) -> Watcher:
    """Make a watcher. Raises InvalidRequestError for what is there, `listed` as it was before."""
    if listed and after is not None:
        raise InvalidRequestError("what is there is listed as it is now, and not after a revision")
    return Watcher(session, path, after, listed)


async def next_changes(
    session: SharedSession, path: str, after: NameChanges | int | None, wait_s: float
) -> NameChanges:
    """Ask once for what comes `after` an answer or a revision (`AsyncClient.changes`)."""
    if isinstance(after, NameChanges):
        place = WatchNames(path, after.revision, after.skip, timeline=after.timeline)
    else:
        place = WatchNames(path, after)
    return await _ask(session, replace(place, wait_s=_longest_wait_s(session, wait_s)))


def _longest_wait_s(session: SharedSession, wanted_s: float) -> float:
    """Return how long a NameNode may wait, so that its answer comes in time."""
    return min(wanted_s, session.config.rpc_timeout_s / 2)


async def _ask(session: SharedSession, request: WatchNames) -> NameChanges:
    """Ask until a NameNode answers; a gap of one is not asked of another."""
    backoff = Backoff(session.config.retry_for_s, LONGEST_PAUSE_S)
    while True:
        try:
            return await session.namenodes.call(WATCH, request, retry_for_s=0)
        except GapError:
            raise
        except PaxosBlockError as error:
            if not error.retriable or backoff.exhausted:
                raise
            await backoff.pause()


def _as_listed(entry: FileStatus, revision: int) -> NameChange:
    is_directory = entry.kind is Kind.DIRECTORY
    size = None if is_directory or entry.open else entry.size
    return NameChange(revision, ChangeKind.LISTED, entry.path, entry.file_id, is_directory, size)
