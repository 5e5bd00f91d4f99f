"""An event loop whose clock jumps to the next timer, and whose threads are timers, too."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any


class DeadlockError(Exception):
    """Nothing is scheduled any more, and the simulation waits."""


class _Selector:
    def __init__(self, loop: VirtualTimeLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise DeadlockError("everybody waits for nothing")
        self._loop.now += timeout
        return []


class VirtualTimeLoop(asyncio.BaseEventLoop):
    """Runs hours in seconds, and the same way each time.

    `run_in_executor` calls the function after `disk_delay()` seconds of virtual time, one after
    the other for each executor, as one thread would.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self._selector = _Selector(self)
        self._busy_until: dict[Any, float] = {}
        self._waiting: dict[Any, list[Callable[[], None]]] = {}
        self.disk_delay: Callable[[], float] = lambda: 0.0
        self.lost: list[str] = []
        self.set_exception_handler(self._lose)

    def time(self) -> float:
        return self.now

    async def pass_time(self, seconds: float) -> None:
        """Let so much virtual time pass."""
        passed = self.create_future()
        timer = self.call_later(seconds, passed.set_result, None)
        try:
            await passed
        finally:
            timer.cancel()

    def _process_events(self, event_list: Any) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody needs to be woken."""

    def _lose(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.lost.append(f"{context['message']}: {context.get('exception')!r}")

    def run_in_executor(  # type: ignore[override]  # the result is awaited, as the base's is
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        answer = self.create_future()
        begin = max(self.now, self._busy_until.get(executor, 0.0) if executor else self.now)
        end = begin + self.disk_delay()
        if executor is not None:
            self._busy_until[executor] = end
        waiting = self._waiting.setdefault(executor, [])

        def run() -> None:
            if run in waiting:
                waiting.remove(run)
                _run(answer, func, args)

        waiting.append(run)
        self.call_at(end, run)
        return answer

    def run_now(self, executor: Any) -> None:
        """Let the thread of `executor` get on with what it is doing, as far as it may."""
        for run in self._waiting.pop(executor, [])[:1]:
            self._waiting[executor] = [run]
            run()


def _run(answer: asyncio.Future[Any], func: Callable[..., Any], args: tuple[Any, ...]) -> None:
    if answer.cancelled():
        return
    try:
        result = func(*args)
    except Exception as error:
        # A crash inside cancels whoever waits.
        if not answer.cancelled():
            answer.set_exception(error)
    else:
        if not answer.cancelled():
            answer.set_result(result)


def spread(rng: random.Random, low: float, high: float, rarely: float = 0.01) -> float:
    """A random delay; now and then twenty times as long."""
    delay = rng.uniform(low, high)
    return delay * 20 if rng.random() < rarely else delay
