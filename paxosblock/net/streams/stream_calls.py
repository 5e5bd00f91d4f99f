"""Requests and replies on a data stream, and the chunks that follow a reply.

A CALL frame carries a number that its REPLY or ERROR frame repeats. The `index` of a REPLY header
says how many frames with user data (CHUNK or RUN) follow it; the server writes them together with
the reply, so that they are contiguous on the stream.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from paxosblock.base.checksum import Buffer
from paxosblock.errors import (
    DeadlineError,
    OutcomeUnknownError,
    PaxosBlockError,
    ProtocolError,
    UnavailableError,
)
from paxosblock.host.logs import error_for_peer
from paxosblock.net.pending_calls import PendingCalls
from paxosblock.net.port.access import OPEN, Access
from paxosblock.net.streams.connection import FrameConnection
from paxosblock.net.streams.stream import connect
from paxosblock.net.wire import (
    BULK,
    HEADER_BYTES,
    FrameKind,
    Header,
    MessageTable,
    decode_error,
    verify_payload,
)
from paxosblock.protocol.types import BlockId, ChunkIndex

_log = logging.getLogger(__name__)
_NO_BLOCK = BlockId(0)


class ChunkSink(Protocol):
    """The receiver of the frames that follow a reply, of the kind that the reply promises.

    An error raised here fails the call.
    """

    def reply_received(self, reply: Any, count: int) -> None:
        """Take `reply`; `count` frames with user data follow."""

    def payload_buffer(self, header: Header) -> memoryview | None:
        """Return the buffer for the next frame's payload; None for one that is lent briefly."""

    def chunk_received(self, header: Header, payload: memoryview) -> None:
        """Take the next frame: in its place, or in a view that is valid during this call only.

        Its checksum was not checked (`wire.verify_payload`, or the names of a `Run`).
        """


class VoteHandler(Protocol):
    """The receiver of those frames of a client's connection that answer no call."""

    def vote_received(self, header: Header, payload: memoryview) -> None:
        """Take a VOTE or NACK frame; `payload` is only valid during this call, and not checked."""

    def beat_received(self, header: Header) -> None:
        """Take a BEAT frame: the peer lives (`beats.py`)."""

    def connection_lost(self, error: PaxosBlockError) -> None:
        """Note that no more votes will come."""


@dataclass(slots=True)
class _PendingStreamCall:
    """A call under way; `chunks_left` is valid once the reply has come."""

    future: asyncio.Future[Any]
    sink: ChunkSink | None = None
    what: str = ""
    timeout_s: float = 0.0
    due_s: float = 0.0
    reply: Any = None
    chunks_left: int = 0


