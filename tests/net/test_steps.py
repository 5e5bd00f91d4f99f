"""Coroutines that go on without a task (`InlineCoroutine` of call_server.py)."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine
from typing import Any

from paxosblock.net.calls.call_server import InlineCoroutine
from tests.loops import on_both_loops

NAME: contextvars.ContextVar[str] = contextvars.ContextVar("name")


def begin(coroutine: Coroutine[Any, Any, None], ended: list[InlineCoroutine]) -> InlineCoroutine:
    """Run the first step, which must wait."""
    context = contextvars.copy_context()
    return InlineCoroutine(coroutine, context.run(coroutine.send, None), context, ended.append)


async def turns() -> None:
    """Let the loop come round a few times."""
    for _ in range(4):
        await asyncio.sleep(0)


@on_both_loops
async def test_each_step_follows_when_what_it_waits_for_is_over() -> None:
    loop, ended, said = asyncio.get_running_loop(), list[InlineCoroutine](), list[object]()
    first, second, lock = loop.create_future(), loop.create_future(), asyncio.Lock()

    async def work() -> None:
        NAME.set("mine")
        said.append(await first)
        async with lock:
            said.append("locked")
        await asyncio.sleep(0)
        said.append("after a turn")
        try:
            await second
        except ValueError as error:
            said.append(str(error))
        said.append(NAME.get())

    await lock.acquire()
    NAME.set("another")
    steps = begin(work(), ended)
    first.set_result(1)
    await turns()
    assert said == [1]
    lock.release()
    await turns()
    assert said == [1, "locked", "after a turn"]
    assert ended == []
    second.set_exception(ValueError("no"))
    await turns()
    assert said[3:] == ["no", "mine"]
    assert ended == [steps]
    assert NAME.get() == "another"


@on_both_loops
async def test_one_that_is_cancelled_ends_where_it_waits() -> None:
    ended, said, never = (
        list[InlineCoroutine](),
        list[str](),
        asyncio.get_running_loop().create_future(),
    )

    async def work() -> None:
        try:
            await never
            said.append("went on")
        finally:
            said.append("ended")

    begin(work(), ended).cancel()
    never.set_result(None)
    await asyncio.sleep(0)
    assert said == ["ended"]
    assert ended == []


@on_both_loops
async def test_an_error_that_nobody_expects_is_told_by_the_loop_and_ends_it() -> None:
    ended, told, now = (
        list[InlineCoroutine](),
        list[Any](),
        asyncio.get_running_loop().create_future(),
    )

    async def work() -> None:
        await now
        raise ZeroDivisionError

    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: told.append(context["exception"]))
    steps = begin(work(), ended)
    now.set_result(None)
    await turns()
    loop.set_exception_handler(before)
    assert ended == [steps]
    assert [type(error) for error in told] == [ZeroDivisionError]
