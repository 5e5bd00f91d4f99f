"""The way to one DataNode: a proxy that sees each frame, and lets it pass, change, wait or end."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from paxosblock.api.datanode import (
    STREAM_CALLS,
    STREAM_REPLIES,
    CreateAndWrite,
    CreateAndWriteAll,
    Envelope,
    NoAnswer,
    ReadBytes,
    Votes,
)
from paxosblock.errors import NotReadyError
from paxosblock.net.port.upgrade import STREAM
from paxosblock.net.wire import HEADER_BYTES, FrameKind, Header, MessageTable, encode_error
from paxosblock.protocol.messages import Create, Nack, Read, Vote
from paxosblock.protocol.types import (
    NO_GENERATION,
    BlockId,
    ChunkIndex,
    Generation,
    Reason,
    StorageId,
)
from tests.waiting import until_one_ends

_CALLS: Final = MessageTable(STREAM_CALLS)
_REPLIES: Final = MessageTable(STREAM_REPLIES)
NO_ROOM: Final = encode_error(NotReadyError("no room for a replica"))
NO_STORAGE: Final = StorageId("")
GARBAGE: Final = b"this is no frame of the protocol, whatever it may be" * 2


@dataclass(slots=True)
class Faults:
    """The faults of a DataNode, as others hear it; none at first."""

    refuses_connections: bool = False
    """New connections end at once."""
    drops_after_chunks: int | None = None
    """All connections are cut instead of passing on one more chunk than this."""
    refuses_chunks: Reason | None = None
    refuses_replicas: bool = False
    flips_chunks: bool = False
    """A bit of each chunk is another one when it arrives."""
    votes_for_unsent: bool = False
    talks_garbage: bool = False
    """In place of votes."""
    flips_reads: bool = False
    """A bit in each run of chunks that is read is another one."""
    turns_reads: int = 0
    """Each run of chunks that is read begins so many bytes later, and its first ones are its last:
    sound chunks of the block in another order."""
    shortens_reads: bool = False
    """Each run of chunks that is read lacks its last byte."""
    ignores_reads: bool = False
    """No read of bytes is answered."""
    disk_stands_s: float = 0.0
    """Its beats say that nothing has come back from the disk for so long."""


def _gate() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@dataclass(slots=True, eq=False)
class Wire:
    """Everything that is said to one DataNode, and that it says."""

    target: str = ""
    """The address at which it listens; "" while it is down."""
    storage: StorageId = NO_STORAGE
    faults: Faults = field(default_factory=Faults)
    votes_may_go: asyncio.Event = field(default_factory=_gate)
    """Cleared: no vote and no refusal of a chunk arrives, until it is set again."""
    namenode_may_speak: asyncio.Event = field(default_factory=_gate)
    """Cleared: it hears nothing of what is no stream, such as recoveries, until it is set again."""
    chunks: int = 0
    """Chunks that clients sent to it."""
    asked: Counter[str] = field(default_factory=Counter)
    """Calls in streams, by their types; an envelope counts as what is in it."""
    batches: list[str] = field(default_factory=list)
    """The calls that make replicas, in their order."""
    votes: int = 0
    """Votes and refusals to vote that it said, be they kept back or not."""
    runs: int = 0
    """Runs of chunks that it gave to readers."""
    answers: int = 0
    """Frames that it said in streams, without beats."""
    _connections: dict[asyncio.Task[None], asyncio.Event] = field(default_factory=dict)

    def heal(self) -> None:
        """End all faults, and let all go that waits, also on connections that hung."""
        self.faults = Faults()
        self.votes_may_go.set()
        self.namenode_may_speak.set()
        for going in self._connections.values():
            going.set()

    def cut(self) -> None:
        """Cut every connection."""
        for connection in self._connections:
            connection.cancel()

    def hang(self) -> None:
        """Nothing more is heard or said on today's connections, as of a stopped process."""
        for going in self._connections.values():
            going.clear()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on what comes by one connection, until one of its ends is gone or it is cut."""
        going, ends = _gate(), [writer]
        task = asyncio.ensure_future(self._connect(going, reader, ends))
        self._connections[task] = going
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await task
        del self._connections[task]
        for end in ends:
            end.transport.abort()

    async def _connect(
        self, going: asyncio.Event, reader: asyncio.StreamReader, ends: list[asyncio.StreamWriter]
    ) -> None:
        (writer,) = ends
        host, _, port = self.target.rpartition(":")
        if not host or self.faults.refuses_connections:
            return
        from_there, there = await asyncio.open_connection(host, int(port))
        ends.append(there)
        head = await reader.readuntil(b"\r\n\r\n")
        there.write(head)
        if head.split()[1] == STREAM.path.encode():
            writer.write(await from_there.readuntil(b"\r\n\r\n"))
            await _Stream(self, going, writer, there).run(reader, from_there)
        else:
            forth = _pass_bytes((going, self.namenode_may_speak), reader, there)
            await until_one_ends(forth, _pass_bytes((going,), from_there, writer))


class _Stream:
    """One data stream, whose frames are seen."""

    def __init__(
        self,
        wire: Wire,
        going: asyncio.Event,
        back: asyncio.StreamWriter,
        forth: asyncio.StreamWriter,
    ) -> None:
        self._wire, self._going, self._back, self._forth = wire, going, back, forth
        self._votes = deque[bytes]()
        self._come = asyncio.Event()

    async def run(self, reader: asyncio.StreamReader, from_there: asyncio.StreamReader) -> None:
        await until_one_ends(
            self._pass_forth(reader), self._pass_back(from_there), self._pass_votes()
        )

    async def _pass_forth(self, reader: asyncio.StreamReader) -> None:
        while True:
            header, frame = await _next_frame(reader)
            await self._going.wait()
            if header.kind is FrameKind.CHUNK:
                frame = self._chunk(header, frame)
            elif header.kind is FrameKind.CALL:
                frame = self._call(header, _CALLS.decode(frame[HEADER_BYTES:]), frame)
            self._forth.write(frame)
            await self._forth.drain()

    def _chunk(self, header: Header, frame: bytes) -> bytes:
        """Return the frame that goes on for a chunk; b"": none."""
        faults = self._wire.faults
        if not self._takes_chunks(1):
            return b""
        if faults.refuses_chunks is not None:
            nack = self._nack(header.block, header.generation)
            self._say_vote(_frame(FrameKind.NACK, msgspec.msgpack.encode(nack), header))
            return b""
        return frame[:-1] + bytes([frame[-1] ^ 1]) if faults.flips_chunks else frame

    def _call(self, header: Header, call: Any, frame: bytes) -> bytes:
        """Return the frame that goes on for a call; b"": none."""
        wire, faults = self._wire, self._wire.faults
        match call:
            case Envelope(message=Create()):
                wire.batches.append("Create")
                if faults.refuses_replicas:
                    self._back.write(_frame(FrameKind.ERROR, NO_ROOM, header))
                    return b""
            case Envelope(message=Read(sync=True)):
                wire.asked["Read and sync"] += 1
            case CreateAndWrite():
                wire.batches.append("CreateAndWrite")
                return b"" if self._refused(header, (call,), alone=True) else frame
            case CreateAndWriteAll(each=each):
                wire.batches.append(f"CreateAndWriteAll of {len(each)}")
                return b"" if self._refused(header, each, alone=False) else frame
            case ReadBytes():
                wire.asked["ReadBytes"] += 1
                if faults.ignores_reads:
                    return b""
                return frame
        wire.asked[type(call.message if isinstance(call, Envelope) else call).__name__] += 1
        return frame

    def _refused(self, header: Header, calls: tuple[CreateAndWrite, ...], *, alone: bool) -> bool:
        """True if replicas are not made with their first chunks; an answer says why."""
        faults = self._wire.faults
        refusals: list[Nack | NoAnswer] = []
        if faults.refuses_replicas:
            refusals = [NoAnswer(NO_ROOM)] * len(calls)
        elif not self._takes_chunks(len(calls)):
            return True
        elif faults.refuses_chunks is not None:
            refusals = [self._nack(call.create.block, NO_GENERATION) for call in calls]
        if not refusals:
            return False
        kind, answer = FrameKind.REPLY, b""
        if not alone:
            answer = _REPLIES.encode(Votes(tuple(refusals)))
        elif isinstance(refusals[0], Nack):
            answer = _REPLIES.encode(refusals[0])
        else:
            kind, answer = FrameKind.ERROR, NO_ROOM
        self._say_vote(_frame(kind, answer, header))
        return True

    def _takes_chunks(self, count: int) -> bool:
        wire, most = self._wire, self._wire.faults.drops_after_chunks
        if most is not None and wire.chunks + count > most:
            wire.cut()
            return False
        wire.chunks += count
        return True

    def _nack(self, block: BlockId, generation: Generation) -> Nack:
        reason = self._wire.faults.refuses_chunks
        assert reason is not None
        return Nack(block, generation, self._wire.storage, reason, generation, generation, 0)

    async def _pass_back(self, reader: asyncio.StreamReader) -> None:
        """Pass on what the DataNode says; what is no vote overtakes those that are kept back."""
        while True:
            header, frame = await _next_frame(reader)
            await self._going.wait()
            if header.kind is FrameKind.BEAT:
                self._back.write(self._beat(header, frame))
                continue
            self._wire.answers += 1
            if (vote := self._vote(header, frame)) is not None:
                self._say_vote(vote)
                continue
            self._back.write(self._run(header, frame) if header.kind is FrameKind.RUN else frame)
            await self._back.drain()

    def _say_vote(self, vote: bytes) -> None:
        """Say a vote, at once where it may go: the stream may end right behind it."""
        self._wire.votes += 1
        self._votes.append(vote)
        self._say_votes()
        self._come.set()

    def _say_votes(self) -> None:
        while self._votes and self._wire.votes_may_go.is_set() and self._going.is_set():
            self._back.write(self._votes.popleft())

    async def _pass_votes(self) -> None:
        while True:
            await self._come.wait()
            self._come.clear()
            await self._wire.votes_may_go.wait()
            await self._going.wait()
            self._say_votes()

    def _vote(self, header: Header, frame: bytes) -> bytes | None:
        """Return the frame that arrives for a vote or a refusal to vote; None if it is neither."""
        faults, kind, payload = self._wire.faults, header.kind, frame[HEADER_BYTES:]
        if kind not in (FrameKind.VOTE, FrameKind.NACK, FrameKind.REPLY):
            return None
        reply = _REPLIES.decode(payload) if kind is FrameKind.REPLY else None
        if kind is FrameKind.REPLY and not isinstance(reply, Vote | Votes):
            return None
        if faults.talks_garbage:
            return GARBAGE
        if faults.votes_for_unsent:
            if kind is FrameKind.VOTE:
                return msgspec.structs.replace(header, index=_unsent(header.index)).pack() + payload
            if isinstance(reply, Vote):
                return _frame(kind, _REPLIES.encode(_vote_for_unsent(reply)), header)
            if isinstance(reply, Votes):
                all_of = Votes(tuple(map(_vote_for_unsent, reply.each)))
                return _frame(kind, _REPLIES.encode(all_of), header)
        return frame

    def _beat(self, header: Header, frame: bytes) -> bytes:
        if stands_ms := round(self._wire.faults.disk_stands_s * 1000):
            return msgspec.structs.replace(header, request=stands_ms).pack() + frame[HEADER_BYTES:]
        return frame

    def _run(self, header: Header, frame: bytes) -> bytes:
        """Return the frame that arrives for chunks that were read."""
        faults, payload = self._wire.faults, frame[HEADER_BYTES:]
        self._wire.runs += 1
        if faults.flips_reads:
            payload = payload[:-1] + bytes([payload[-1] ^ 1])
        if faults.turns_reads:
            payload = payload[faults.turns_reads :] + payload[: faults.turns_reads]
        if faults.shortens_reads:
            payload = payload[:-1]
        return msgspec.structs.replace(header, payload_length=len(payload)).pack() + payload


def _unsent(index: ChunkIndex) -> ChunkIndex:
    return ChunkIndex(index + 1000)


def _vote_for_unsent(vote: Any) -> Any:
    known = isinstance(vote, Vote)
    return msgspec.structs.replace(vote, index=_unsent(vote.index)) if known else vote


def _frame(kind: FrameKind, payload: bytes, of: Header) -> bytes:
    """A frame that answers or replaces the one with the header `of`."""
    return Header.of(kind, payload, block=of.block, request=of.request).pack() + payload


async def _next_frame(reader: asyncio.StreamReader) -> tuple[Header, bytes]:
    head = await reader.readexactly(HEADER_BYTES)
    header = Header.unpack(head)
    return header, head + await reader.readexactly(header.payload_length)


async def _pass_bytes(
    gates: tuple[asyncio.Event, ...], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    while some := await reader.read(1 << 18):
        for gate in gates:
            await gate.wait()
        writer.write(some)
        await writer.drain()
