"""One data stream at a DataNode: chunks in, votes and beats out, and calls.

The memory that a peer can make this node use is bounded: while too many of its votes wait for the
disk, or too many of its calls are under way, its connection is not read; and a reply with chunks is
loaded only when the one before has left.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any, Final, assert_never

import msgspec
from msgspec.structs import replace

from paxosblock.api.datanode import (
    STREAM_CALLS,
    STREAM_REPLIES,
    Admit,
    BlockAdmitted,
    BlockCall,
    BorrowReplica,
    CreateAndWrite,
    CreateAndWriteAll,
    Envelope,
    FetchChunks,
    LentReplica,
    NotLent,
    ReadBytes,
    StreamCall,
    Votes,
    Watch,
)
from paxosblock.api.user_tokens import TokenRight
from paxosblock.base.durations import BOUNDS_S
from paxosblock.datanode.acceptor import Acceptor, answered
from paxosblock.datanode.counters import DataNodeCounters
from paxosblock.datanode.lender import Lender
from paxosblock.datanode.replica_reads import Reader
from paxosblock.datanode.stream_rights import StreamRights
from paxosblock.errors import PaxosBlockError, ProtocolError
from paxosblock.net.port.caller import CallerRole
from paxosblock.net.streams.beats import BeatSender
from paxosblock.net.streams.connection import FrameConnection
from paxosblock.net.streams.stream_calls import CallServer
from paxosblock.net.wire import Flags, FrameKind, Header, MessageTable
from paxosblock.protocol.messages import Create, Nack, Read, Reply, Vote

MAX_WAITING_VOTES: Final = 128
MAX_CALLS: Final = 64
MAX_WATCH_MS: Final = 60_000

_CALLS = MessageTable(STREAM_CALLS)
_REPLIES = MessageTable(STREAM_REPLIES)
_ENCODER = msgspec.msgpack.Encoder()


class ServedStream:
    """The `FrameHandler` of one connection."""

    def __init__(
        self,
        acceptor: Acceptor,
        reader: Reader,
        counters: DataNodeCounters,
        rights: StreamRights | None = None,
        *,
        lender: Lender | None = None,
        check_role: Callable[[CallerRole, str], None] | None = None,
        check_token: Callable[[TokenRight, str], None] | None = None,
    ) -> None:
        """Serve one connection; all connections share the arguments, but for the `rights` of its
        client: None, it may do everything. `check_role` raises AccessDeniedError for what is of
        nodes alone; None: the client may be one. `check_token` raises it for what the token with
        which the stream began does not allow; None: it began without one. `lender` lends files
        of replicas; None: it lends none."""
        self._acceptor = acceptor
        self._reader = reader
        self._counters = counters
        self._rights = rights
        self._check_role = check_role
        self._check_token = check_token
        self._lender = lender
        self._calls = CallServer(_CALLS, _REPLIES, self._answer, self._at_once)
        self._beats = BeatSender(
            lambda: self._waiting_votes + self._running_calls, acceptor.stands_s
        )
        self._connection: FrameConnection | None = None
        self._waiting_votes = 0
        self._running_calls = 0
        self._paused = False
        self._bulk = asyncio.Lock()
        counters.streams += 1

    # -- FrameHandler ---------------------------------------------------------------------------

    def payload_buffer(self, header: Header) -> memoryview | None:
        """Return None: header and payload stay side by side, as they go to disk."""
        return None

    def frame_received(
        self, connection: FrameConnection, header: Header, frame: memoryview
    ) -> None:
        """Handle a chunk to vote for, a call, or a request for beats."""
        self._connection = connection
        match header.kind:
            case FrameKind.CHUNK:
                if self._check_token is not None:
                    self._check_token(TokenRight.WRITE, "a chunk")
                if self._rights is not None:
                    self._rights.check_chunk(header)
                self._waiting_votes += 1
                reply = partial(self._reply, perf_counter())
                self._calls.context.copy().run(self._acceptor.write, header, frame, reply)
            case FrameKind.CALL:
                if self._calls.call_received(connection, header, frame):
                    self._running_calls += 1
            case FrameKind.BEAT:
                self._beats.asked(connection, header)
            case other:
                raise ProtocolError(f"a client sends no {other.name} frame")
        if self._waiting_votes >= MAX_WAITING_VOTES or self._running_calls >= MAX_CALLS:
            self._pause_or_resume()

    def payload_received(
        self, connection: FrameConnection, header: Header, payload: memoryview
    ) -> None:
        """Never called, for `payload_buffer` gives no buffer."""
        raise AssertionError("no payload has a buffer of its own")

    def connection_lost(self, connection: FrameConnection, error: PaxosBlockError) -> None:
        """Drop the votes that are not sent yet; the chunks that were written stay."""
        self._counters.streams -= 1
        self._beats.stop()
        self._calls.connection_lost()

    # -- votes ----------------------------------------------------------------------------------

    def _reply(self, came_s: float, reply: Vote | Nack) -> None:
        self._waiting_votes -= 1
        connection = self._connection
        assert connection is not None
        counters, took_s = self._counters, perf_counter() - came_s
        counters.vote_times.counts[bisect_left(BOUNDS_S, took_s)] += 1
        counters.vote_times.sum_s += took_s
        if isinstance(reply, Vote):
            counters.votes += 1
            flags = int(Flags.SYNC) if reply.synced else 0
            connection.send_soon(
                Header(
                    FrameKind.VOTE,
                    flags,
                    block=reply.block,
                    generation=reply.generation,
                    index=reply.index,
                ).pack()
            )
        else:
            counters.nacks.labels(reply.reason.value).inc()
            payload = _ENCODER.encode(reply)
            header = Header.of(FrameKind.NACK, payload, block=reply.block)
            connection.send_frame(header, payload)
        if self._paused:
            self._pause_or_resume()

    def _pause_or_resume(self) -> None:
        """Stop reading at a limit, and go on at half of it."""
        connection = self._connection
        assert connection is not None
        share = max(self._waiting_votes / MAX_WAITING_VOTES, self._running_calls / MAX_CALLS)
        if not self._paused and share >= 1:
            self._paused = True
            connection.pause_reading()
        elif self._paused and share <= 0.5:
            self._paused = False
            connection.resume_reading()

    # -- calls ----------------------------------------------------------------------------------

    def _at_once(self, request: StreamCall, *, alone: bool = True) -> object | None:
        """Return a part of a chunk that needs no waiting, neither for a disk nor for a reader that
        has not received the replies before; or the future of a vote that takes no task. The request
        is a call `alone`, or one of several in a call."""
        if isinstance(request, CreateAndWriteAll):
            return None
        if self._acceptor.outside or self._check_token is not None:
            return None
        if self._rights is not None and not self._rights.admit_known(request):
            return None
        if isinstance(request, CreateAndWrite):
            voting = self._acceptor.begin_whole(request)
            if voting is not None:
                voting.add_done_callback(partial(self._voted_whole, perf_counter(), alone))
            return voting
        if not isinstance(request, ReadBytes):
            return None
        assert self._connection is not None
        return self._reader.known_part(request) if self._connection.writable else None

    def _voted_whole(self, came_s: float, alone: bool, voting: asyncio.Future[Reply]) -> None:
        if not voting.cancelled() and voting.exception() is None:
            self._count(came_s, voting.result())
        if alone:
            self._call_ended()

    def _count(self, came_s: float, answer: Reply) -> None:
        self._counters.vote_times.note(perf_counter() - came_s)
        if isinstance(answer, Vote):
            self._counters.votes += 1
        elif isinstance(answer, Nack):
            self._counters.nacks.labels(answer.reason.value).inc()

    async def _answer(self, request: StreamCall, header: Header) -> object:
        try:
            if isinstance(request, CreateAndWriteAll):
                return await self._vote_for_all(request)
            return await self._answer_block(request)
        finally:
            self._call_ended()

    def _call_ended(self) -> None:
        self._running_calls -= 1
        if self._paused:
            self._pause_or_resume()

    async def _vote_for_all(self, request: CreateAndWriteAll) -> Votes:
        """Begin all in one turn of the loop, so that one sync covers them."""
        voting = list[asyncio.Future[Any]]()
        for each in request.each:
            begun = self._at_once(each, alone=False)
            if not isinstance(begun, asyncio.Future):
                begun = asyncio.create_task(self._answer_block(each))
            voting.append(begun)
        if voting:
            await asyncio.wait(voting)
        return Votes(tuple(map(answered, voting)))

    async def _answer_block(self, request: BlockCall) -> object:
        self._acceptor.check_inside()
        if self._check_token is not None:
            self._check_token(_token_right(request), type(request).__name__)
        if self._rights is not None:
            await self._rights.admit(request)
        match request:
            case Envelope():
                if self._check_role is not None and not isinstance(request.message, Create | Read):
                    self._check_role(CallerRole.NAMENODE, type(request.message).__name__)
                return await self._acceptor.take(request)
            case CreateAndWrite():
                came_s = perf_counter()
                answer = await self._acceptor.create_then_write(request)
                self._count(came_s, answer)
                return answer
            case Watch():
                wait_ms = min(request.wait_ms, MAX_WATCH_MS)
                return await self._reader.watch(replace(request, wait_ms=wait_ms))
            case ReadBytes():
                # One long reply at a time: several could fill the memory for a slow reader.
                async with self._bulk:
                    await self._drained()
                    return await self._reader.read_bytes(request)
            case FetchChunks():
                if self._check_role is not None:
                    self._check_role(CallerRole.DATANODE, "FetchChunks")
                async with self._bulk:
                    await self._drained()
                    return await self._reader.fetch_chunks(request)
            case BorrowReplica():
                return await self._lend(request)
            case Admit():
                return BlockAdmitted(request.block)
            case _ as never:
                assert_never(never)

    async def _lend(self, request: BorrowReplica) -> LentReplica | NotLent | Nack:
        if self._lender is None:
            return NotLent(never=True)
        answer = await self._lender.lend(request)
        self._counters.lent += isinstance(answer, LentReplica)
        return answer

    async def _drained(self) -> None:
        """Wait until a slow reader has received most of the replies before."""
        assert self._connection is not None
        await self._connection.drain()


def _token_right(request: BlockCall) -> TokenRight:
    """Return the right that a call takes; some of nodes alone are refused for that."""
    reads = isinstance(request, ReadBytes | Watch | FetchChunks | BorrowReplica)
    if isinstance(request, Envelope):
        reads = isinstance(request.message, Read)
    return TokenRight.READ if reads else TokenRight.WRITE
