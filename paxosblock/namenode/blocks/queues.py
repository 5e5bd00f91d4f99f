"""Questions to storages that nobody waits for, few at a time for each storage and in each turn.

A storage that cannot be reached gets only one question now and then; after a while all are given
up, and its next block report, or the walk over all blocks, starts again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final

from paxosblock.errors import UnavailableError
from paxosblock.namenode.background import Background
from paxosblock.protocol.types import StorageId

PAUSES_S: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
"""Pauses before a question is repeated, and before a storage that could not be reached is tried
again; after the last one it is left alone."""
ASKED_AT_ONCE: Final = 32
"""Questions to one storage at a time; a storage that hangs holds up no other storage's."""
STARTED_AT_ONCE: Final = 8
"""Questions that are asked in one turn of the loop, each to another storage."""


@dataclass(slots=True, eq=False)
class Question:
    """A question that a storage is to be asked.

    `ask` returns True if there is nothing more to ask, and raises UnavailableError if the storage
    cannot be reached. `ended` is called once, whatever the result.
    """

    name: str
    ask: Callable[[], Coroutine[Any, Any, bool]]
    ended: Callable[[], None] = lambda: None
    asked: int = 0


@dataclass(slots=True)
class _Queue:
    """The questions to one storage; those that wait are in the order in which they are due."""

    waiting: list[tuple[float, int, Question]] = field(default_factory=list)
    under_way: int = 0
    failures: int = 0
    """Times in a row that the storage could not be reached."""
    failed_s: float = 0.0

    @property
    def due_s(self) -> float:
        """Return the time of the next question; infinite if an answer must come first."""
        if not self.waiting or self.under_way >= (1 if self.failures else ASKED_AT_ONCE):
            return float("inf")
        due_s = self.waiting[0][0]
        return max(due_s, self.failed_s + PAUSES_S[self.failures - 1]) if self.failures else due_s

    def not_reached(self, asked_s: float, now_s: float) -> bool:
        """Note that a question of `asked_s` did not reach the storage; True to leave it alone."""
        if asked_s >= self.failed_s:  # otherwise it was on its way when the failure was noted
            self.failures += 1
            self.failed_s = now_s
        return self.failures > len(PAUSES_S)


class Queues:
    """The questions to all storages."""

    def __init__(self, background: Background) -> None:
        """Ask in tasks of `background`."""
        self._background = background
        self._queues: dict[StorageId, _Queue] = {}
        """The storages that have questions, the one that was asked longest ago first."""
        self._numbers = count()
        self._count = 0
        self._changed = asyncio.Event()
        self._asking: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """Return the number of questions that wait or are under way."""
        return self._count

    def add(self, storage: StorageId, question: Question, pause_s: float = 0.0) -> None:
        """Put a question to `storage` when its turn comes, after `pause_s` seconds."""
        self._count += 1
        self._put(self._queues.setdefault(storage, _Queue()), question, pause_s)
        if self._asking is None or self._asking.done():
            self._asking = self._background.start(self._ask_all(), "questions to storages")

    def _put(self, queue: _Queue, question: Question, pause_s: float = 0.0) -> None:
        heappush(queue.waiting, (_now_s() + pause_s, next(self._numbers), question))
        self._changed.set()

    async def _ask_all(self) -> None:
        """Ask until there is nothing more to ask."""
        try:
            while self._queues:
                self._changed.clear()
                pause_s = self._start_due()
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await self._changed.wait()
        finally:
            for queue in self._queues.values():
                self._give_up(queue)

    def _start_due(self) -> float | None:
        """Ask the questions that are due, one of each storage. Return the seconds until the next is
        due; None if something must change first."""
        now_s, next_s, started = _now_s(), float("inf"), 0
        for storage, queue in list(self._queues.items()):
            if not queue.waiting and not queue.under_way:
                del self._queues[storage]
            elif queue.due_s <= now_s and started < STARTED_AT_ONCE:
                started += 1
                self._queues[storage] = self._queues.pop(storage)
                _, _, question = heappop(queue.waiting)
                queue.under_way += 1
                self._background.start(self._ask(queue, question), question.name)
            next_s = min(next_s, queue.due_s)
        return None if next_s == float("inf") else max(0.0, next_s - now_s)

    async def _ask(self, queue: _Queue, question: Question) -> None:
        again_s, asked_s = None, _now_s()
        try:
            done = await question.ask()
            queue.failures = 0
            question.asked += 1
            if not done and question.asked < len(PAUSES_S):
                again_s = PAUSES_S[question.asked - 1]
        except UnavailableError:
            if queue.not_reached(asked_s, _now_s()):
                self._give_up(queue)
            else:
                again_s = 0.0
        finally:
            queue.under_way -= 1
            if again_s is None:
                self._end(question)
            else:
                self._put(queue, question, again_s)
            self._changed.set()

    def _give_up(self, queue: _Queue) -> None:
        waiting, queue.waiting, queue.failures = queue.waiting, [], 0
        for _, _, question in waiting:
            self._end(question)

    def _end(self, question: Question) -> None:
        self._count -= 1
        question.ended()


def _now_s() -> float:
    return asyncio.get_running_loop().time()
