"""Ranges of files as they are given out."""

from __future__ import annotations

import os

from paxosblock.base.units import KIB
from paxosblock.gateway.download import begun
from tests.client.shipped import shipped_cluster


async def test_a_reader_of_any_length_has_two_buffers() -> None:
    """That is what the budget counts: the one whose bytes go, and the one that is filled."""
    data, most_bytes, came = os.urandom(320 * KIB), 0, b""
    async with shipped_cluster(prefetch_size=8 * KIB, chunk_size=4 * KIB) as (_, fs):
        async with await fs.create("/a", chunk_size=4 * KIB, block_size=64 * KIB) as out:
            await out.write(data)
        async with fs.open("/a") as file:
            pieces = await begun(file, 8 * KIB, len(data) - 8 * KIB)
            async for piece in pieces:
                came += piece
                del piece
                assert file._ahead is not None
                buffers_bytes = sum(map(len, file._ahead._buffers._buffers))
                most_bytes = max(most_bytes, buffers_bytes)
    assert came == data[8 * KIB :]
    assert most_bytes == 16 * KIB
