"""Chunks that a DataNode fetches from a holder, which may lie, for a NameNode, which may, too."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from paxosblock.api.datanode import (
    STREAM_CALLS,
    STREAM_REPLIES,
    Chunks,
    FetchChunks,
    StorageAddress,
)
from paxosblock.datanode.transfer import Transfer
from paxosblock.errors import UnavailableError
from paxosblock.net.streams.connection import FrameConnection
from paxosblock.net.streams.stream_calls import Bulk, CallServer
from paxosblock.net.wire import Header, MessageTable
from paxosblock.protocol.messages import Finalize, Nack
from paxosblock.protocol.types import Durability, Generation, StorageId
from tests.datanode.node import BLOCK, WINDOW, Node, frame, name, running
from tests.net.streams import HOST, Recorder, node

HOLDER = StorageId("H")
ABSURD = 1 << 40
"""Nothing of so many parts may be made because a message names the number."""


class Holder(Recorder):
    """Answers every call with `answer`, and remembers what it was asked."""

    def __init__(self, answer: Bulk) -> None:
        self.answer = answer
        self.asked: list[FetchChunks] = []
        self.calls = CallServer(MessageTable(STREAM_CALLS), MessageTable(STREAM_REPLIES), self._ask)

    def frame_received(
        self, connection: FrameConnection, header: Header, frame: memoryview
    ) -> None:
        self.calls.call_received(connection, header, frame)

    async def _ask(self, request: FetchChunks, _: Header) -> Bulk | Nack:
        self.asked.append(request)
        return self.answer


@asynccontextmanager
async def both(folder: Path, holder: Holder) -> AsyncIterator[tuple[Node, StorageAddress]]:
    async with node(lambda _request: holder) as port, running(folder) as target:
        yield target, StorageAddress(HOLDER, f"{HOST}:{port}")


def finalize(generation: int, length: int) -> Finalize:
    decided = Generation(generation), Generation(0)
    return Finalize(BLOCK, *decided, length, 0, (HOLDER,), WINDOW, Durability.DISK)


async def test_a_finalize_asks_its_holders_for_the_decided_version_and_no_other(
    tmp_path: Path,
) -> None:
    frames = tuple(frame(index)[1] for index in range(3))
    size_bytes = sum(name(index).size_bytes for index in range(3))
    holder = Holder(Bulk(Chunks(0, 0, 3, size_bytes), 3, frames))
    async with both(tmp_path, holder) as (target, address):
        fetched = Transfer().fetch(target.volumes[0], finalize(ABSURD, 3), range(3), (address,))
        draft = await fetched
        assert draft.names == tuple(name(index) for index in range(3))
        assert [asked.generations for asked in holder.asked] == [(ABSURD,)]
        await target.volumes[0].run(draft.discard)


@pytest.mark.parametrize(("count", "size_bytes"), [(1 << 31, 0), (4, 100), (1, ABSURD), (1, -1)])
async def test_what_a_holder_announces_is_compared_with_what_it_was_asked(
    tmp_path: Path, count: int, size_bytes: int
) -> None:
    length = ABSURD if count > 4 else 3
    holder = Holder(Bulk(Chunks(0, 0, count, size_bytes), count, ()))
    async with both(tmp_path, holder) as (target, address):
        request = finalize(5, length)
        with pytest.raises(UnavailableError, match="no holder"):
            await Transfer().fetch(target.volumes[0], request, range(length), (address,))
