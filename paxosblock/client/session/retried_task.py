"""Work for an object between its calls: one task at a time, tried again until it is done."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final
from weakref import WeakMethod

from paxosblock.client.session.backoff import Backoff
from paxosblock.errors import PaxosBlockError

LONGEST_PAUSE_S: Final = 5.0

_log = logging.getLogger(__name__)

Attempt = Callable[[], Awaitable[bool]]


class RunningTasks:
    """The tasks of all tenders of one client: none of them outlives it."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self.closed = False
        """True once the client ends: nothing is tended any more."""

    def __len__(self) -> int:
        """Return how many work, or wait for their next try."""
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work` until it ends, or the client does."""
        task = asyncio.create_task(work, name="paxosblock-tender")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """Cancel all that is under way, and wait until it has ended."""
        self.closed = True
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class RetriedTask:
    """Runs `attempt`, a method, in a task until it returns True; its object may be collected.

    An error that says that it may succeed later is logged once; any other ends the task.
    """

    def __init__(self, attempt: Attempt, name: str, tending: RunningTasks) -> None:
        """`name` says in logs what is tended."""
        self._attempt = WeakMethod(attempt)
        self._tending = tending
        self._name = name
        self._task: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """There is something to do. While a task runs, that one finds it."""
        if not self._tending.closed and (self._task is None or self._task.done()):
            self._task = self._tending.start(_until_done(self._attempt, self._name))

    def stop(self) -> None:
        """There is nothing to do any more, whatever is under way."""
        if self._task is not None:
            self._task.cancel()


async def _until_done(reference: WeakMethod[Attempt], name: str) -> None:
    backoff = Backoff(math.inf, LONGEST_PAUSE_S)
    level = logging.WARNING
    while (attempt := reference()) is not None:
        try:
            if await attempt():
                return
        except PaxosBlockError as error:
            again = "trying again" if error.retriable else "left to the next call"
            _log.log(level, "%s: %s; %s", name, str(error).removeprefix(f"{name}: "), again)
            if not error.retriable:
                return
            level = logging.DEBUG
        except Exception:
            _log.exception("%s: left to the next call", name)
            return
        del attempt  # nothing holds the object during the pause
        await backoff.pause()
