"""Takes up what the leader before left half done in open blocks.

No other process would: the writer may be idle, and its lease live for minutes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from paxosblock.errors import NotReadyError, OutcomeUnknownError
from paxosblock.namenode.blocks.recoverer import Recoverer
from paxosblock.namenode.blocks.reopener import Reopener
from paxosblock.namenode.catalog import tree
from paxosblock.namenode.catalog.catalog import Catalog
from paxosblock.namenode.catalog.records import FileInode
from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.types import BlockState

RETRY_S: Final = 1.0
FILES_AT_ONCE: Final = 100
"""Files that are looked at before others get a turn."""
GIVEN_UP_AT_ONCE: Final = 64
"""APPENDs that are given up side by side: they share entries of the log."""

_log = logging.getLogger(__name__)


class Leftovers:
    """Takes up recoveries, and gives up APPENDs, that the leader before began."""

    def __init__(self, catalog: Catalog, recoverer: Recoverer, reopener: Reopener) -> None:
        """Use these parts of the node."""
        self._catalog = catalog
        self._recoverer = recoverer
        self._reopener = reopener

    async def take_up(
        self, files: Iterable[FileInode], without_file: Iterable[BlockRecord]
    ) -> None:
        """Look at the files, and blocks without files, that were open when this leader began.

        A file that is opened to append to it later has none of the leader before.
        """
        begun: list[BlockRecord] = []
        for record in without_file:
            self._take_up_recovery(record)
        for number, file in enumerate(files, 1):
            last = tree.last_block(await self._catalog.view(), file.number)
            if last is not None:
                self._take_up_recovery(last.entry.record)
                if last.entry.record.reopening:
                    begun.append(last.entry.record)
            if number % FILES_AT_ONCE == 0:
                await asyncio.sleep(0)
        while begun:
            begun = await self._give_up(begun)
            if begun:
                await asyncio.sleep(RETRY_S)

    def _take_up_recovery(self, record: BlockRecord) -> None:
        if record.state is BlockState.UNDER_RECOVERY:
            self._recoverer.take_up(record.block)

    async def _give_up(self, begun: list[BlockRecord]) -> list[BlockRecord]:
        """K9 for each APPEND; return those that are not given up yet, which hold up no others.
        Until then a block is between two states, and the monitor does not heal it."""
        waiting, left = iter(begun), list[BlockRecord]()

        async def lane() -> None:
            for record in waiting:
                try:
                    await self._reopener.give_up(record)
                except (NotReadyError, OutcomeUnknownError) as error:
                    _log.info("block %d: an append is not given up yet: %s", record.block, error)
                    left.append(record)

        await asyncio.gather(*(lane() for _ in range(GIVEN_UP_AT_ONCE)))
        return left
