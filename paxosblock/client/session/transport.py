"""Data connections: one per DataNode, opened on demand, shared by all blocks of a client."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, Protocol, cast

from paxosblock.api.datanode import (
    STREAM_CALLS,
    STREAM_REPLIES,
    Admit,
    Answer,
    BlockAdmitted,
    BorrowReplica,
    Chunks,
    CreateAndWrite,
    CreateAndWriteAll,
    Envelope,
    LentReplica,
    NoAnswer,
    NotLent,
    ReadBytes,
    Run,
    Votes,
    Watch,
)
from paxosblock.base.checksum import Buffer
from paxosblock.base.encoding import MALFORMED, msgpack_decoder
from paxosblock.base.units import KIB
from paxosblock.errors import PaxosBlockError, ProtocolError, UnavailableError
from paxosblock.net.port.access import OPEN, Access
from paxosblock.net.port.upgrade import close_ends, split_address
from paxosblock.net.streams.connection import FrameConnection
from paxosblock.net.streams.stream import connect
from paxosblock.net.streams.stream_calls import CallChannel, ChunkSink
from paxosblock.net.wire import FrameKind, Header, MessageTable, decode_error, verify_payload
from paxosblock.protocol.messages import Nack, Vote
from paxosblock.protocol.types import BlockId

SUSPECT_FOR_S: Final = 10.0
SHORT_BYTES: Final = 4 * KIB

_CALLS = MessageTable(STREAM_CALLS)
_REPLIES = MessageTable(STREAM_REPLIES)
_NACK = msgpack_decoder(Nack)

FRESH_MAX: Final = 5
"""Fresh capabilities for one opening or one read: several only if they end sooner than messages
arrive."""


class VoteListener(Protocol):
    """The listener to what a DataNode says about the chunks of one block."""

    def on_vote(self, header: Header) -> None:
        """Handle a vote; the SYNC flag says that the chunk is on stable storage."""

    def on_nack(self, nack: Nack) -> None:
        """Handle a refusal."""

    def on_lost(self, error: PaxosBlockError) -> None:
        """Nothing more will be heard: the connection ended."""


class DataConnection:
    """The data stream to one DataNode: chunks out, votes in, and calls."""

    def __init__(self, address: str, access: Access = OPEN) -> None:
        """Not connected yet; `connect` is called once."""
        self.address = address
        self._access = access
        self._channel = CallChannel(_CALLS, _REPLIES, self)
        self._listeners: dict[BlockId, VoteListener] = {}
        self._lost: PaxosBlockError | None = None
        self.disk_stands_s = 0.0
        """Seconds for which, by its beats, nothing has come back from a disk of the DataNode."""
        self.asking = asyncio.Lock()
        """Held by the caller that waits for the vote for a single chunk."""

    async def connect(self, timeout_s: float) -> None:
        """Raises UnavailableError or ProtocolError when there is no DataNode at the address."""
        host, port = split_address(self.address)
        self._channel.connection = await connect(
            host, port, self._channel, timeout_s=timeout_s, access=self._access
        )

    @property
    def closed(self) -> bool:
        """True if nothing can be sent any more."""
        return self._lost is not None or self._channel.connection.closed

    def listen(self, block: BlockId, listener: VoteListener) -> None:
        """Tell `listener` about the votes for `block` from now on.

        Raises:
            OutcomeUnknownError: the connection is lost already.
        """
        if self._lost is not None:
            raise self._lost
        self._listeners[block] = listener

    def ignore(self, block: BlockId) -> None:
        """Forget a block, whose votes this client needs no more."""
        self._listeners.pop(block, None)

    def send(self, header: bytes, payload: Buffer) -> None:
        """Send a chunk frame, a long one by reference; `on_lost` tells when it cannot arrive."""
        if len(payload) <= SHORT_BYTES:
            self._channel.connection.send_soon(header, payload)
        else:
            self._channel.connection.send(header, payload)

    async def ask(self, question: Envelope | Watch, timeout_s: float) -> Answer:
        """Send a protocol message and return its answer.

        Raises:
            PaxosBlockError: no answer, or an error of the DataNode.
        """
        answer = await self._call(question, timeout_s)
        if (
            isinstance(answer, Vote | Votes | Chunks | Run | BlockAdmitted | LentReplica | NotLent)
            or answer.storage != question.storage
        ):
            raise ProtocolError(f"{self.address} did not answer for {question.storage}: {answer}")
        return cast("Answer", answer)

    async def vote(self, request: CreateAndWrite, timeout_s: float) -> Vote:
        """Return the vote for the chunk that goes with Create.

        Raises:
            PaxosBlockError: there is none: no answer, a refusal, or an error of the DataNode.
        """
        answer = await self._call(request, timeout_s, soon=True)
        vote = self._vote_of(request, answer)
        if isinstance(vote, PaxosBlockError):
            raise vote
        return vote

    async def votes(
        self, requests: Sequence[CreateAndWrite], timeout_s: float
    ) -> list[Vote | PaxosBlockError]:
        """Return the vote for each of several chunks as `vote` does, or why there is none.

        Raises:
            PaxosBlockError: no answer.
        """
        answer = await self._call(CreateAndWriteAll(tuple(requests)), timeout_s)
        if not isinstance(answer, Votes) or len(answer.each) != len(requests):
            raise ProtocolError(f"{self.address} answered {type(answer).__name__}")
        return list(map(self._vote_of, requests, answer.each))

    def _vote_of(self, request: CreateAndWrite, answer: object) -> Vote | PaxosBlockError:
        if isinstance(answer, Vote) and answer.storage == request.storage:
            return answer
        if isinstance(answer, NoAnswer) and answer.error:
            return decode_error(answer.error)
        return ProtocolError(f"{self.address} did not vote for {request.storage}: {answer}")

    async def admit(self, block: BlockId, capability: bytes, timeout_s: float) -> None:
        """Have the chunks of a block taken on this stream that was opened on another one.

        Raises:
            AccessDeniedError: the capability does not allow it.
            PaxosBlockError: no answer, or another error of the DataNode.
        """
        answer = await self._call(Admit(block, capability), timeout_s)
        if not isinstance(answer, BlockAdmitted):
            raise ProtocolError(f"{self.address} answered {type(answer).__name__}")

    async def fetch(self, request: ReadBytes, sink: ChunkSink, timeout_s: float) -> Run:
        """Return chunks of a block; when this returns, all of them went to `sink`, unverified.

        Raises:
            PaxosBlockError: no answer, an error of the DataNode, or one that `sink` raised.
        """
        run = await self._call(request, timeout_s, sink)
        if not isinstance(run, Run):
            raise ProtocolError(f"{self.address} answered {type(run).__name__}")
        return run

    async def borrow(self, request: BorrowReplica, timeout_s: float) -> LentReplica | NotLent:
        """Return where the file of a replica is offered, or that it is not.

        Raises:
            PaxosBlockError: no answer, or an error of the DataNode.
        """
        answer = await self._call(request, timeout_s)
        if isinstance(answer, Nack):
            return NotLent()
        if not isinstance(answer, LentReplica | NotLent):
            raise ProtocolError(f"{self.address} answered {type(answer).__name__}")
        return answer

    async def _call(
        self,
        request: object,
        timeout_s: float,
        sink: ChunkSink | None = None,
        *,
        soon: bool = False,
    ) -> Any:
        return await self._channel.call(request, timeout_s=timeout_s, sink=sink, soon=soon)

    @property
    def stream(self) -> FrameConnection:
        """Return the connection that it sends on."""
        return self._channel.connection

    def abort(self) -> None:
        """Close at once: nothing that is under way will be heard of."""
        self._channel.connection.abort()

    def vote_received(self, header: Header, payload: memoryview) -> None:
        """Pass on a VOTE or NACK frame; for a block that is no longer written it is old news."""
        listener = self._listeners.get(header.block)
        if header.kind is FrameKind.VOTE:
            if listener is not None:
                listener.on_vote(header)
            return
        verify_payload(header, payload)
        try:
            nack = _NACK.decode(payload)
        except MALFORMED as error:
            raise ProtocolError(f"{self.address} sent a malformed Nack: {error}") from error
        if listener is not None:
            listener.on_nack(nack)

    def beat_received(self, header: Header) -> None:
        """Raise ProtocolError: this client asked for no beats on this connection."""
        raise ProtocolError(f"{self.address} sent a BEAT that was not asked for")

    def connection_lost(self, error: PaxosBlockError) -> None:
        """Tell every block that is written through this connection at once."""
        self._lost = error
        listeners, self._listeners = self._listeners, {}
        for listener in listeners.values():
            listener.on_lost(error)


class DataConnections:
    """One connection per DataNode address; a lost one is replaced when it is asked for again."""

    def __init__(self, connect_timeout_s: float, access: Access = OPEN) -> None:
        self.access = access
        self._connect_timeout_s = connect_timeout_s
        self._open: dict[str, DataConnection] = {}
        self._connecting: dict[str, asyncio.Task[DataConnection]] = {}
        self._suspects: dict[str, float] = {}
        self._closed = False
        self.fetching = Counter[str]()
        """Fetches that are under way, by address."""

    def suspect(self, address: str) -> None:
        """Ask others first for a while: a DataNode failed or was slow."""
        self._suspects[address] = asyncio.get_running_loop().time() + SUSPECT_FOR_S

    def is_suspected(self, address: str) -> bool:
        """True if the DataNode failed or was slow not long ago."""
        until_s = self._suspects.get(address)
        return until_s is not None and until_s > asyncio.get_running_loop().time()

    async def get(self, address: str) -> DataConnection:
        """Return the connection to the DataNode at `address` (host:port).

        Raises:
            UnavailableError: no process answers there, or it is not known where the DataNode is
                ("").
            ProtocolError: another program answers.
        """
        if not address:
            raise UnavailableError("the DataNode's address is not known")
        connection = self._open.get(address)
        if connection is not None and not connection.closed:
            return connection
        if self._closed:
            raise UnavailableError("the client is closed")
        # All callers that ask meanwhile share one try, and its failure: a queue of tries at a node
        # that hangs would keep the last one waiting for all of them.
        trying = self._connecting.get(address)
        if trying is None:
            trying = asyncio.create_task(self._connect(address))
            self._connecting[address] = trying
            trying.add_done_callback(lambda tried: self._connected(address, tried))
        try:
            return await asyncio.shield(trying)
        except asyncio.CancelledError:
            if trying.cancelled():  # by `close`; the caller was not
                raise UnavailableError("the client is closed") from None
            raise

    def _connected(self, address: str, tried: asyncio.Task[DataConnection]) -> None:
        del self._connecting[address]
        if not tried.cancelled() and tried.exception() is None:
            self._open[address] = tried.result()

    async def _connect(self, address: str) -> DataConnection:
        connection = DataConnection(address, self.access)
        await connection.connect(self._connect_timeout_s)
        return connection

    async def close(self) -> None:
        """Close all of them; what a DataNode does not read within a second is dropped."""
        self._closed = True
        tries = tuple(self._connecting.values())
        for trying in tries:
            trying.cancel()
        await asyncio.gather(*tries, return_exceptions=True)
        connections, self._open = self._open, {}
        await close_ends(tuple(each.stream for each in connections.values()))
