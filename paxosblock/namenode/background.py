"""Work that no caller waits for: it is kept, logged if it fails, and ended with the node."""

from __future__ import annotations

import asyncio
import logging
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from typing import Any, Final, TypeVar

from paxosblock.errors import PaxosBlockError
from paxosblock.host.logs import facts

RETRY_S: Final = 5.0
"""Pause before work that failed is tried again."""

_log = logging.getLogger(__name__)

T = TypeVar("T")


class Background:
    """The tasks of one node."""

    def __init__(self) -> None:
        """Start without any."""
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Run `work`; a failure is logged unless a caller awaits the task and handles it."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def begin(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Run `work` as `start` does, but before this returns, until it waits for the first time.

        So far it must not ask for its task, as `asyncio.timeout` does, and its errors are raised.
        """
        try:
            rest = _rest(work, work.send(None))
        except StopIteration as end:
            rest = _ended_already(end.value)
        task = self.start(rest, name)
        task.add_done_callback(lambda _: work.close())  # it may be cancelled before it goes on
        return task

    def repeat(
        self,
        name: str,
        work: Callable[[], Awaitable[None]],
        pause_s: float,
        retry_s: float = RETRY_S,
    ) -> None:
        """Do `work` for ever, with pauses of `pause_s`. After an error, which is logged, it is
        tried again `retry_s` later.
        """
        self.start(self._repeat(name, work, pause_s, retry_s), name)

    async def _repeat(
        self, name: str, work: Callable[[], Awaitable[None]], pause_s: float, retry_s: float
    ) -> None:
        while True:
            try:
                await work()
            except PaxosBlockError as error:
                _log.warning("%s: %s", name, error)
                await asyncio.sleep(retry_s)
            except Exception:
                _log.exception("failed", extra=facts(work=name))
                await asyncio.sleep(retry_s)
            await asyncio.sleep(pause_s)

    async def close(self) -> None:
        """Cancel the tasks that still run, and wait for their end."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, PaxosBlockError):
            _log.warning("gave up: %s", error, extra=facts(work=task.get_name()))
        else:
            _log.error("failed", exc_info=error, extra=facts(work=task.get_name()))


async def _ended_already(result: T) -> T:
    return result


async def _rest(work: Coroutine[Any, Any, T], waits_for: Any) -> T:
    """Run the rest of `work`, which waits for something already."""
    return await _going_on(work, waits_for)


@types.coroutine
def _going_on(work: Coroutine[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    while True:
        try:
            sent = yield waits_for
        except BaseException as error:
            step = partial(work.throw, error)
        else:
            step = partial(work.send, sent)
        try:
            waits_for = step()
        except StopIteration as end:
            result: T = end.value
            return result
