"""Small local files that one `put` of fsspec writes together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from paxosblock.client.async_client import AsyncClient
from paxosblock.client.writing.gathered_files import GatheredFiles


class _LocalFile(NamedTuple):
    local: str
    path: str
    size: int


class SmallPuts:
    """Writes the files that wait together whenever a batch may begin."""

    def __init__(self, client: AsyncClient, **how: Any) -> None:
        """`how` is as `AsyncClient.put_many` takes it."""
        self._client = client
        self._how = how
        self._gathered = GatheredFiles(self._write)

    async def put(self, local: str, path: str, size: int) -> bool:
        """Write a local file of `size` bytes, of one chunk at most.

        Return False if it must be written by itself: it grew, or one of its batch was refused.

        Raises:
            PaxosBlockError: no NameNode answers, or the outcome is not known.
        """
        if size > self._client.config.chunk_size:
            return False
        return await self._gathered.put(_LocalFile(local, path, size), size)

    async def close(self) -> None:
        """End what is under way; a batch that is not published is given up."""
        await self._gathered.close()

    async def _write(self, batch: Sequence[_LocalFile]) -> bool:
        try:
            contents = await asyncio.to_thread(_contents, batch)
            if any(len(each) > file.size for each, file in zip(contents, batch, strict=True)):
                return False
            named = {file.path: each for file, each in zip(batch, contents, strict=True)}
            await self._client.put_many(named, **self._how)
        except (OSError, TypeError):
            return False  # the file that cannot be read, or an unknown option, is told of by itself
        return True


def _contents(batch: Sequence[_LocalFile]) -> list[bytes]:
    contents = []
    for each in batch:
        with open(each.local, "rb") as file:
            contents.append(file.read(each.size + 1))
    return contents
