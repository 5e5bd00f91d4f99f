"""Small files of several callers are written together, and each hears of itself."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from paxosblock.client.writing.gathered_files import GatheredFiles
from paxosblock.client.writing.many_files import FILES_TOGETHER
from paxosblock.errors import (
    DeadlineError,
    ExistsError,
    NotReadyError,
    Outcome,
    PaxosBlockError,
)


class Batches:
    """Notes batches; each ends when it is told how."""

    def __init__(self) -> None:
        self.begun: list[tuple[list[str], asyncio.Future[bool]]] = []

    async def write(self, files: Sequence[str]) -> bool:
        end: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.begun.append(([*files], end))
        return await end


async def turns() -> None:
    """Let everybody go on who can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_what_comes_while_a_batch_is_written_is_in_the_next_one() -> None:
    batches = Batches()
    files = GatheredFiles(batches.write, at_once=1)
    names = [f"{number}" for number in range(FILES_TOGETHER + 2)]
    async with asyncio.TaskGroup() as group:
        puts = [group.create_task(files.put("first", 1))]
        await turns()
        puts += [group.create_task(files.put(name, 1)) for name in names]
        wanted = [["first"], names[:FILES_TOGETHER], names[FILES_TOGETHER:]]
        for number, expected in enumerate(wanted):
            await turns()
            assert [batch for batch, _ in batches.begun] == wanted[: number + 1]
            assert batches.begun[number][0] == expected
            batches.begun[number][1].set_result(True)
    assert all(put.result() for put in puts)


async def test_two_batches_are_written_at_once() -> None:
    batches = Batches()
    files = GatheredFiles(batches.write, at_once=2)
    async with asyncio.TaskGroup() as group:
        for name in "abc":
            group.create_task(files.put(name, 1))
            await turns()
        assert [batch for batch, _ in batches.begun] == [["a"], ["b"]]
        batches.begun[1][1].set_result(True)
        await turns()
        assert batches.begun[2][0] == ["c"]
        for number in (0, 2):
            batches.begun[number][1].set_result(True)


@pytest.mark.parametrize(
    ("error", "heard"),
    [
        (ExistsError("one is there").with_outcome(Outcome.NEVER), False),
        (NotReadyError("not now").with_outcome(Outcome.NEVER), NotReadyError),
        (DeadlineError("no answer"), DeadlineError),
    ],
    ids=lambda each: type(each).__name__,
)
async def test_of_a_refusal_each_hears_by_itself_and_of_a_failure_all(
    error: PaxosBlockError, heard: bool | type[PaxosBlockError]
) -> None:
    batches = Batches()
    files = GatheredFiles(batches.write, at_once=1)
    puts = [asyncio.create_task(files.put(name, 1)) for name in "ab"]
    await turns()
    batches.begun[0][1].set_exception(error)
    for put in puts:
        if isinstance(heard, bool):
            assert await put is heard
        else:
            with pytest.raises(heard):
                await put


async def test_a_caller_that_leaves_keeps_nobody_from_its_batch() -> None:
    batches = Batches()
    files = GatheredFiles(batches.write, at_once=1)
    leaves, stays = [asyncio.create_task(files.put(name, 1)) for name in "ab"]
    await turns()
    leaves.cancel()
    await turns()
    batches.begun[0][1].set_result(True)
    assert await stays
    await files.close()
