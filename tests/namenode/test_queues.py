"""Questions that nobody waits for: how many at a time, and what becomes of those to the dead."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial

import pytest

from paxosblock.errors import DeadlineError, UnavailableError
from paxosblock.namenode.background import Background
from paxosblock.namenode.blocks import queues as module
from paxosblock.namenode.blocks.queues import (
    ASKED_AT_ONCE,
    PAUSES_S,
    STARTED_AT_ONCE,
    Question,
    Queues,
)
from paxosblock.protocol.types import StorageId
from tests.waiting import wait_until_async

DEAD, ALIVE = StorageId("dead"), StorageId("alive")


class Asking:
    """Queues, and what was asked of whom in each turn of the loop."""

    def __init__(self) -> None:
        self.background = Background()
        self.queues = Queues(self.background)
        self.turn = 0
        self.turns = Counter[tuple[int, StorageId]]()
        self.asked = Counter[StorageId]()
        self.ended = Counter[int]()
        self.dead = {DEAD}
        self.failures_left = 1 << 30
        self.done = True
        self.answers = asyncio.Event()
        self.answers.set()

    async def count_turns(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.turn += 1

    def add(self, storage: StorageId, count: int) -> None:
        """So many questions, numbered on."""
        for _ in range(count):
            number = len(self.ended) + 1
            self.ended[number] = 0
            end = partial(self.ended.update, [number])
            self.queues.add(storage, Question(f"q{number}", partial(self.ask, storage), end))

    async def ask(self, storage: StorageId) -> bool:
        self.asked[storage] += 1
        self.turns[self.turn, storage] += 1
        if storage in self.dead and self.failures_left:
            self.failures_left -= 1
            raise UnavailableError("cannot be reached")
        await self.answers.wait()
        return self.done

    async def all_ended(self) -> None:
        await wait_until_async(lambda: len(self.queues) == 0)
        assert set(self.ended.values()) == {1}


@pytest.fixture
async def asking() -> AsyncIterator[Asking]:
    made = Asking()
    made.background.start(made.count_turns(), "turns")
    yield made
    await made.background.close()


async def test_one_question_is_put_to_a_storage_in_each_turn(asking: Asking) -> None:
    asking.add(ALIVE, 500)
    await asking.all_ended()
    assert asking.asked[ALIVE] == 500
    assert max(asking.turns.values()) == 1


async def test_few_storages_are_asked_in_each_turn_and_none_is_left_out(asking: Asking) -> None:
    storages = [StorageId(f"s{number}") for number in range(3 * STARTED_AT_ONCE)]
    for storage in storages:
        asking.add(storage, 20)
    await asking.all_ended()
    first = sorted(asking.turns)[: len(storages)]
    assert {storage for _, storage in first} == set(storages), "they take turns"
    by_turn = Counter[int]()
    for (turn, _), count in asking.turns.items():
        by_turn[turn] += count
    assert max(by_turn.values()) == STARTED_AT_ONCE


async def test_a_storage_that_hangs_holds_up_itself_only(asking: Asking) -> None:
    asking.answers.clear()
    asking.add(ALIVE, ASKED_AT_ONCE + 10)
    await wait_until_async(lambda: asking.asked[ALIVE] == ASKED_AT_ONCE)
    other = StorageId("other")
    asking.add(other, 1)
    await wait_until_async(lambda: asking.asked[other] == 1)
    assert asking.asked[ALIVE] == ASKED_AT_ONCE
    asking.answers.set()
    await asking.all_ended()


async def test_a_storage_that_cannot_be_reached_is_not_tried_with_each_question(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAUSES_S", (0.001,) * len(PAUSES_S))
    asking.add(DEAD, 4096)
    asking.add(ALIVE, 100)
    await asking.all_ended()
    assert asking.asked == {DEAD: 1 + len(PAUSES_S), ALIVE: 100}
    asking.dead.clear()
    asking.add(DEAD, 50)
    await asking.all_ended()
    assert asking.asked[DEAD] == 1 + len(PAUSES_S) + 50


async def test_a_storage_that_comes_back_is_asked_everything(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAUSES_S", (0.001,) * len(PAUSES_S))
    asking.failures_left = 3
    asking.add(DEAD, 200)
    await asking.all_ended()
    assert asking.asked[DEAD] == 3 + 200


async def test_a_question_is_asked_again_for_a_while(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAUSES_S", (0.001,) * len(PAUSES_S))
    asking.done = False
    asking.add(ALIVE, 40)
    await asking.all_ended()
    assert asking.asked[ALIVE] == 40 * len(PAUSES_S)


async def test_a_question_that_fails_is_ended_and_holds_up_no_other(asking: Asking) -> None:
    ended = asyncio.Event()

    async def fail() -> bool:
        raise DeadlineError("no answer")

    asking.queues.add(ALIVE, Question("fails", fail, ended.set))
    asking.add(ALIVE, 3)
    await asking.all_ended()
    assert ended.is_set()


async def test_questions_of_a_node_that_ends_are_ended(asking: Asking) -> None:
    asking.answers.clear()
    asking.add(ALIVE, 2 * ASKED_AT_ONCE)
    asking.add(DEAD, 10)
    await wait_until_async(lambda: asking.asked[ALIVE] == ASKED_AT_ONCE)
    await asking.background.close()
    await asking.all_ended()
    asking.answers.set()
    asking.add(ALIVE, 5)
    await asking.all_ended()
