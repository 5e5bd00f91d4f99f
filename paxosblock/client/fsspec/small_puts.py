"""Small local files that one `put` of fsspec writes together."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, NamedTuple

from paxosblock.client.async_client import AsyncClient
from paxosblock.client.writing.many_files import BATCHES_AT_ONCE, are_full
from paxosblock.errors import Outcome, PaxosBlockError


class _Wish(NamedTuple):
    local: str
    path: str
    size: int
    done: asyncio.Future[bool]


class SmallPuts:
    """Writes the files that wait together whenever a batch may begin, four batches at once."""

    def __init__(self, client: AsyncClient, **how: Any) -> None:
        """`how` is as `AsyncClient.put_many` takes it."""
        self._client = client
        self._how = how
        self._waiting = deque[_Wish]()
        self._batches = set[asyncio.Task[None]]()

    async def put(self, local: str, path: str, size: int) -> bool:
        """Write a local file of `size` bytes, of one chunk at most.

        Return False if it must be written by itself: it grew, or one of its batch was refused.

        Raises:
            PaxosBlockError: no NameNode answers, or the outcome is not known.
        """
        if size > self._client.config.chunk_size:
            return False
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Wish(local, path, size, done))
        if len(self._batches) < BATCHES_AT_ONCE:
            task = asyncio.create_task(self._write_all())
            self._batches.add(task)
            task.add_done_callback(self._batches.discard)
        return await done

    async def close(self) -> None:
        """End what is under way; a batch that is not published is given up."""
        under_way = tuple(self._batches)
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    async def _write_all(self) -> None:
        while self._waiting:
            batch, size = list[_Wish](), 0
            while self._waiting and not are_full(len(batch), size):
                batch.append(self._waiting.popleft())
                size += batch[-1].size
            written = False
            try:
                written = await self._write(batch)
            except PaxosBlockError as error:
                # Of a refusal each file hears by itself: only one of them may have earned it.
                if error.retriable or error.outcome is not Outcome.NEVER:
                    for wish in batch:
                        if not wish.done.done():
                            wish.done.set_exception(error)
            except (OSError, TypeError):
                pass  # the file that cannot be read, or an unknown option, is told of by itself
            finally:
                for wish in batch:
                    if not wish.done.done():
                        wish.done.set_result(written)

    async def _write(self, batch: list[_Wish]) -> bool:
        contents = await asyncio.to_thread(_contents, batch)
        if any(len(each) > wish.size for each, wish in zip(contents, batch, strict=True)):
            return False
        named = {wish.path: each for wish, each in zip(batch, contents, strict=True)}
        await self._client.put_many(named, **self._how)
        return True


def _contents(batch: list[_Wish]) -> list[bytes]:
    contents = []
    for wish in batch:
        with open(wish.local, "rb") as file:
            contents.append(file.read(wish.size + 1))
    return contents
