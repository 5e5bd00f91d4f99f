"""An event loop whose clock jumps to the next timer, and whose threads are timers, too.

What runs on it belongs to the world (clients, the network, the simulation itself) or to a `Host`:
one process, with a clock of its own rate, that may stand still while the world goes on.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from itertools import chain
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_HOST: ContextVar[Host | None] = ContextVar("host", default=None)
"""The host of this callback or task. Whatever it starts inherits it."""


LATE_S = 0.002
"""The most that a timer may be late after its process stood still."""

RESOLUTION_S = 1e-9
"""The shortest wait."""

CANCELLED_FROM = 100
"""Timers of which half are cancelled: from so many on those are dropped before their time."""


def running_host() -> Host | None:
    """Return the process that this runs in; None in the world."""
    return _HOST.get()


class DeadlockError(Exception):
    """Nothing is scheduled any more, and the simulation waits."""


class Turn(asyncio.TimerHandle):
    """A call in the next turn of the loop: a handle without what serves debugging, which knows its
    process. A simulation makes two hundred thousand of them in a hundred seconds."""

    __slots__ = ("host",)

    host: Host | None
    _callback: Callable[..., object]
    _context: Context

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> None:
        """Call it in `context`; None: in that of whoever asks. What the base has to be shown, and
        the loop, is not set."""
        self._context = context = copy_context() if context is None else context
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._source_traceback = None
        self.host = context.get(_HOST)

    def cancel(self) -> None:
        """It is passed by, and keeps nothing alive until then."""
        self._cancelled = True
        self._callback, self._args = _nothing, ()


def _nothing() -> None:
    """Do nothing: what was cancelled."""


class Timer(Turn):
    """A call at a time of the world, likewise."""

    __slots__ = ()

    _loop: VirtualTimeLoop

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: VirtualTimeLoop,
        context: Context | None,
    ) -> None:
        """Call it in `context`; None: in that of whoever asks."""
        super().__init__(callback, args, context)
        self._loop = loop
        self._when = when
        self._scheduled = True

    def cancel(self) -> None:
        """The loop counts those that it still has."""
        if self._scheduled and not self._cancelled:
            self._loop._timer_cancelled_count += 1
        super().cancel()


class Host:
    """A simulated process. What is called or begun here belongs to it, with all that follows."""

    def __init__(self, loop: VirtualTimeLoop, rng: random.Random, rate: float) -> None:
        """Its clock shows any time, and goes `rate` times as fast as the world's."""
        self._loop, self._rng = loop, rng
        self._rate, self._set_at, self._showed = rate, loop.now, rng.uniform(0, 1000)
        self._context = Context()
        self._context.run(_HOST.set, self)
        self.paused = False
        self._held: list[Turn] = []
        self._sockets: dict[object, list[Turn]] = {}

    # -- its clock ------------------------------------------------------------------------------

    def clock(self) -> float:
        """Return what its clock shows now."""
        return self._showed + (self._loop.now - self._set_at) * self._rate

    def world_time(self, shown: float) -> float:
        """Return when its clock will show this; what is to come is not now, as numbers are rounded,
        or a caller that waits for it would look again and again.
        """
        return self._after(shown - self.clock())

    def world_time_in(self, delay_s: float) -> float:
        """Return when its clock will show so many seconds more."""
        # Rounded as in `world_time`, or the lives of all seeds would be others.
        shows = self.clock()
        return self._after(shows + delay_s - shows)

    def _after(self, shown_s: float) -> float:
        left_s = shown_s / self._rate
        return self._loop.now + (RESOLUTION_S if 0 < left_s < RESOLUTION_S else left_s)

    def set_rate(self, rate: float) -> None:
        """Let the clock go on at another rate; timers that were set already end as they would."""
        self._showed, self._set_at, self._rate = self.clock(), self._loop.now, rate

    # -- what it does ---------------------------------------------------------------------------

    def call(self, source: object, callback: Callable[..., object], *args: Any) -> None:
        """Something comes in from `source`; if the process stands still, it waits in a socket."""
        if self.paused:
            handle = Turn(callback, args, self._context)
            self._sockets.setdefault(source, []).append(handle)
        else:
            self._loop.call_soon(callback, *args, context=self._context)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin a task of the process."""
        return self._loop.create_task(coroutine, context=self._context)

    def made(self, make: Callable[[], T]) -> T:
        """Return what is made in the process, at once; all that it begins belongs there."""
        return self._context.copy().run(make)

    async def ask(self, coroutine: Coroutine[Any, Any, T], patience_s: float | None = None) -> T:
        """Let a request come in, and wait for what the process says to it.

        Raises:
            TimeoutError: nothing, for `patience_s`; it may still do what it was asked.
        """
        answer: asyncio.Future[T] = self._loop.create_future()

        async def serve() -> None:
            try:
                result = await coroutine
            except Exception as error:
                if not answer.done():
                    answer.set_exception(error)
            else:
                if not answer.done():
                    answer.set_result(result)

        self.call(answer, lambda: self.run(serve()))
        async with asyncio.timeout(patience_s):
            return await answer

    # -- standing still -------------------------------------------------------------------------

    def pause(self) -> None:
        """Stand still, timers and threads, too; the clock goes on."""
        self.paused = True
        self._loop.stops += 1

    def holds(self, handle: Turn) -> bool:
        """Return True, and keep what became due meanwhile, if it stands still."""
        if self.paused:
            self._held.append(handle)
        return self.paused

    def resume(self) -> None:
        """Go on as an event loop does: with what was under way, then one socket after the other, in
        any order; and with the timers that are due, which are late when there is much to read."""
        self.paused = False
        timers = [handle for handle in self._held if isinstance(handle, Timer)]
        others = [handle for handle in self._held if not isinstance(handle, Timer)]
        sockets = list(self._sockets.values())
        self._rng.shuffle(sockets)
        self._loop.go_on_with([*others, *chain.from_iterable(sockets)])
        self._loop.in_world(self._rng.uniform(0, LATE_S), self._loop.go_on_with, timers)
        self._held, self._sockets = [], {}


class VirtualTimeLoop(asyncio.BaseEventLoop):
    """Runs hours in seconds, and the same way each time.

    `run_in_executor` calls the function after `disk_delay()` seconds of virtual time, one after
    the other for each executor, as one thread would. Turns and timers are the base's without what
    serves sockets, threads and debugging, which took a fifth of a simulation; timers of the same
    time run in the order in which they were set.
    """

    # The base's own, which it does not declare.
    _ready: deque[Turn]
    _stopping: bool
    _timer_cancelled_count: int

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.stops = 0
        """The number of times that a host began to stand still."""
        self._timers: list[tuple[float, int, Timer]] = []
        self._timers_set = 0
        self._busy_until: dict[Any, float] = {}
        self._waiting: dict[Any, list[Callable[[], None]]] = {}
        self.disk_delay: Callable[[], float] = lambda: 0.0
        self.lost: list[str] = []
        self.set_exception_handler(self._lose)

    def time(self) -> float:
        """Return what the clock of the caller shows; `now` is the world's."""
        host = _HOST.get()
        return self.now if host is None else host.clock()

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Call in the next turn."""
        handle = Turn(callback, args, context)
        self._ready.append(handle)
        return handle

    def _call_soon(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> asyncio.Handle:
        """Call in the next turn; the base's other calls come here."""
        return self.call_soon(callback, *args, context=context)

    def create_task(
        self,
        coro: Any,
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[Any]:
        """Begin a task; no name of one is ever shown."""
        return asyncio.Task(coro, loop=self, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call when the clock of whoever asks shows so many seconds more."""
        host = _HOST.get()
        world_time = self.now + delay if host is None else host.world_time_in(delay)
        return self._call_at(world_time, callback, args, context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call when the clock of the caller shows `when`."""
        host = _HOST.get()
        world_time = when if host is None else host.world_time(when)
        return self._call_at(world_time, callback, args, context)

    def _call_at(
        self,
        world_time: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = Timer(world_time, callback, args, self, context)
        self._timers_set += 1
        heapq.heappush(self._timers, (world_time, self._timers_set, timer))
        return timer

    def in_world(self, delay_s: float, callback: Callable[..., object], *args: Any) -> None:
        """Call after so much virtual time, for any caller and whether or not it stands still."""
        self._call_at(self.now + delay_s, callback, args, Context())

    async def pass_time(self, seconds: float) -> None:
        """Let so much virtual time pass."""
        passed = self.create_future()
        timer = self.call_later(seconds, passed.set_result, None)
        try:
            await passed
        except BaseException:
            timer.cancel()
            raise

    def go_on_with(self, handles: list[Turn]) -> None:
        """Run these next, in this order."""
        self._ready.extend(handles)

    def _run_once(self) -> None:
        """Turn after turn until the loop is to stop: the base would ask after each."""
        while True:
            self._take_turn()
            if self._stopping:
                return

    def _take_turn(self) -> None:
        """All that is ready or due, but for hosts that stand still."""
        timers, due = self._timers, self._ready
        if self._timer_cancelled_count:
            self._drop_cancelled()
        if not due and not self._stopping:
            if not timers:
                raise DeadlockError("everybody waits for nothing")
            self.now = max(self.now, timers[0][0])
        now = self.now
        while timers and timers[0][0] <= now:
            timer = heapq.heappop(timers)[2]
            timer._scheduled = False
            if timer._cancelled:
                self._timer_cancelled_count -= 1
            else:
                due.append(timer)
        if len(due) == 1:  # mostly: what it makes ready is for the next turn
            handle = due.popleft()
            if (host := handle.host) is None or not host.holds(handle):
                self._make(handle)
            return
        self._ready = deque()
        ready = [each for each in due if (host := each.host) is None or not host.holds(each)]
        stops = self.stops
        for handle in ready:
            if self.stops == stops or (host := handle.host) is None or not host.holds(handle):
                self._make(handle)

    def _drop_cancelled(self) -> None:
        """Forget cancelled timers: the next ones, and all of them if they are half of all."""
        timers = self._timers
        if 2 * self._timer_cancelled_count > len(timers) > CANCELLED_FROM:
            timers[:] = [each for each in timers if not each[2]._cancelled]
            heapq.heapify(timers)
            self._timer_cancelled_count = 0
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)[2]._scheduled = False
            self._timer_cancelled_count -= 1

    def _make(self, handle: Turn) -> None:
        """Make the call of a handle."""
        if handle._cancelled:
            return
        try:
            handle._context.run(handle._callback, *handle._args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            told = {"message": f"Exception in {handle._callback}", "exception": error}
            self.call_exception_handler({**told, "handle": handle})

    def _write_to_self(self) -> None:
        """No thread needs to be woken."""

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
        self._call_at(end, run, ())
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
        # A crash inside cancels the tasks that wait.
        if not answer.cancelled():
            answer.set_exception(error)
    else:
        if not answer.cancelled():
            answer.set_result(result)


def spread(rng: random.Random, low: float, high: float, rarely: float = 0.01) -> float:
    """A random delay; now and then twenty times as long."""
    delay = rng.uniform(low, high)
    return delay * 20 if rng.random() < rarely else delay
