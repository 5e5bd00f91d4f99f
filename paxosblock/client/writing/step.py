"""The step from a block that is full to the next one: its end is recorded while the file goes on.

The next block was made ahead, and becomes one of the file in the change that ends the one before
(W6). Until that is answered its members vote for what it gets, and nothing of it is acknowledged.
"""

from __future__ import annotations

import asyncio

from paxosblock.api.namenode import BlockView, FinalizeBlock
from paxosblock.client.session.lease_keeper import Fence
from paxosblock.client.writing.block_writer import BlockWriter


class Step:
    """The end of the block before the one that is being written, until it is recorded."""

    def __init__(self, fence: Fence) -> None:
        """None is under way; `fence` hears if the file is not the writer's any more."""
        self.block: BlockWriter | None = None
        """The block that ends; all of it is acknowledged."""
        self._fence = fence
        self._request: FinalizeBlock
        self._recording: asyncio.Task[BlockView]

    def begin(self, block: BlockWriter, request: FinalizeBlock, retry_for_s: float) -> None:
        """Have `request`, which ends `block`, recorded; ask for `retry_for_s` seconds."""
        assert self.block is None, "one block ends at a time"
        self.block, self._request = block, request
        self._record(retry_for_s)

    @property
    def answered(self) -> bool:
        """True if `over` need not wait, unless it has to ask once more."""
        return self.block is not None and self._recording.done()

    async def over(self, retry_for_s: float) -> BlockWriter | None:
        """Return the block once its end is recorded, and forget it; None if there is none.

        Where nobody has recorded it in time, it is asked for once more.

        Raises:
            FencedError: the file is not the writer's any more.
            PaxosBlockError: no NameNode could record it in time; a later call asks again.
        """
        if self.block is None:
            return None
        if self._recording.done() and self._recording.exception() is not None:
            self._record(retry_for_s)
        await asyncio.wait((self._recording,))
        self._recording.result()
        block, self.block = self.block, None
        return block

    def forget(self) -> None:
        """Wait for nothing any more."""
        if self.block is not None:
            self._recording.cancel()
            self.block.release()
            self.block = None

    def _record(self, retry_for_s: float) -> None:
        assert self.block is not None, "it was begun"
        call = self.block.record(self._request, retry_for_s=retry_for_s)
        self._recording = asyncio.create_task(self._fence.guard(call))
        self._recording.add_done_callback(_hear)


def _hear(recording: asyncio.Task[BlockView]) -> None:
    """Leave the error to `over`; where nobody calls that, the file was given up."""
    if not recording.cancelled():
        recording.exception()
