"""Making a change: it is decided on a draft, committed, and decided again after a conflict."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from paxosblock.errors import NotReadyError, PaxosBlockError
from paxosblock.namenode.catalog.draft import Draft, Slices
from paxosblock.namenode.kv.interface import Committed, KeyValueStore

ATTEMPTS = 100
"""Number of times an operation is decided before the caller is asked to come back later."""

SLICE_WORK = 1000
"""Keys that a decision reads or changes before others get a turn."""

T = TypeVar("T")


class Changes:
    """Makes changes of one store, several at a time."""

    def __init__(self, store: KeyValueStore) -> None:
        """Use a started `store`."""
        self._store = store
        self._alone = asyncio.Lock()
        """Held for a decision that takes long: until it is committed nobody else decides."""

    async def make(self, decide: Callable[[Draft], Slices[T]]) -> T:
        """Decide, and commit what was decided.

        A decision that takes long is interrupted, so that the loop does not stand still. Then all
        others that change anything wait until it is committed, as they would overtake it again and
        again.
        """
        try:
            return await self._until_committed(decide, alone=False)
        except _LongError:
            async with self._alone:
                await asyncio.sleep(0)  # the interrupted decision has used up this turn
                return await self._until_committed(decide, alone=True)

    async def _until_committed(self, decide: Callable[[Draft], Slices[T]], alone: bool) -> T:
        """Decide again until no other change came first.

        The first try decides on what is applied here, which saves a round among the NameNodes: if
        that is old, the transaction is refused when it is applied. Nothing would refuse a result
        that changes nothing, such as an error, so only a linearizable view may lead to one.
        """
        view, certain = await self._store.barrier() if alone else self._store.view(), alone
        for _ in range(ATTEMPTS):
            if not alone and self._alone.locked():
                async with self._alone:
                    pass
            # From here to the end of the decision nothing else runs, or nothing else is applied.
            draft = Draft(view)
            try:
                result = await _decided(draft, decide(draft), alone)
            except _OvertakenError:
                pass
            except PaxosBlockError:
                if certain:
                    raise
            else:
                if certain and not draft.changes:
                    return result
                if draft.changes and await self._commits(draft):
                    return result
            view, certain = await self._store.barrier(), True
        raise NotReadyError("the catalog is contended: others changed the same records each time")

    async def _commits(self, draft: Draft) -> bool:
        transaction = draft.transaction()
        if draft.work >= SLICE_WORK:
            await asyncio.sleep(0)  # encoding takes long, too; the transaction expects its reads
        return isinstance(await self._store.commit(transaction), Committed)


async def _decided(draft: Draft, slices: Slices[T], alone: bool) -> T:
    """Decide on one state, as if in one turn, and return the result.

    Raises:
        _LongError: the decision takes a pause, for which the caller must be `alone`.
        _OvertakenError: something was applied in a pause.
        PaxosBlockError: the decision raises it.
    """
    paused_at = 0
    while True:
        try:
            next(slices)
        except StopIteration as end:
            result: T = end.value
            return result
        if draft.work - paused_at >= SLICE_WORK:
            if not alone:
                raise _LongError
            paused_at = draft.work
            await asyncio.sleep(0)
            if draft.overtaken:
                raise _OvertakenError


class _LongError(Exception):
    """A decision takes longer than one turn of the loop may."""


class _OvertakenError(Exception):
    """The values that a decision has read may be old: begin anew."""
