"""The block in which a file goes on: its last one opened again (K4), or a new one (K1)."""

from __future__ import annotations

import logging

from paxosblock.api.namenode import (
    ADD_BLOCK,
    NO_BLOCK,
    REOPEN_BLOCK,
    AddBlock,
    BlockView,
    FileStatus,
    ReopenBlock,
)
from paxosblock.client.block_writer import BlockWriter
from paxosblock.client.core import ClientCore
from paxosblock.client.exclusions import Exclusions
from paxosblock.client.progress import Unopened
from paxosblock.protocol.types import BlockId, WriterId
from paxosblock.replacement import Failed

_log = logging.getLogger(__name__)


class NextBlock:
    """Asks for the blocks of a file, one after the other.

    A request that was not answered, or whose block was not opened yet, is repeated: the NameNode
    answers what it answered then.
    """

    def __init__(
        self,
        core: ClientCore,
        status: FileStatus,
        writer: WriterId,
        window: int,
        exclusions: Exclusions,
        *,
        last: BlockId,
        reopens: bool,
    ) -> None:
        """`last` is the file's last block; with `reopens` the first one asked for is that."""
        self.unopened = Unopened()
        self.after: Failed | None = None
        """The block that was sealed before a new one, where its members are chosen by a policy."""
        self._core = core
        self._status = status
        self._writer = writer
        self._window = window
        self._exclusions = exclusions
        self._previous = last
        self._reopens = reopens and last != NO_BLOCK

    async def ask(self, size_bytes: int, retry_for_s: float) -> BlockView:
        """Return a block with room for a chunk of `size_bytes`; ask for `retry_for_s` seconds.

        Raises:
            PaxosBlockError: there is none, or nobody could say in time.
        """
        namenodes = self._core.namenodes
        if self._reopens:
            reopened = await namenodes.call_anew(
                REOPEN_BLOCK, lambda: self._wanted_again(size_bytes), retry_for_s=retry_for_s
            )
            if reopened.view is not None:
                return reopened.view
            _log.info("'%s': in a new block, the last: %s", self._status.path, reopened.why)
            self._reopens = False
        return await namenodes.call_anew(ADD_BLOCK, self._wanted, retry_for_s=retry_for_s)

    def begun(self, block: BlockWriter) -> None:
        """Note that the block was opened, or failed and is to be sealed like any other."""
        self._previous, self._reopens = block.block, False
        self.unopened.end()

    def _wanted_again(self, size_bytes: int) -> ReopenBlock:
        most = self._core.config.max_chunks_per_block
        return ReopenBlock(
            self._status.file_id, self._writer, self._previous, self._window, size_bytes, most,
            self._exclusions.told(),
        )  # fmt: skip

    def _wanted(self) -> AddBlock:
        status, told = self._status, self._exclusions.told()
        return AddBlock(
            status.file_id, self._writer, self._previous, self._window, told, status.replication,
            status.durability, host=self._core.config.host, after=self.after,
        )  # fmt: skip
