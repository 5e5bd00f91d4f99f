"""Waiting for a condition. The only place in the tests that sleeps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar, overload

T = TypeVar("T")

POLL_FIRST_S: Final = 0.001
POLL_MOST_S: Final = 0.05
POLL_GROWTH: Final = 1.4
"""A look often costs two processes a call: what takes long is looked for less often, so that a
machine with few processors is left to what is waited for."""
PATIENCE_S: Final = 30.0
"""For a process to start on a machine that many others use."""


def wait_until(
    condition: Callable[[], T | None], timeout_s: float = PATIENCE_S, what: str = ""
) -> T:
    """Call `condition` until it returns something true, and return that.

    Raises AssertionError naming `what` (or the condition) and its last value after `timeout_s`.
    Blocks the thread: use `wait_until_async` inside an event loop.
    """
    deadline, pause_s = time.monotonic() + timeout_s, POLL_FIRST_S
    while not (value := condition()):
        if time.monotonic() >= deadline:
            raise AssertionError(_failure(condition, what, timeout_s, value))
        time.sleep(pause_s)
        pause_s = min(pause_s * POLL_GROWTH, POLL_MOST_S)
    return value


@overload
async def wait_until_async(
    condition: Callable[[], Awaitable[T]], timeout_s: float = ..., what: str = ...
) -> T: ...
@overload
async def wait_until_async(
    condition: Callable[[], T], timeout_s: float = ..., what: str = ...
) -> T: ...
async def wait_until_async(
    condition: Callable[[], Any], timeout_s: float = PATIENCE_S, what: str = ""
) -> Any:
    """Like `wait_until`, without blocking the loop; `condition` may be a coroutine function."""
    deadline, pause_s = time.monotonic() + timeout_s, POLL_FIRST_S
    while not (value := await _value(condition())):
        if time.monotonic() >= deadline:
            raise AssertionError(_failure(condition, what, timeout_s, value))
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * POLL_GROWTH, POLL_MOST_S)
    return value


async def until_one_ends(*work: Coroutine[Any, Any, object]) -> None:
    """Do all of it until the first of it ends, however; then cancel the rest."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _value(result: Any) -> Any:
    return await result if isinstance(result, Awaitable) else result


def _failure(condition: object, what: str, timeout_s: float, last: object) -> str:
    name = what or getattr(condition, "__qualname__", repr(condition))
    return f"waited {timeout_s:g} s for {name}; the last answer was {last!r}"
