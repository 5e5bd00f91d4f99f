"""K8 at the NameNode: it asks holders where a block may be cut, and tells them of the cut (P5)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from paxosblock.api.datanode import FindChunk, FoundChunk
from paxosblock.base.chunk_cipher import user_bytes
from paxosblock.errors import NotReadyError, PaxosBlockError
from paxosblock.namenode.blocks.acceptors import Acceptors
from paxosblock.namenode.blocks.finalizer import Finalizer
from paxosblock.namenode.blocks.history import History
from paxosblock.namenode.catalog.boundaries import (
    Boundaries,
    Boundary,
    BoundaryUnknownError,
    Cut,
)
from paxosblock.namenode.catalog.catalog import Catalog
from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.read import finalized_version
from paxosblock.protocol.types import StorageId

T = TypeVar("T")

CONFIRM_S: Final = 1.0
"""Seconds in which a second holder may confirm the first one's answer."""


class Cutter:
    """Makes decisions that may cut blocks."""

    def __init__(
        self, catalog: Catalog, acceptors: Acceptors, finalizer: Finalizer, history: History
    ) -> None:
        """Use these parts of the node."""
        self._catalog = catalog
        self._acceptors = acceptors
        self._finalizer = finalizer
        self._history = history

    async def decide(self, decide: Callable[[Boundaries], Awaitable[T]]) -> T:
        """Decide with the answers of holders; afterwards tell the members of blocks that were cut.

        Raises:
            NotReadyError: no member of a block to cut says where its chunks begin.
            PaxosBlockError: `decide` raised it, and nothing was done.
        """
        boundaries: dict[Cut, Boundary] = {}
        while True:
            try:
                decided = await decide(boundaries)
            except BoundaryUnknownError as unknown:  # of one more version each time
                boundaries[unknown.cut] = await self._ask(unknown.record, unknown.cut)
            else:
                break
        for cut in boundaries:
            await self._spread(cut)
        return decided

    async def _spread(self, cut: Cut) -> None:
        """P5: tell the members. If that fails, the walk over all blocks does it later: the block is
        cut already.
        """
        try:
            record = (await self._catalog.get_block(cut.block)).record
        except PaxosBlockError:  # the block is deleted by now, or another NameNode leads
            return
        if record.finalized and record.cut_generation > cut.finalized_generation:
            detail = f"length {record.length}, {record.size_bytes} bytes"
            self._history.add(record.block, record.cut_generation, "truncated", detail=detail)
            self._finalizer.spread(record)

    async def _ask(self, record: BlockRecord, cut: Cut) -> Boundary:
        """Return the start of the chunk to cut, as two holders say, or the only one that answers.

        Raises:
            NotReadyError: no member answers, or the answers contradict each other.
        """
        version = finalized_version(record)
        asked = {
            asyncio.create_task(
                self._acceptors.find_chunk(
                    FindChunk(cut.block, member, version, cut.offset, added_bytes=cut.added_bytes)
                )
            ): member
            for member in record.members
        }
        answers: dict[Boundary, list[StorageId]] = {}
        refusals: list[str] = []
        waiting = set(asked)
        try:
            while waiting and not any(len(members) > 1 for members in answers.values()):
                done, waiting = await asyncio.wait(
                    waiting,
                    timeout=CONFIRM_S if answers else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if not done:
                    break
                for task in done:
                    try:
                        found = task.result()
                    except PaxosBlockError as error:
                        refusals.append(str(error))
                        continue
                    if _fits(record, cut, found):
                        answers.setdefault(Boundary(found.index, found.offset), []).append(
                            asked[task]
                        )
                    else:
                        refusals.append(f"{found} does not fit {version}")
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        return _agreed(cut, answers, refusals)


def _agreed(cut: Cut, answers: dict[Boundary, list[StorageId]], refusals: list[str]) -> Boundary:
    """Return the answer that most holders gave."""
    most = max(map(len, answers.values()), default=0)
    best = [boundary for boundary, members in answers.items() if len(members) == most]
    if len(best) == 1:
        return best[0]
    why = "no member tells where its chunks begin"
    if best:
        why = "its members contradict each other on where its chunks begin"
        refusals = [
            f"{answers[each]}: chunk {each.length} at byte {each.size_bytes}" for each in best
        ]
    raise NotReadyError(f"block {cut.block}: {why}: {'; '.join(refusals)}", block=cut.block)


def _fits(record: BlockRecord, cut: Cut, found: FoundChunk) -> bool:
    """True if this can be the chunk with the byte, in a replica of the decided version."""
    begins = user_bytes(found.offset, found.index, cut.added_bytes)
    inside = 0 <= found.index < record.length and 0 <= begins <= cut.offset
    return inside and found.size_bytes == record.size_bytes
