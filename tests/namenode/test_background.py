"""Work that no caller waits for."""

from __future__ import annotations

import asyncio
import logging

import pytest

from paxosblock.errors import NotReadyError
from paxosblock.namenode.background import Background


@pytest.mark.parametrize("error", [NotReadyError("not yet"), ValueError("a mistake of ours")])
async def test_repeated_work_survives_its_errors_and_ends_with_the_node(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    work, times, thrice = Background(), 0, asyncio.Event()

    async def fail_first() -> None:
        nonlocal times
        times += 1
        if times == 1:
            raise error
        if times == 3:
            thrice.set()

    work.repeat("counting", fail_first, 0, retry_s=0)
    await asyncio.wait_for(thrice.wait(), 10)
    await work.close()
    ended_after = times
    await asyncio.sleep(0)
    assert times == ended_after
    (line,) = (record for record in caplog.records if record.levelno >= logging.WARNING)
    assert "counting" in f"{line.getMessage()} {line.__dict__}"


async def test_work_that_is_begun_runs_at_once_until_it_waits() -> None:
    work, steps, gate = Background(), list[str](), asyncio.Event()

    async def walk() -> str:
        steps.append("begun")
        await gate.wait()
        await asyncio.sleep(0)
        steps.append("ended")
        return "there"

    task = work.begin(walk(), "walking")
    assert steps == ["begun"]
    gate.set()
    assert await task == "there"
    assert steps == ["begun", "ended"]


async def test_work_that_need_not_wait_is_over_when_it_was_begun() -> None:
    async def walk() -> str:
        return "there"

    assert await Background().begin(walk(), "walking") == "there"


@pytest.mark.parametrize("turns", [0, 1])
async def test_work_that_was_begun_is_ended_as_a_task_is(turns: int) -> None:
    work, steps, waits_for = Background(), list[str](), asyncio.Event()

    async def walk() -> None:
        try:
            await waits_for.wait()
        finally:
            steps.append("ended")

    task = work.begin(walk(), "walking")
    for _ in range(turns):
        await asyncio.sleep(0)
    await work.close()
    assert task.cancelled()
    assert steps == ["ended"]


async def test_an_error_of_work_that_was_begun_is_its_tasks() -> None:
    async def stumble() -> None:
        await asyncio.sleep(0)
        raise NotReadyError("not yet")

    with pytest.raises(NotReadyError, match="not yet"):
        await Background().begin(stumble(), "stumbling")
