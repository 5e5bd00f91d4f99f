"""Small changes that share an entry of the log, as thousands of blocks may get or lose a member."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from paxosblock.errors import PaxosBlockError
from paxosblock.namenode.catalog.changes import Changes
from paxosblock.namenode.catalog.draft import Draft, in_one

TOGETHER_MAX: Final = 64
"""Decisions in one edit: they are made in one turn of the loop, which takes milliseconds."""

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Waiting:
    decide: Callable[[Draft], Any]
    answer: asyncio.Future[Any]


class MemberBatches:
    """Commits decisions that come while others are being committed in the next edit.

    Each decision builds on those before it, is judged by itself, and has its own answer. A decision
    that raises must change nothing.
    """

    def __init__(self, changes: Changes) -> None:
        """Commit as `changes` does."""
        self._changes = changes
        self._waiting: list[_Waiting] = []
        self._turn = asyncio.Lock()

    async def make(self, decide: Callable[[Draft], T]) -> T:
        """Decide and commit. Raises the errors of `decide` and of the commit.

        `decide` may be called a second time when the task that was committing it is cancelled.
        """
        mine = _Waiting(decide, asyncio.get_running_loop().create_future())
        self._waiting.append(mine)
        try:
            async with self._turn:
                if not mine.answer.done():
                    await asyncio.sleep(0)  # decisions that come in this turn of the loop go along
                    await self._commit_first(mine)
        except asyncio.CancelledError:
            with suppress(ValueError):
                self._waiting.remove(mine)
            raise
        answer: T = mine.answer.result()
        return answer

    async def _commit_first(self, mine: _Waiting) -> None:
        """Commit the decisions that have waited longest, `mine` included."""
        some = self._waiting[:TOGETHER_MAX]
        assert mine in some, "turns are taken in the order in which they were asked for"
        del self._waiting[:TOGETHER_MAX]
        try:
            outcomes = await self._changes.make(
                in_one(lambda draft: [_outcome(each, draft) for each in some])
            )
        except PaxosBlockError as error:
            outcomes = [error] * len(some)
        except BaseException:
            self._waiting[:0] = [each for each in some if each is not mine]
            raise
        for each, outcome in zip(some, outcomes, strict=True):
            if isinstance(outcome, PaxosBlockError):
                each.answer.set_exception(outcome)
            else:
                each.answer.set_result(outcome)


def _outcome(waiting: _Waiting, draft: Draft) -> Any:
    """Return the result of a decision, or its error, which must not fail the others."""
    before = draft.changes
    try:
        return waiting.decide(draft)
    except PaxosBlockError as error:
        assert draft.changes == before, "a decision that raises has changed nothing"
        return error
