"""Appending to a file: at most one chunk goes into its last block, more becomes blocks of its own.

Users of fsspec expect all of an append to be there, or nothing: a `with` block that ends by an
exception must leave the file as it was. One chunk appears as a whole or not at all, even if a
process dies meanwhile. So at most one chunk is kept here until the file is closed, and then goes
into the last block of the target: a log that grows line by line does not become one block per line.
Anything beyond one chunk is written to a hidden file, which is then joined.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from paxosblock.api.namenode import FileStatus
from paxosblock.api.transaction import Operation
from paxosblock.base.checksum import Buffer
from paxosblock.client.session.backoff import Backoff
from paxosblock.client.writing.file_writer import AsyncFileWriter
from paxosblock.errors import InvalidRequestError, LeaseError, PaxosBlockError

T = TypeVar("T")

WAIT_S: Final = 2.0
"""Seconds for which another writer may hold the file: appending a chunk takes milliseconds."""


class Addition:
    """The bytes for the end of a file, as a file that is being written (`AsyncFileWriter`)."""

    def __init__(
        self,
        present: FileStatus,
        reopen: Callable[[], Awaitable[AsyncFileWriter]],
        hide: Callable[[], Awaitable[AsyncFileWriter]],
        *,
        chunk_size: int,
    ) -> None:
        """`present` is the file, which `reopen` opens for appending; `hide` makes a hidden one."""
        self.status = present
        self.chunk_size = min(chunk_size, present.block_size)
        self.hidden: AsyncFileWriter | None = None
        self._reopen = reopen
        self._hide = hide
        self._making: asyncio.Future[AsyncFileWriter] | None = None
        self._held = bytearray()
        self._closed = False

    @property
    def closed(self) -> bool:
        """True if `close` or `abort` was called."""
        return self._closed

    @property
    def acknowledged(self) -> int:
        """Bytes that no failure can take away: those of the hidden file, which no reader sees
        yet."""
        return 0 if self.hidden is None else self.hidden.acknowledged

    def tell(self) -> int:
        """Return how many bytes there are so far."""
        return len(self._held) if self.hidden is None else self.hidden.tell()

    async def write(self, data: Buffer) -> int:
        """Add `data`; return its length. Raises: as `AsyncFileWriter.write`."""
        size = memoryview(data).nbytes
        if self.hidden is None and len(self._held) + size <= self.chunk_size:
            self._held += memoryview(data)
            return size
        hidden = self.hidden or await self._make_hidden()
        await self._hand_over(hidden)
        return await hidden.write(data)

    async def flush(self) -> None:
        """Nothing to do: no reader sees the bytes before the file is closed."""

    async def _make_hidden(self) -> AsyncFileWriter:
        """Make the hidden file; if this is cancelled meanwhile, `abort` finds the file."""
        if self._making is None or (self._making.done() and self._making.exception()):
            self._making = asyncio.ensure_future(self._hide())
        self.hidden = await asyncio.shield(self._making)
        return self.hidden

    async def _hand_over(self, hidden: AsyncFileWriter) -> None:
        """Write the held bytes to the hidden file, from the point that its `tell` returns."""
        before = hidden.tell()
        try:
            await hidden.write(bytes(self._held))
        finally:
            del self._held[: hidden.tell() - before]

    async def close(self, *, then: Sequence[Operation] = ()) -> None:
        """Note that no more bytes will come. Raises: as `AsyncFileWriter.close`."""
        if then:
            raise InvalidRequestError(f"'{self.status.path}': an addition ends with no other step")
        self._closed = True
        if self.hidden is not None:
            await self._hand_over(self.hidden)
            await self.hidden.close()

    async def abort(self) -> None:
        """Give it up."""
        self._closed = True
        self._held.clear()
        if self._making is not None:
            with contextlib.suppress(PaxosBlockError):  # it was not made
                self.hidden = await self._making
                await self.hidden.abort()

    async def append(self) -> None:
        """Put the one chunk at the end of the file.

        Raises:
            LeaseError: another writer has been writing the file for `WAIT_S`.
            PaxosBlockError: as `AsyncClient.append`.
        """
        async with await until_free(self._reopen) as out:
            await out.write(bytes(self._held))


async def until_free(step: Callable[[], Awaitable[T]]) -> T:
    """Do work that needs the file to itself, as soon as other appenders are done.

    Raises:
        LeaseError: another writer has been writing it for `WAIT_S`.
    """
    backoff = Backoff(WAIT_S)
    while True:
        try:
            return await step()
        except LeaseError:
            if backoff.exhausted:
                raise
            await backoff.pause()
