"""Small files that come one by one, from several callers, and are written together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from paxosblock.client.writing.many_files import BATCHES_AT_ONCE, are_full
from paxosblock.errors import Outcome, PaxosBlockError

File = TypeVar("File")


@dataclass(frozen=True, slots=True)
class _WaitingFile(Generic[File]):
    """A file that waits for a batch, and who waits for it."""

    file: File
    size: int
    written: asyncio.Future[bool]


class GatheredFiles(Generic[File]):
    """Writes the files that wait together whenever a batch may begin."""

    def __init__(
        self,
        write: Callable[[Sequence[File]], Awaitable[bool]],
        at_once: int = BATCHES_AT_ONCE,
    ) -> None:
        """`write` writes a batch (`many_files.are_full`), and so many are written at once; it
        returns False if each must be written by itself."""
        self._write = write
        self._at_once = at_once
        self._waiting = deque[_WaitingFile[File]]()
        self._batches = set[asyncio.Task[None]]()

    async def put(self, file: File, size: int) -> bool:
        """Write a file of `size` bytes, of one chunk at most.

        Return False if it must be written by itself: one of its batch was refused.

        Raises:
            PaxosBlockError: no NameNode answers, or the outcome is not known.
        """
        written: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(_WaitingFile(file, size, written))
        if len(self._batches) < self._at_once:
            task = asyncio.create_task(self._write_all())
            self._batches.add(task)
            task.add_done_callback(self._batches.discard)
        return await written

    async def close(self) -> None:
        """End what is under way; a batch that is not published is given up."""
        under_way = tuple(self._batches)
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    async def _write_all(self) -> None:
        while self._waiting:
            batch, size = list[_WaitingFile[File]](), 0
            while self._waiting and not are_full(len(batch), size):
                batch.append(self._waiting.popleft())
                size += batch[-1].size
            written = False
            try:
                written = await self._write([each.file for each in batch])
            except PaxosBlockError as error:
                # Of a refusal each file hears by itself: only one of them may have earned it.
                if error.retriable or error.outcome is not Outcome.NEVER:
                    for each in batch:
                        if not each.written.done():
                            each.written.set_exception(error)
            finally:
                for each in batch:
                    if not each.written.done():
                        each.written.set_result(written)