class CallChannel:
    """The client's end of a data stream: a `FrameHandler` that pairs calls with their replies.

    Several calls may be on their way at once. `stream.connect` gives it a connection::

        channel = CallChannel(MessageTable(STREAM_CALLS), MessageTable(STREAM_REPLIES), votes)
        channel.connection = await connect(host, port, channel)
    """

    connection: FrameConnection

    def __init__(
        self, calls: MessageTable, replies: MessageTable, votes: VoteHandler | None = None
    ) -> None:
        self._calls = calls
        self._replies = replies
        self._votes = votes
        self._pending = PendingCalls(self._give_up)
        self._receiving: _PendingStreamCall | None = None

    async def call(
        self,
        request: object,
        *,
        block: BlockId = _NO_BLOCK,
        timeout_s: float,
        sink: ChunkSink | None = None,
        soon: bool = False,
    ) -> Any:
        """Send `request` and return the reply, after all chunks that follow it went to `sink`.

        It goes at once, or `soon`: together with others of this turn of the event loop. Once this
        has returned or raised, nothing touches `sink` or its buffers any more.

        Raises:
            UnavailableError: the connection is closed already; nothing was sent.
            OutcomeUnknownError: the connection was lost before the answer was complete.
            DeadlineError: the answer was not complete after `timeout_s`.
            PaxosBlockError: the peer's own error, or one that `sink` raised.
        """
        if self.connection.closed:
            raise UnavailableError(str(self.connection.error), peer=self.connection.peer)
        payload = self._calls.encode(request)
        loop = asyncio.get_running_loop()
        what, due_s = type(request).__name__, loop.time() + timeout_s
        pending = _PendingStreamCall(loop.create_future(), sink, what, timeout_s, due_s)
        number = self._pending.add(pending)
        try:
            header = Header.of(FrameKind.CALL, payload, block=block, request=number)
            send = self.connection.send_soon if soon else self.connection.send
            send(header.pack(), payload)
            return await pending.future
        finally:
            self._pending.by_number.pop(number, None)
            self._let_go(pending)

    def _give_up(self, pending: _PendingStreamCall) -> None:
        peer = self.connection.peer
        late = f"{peer} did not answer {pending.what} within {pending.timeout_s:.3g} s"
        _fail(pending, DeadlineError(late, peer=peer))

    def _let_go(self, pending: _PendingStreamCall) -> None:
        """Forget a call that is over; chunks that still come for it are dropped."""
        pending.sink = None
        if self._receiving is pending:
            self.connection.discard_payload()

    # -- FrameHandler ---------------------------------------------------------------------------

    def payload_buffer(self, header: Header) -> memoryview | None:
        receiving = self._receiving
        if header.kind not in BULK or receiving is None or receiving.sink is None:
            return None
        try:
            return receiving.sink.payload_buffer(header)
        except Exception as error:
            _fail(receiving, error)
            return None

    def frame_received(
        self, connection: FrameConnection, header: Header, frame: memoryview
    ) -> None:
        kind = header.kind
        if kind in BULK:
            self.payload_received(connection, header, frame[HEADER_BYTES:])
        elif self._receiving is not None:
            raise ProtocolError(f"a {kind.name} frame came between the chunks of a reply")
        elif kind is FrameKind.VOTE or kind is FrameKind.NACK:
            if self._votes is None:
                raise ProtocolError(f"a {kind.name} frame came, but nothing was written")
            self._votes.vote_received(header, frame[HEADER_BYTES:])
        elif kind is FrameKind.BEAT:
            if self._votes is None:
                raise ProtocolError("a BEAT frame came that was not asked for")
            self._votes.beat_received(header)
        elif kind is FrameKind.CALL:
            raise ProtocolError("a server does not call")
        else:
            verify_payload(header, frame[HEADER_BYTES:])
            self._answer_received(header, frame[HEADER_BYTES:])

    def payload_received(
        self, connection: FrameConnection, header: Header, payload: memoryview
    ) -> None:
        receiving = self._receiving
        if receiving is None:
            raise ProtocolError(f"a {header.kind.name} frame came that belongs to no reply")
        if receiving.sink is not None:
            try:
                receiving.sink.chunk_received(header, payload)
            except Exception as error:
                _fail(receiving, error)
        receiving.chunks_left -= 1
        if receiving.chunks_left == 0:
            self._receiving = None
            _succeed(receiving)

    def connection_lost(self, connection: FrameConnection, error: PaxosBlockError) -> None:
        self._receiving = None
        for pending in self._pending.end():
            _fail(pending, OutcomeUnknownError(str(error), peer=connection.peer))
        if self._votes is not None:
            self._votes.connection_lost(error)

    def _answer_received(self, header: Header, payload: memoryview) -> None:
        """Handle a REPLY or ERROR. Even if no caller waits for it any more, its chunks come."""
        pending = self._pending.by_number.get(header.request)
        if header.kind is FrameKind.ERROR:
            if pending is not None:
                _fail(pending, decode_error(payload))
            return
        count = int(header.index)
        if pending is None:
            pending = _PendingStreamCall(asyncio.get_running_loop().create_future())
        else:
            self._open_reply(pending, self._replies.decode(payload), count)
        if count:
            pending.chunks_left = count
            self._receiving = pending
        else:
            _succeed(pending)

    def _open_reply(self, pending: _PendingStreamCall, reply: object, count: int) -> None:
        pending.reply = reply
        if pending.sink is not None:
            try:
                pending.sink.reply_received(reply, count)
            except Exception as error:
                _fail(pending, error)


def _fail(pending: _PendingStreamCall, error: Exception) -> None:
    pending.sink = None
    if not pending.future.done():
        pending.future.set_exception(error)


