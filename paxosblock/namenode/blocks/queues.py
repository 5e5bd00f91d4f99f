"""Questions to storages whose answers no call waits for. Those that become due at a storage while
others are being asked are asked together: most of the cost of a question is that of a call.

A storage that cannot be reached gets only one call now and then; after a while all are given
up, and its next block report, or the walk over all blocks, starts again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import Final

from paxosblock.api.datanode import PROMPT_S
from paxosblock.errors import PaxosBlockError, UnavailableError
from paxosblock.namenode.background import Background
from paxosblock.namenode.blocks.acceptors import Acceptors, Answer, Heard
from paxosblock.namenode.blocks.acceptors import Question as Message
from paxosblock.protocol.types import StorageId

PAUSES_S: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
"""Pauses before a question is repeated, and before a storage that could not be reached is tried
again; after the last one it is left alone."""
CALLS_AT_ONCE: Final = 32
"""Calls to one storage at a time; a storage that hangs holds up no other storage's."""
ASKED_TOGETHER: Final = 32
"""Questions in one call."""
GATHER_S: Final = 2 * PROMPT_S
"""Seconds after which the next call to a storage no longer waits for the answer to the last one."""
STARTED_AT_ONCE: Final = 8
"""Calls that are begun in one turn of the loop, each to another storage."""


@dataclass(slots=True, eq=False)
class QueuedQuestion:
    """A question to ask a storage."""

    message: Callable[[], Message | None]
    """Returns what to ask now; None if there is nothing more to ask."""
    heard: Callable[[Answer | PaxosBlockError], bool]
    """Takes an answer, or the error in place of one; returns True if there is nothing more to ask.
    If the storage could not be reached, it is asked again anyhow."""
    ended: Callable[[], None] = lambda: None
    """Called once, whatever the result."""
    alone: bool = False
    """True once it held up others that were asked with it."""
    asked: int = 0


@dataclass(slots=True)
class _Queue:
    """The questions to one storage; those that wait are in the order in which they are due."""

    pauses_s: Sequence[float]
    """As in `Queues`."""
    waiting: list[tuple[float, int, QueuedQuestion]] = field(default_factory=list)
    under_way: int = 0
    """Calls."""
    latest: list[QueuedQuestion] | None = None
    """Those that were asked together last, since `asked_s`; None: they are answered."""
    asked_s: float = 0.0
    failures: int = 0
    """Times in a row that the storage could not be reached."""
    failed_s: float = 0.0

    @property
    def due_s(self) -> float:
        """Return the time of the next question; infinite if an answer must come first."""
        if not self.waiting or self.under_way >= (1 if self.failures else CALLS_AT_ONCE):
            return float("inf")
        due_s, _, first = self.waiting[0]
        if self.failures:
            return max(due_s, self.failed_s + self.pauses_s[self.failures - 1])
        waits = self.latest is not None and not first.alone
        return max(due_s, self.asked_s + GATHER_S) if waits else due_s

    def take(self, now_s: float) -> list[QueuedQuestion]:
        """Take out the questions for the next call, which is under way from now on."""
        self.under_way += 1
        taken = [heappop(self.waiting)[2]]
        if taken[0].alone:
            return taken
        self.latest, self.asked_s = taken, now_s
        while self.waiting and len(taken) < ASKED_TOGETHER:
            due_s, _, question = self.waiting[0]
            if due_s > now_s or question.alone:
                break
            taken.append(heappop(self.waiting)[2])
        return taken

    def not_reached(self, asked_s: float, now_s: float) -> bool:
        """Note that a question of `asked_s` did not reach the storage; True to leave it alone."""
        if asked_s >= self.failed_s:  # otherwise it was on its way when the failure was noted
            self.failures += 1
            self.failed_s = now_s
        return self.failures > len(self.pauses_s)


