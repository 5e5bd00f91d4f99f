"""The system tells if an answer arrived, by what is left of the bytes that were sent."""

from __future__ import annotations

import asyncio
import socket

from paxosblock.gateway.arrival import arrived, left_bytes
from tests.loops import on_both_loops
from tests.waiting import wait_until_async

MORE_THAN_FITS = bytes(1 << 24)


async def connected() -> tuple[asyncio.WriteTransport, socket.socket]:
    """A connection: our end of it, and that of a program."""
    listening = socket.create_server(("127.0.0.1", 0))
    peer = socket.create_connection(listening.getsockname())
    accepted, _ = listening.accept()
    listening.close()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, accepted)
    return transport, peer


def no() -> bool:
    return False


@on_both_loops
async def test_what_the_system_of_the_program_took_has_arrived() -> None:
    transport, peer = await connected()
    transport.write(b"answer")
    assert await arrived(transport, no)
    assert left_bytes(transport) == 0
    transport.abort()
    peer.close()


@on_both_loops
async def test_what_is_not_taken_never_arrives() -> None:
    transport, peer = await connected()
    transport.write(MORE_THAN_FITS)
    assert left_bytes(transport) > 0
    assert not await arrived(transport, no)
    assert transport.is_closing()
    peer.close()


@on_both_loops
async def test_of_a_connection_that_is_gone_only_what_the_program_did_tells() -> None:
    transport, peer = await connected()
    peer.close()
    await wait_until_async(transport.is_closing)
    assert not await arrived(transport, no)
    assert not await arrived(None, no)
    assert await arrived(transport, lambda: True)
    assert left_bytes(transport) > 0