def _succeed(pending: _PendingStreamCall) -> None:
    if not pending.future.done():
        pending.future.set_result(pending.reply)


async def open_channel(
    host: str,
    port: int,
    calls: MessageTable,
    replies: MessageTable,
    votes: VoteHandler | None = None,
    *,
    timeout_s: float = 5.0,
    access: Access = OPEN,
) -> CallChannel:
    """Return a `CallChannel` on a new data stream to host:port. Raises what `stream.connect`
    raises."""
    channel = CallChannel(calls, replies, votes)
    channel.connection = await connect(host, port, channel, timeout_s=timeout_s, access=access)
    return channel


# -- the server's end ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bulk:
    """An answer with chunks: `frames` are the bytes of `count` CHUNK or RUN frames, in order."""

    reply: object
    count: int
    frames: tuple[Buffer, ...]


Answer = Callable[[Any, Header], Awaitable[object]]
"""Answers one call: gets the request and its header, returns the reply or a `Bulk`."""


def _needs_a_task(_: Any) -> None:
    """Answer nothing at once."""


class CallServer:
    """The server's end of the calls of one connection: each runs in a task of its own, unless it
    is answered at once.

    A `FrameHandler` gives it the CALL frames and tells it when the connection is lost.
    """

    def __init__(
        self,
        calls: MessageTable,
        replies: MessageTable,
        answer: Answer,
        at_once: Callable[[Any], object | None] = _needs_a_task,
    ) -> None:
        """`at_once` returns what needs no task: a task costs as much as a short answer. A future is
        of an answer that comes later. None: it is for `answer`."""
        self._calls = calls
        self._replies = replies
        self._answer = answer
        self._at_once = at_once
        self._tasks: set[asyncio.Task[None]] = set()
        self.context = contextvars.copy_context()
        """Knows whose stream it is, for what is logged. A copy of it is entered: what is answered
        may let the next frame in."""

    def call_received(self, connection: FrameConnection, header: Header, frame: memoryview) -> bool:
        """Start to answer a CALL frame; False if it was answered at once.

        Raises:
            CorruptionError, ProtocolError: the frame holds no request of this stream.
        """
        payload = frame[HEADER_BYTES:]
        verify_payload(header, payload)
        request = self._calls.decode(payload)
        context = self.context.copy()
        answer = context.run(self._at_once, request)
        if isinstance(answer, asyncio.Future):
            answer.add_done_callback(partial(self._came, connection, header, request))
            return True
        if answer is not None:
            self._reply(connection, header, answer)
            return False
        task = asyncio.create_task(self._run(connection, header, request), context=context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    def connection_lost(self) -> None:
        """Cancel the calls: their client no longer waits for them."""
        for task in self._tasks:
            task.cancel()

    async def _run(self, connection: FrameConnection, header: Header, request: object) -> None:
        try:
            answer = await self._answer(request, header)
            self._reply(connection, header, answer)
            await connection.drain()
        except Exception as error:
            _refuse(connection, header, request, error)

    def _came(
        self,
        connection: FrameConnection,
        header: Header,
        request: object,
        answer: asyncio.Future[object],
    ) -> None:
        try:
            connection.send_soon(*self._packed(header, Bulk(answer.result(), 0, ())))
        except Exception as error:
            _refuse(connection, header, request, error)

    def _reply(self, connection: FrameConnection, header: Header, answer: object) -> None:
        bulk = answer if isinstance(answer, Bulk) else Bulk(answer, 0, ())
        connection.send(*self._packed(header, bulk))

    def _packed(self, header: Header, bulk: Bulk) -> tuple[Buffer, ...]:
        payload = self._replies.encode(bulk.reply)
        reply = Header.of(
            FrameKind.REPLY,
            payload,
            block=header.block,
            index=ChunkIndex(bulk.count),
            request=header.request,
        )
        return reply.pack(), payload, *bulk.frames


def _refuse(connection: FrameConnection, header: Header, request: object, error: Exception) -> None:
    what = f"{type(request).__name__} from {connection.peer}"
    connection.send_error(error_for_peer(error, what, _log), header.request)
