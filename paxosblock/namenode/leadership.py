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
        self.serves = False
        """True while this NameNode leads and has begun."""
        self.times = Durations()
        """From each election of this NameNode until it served."""
        self._calls: set[asyncio.Task[object]] = set()
        self._task: asyncio.Task[None] | None = None
        self._first: asyncio.Future[None] | None = None

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

    async def answer(self, handler: Callable[[Q], Awaitable[A]], request: Q) -> A:
        """Let `handler` answer a call that waits for more than the store, and end it when
        leadership is lost: the store tells only those that wait for it.

        Raises:
            OutcomeUnknownError: leadership was lost in the middle.
        """
        task = asyncio.current_task()
        assert task is not None, "a call without a task waits only for the store"
        self._calls.add(task)
        try:
            return await handler(request)
        except asyncio.CancelledError as error:
            if self.serves:
                raise
            task.uncancel()
            raise self._unknown() from error
        finally:
            self._calls.discard(task)

    def told(self, error: Exception, *, several_steps: bool) -> Exception:
        """Return what the caller hears of a call that failed: often the very `error`.

        Where the store knows no leader that it could ask, the caller hears which NameNode leads. Of
        a call of `several_steps` an earlier one may have changed something.
        """
        match error:
            case UnavailableError():
                if several_steps:
                    return self._unknown()
                return error if self.serves else self.not_leading()
            case NoSpaceError() | StorageError() if several_steps:
                return OutcomeUnknownError(f"{error}; a part of it may have been done")
            case NotReadyError() if several_steps:
                return error.with_outcome(Outcome.UNKNOWN)
        return error

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
            self.serves = False
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
                self.serves = True
                self.times.note(asyncio.get_running_loop().time() - begun_s)
                _log.info("serves")
                if self._first is not None and not self._first.done():
                    self._first.set_result(None)
                return
            await asyncio.sleep(RETRY_S)

    def not_leading(self) -> NotLeaderError:
        """Return the error of a NameNode that does not serve; it names the one that leads."""
        leader = self._store.leader() or ""
        if self._store.is_leader():
            return NotLeaderError(f"NameNode {self._name} is only beginning to lead", leader="")
        known = f"{leader} does" if leader else "nobody is known to"
        return NotLeaderError(f"NameNode {self._name} does not lead; {known}", leader=leader)

    def _unknown(self) -> OutcomeUnknownError:
        return OutcomeUnknownError(f"NameNode {self._name} lost leadership during the call")
