"""Small changes that share an entry of the log: when thousands of blocks get or lose a member."""

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
    """Decisions that come while others are committed go with the next transaction.

    Each is made on what those before it decided, is judged by itself, and has an answer of its own.
    It must change nothing where it raises.
    """

    def __init__(self, changes: Changes) -> None:
        """Commit as `changes` does."""
        self._changes = changes
        self._waiting: list[_Asked] = []
        self._turn = asyncio.Lock()

    async def make(self, decide: Callable[[Draft], T]) -> T:
        """Decide and commit. Raises what `decide` does, and what committing does.

        May be decided a second time when somebody is cancelled who was committing it.
        """
        asked = _Asked(decide, asyncio.get_running_loop().create_future())
        self._waiting.append(asked)
        try:
            async with self._turn:
                if not asked.answer.done():
                    await asyncio.sleep(0)  # who comes in this turn of the loop goes along
                    await self._commit_first(asked)
        except asyncio.CancelledError:
            with suppress(ValueError):
                self._waiting.remove(asked)
            raise
        answer: T = asked.answer.result()
        return answer

    async def _commit_first(self, mine: _Asked) -> None:
        """Commit what waits longest, `mine` among it."""
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
    """Return the result of a decision, or its error: that must not be the others'."""
    before = draft.changes
    try:
        return asked.decide(draft)
    except PaxosBlockError as error:
        assert draft.changes == before, "a decision that raises has changed nothing"
        return error
