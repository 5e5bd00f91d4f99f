"""Event loops of other threads, for callers that do not run on asyncio."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import logging
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, Generic, ParamSpec, TypeVar

from paxosblock.errors import InvalidRequestError
from paxosblock.host.loop import new_event_loop

P = ParamSpec("P")
T = TypeVar("T")

STOP_WITHIN_S: Final = 2.0
LOOK_UP_EVERY_S: Final = 0.25
_log = logging.getLogger(__name__)


class OtherLoop:
    """Runs coroutines on an event loop that another thread runs. Not in a fork of the process."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._process = os.getpid()
        self._loop = loop
        self.while_waiting: Callable[[float], None] | None = None
        """Called now and then on a thread that waits for a result, with how long it has waited, in
        seconds."""
        self.ends_within_s = STOP_WITHIN_S
        """Seconds for which an interrupted call may take back what it has begun."""

    @property
    def forked(self) -> bool:
        """True if this is a fork of the process that made it: then its thread is not here."""
        return self._process != os.getpid()

    @property
    def usable(self) -> bool:
        """True if coroutines can be run from here: the loop was not stopped, this process did not
        fork since and does not end (what is collected then finds no other thread running), and this
        is not the loop's own thread, which would wait for itself.
        """
        stopped = self.forked or self._loop.is_closed() or sys.is_finalizing()
        return not (stopped or self._is_own_thread())

    @property
    def running(self) -> bool:
        """True if its thread, in this very process, takes work; also when called on that thread."""
        return not self.forked and self._loop.is_running() and not sys.is_finalizing()

    def check_usable(self) -> None:
        """See `usable`.

        Raises:
            InvalidRequestError: this is a fork of the process that made the client, or the client
                is closed, or it is called from a coroutine of its own.
        """
        if not self.usable:
            raise InvalidRequestError(
                "a coroutine must not wait for its own event loop"
                if self._is_own_thread()
                else "the client is closed, or belongs to the process before fork"
            )

    def prepare(
        self, call: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> BackgroundCall[T]:
        """Return what will run `call` once it is started."""
        return BackgroundCall(self, self._loop, functools.partial(call, *args, **kwargs))

    def run(
        self, call: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `call` and return its result. An interrupt (Ctrl-C) cancels it.

        Raises: as `check_usable`, and what `call` raises.
        """
        running = self.prepare(call, *args, **kwargs)
        try:
            running.start()
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
        self._ending: BackgroundCall[None] | None = None
        self._stopped = False
        # A daemon: a program that forgets to close a client must still be able to end.
        self._thread = threading.Thread(target=self._run, name="paxosblock-client", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._stopped = True
            self._loop.close()

    @property
    def usable(self) -> bool:
        """As `OtherLoop.usable`; the loop stops before it is closed.

        `Thread.is_alive` cannot be used: after an interrupt within it, it says for ever that a
        running thread does not run (CPython releases the thread's own lock, see bpo-45274).
        """
        return super().usable and not self._stopped

    def stop(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `last`, then end the thread; gives up after two seconds, so that nothing hangs.

        If it is interrupted, the next call goes on with it.
        """
        if not self.usable:
            return
        if self._ending is None:
            self._ending = self.prepare(_end_all, last)
        self._ending.start()
        self._ending.wait(STOP_WITHIN_S)
        with contextlib.suppress(RuntimeError):  # it is closed: the interrupted call had come far
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_WITHIN_S)


async def _end_all(last: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run `last`, then cancel whatever else still runs."""
    # A connection with TLS that is cut while it writes tells its loop of a fatal error (uvloop),
    # which would end up on standard error: the client is done with it.
    asyncio.get_running_loop().set_exception_handler(_ignore)
    await last()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def _ignore(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    _log.debug("while the client ended: %s", context.get("message"))


class BackgroundCall(Generic[T]):
    """Work on the loop of another thread, for one thread that waits for it.

    Unlike the future of `asyncio.run_coroutine_threadsafe` it is done only when the work has really
    ended, even when it was cancelled: what comes next does not run into the rest of it.

    The thread that waits may be interrupted (Ctrl-C) between any two steps. So it makes this object
    first and starts it later, when it can no longer lose it; coroutines are made on the other
    thread, so that none is left unawaited; and there is no lock that an interrupt could leave
    locked, as it can leave that of a `concurrent.futures.Future`, which the loop would wait for.
    """

    def __init__(
        self,
        owner: OtherLoop,
        loop: asyncio.AbstractEventLoop,
        call: Callable[[], Coroutine[Any, Any, T]],
    ) -> None:
        self._owner = owner
        self._loop = loop
        self._call = call
        self._task: asyncio.Task[T] | None = None  # while it runs; no task dies on this thread
        self._value: T
        self._error: BaseException | None = None
        self._done = False
        self._under_way = threading.Lock()  # the loop releases it, and never waits for it
        self._under_way.acquire()

    @property
    def done(self) -> bool:
        """True if it has ended, one way or another."""
        return self._done

    def start(self) -> None:
        """Start it, unless it was started; calling this twice does no harm.

        Raises: as `OtherLoop.check_usable`.
        """
        self._owner.check_usable()
        if self._task is None and not self._done:
            self._loop.call_soon_threadsafe(self._begin)

    def launch(self) -> None:
        """Start it from any thread, also the loop's own; no thread need wait for it.

        Raises:
            RuntimeError: the loop is closed.
        """
        self._loop.call_soon_threadsafe(self._begin)

    async def ended(self) -> None:
        """Start it, unless it was started, and wait on the loop itself until it has ended."""
        self._begin()
        if self._task is not None:
            await asyncio.wait((self._task,))

    def _begin(self) -> None:
        if self._task is None and not self._done:
            self._task = self._loop.create_task(self._work())
            self._task.add_done_callback(self._finish)

    async def _work(self) -> T:
        return await self._call()

    def _finish(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self._error = concurrent.futures.CancelledError()
        elif (error := task.exception()) is not None:
            self._error = error
        else:
            self._value = task.result()
        self._task, self._done = None, True
        self._under_way.release()

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until what was started has ended, one way or another; None: however long it takes.

        A signal that comes in the last steps before the thread sleeps, or on another thread, does
        not wake it, and Python handles signals only between two steps of this thread. So it wakes
        up now and then: otherwise such a Ctrl-C would only be noticed when the work ends, if ever.
        """
        if self.done:
            return
        if timeout_s is not None:
            self._under_way.acquire(timeout=timeout_s)
            return
        waited_s = 0.0
        while not self._under_way.acquire(timeout=LOOK_UP_EVERY_S):
            waited_s += LOOK_UP_EVERY_S
            if self._owner.while_waiting is not None:
                self._owner.while_waiting(waited_s)

    def result(self) -> T:
        """Wait for the result, or raise what the work raised."""
        self.wait()
        if self._error is not None:
            raise self._error
        return self._value

    def cancel(self) -> None:
        """Cancel it and wait until it has ended, but not for longer than `ends_within_s`."""
        if not self.done and self._owner.usable:
            self._loop.call_soon_threadsafe(self._cancel)
            self.wait(self._owner.ends_within_s)

    def _cancel(self) -> None:
        self._begin()  # unless it was; what is cancelled before its first step does nothing
        if self._task is not None:
            self._task.cancel()
