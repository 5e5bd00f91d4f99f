"""A stranger who passes on, to a node, what callers send to a port of his own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial

from paxosblock.net.port.upgrade import split_address

HOST = "127.0.0.1"


@contextlib.asynccontextmanager
async def relay(
    address: str, hear: Callable[[bytes], object] = lambda _: None
) -> AsyncIterator[str]:
    """Pass all connections on to the node at `address`, and let `hear` have all bytes; gives the
    stranger's own host:port."""
    server = await asyncio.start_server(partial(_pass_on, address, hear), HOST, 0)
    async with server:
        yield f"{HOST}:{server.sockets[0].getsockname()[1]}"


@contextlib.contextmanager
def relay_in_thread(address: str) -> Iterator[str]:
    """As `relay`, for tests without an event loop."""
    known: list[str] = []
    ready, stop = threading.Event(), asyncio.Event()

    async def run() -> None:
        async with relay(address) as own:
            known.append(own)
            ready.set()
            await stop.wait()
        passing = asyncio.all_tasks() - {asyncio.current_task()}
        for task in passing:
            task.cancel()
        await asyncio.gather(*passing, return_exceptions=True)

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    try:
        assert ready.wait(30)
        yield known[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        loop.close()


async def _pass_on(
    address: str,
    hear: Callable[[bytes], object],
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    there_reader, there_writer = await asyncio.open_connection(*split_address(address))
    await asyncio.gather(_copy(reader, there_writer, hear), _copy(there_reader, writer, hear))


async def _copy(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, hear: Callable[[bytes], object]
) -> None:
    try:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                hear(data)
                writer.write(data)
                await writer.drain()
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