class Queues:
    """The questions to all storages."""

    def __init__(
        self,
        background: Background,
        acceptors: Acceptors,
        *,
        pauses_s: Sequence[float] = PAUSES_S,
    ) -> None:
        """Ask `acceptors` in tasks of `background`; after each of `pauses_s` once more where there
        is no answer.
        """
        self._background, self._pauses_s = background, pauses_s
        self._acceptors = acceptors
        self._queues: dict[StorageId, _Queue] = {}
        """The storages that have questions, the one that was asked longest ago first."""
        self._numbers = count()
        self._count = 0
        self._changed = asyncio.Event()
        self._asking: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """Return the number of questions that wait or are under way."""
        return self._count

    def add(self, storage: StorageId, question: QueuedQuestion, pause_s: float = 0.0) -> None:
        """Put a question to `storage` when its turn comes, after `pause_s` seconds."""
        self._count += 1
        self._put(self._queues.setdefault(storage, _Queue(self._pauses_s)), question, pause_s)
        if self._asking is None or self._asking.done():
            self._asking = self._background.start(self._ask_all(), "questions to storages")

    def _put(self, queue: _Queue, question: QueuedQuestion, pause_s: float = 0.0) -> None:
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
        """Ask the questions that are due, by one call to each storage. Return the seconds until the
        next is due; None if something must change first."""
        now_s, next_s, started = _now_s(), float("inf"), 0
        for storage, queue in list(self._queues.items()):
            if not queue.waiting and not queue.under_way:
                del self._queues[storage]
            elif queue.due_s <= now_s and started < STARTED_AT_ONCE:
                started += 1
                self._queues[storage] = self._queues.pop(storage)
                questions = queue.take(now_s)
                name = f"{len(questions)} questions to {storage}"
                self._background.start(self._ask(storage, queue, questions), name)
            next_s = min(next_s, queue.due_s)
        return None if next_s == float("inf") else max(0.0, next_s - now_s)

    async def _ask(
        self, storage: StorageId, queue: _Queue, questions: list[QueuedQuestion]
    ) -> None:
        asked_s, alone = _now_s(), questions[0].alone
        due: dict[QueuedQuestion, Message] = {}
        again: dict[QueuedQuestion, float] = {}
        try:
            due = {each: what for each in questions if (what := each.message()) is not None}
            if due:
                answers = await self._answers(storage, tuple(due.values()), alone=alone)
                queue.failures = 0
                again = self._asked_again(dict(zip(due, answers, strict=True)))
        except UnavailableError as error:
            for question in due:
                question.heard(error)
            if queue.not_reached(asked_s, _now_s()):
                self._give_up(queue)
            else:
                again = dict.fromkeys(due, 0.0)
        finally:
            queue.under_way -= 1
            if queue.latest is questions:
                queue.latest = None
            for question in questions:
                if question in again:
                    self._put(queue, question, again[question])
                else:
                    self._end(question)
            self._changed.set()

    async def _answers(
        self, storage: StorageId, messages: tuple[Message, ...], *, alone: bool
    ) -> Sequence[Heard]:
        """Ask once. Raises UnavailableError if the storage cannot be reached."""
        try:
            if alone:
                return [await self._acceptors.ask(storage, messages[0])]
            return await self._acceptors.ask_all(storage, messages)
        except UnavailableError:
            raise
        except PaxosBlockError as error:
            return [error] * len(messages)

    def _asked_again(self, answers: dict[QueuedQuestion, Heard]) -> dict[QueuedQuestion, float]:
        """Take the answers; return the questions to ask again, and after how many seconds."""
        again: dict[QueuedQuestion, float] = {}
        for question, answer in answers.items():
            if answer is None:
                question.alone, again[question] = True, 0.0
                continue
            question.asked += 1
            if not question.heard(answer) and question.asked < len(self._pauses_s):
                again[question] = self._pauses_s[question.asked - 1]
        return again

    def _give_up(self, queue: _Queue) -> None:
        waiting, queue.waiting, queue.failures = queue.waiting, [], 0
        for _, _, question in waiting:
            self._end(question)

    def _end(self, question: QueuedQuestion) -> None:
        self._count -= 1
        question.ended()


def _now_s() -> float:
    return asyncio.get_running_loop().time()
