"""The client's end of a data stream."""

from __future__ import annotations

import asyncio

from paxosblock.client.session.transport import SHORT_BYTES, DataConnection
from paxosblock.net.streams.connection import FrameConnection
from tests.net.streams import Written


async def test_short_chunks_of_one_turn_leave_in_one_write_and_no_long_one_overtakes_them() -> None:
    stream, transport = DataConnection("node:1"), Written()
    stream._channel.connection = FrameConnection(stream._channel, "node:1")
    stream._channel.connection.connection_made(transport)
    short, long = bytes(SHORT_BYTES), bytes(SHORT_BYTES + 1)
    stream.send(b"one", short)
    stream.send(b"two", short)
    assert transport.pieces == []
    await asyncio.sleep(0)
    assert transport.pieces == [b"one" + short + b"two" + short]
    stream.send(b"three", short)
    stream.send(b"four", long)
    assert transport.pieces[1:] == [b"three" + short, b"four" + long]
    transport.close()
