"""Serving while this NameNode leads, and only then.

A NameNode that wins an election begins: it waits until everything committed before is applied,
gives writers fresh leases and starts the loops. When it loses its leadership, its loops and
recoveries stop, and calls under way fail. None of this is needed for safety: a decision that a
deposed NameNode made from an old view is refused when its log entry is applied (K5, K7).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from paxosblock.base.durations import Durations
from paxosblock.errors import (
    NoSpaceError,
    NotLeaderError,
    NotReadyError,
    Outcome,
    OutcomeUnknownError,
    StorageError,
    UnavailableError,
)
from paxosblock.host.logs import facts
from paxosblock.namenode.kv.interface import KeyValueStore

Q = TypeVar("Q")
A = TypeVar("A")

RETRY_S = 0.2
"""Pause before a leader that could not begin tries again."""

_log = logging.getLogger(__name__)


class Leadership:
    """Begins and ends a NameNode's work as its store gains and loses leadership."""

    def __init__(
        self,
        name: str,
        store: KeyValueStore,
        begin: Callable[[], Awaitable[None]],
        end: Callable[[], Awaitable[None]],
    ) -> None:
        """Call `begin` to prepare for serving, again if it fails, and `end` to stop all work of a
        leader. Each `begin` is followed by an `end`.
        """
        self._name = name
        self._store = store
        self._begin = begin
        self._end = end
        self._serves = False
        self.times = Durations()
        """From each election of this NameNode until it served."""
        self._calls: set[asyncio.Task[object]] = set()
        self._task: asyncio.Task[None] | None = None
        self._first: asyncio.Future[None] | None = None

    def serves(self) -> bool:
        """True if this NameNode leads and has begun."""
        return self._serves

    async def start(self) -> None:
        """Follow the store's leadership from now on.

        If it leads already (it is alone) this returns when it serves, and raises what `begin` does.
        """
        if self._store.is_leader():
            self._first = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._follow(), name="leadership")
        if self._first is not None:
            await self._first

    async def close(self) -> None:
        """End the calls that are under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def answer(
        self, handler: Callable[[Q], Awaitable[A]], request: Q, *, several_steps: bool = False
    ) -> A:
        """Let `handler` answer a call that only the leader answers.

        `several_steps`: when a later step fails, an earlier one may have changed something.

        Raises:
            NotLeaderError: this NameNode does not lead (any more); nothing was done.
            OutcomeUnknownError: leadership, or room on the disks, was lost in the middle.
            NotReadyError: not yet; some of several steps may have been done.
        """
        task = asyncio.current_task()
        assert task is not None, "a call without a task is answered by `answer_at_once`"
        self._calls.add(task)
        try:
            return await self.answer_at_once(handler, request, several_steps=several_steps)
        except asyncio.CancelledError as error:
            if self._serves:
                raise
            task.uncancel()
            raise self._unknown() from error
        finally:
            self._calls.discard(task)

    async def answer_at_once(
        self, handler: Callable[[Q], Awaitable[A]], request: Q, *, several_steps: bool = False
    ) -> A:
        """Let `handler` answer as in `answer`; it waits only for the store.

        The store itself tells it when leadership is lost, so it need not be cancelled.
        """
        if not self._serves:
            raise self._not_leader()
        try:
            return await handler(request)
        except UnavailableError as error:
            if several_steps:
                raise self._unknown() from error
            if self._serves:  # the store knows before we do
                raise
            raise self._not_leader() from error
        except (NoSpaceError, StorageError) as error:
            if several_steps:
                raise OutcomeUnknownError(f"{error}; a part of it may have been done") from error
            raise
        except NotReadyError as error:
            if several_steps:
                error.with_outcome(Outcome.UNKNOWN)
            raise

    async def show(self, handler: Callable[[Q], Awaitable[A]], request: Q) -> A:
        """Let `handler` answer a call that only reads what is replicated, whichever member leads.

        Raises:
            NotLeaderError: this NameNode cannot learn what was committed: ask another one.
        """
        try:
            return await handler(request)
        except UnavailableError as error:
            if self._serves:
                raise
            raise self._not_leader() from error

    async def _follow(self) -> None:
        try:
            while True:
                await self._store.wait_leadership()
                await self._lead()
        except (UnavailableError, StorageError) as error:
            _log.error("serves no more: %s", error)

    async def _lead(self) -> None:
        """One term, from its first moment: nothing is awaited before `wait_deposed` looks."""
        _log.info("leads")
        beginning = asyncio.create_task(self._take_office(), name="beginning to lead")
        try:
            await self._store.wait_deposed()
            _log.info("leads no more", extra=facts(leader=self._store.leader()))
        finally:
            self._serves = False
            beginning.cancel()
            await asyncio.wait([beginning])
            # The store has told those that wait for it; these wait for something else.
            for call in tuple(self._calls):
                call.cancel()
            await self._end()

    async def _take_office(self) -> None:
        begun_s = asyncio.get_running_loop().time()
        while True:
            try:
                await self._begin()
            except (UnavailableError, OutcomeUnknownError, NotReadyError) as error:
                _log.warning("cannot serve yet: %s", error)
            except NoSpaceError as error:
                if self._first is not None and not self._first.done():
                    self._first.set_exception(error)
                    return
                _log.warning("cannot serve yet: %s", error)
            except Exception as error:
                if self._first is not None and not self._first.done():
                    self._first.set_exception(error)
                    return
                _log.exception("cannot serve")
            else:
                self._serves = True
                self.times.note(asyncio.get_running_loop().time() - begun_s)
                _log.info("serves")
                if self._first is not None and not self._first.done():
                    self._first.set_result(None)
                return
            await asyncio.sleep(RETRY_S)

    def _not_leader(self) -> NotLeaderError:
        leader = self._store.leader() or ""
        if self._store.is_leader():
            return NotLeaderError(f"NameNode {self._name} is only beginning to lead", leader="")
        known = f"{leader} does" if leader else "nobody is known to"
        return NotLeaderError(f"NameNode {self._name} does not lead; {known}", leader=leader)

    def _unknown(self) -> OutcomeUnknownError:
        return OutcomeUnknownError(f"NameNode {self._name} lost leadership during the call")
