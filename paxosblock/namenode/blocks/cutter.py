"""K8 seen from the NameNode: holders tell where a block may be cut, and learn that it was (P5)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from paxosblock.api.datanode import FindChunk, FoundChunk
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

T = TypeVar("T")


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
        """Decide with what holders tell; what it cuts is told to the members afterwards.

        Raises:
            NotReadyError: no member of a block that is to be cut tells where its chunks begin.
            PaxosBlockError: what `decide` raises. Nothing was done.
        """
        told: dict[Cut, Boundary] = {}
        while True:
            try:
                decided = await decide(told)
            except BoundaryUnknownError as unknown:  # of one more version each time
                told[unknown.cut] = await self._ask(unknown.record, unknown.cut)
            else:
                break
        for cut in told:
            await self._spread(cut)
        return decided

    async def _spread(self, cut: Cut) -> None:
        """P5. What is missed here the walk over all blocks does: it was cut, whatever fails now."""
        try:
            record = (await self._catalog.get_block(cut.block)).record
        except PaxosBlockError:  # deleted by now, or another NameNode leads
            return
        if record.finalized and record.cut_generation > cut.finalized_generation:
            detail = f"length {record.length}, {record.size_bytes} bytes"
            self._history.add(record.block, record.cut_generation, "truncated", detail=detail)
            self._finalizer.spread(record)

    async def _ask(self, record: BlockRecord, cut: Cut) -> Boundary:
        """Return where the chunk with a byte begins, as the first member says that holds it."""
        version = finalized_version(record)
        asking = [
            asyncio.create_task(
                self._acceptors.find_chunk(FindChunk(cut.block, member, version, cut.offset))
            )
            for member in record.members
        ]
        refusals = []
        try:
            for answer in asyncio.as_completed(asking):
                try:
                    found = await answer
                except PaxosBlockError as error:
                    refusals.append(str(error))
                    continue
                if _fits(record, cut, found):
                    return Boundary(found.index, found.offset)
                refusals.append(f"{found} does not fit {version}")
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        raise NotReadyError(
            f"block {cut.block}: no member tells where its chunks begin: {'; '.join(refusals)}",
            block=cut.block,
        )


def _fits(record: BlockRecord, cut: Cut, found: FoundChunk) -> bool:
    """True if this can be the chunk with the byte, of a replica that is what was decided."""
    inside = 0 <= found.index < record.length and 0 <= found.offset <= cut.offset
    return inside and found.size_bytes == record.size_bytes
