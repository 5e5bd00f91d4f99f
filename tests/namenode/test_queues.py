"""Questions that no caller waits for: how many at a time, and what becomes of those to the dead."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from functools import partial

import pytest

from paxosblock.api.datanode import FindChunk, FoundChunk
from paxosblock.errors import DeadlineError, PaxosBlockError, UnavailableError
from paxosblock.namenode.background import Background
from paxosblock.namenode.blocks import queues as module
from paxosblock.namenode.blocks.acceptors import Answer, Heard
from paxosblock.namenode.blocks.acceptors import Question as Message
from paxosblock.namenode.blocks.queues import (
    ASKED_TOGETHER,
    CALLS_AT_ONCE,
    STARTED_AT_ONCE,
    QueuedQuestion,
    Queues,
)
from paxosblock.protocol.messages import Delete, Deleted
from paxosblock.protocol.types import BlockId, Generation, StorageId
from tests.waiting import wait_until_async

PAUSES_S = (0.001,) * 7
DEAD, ALIVE, OTHER = map(StorageId, ("dead", "alive", "other"))


class Asking:
    """Queues, the acceptors they ask, and the calls to whom in each turn of the loop."""

    def __init__(self) -> None:
        self.background = Background()
        self.queues = Queues(self.background, self, pauses_s=PAUSES_S)
        self.turn = 0
        self.turns = Counter[tuple[int, StorageId]]()
        self.calls = Counter[StorageId]()
        self.asked = Counter[StorageId]()
        self.heard = Counter[type]()
        self.ended = Counter[int]()
        self.failing: dict[int, PaxosBlockError | None] = {}
        """Errors in place of the answers to these questions, if they are asked together."""
        self.dead = {DEAD}
        self.failures_left = 1 << 30
        self.done = True
        self.answers = asyncio.Event()
        self.answers.set()
        self.alone = asyncio.Event()
        """Those that are asked alone are answered."""
        self.asked_alone = Counter[int]()
        self.alone.set()
        self.alone_at_once = 0

    async def count_turns(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.turn += 1

    def add(self, storage: StorageId, count: int) -> None:
        """So many questions, numbered on."""
        for _ in range(count):
            number = len(self.ended) + 1
            self.ended[number] = 0
            message = Delete(BlockId(number), Generation(1))
            end = partial(self.ended.update, [number])
            self.queues.add(storage, QueuedQuestion(partial(_itself, message), self.hear, end))

    def hear(self, answer: Answer | PaxosBlockError) -> bool:
        self.heard[type(answer)] += 1
        return self.done

    async def ask_all(self, storage: StorageId, questions: Sequence[Message]) -> list[Heard]:
        self.calls[storage] += 1
        self.asked[storage] += len(questions)
        self.turns[self.turn, storage] += 1
        if storage in self.dead and self.failures_left:
            self.failures_left -= 1
            raise UnavailableError("cannot be reached")
        await self.answers.wait()
        return [self.failing.get(each.block, Deleted(each.block, storage)) for each in questions]

    async def ask(
        self, storage: StorageId, question: Message, *, timeout_s: float | None = None
    ) -> Answer:
        self.asked_alone[question.block] += 1
        self.alone_at_once += 1
        await self.alone.wait()
        self.alone_at_once -= 1
        return Deleted(question.block, storage)

    async def process_at(self, address: str) -> str:
        raise AssertionError("not by the queues")

    async def find_chunk(self, question: FindChunk) -> FoundChunk:
        raise AssertionError("not by the queues")

    async def all_ended(self) -> None:
        await wait_until_async(lambda: len(self.queues) == 0)
        assert set(self.ended.values()) == {1}


def _itself(message: Message) -> Message:
    return message


@pytest.fixture
async def asking() -> AsyncIterator[Asking]:
    made = Asking()
    made.background.start(made.count_turns(), "turns")
    yield made
    await made.background.close()


async def test_what_comes_while_others_are_asked_is_asked_together(asking: Asking) -> None:
    asking.answers.clear()
    asking.add(ALIVE, 1)
    await wait_until_async(lambda: asking.calls[ALIVE] == 1)
    asking.add(ALIVE, 2 * ASKED_TOGETHER)
    asking.answers.set()
    await asking.all_ended()
    assert asking.asked[ALIVE] == 1 + 2 * ASKED_TOGETHER
    assert asking.calls[ALIVE] == 1 + 2
    assert max(asking.turns.values()) == 1


async def test_what_comes_of_one_question_is_that_of_no_other(asking: Asking) -> None:
    asking.failing = {2: DeadlineError("no answer")}
    asking.add(ALIVE, 3)
    await asking.all_ended()
    assert (asking.calls[ALIVE], asking.asked[ALIVE]) == (1, 3)
    assert asking.heard == {Deleted: 2, DeadlineError: 1}


async def test_a_question_that_takes_longer_than_others_is_asked_alone(asking: Asking) -> None:
    asking.failing = {1: None, 3: None}
    asking.add(ALIVE, 3)
    await asking.all_ended()
    assert (asking.calls[ALIVE], asking.asked_alone) == (1, {1: 1, 3: 1})
    assert asking.heard == {Deleted: 3}


async def test_few_questions_are_asked_alone_at_a_time_and_hold_up_no_other(
    asking: Asking,
) -> None:
    slow = CALLS_AT_ONCE + 4
    asking.failing = dict.fromkeys(range(1, slow + 1))
    asking.alone.clear()
    asking.add(ALIVE, slow)
    await wait_until_async(lambda: asking.alone_at_once == CALLS_AT_ONCE)
    asking.alone.set()
    await asking.all_ended()
    assert asking.heard == {Deleted: slow}
    asking.failing = {slow + 1: None}
    asking.alone.clear()
    asking.add(ALIVE, 1)
    await wait_until_async(lambda: asking.asked_alone[slow + 1] == 1)
    asking.add(ALIVE, 1)
    await wait_until_async(lambda: asking.heard == {Deleted: slow + 1})
    asking.alone.set()
    await asking.all_ended()


async def test_what_need_not_be_asked_any_more_is_ended(asking: Asking) -> None:
    ended = asyncio.Event()
    asking.queues.add(ALIVE, QueuedQuestion(lambda: None, asking.hear, ended.set))
    asking.add(OTHER, 1)
    await asking.all_ended()
    assert ended.is_set()
    assert ALIVE not in asking.calls


async def test_few_storages_are_asked_in_each_turn_and_none_is_left_out(asking: Asking) -> None:
    storages = [StorageId(f"s{number}") for number in range(3 * STARTED_AT_ONCE)]
    for storage in storages:
        asking.add(storage, 20 * ASKED_TOGETHER)
    await asking.all_ended()
    first = sorted(asking.turns)[: len(storages)]
    assert {storage for _, storage in first} == set(storages), "they take turns"
    by_turn = Counter[int]()
    for (turn, _), count in asking.turns.items():
        by_turn[turn] += count
    assert max(by_turn.values()) == STARTED_AT_ONCE


async def test_a_storage_that_hangs_holds_up_itself_only(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking.answers.clear()
    asking.add(ALIVE, (CALLS_AT_ONCE + 1) * ASKED_TOGETHER)
    await wait_until_async(lambda: asking.calls[ALIVE] == 1)
    asking.add(OTHER, 1)
    await wait_until_async(lambda: asking.calls[OTHER] == 1)
    assert asking.calls[ALIVE] == 1
    monkeypatch.setattr(module, "GATHER_S", 0.0)
    await wait_until_async(lambda: asking.calls[ALIVE] == CALLS_AT_ONCE)
    await wait_until_async(lambda: asking.asked[ALIVE] == CALLS_AT_ONCE * ASKED_TOGETHER)
    asking.answers.set()
    await asking.all_ended()


async def test_a_storage_that_cannot_be_reached_is_not_tried_with_each_question(
    asking: Asking,
) -> None:
    asking.add(DEAD, 4096)
    asking.add(ALIVE, 100)
    await asking.all_ended()
    assert (asking.calls[DEAD], asking.asked[ALIVE]) == (1 + len(PAUSES_S), 100)
    assert asking.heard[UnavailableError] == asking.asked[DEAD]
    asking.dead.clear()
    before = asking.asked[DEAD]
    asking.add(DEAD, 50)
    await asking.all_ended()
    assert asking.asked[DEAD] == before + 50


async def test_a_storage_that_comes_back_is_asked_everything(asking: Asking) -> None:
    asking.failures_left = 3
    asking.add(DEAD, 200)
    await asking.all_ended()
    assert asking.heard[Deleted] == 200


async def test_a_question_is_asked_again_for_a_while(asking: Asking) -> None:
    asking.done = False
    asking.add(ALIVE, 40)
    await asking.all_ended()
    assert asking.asked[ALIVE] == 40 * len(PAUSES_S)


async def test_a_question_that_fails_is_ended_and_holds_up_no_other(asking: Asking) -> None:
    ended = asyncio.Event()

    def fail() -> Message:
        raise ValueError("a fault of ours")

    asking.queues.add(ALIVE, QueuedQuestion(fail, asking.hear, ended.set))
    asking.add(OTHER, 3)
    await asking.all_ended()
    assert ended.is_set()


async def test_questions_of_a_node_that_ends_are_ended(asking: Asking) -> None:
    asking.answers.clear()
    asking.add(ALIVE, 2 * ASKED_TOGETHER)
    asking.add(DEAD, 10)
    await wait_until_async(lambda: asking.calls[ALIVE] == 1)
    await asking.background.close()
    await asking.all_ended()
    asking.answers.set()
    asking.add(ALIVE, 5)
    await asking.all_ended()
