"""Small changes that share an entry of the log: thousands of blocks may get or lose a member."""

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
"""Decisions in one transaction: they are made in one turn of the loop, which takes milliseconds."""

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Asked:
    decide: Callable[[Draft], Any]
    answer: asyncio.Future[Any]


class Together:
    """Decisions that come while others are being committed go with the next transaction.

    Each builds on what those before it decided, is judged by itself, and has an answer of its own.
    One that raises must change nothing.
    """

    def __init__(self, changes: Changes) -> None:
        """Commit as `changes` does."""
        self._changes = changes
        self._waiting: list[_Asked] = []
        self._turn = asyncio.Lock()

    async def make(self, decide: Callable[[Draft], T]) -> T:
        """Decide and commit. Raises what `decide` does, and what committing does.

        It may be decided a second time when the task that was committing it is cancelled.
        """
        asked = _Asked(decide, asyncio.get_running_loop().create_future())
        self._waiting.append(asked)
        try:
            async with self._turn:
                if not asked.answer.done():
                    await asyncio.sleep(0)  # what comes in this turn of the loop goes along
                    await self._commit_first(asked)
        except asyncio.CancelledError:
            with suppress(ValueError):
                self._waiting.remove(asked)
            raise
        answer: T = asked.answer.result()
        return answer

    async def _commit_first(self, mine: _Asked) -> None:
        """Commit what has waited longest, `mine` included."""
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


def _outcome(asked: _Asked, draft: Draft) -> Any:
    """Return the result of a decision, or its error, which must not become that of the others."""
    before = draft.changes
    try:
        return asked.decide(draft)
    except PaxosBlockError as error:
        assert draft.changes == before, "a decision that raises has changed nothing"
        return error
