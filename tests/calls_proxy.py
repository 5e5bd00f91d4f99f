"""A proxy in front of a NameNode that sees each call and each answer, and may keep one back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from paxosblock.errors import PaxosBlockError
from paxosblock.net.message_frames import MessageFrameKind, MessageFrames, pack
from paxosblock.net.wire import encode_error
from tests.waiting import PATIENCE_S, until_one_ends

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Seen = Callable[[str], Awaitable[bool]]
"""Hears the method of a call; False: it goes no further, and the connection ends."""


async def goes_on(_: str) -> bool:
    """Keep nothing back."""
    return True


class CallsProxy:
    """Passes calls on to a NameNode, and its answers back, while it is let."""

    def __init__(
        self,
        target: str,
        *,
        call: Seen = goes_on,
        answer: Seen = goes_on,
        request: Callable[[tuple[str, bytes]], object] = bool,
        change: Callable[[str, bytes], bytes] = lambda _, answer: answer,
        refusal: Callable[[], PaxosBlockError | None] = lambda: None,
    ) -> None:
        """`request` gets each method with what was asked, encoded; `change` returns the answer that
        arrives. A `refusal` is the answer of all calls while there is one, and they go no further.
        """
        self._target, self._request = target, request
        self._change, self._refusal = change, refusal
        self._call, self._answer = call, answer

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = [writer]
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):  # one of the ends is gone
            host, _, port = self._target.rpartition(":")
            from_there, there = await asyncio.open_connection(host, int(port))
            ends.append(there)
            await self._pass_on(reader, writer, from_there, there)
        for end in ends:
            end.close()
            with contextlib.suppress(OSError):
                await end.wait_closed()

    async def _pass_on(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        from_there: asyncio.StreamReader,
        there: asyncio.StreamWriter,
    ) -> None:
        """The agreement to speak in frames, then calls, until one is kept back."""
        there.write(await reader.readuntil(b"\r\n\r\n"))
        writer.write(await from_there.readuntil(b"\r\n\r\n"))
        methods: dict[int, str] = {}
        await until_one_ends(
            self._pass_calls(reader, writer, there, methods),
            self._pass_answers(from_there, writer, methods),
        )

    async def _pass_calls(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        there: asyncio.StreamWriter,
        methods: dict[int, str],
    ) -> None:
        frames = MessageFrames()
        while data := await reader.read(1 << 16):
            frames.feed(data)
            while (frame := frames.next()) is not None:
                methods[frame.number] = frame.method
                self._request((frame.method, bytes(frame.payload)))
                if not await self._call(frame.method):
                    return
                if (error := self._refusal()) is not None:
                    writer.write(pack(MessageFrameKind.ERROR, frame.number, encode_error(error)))
                    continue
                words = frame.method.encode(), frame.name.encode()
                there.write(pack(frame.kind, frame.number, frame.payload, *words))

    async def _pass_answers(
        self,
        from_there: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        methods: dict[int, str],
    ) -> None:
        frames = MessageFrames()
        while data := await from_there.read(1 << 16):
            frames.feed(data)
            while (frame := frames.next()) is not None:
                if not await self._answer(methods[frame.number]):
                    return
                payload = frame.payload
                if frame.kind is MessageFrameKind.ANSWER:
                    payload = self._change(methods[frame.number], bytes(payload))
                writer.write(pack(frame.kind, frame.number, payload))


@contextlib.asynccontextmanager
async def served(serve: Serve) -> AsyncIterator[str]:
    """Let a proxy `serve` connections, and yield its address; wait in the end until the last of
    them has ended, and any that was accepted and whose `serve` had not begun."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    # Begun while the server listens: of one that is closed Python 3.11 waits for nothing.
    ended = asyncio.ensure_future(server.wait_closed())
    (listening,) = server.sockets
    try:
        yield f"127.0.0.1:{listening.getsockname()[1]}"
    finally:
        # A connection counts two turns of the loop after it was accepted.
        asyncio.get_running_loop().remove_reader(listening.fileno())
        for _ in range(2):
            await asyncio.sleep(0)
        server.close()
        await asyncio.wait_for(ended, PATIENCE_S)
