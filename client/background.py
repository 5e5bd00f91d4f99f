"""Event loops of other threads, for callers that do not run on asyncio."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import sys
import threading
from collections.abc import Coroutine
from typing import Any, Final, Generic, TypeVar

from paxosblock.errors import InvalidRequestError
from paxosblock.loop import new_event_loop

T = TypeVar("T")

STOP_WITHIN_S: Final = 2.0


class OtherLoop:
    """Runs coroutines on an event loop that another thread runs. Not in a fork of the process."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._process = os.getpid()
        self._loop = loop

    @property
    def forked(self) -> bool:
        """Whether this is a fork of the process that made it: then its thread is not here."""
        return self._process != os.getpid()

    @property
    def usable(self) -> bool:
        """Whether coroutines can be run from here: the loop was not stopped, this process did not
        fork since and does not end (what is collected then finds no other thread running), and this
        is not the loop's own thread, which would wait for itself.
        """
        stopped = self.forked or self._loop.is_closed() or sys.is_finalizing()
        return not (stopped or self._is_own_thread())

    def submit(self, work: Coroutine[Any, Any, T]) -> Running[T]:
        """Start `work` and do not wait for it.

        Raises:
            InvalidRequestError: this is a fork of the process that made the client, or the client
                is closed, or it is called from a coroutine of its own.
        """
        if not self.usable:
            work.close()
            raise InvalidRequestError(
                "a coroutine must not wait for its own event loop"
                if self._is_own_thread()
                else "the client is closed, or belongs to the process before fork"
            )
        return Running(self._loop, work)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` and return its result. An interrupt (Ctrl-C) cancels it."""
        running = self.submit(work)
        try:
            return running.result()
        except BaseException:
            running.cancel()
            raise

    def _is_own_thread(self) -> bool:
        return asyncio._get_running_loop() is self._loop


class BackgroundLoop(OtherLoop):
    """An event loop and its thread."""

    def __init__(self) -> None:
        super().__init__(new_event_loop())
        # A daemon: a program that forgets to close a client must still be able to end.
        self._thread = threading.Thread(target=self._run, name="paxosblock-client", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    @property
    def usable(self) -> bool:
        """As `OtherLoop.usable`; the thread ends before the loop is closed."""
        return super().usable and self._thread.is_alive()

    def stop(self, last: Coroutine[Any, Any, None]) -> None:
        """Run `last`, then end the thread; gives up after two seconds, so that nothing hangs."""
        if not self.usable:
            last.close()
            return
        self.submit(_end_all(last)).wait(STOP_WITHIN_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_WITHIN_S)


async def _end_all(last: Coroutine[Any, Any, None]) -> None:
    """Run `last`, then cancel whatever else still runs."""
    await last
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class Running(Generic[T]):
    """Work under way on a background loop.

    Unlike the future of `asyncio.run_coroutine_threadsafe` it is done only when the work has really
    ended, also when it was cancelled: what comes next does not meet it half-way.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> None:
        self._loop = loop
        self._done: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._task: asyncio.Task[T] | None = None
        loop.call_soon_threadsafe(self._start, work)

    def _start(self, work: Coroutine[Any, Any, T]) -> None:
        self._task = self._loop.create_task(work)
        self._task.add_done_callback(self._finish)

    def _finish(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self._done.set_exception(concurrent.futures.CancelledError())
        elif (error := task.exception()) is not None:
            self._done.set_exception(error)
        else:
            self._done.set_result(task.result())

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until it has ended, one way or another."""
        concurrent.futures.wait([self._done], timeout_s)

    def result(self) -> T:
        """Wait for the result, or raise what the work raised."""
        return self._done.result()

    def cancel(self) -> None:
        """Cancel it and wait until it has ended, but not for longer than two seconds."""
        if not self._done.done():
            self._loop.call_soon_threadsafe(self._cancel)
            self.wait(STOP_WITHIN_S)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
