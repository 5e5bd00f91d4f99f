"""Running a test on asyncio's own event loop and on uvloop, with nothing left behind."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import pytest
import uvloop

T = TypeVar("T")
AsyncTest = Callable[..., Coroutine[Any, Any, None]]


def on_both_loops(test: AsyncTest) -> Callable[..., None]:
    """The test, once per loop. It also fails when a task is left or an exception was lost."""

    @functools.wraps(test)
    def run_test(new_loop: Callable[[], asyncio.AbstractEventLoop], **fixtures: Any) -> None:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(_leaves_nothing_behind(test(**fixtures)))

    signature = inspect.signature(test)
    new_loop = inspect.Parameter("new_loop", inspect.Parameter.KEYWORD_ONLY)
    parameters = [*signature.parameters.values(), new_loop]
    vars(run_test).pop("__wrapped__")
    vars(run_test)["__signature__"] = signature.replace(parameters=parameters)
    loops = [asyncio.new_event_loop, uvloop.new_event_loop]
    mark = pytest.mark.parametrize("new_loop", loops, ids=["asyncio", "uvloop"])
    on_both: Callable[..., None] = mark(run_test)
    return on_both


async def turns_beside(work: Awaitable[T]) -> tuple[T, int]:
    """Return what `work` did, and how many turns of the loop others had meanwhile."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    try:
        return await work, turns
    finally:
        beside.cancel()


async def _leaves_nothing_behind(test: Coroutine[Any, Any, None]) -> None:
    lost: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: lost.append(context))
    await test
    assert lost == []
    assert asyncio.all_tasks() == {asyncio.current_task()}
