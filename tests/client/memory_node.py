"""A DataNode that keeps its replicas in memory and fails on request.

It runs the real acceptor (`protocol.register.answer`) behind the real data stream on a real socket.
What it lacks is a disk; what it has instead are the faults that a test asks for.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
from aiohttp import web
from msgspec.structs import replace

from paxosblock.api.datanode import (
    STREAM_CALLS,
    STREAM_REPLIES,
    CreateAndWrite,
    CreateAndWriteAll,
    Envelope,
    NoAnswer,
    ReadBytes,
    Run,
    Votes,
    Watch,
)
from paxosblock.datanode.acceptor import first_chunk
from paxosblock.errors import InvalidRequestError, NotReadyError, PaxosBlockError
from paxosblock.net.streams.beats import BeatSender
from paxosblock.net.streams.connection import FrameConnection
from paxosblock.net.streams.stream_calls import Bulk, CallServer
from paxosblock.net.streams.stream_server import upgrade_handler
from paxosblock.net.wire import (
    HEADER_BYTES,
    Flags,
    FrameKind,
    Header,
    MessageTable,
    encode_error,
    verify_payload,
)
from paxosblock.protocol.effects import AdoptLog, AppendChunk, DropReplica, SyncChunks
from paxosblock.protocol.messages import (
    Create,
    Created,
    Finalize,
    Nack,
    Read,
    ReadReply,
    RecoveryWrite,
    Reply,
    Request,
    Vote,
    Write,
)
from paxosblock.protocol.read import holds, is_good
from paxosblock.protocol.register import Replica, answer, nack, restarted, wanted
from paxosblock.protocol.types import (
    NO_GENERATION,
    BlockId,
    ChunkIndex,
    ChunkName,
    Reason,
    StorageId,
)

_CALLS = MessageTable(STREAM_CALLS)
_REPLIES = MessageTable(STREAM_REPLIES)


@dataclass(slots=True)
class Faults:
    """The faults of a node; none at first."""

    drop_after_chunks: int | None = None
    """Cut all connections instead of voting for one more chunk than this."""
    refuse_writes: Reason | None = None
    refuse_create: bool = False
    vote_for_unsent: bool = False
    garbage_instead_of_votes: bool = False
    corrupt_reads: bool = False
    """Flip a bit in every chunk that is read."""
    wrong_chunks: bool = False
    """Serve sound chunks of the block in another order."""
    short_chunks: bool = False
    """Serve runs of chunks that lack their last byte."""
    silent_reads: bool = False
    """Never answer a read of bytes."""
    disk_stands_s: float = 0.0
    """Say in beats that nothing has come back from the disk for so long."""
    most_read_bytes: int = 4 * 1024 * 1024


class MemoryDataNode:
    """One node with one storage."""

    def __init__(self, name: str) -> None:
        self.storage = StorageId(name)
        self.address = ""
        self.faults = Faults()
        self.peers: Mapping[StorageId, MemoryDataNode] = {}
        self.replicas: dict[BlockId, Replica] = {}
        self.frames: defaultdict[BlockId, list[bytes]] = defaultdict(list)
        self.synced: defaultdict[BlockId, int] = defaultdict(int)
        """Number of chunks that a power cut would leave."""
        self.chunks_received = 0
        self.calls: list[str] = []
        """The messages that make replicas."""
        self.reads_asked = 0
        self.reads_served = 0
        self.reads_of_state = 0
        self.watches = 0
        self.votes_may_go = asyncio.Event()
        self.votes_may_go.set()
        self._connections: dict[FrameConnection, _Stream] = {}
        self._changed = asyncio.Event()
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen; again on the same port when it ran before."""
        app = web.Application()
        app.router.add_get("/stream", upgrade_handler(app, lambda _request: _Stream(self)))
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        port = int(self.address.rpartition(":")[2] or 0)
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.address = f"{host}:{port}"

    async def kill(self) -> None:
        """Cut every connection and stop listening; the replicas stay."""
        self.cut()
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    def restart(self, *, power_cut: bool = False) -> None:
        """Do to the replicas as the end of the process does, or that of the machine's power (D8).

        Connections stay: a writer that lost one would end the block.
        """
        for block, replica in self.replicas.items():
            kept = (
                max(replica.registers.base_length, self.synced[block])
                if power_cut
                else replica.length
            )
            del self.frames[block][kept:]
            left = replace(replica, log=replica.log.truncate(kept))
            self.replicas[block] = restarted(left, same_boot=not power_cut)

    def lose_chunks(self, block: BlockId, kept: int) -> None:
        """Have only `kept` chunks of a block from now on, and never have had others."""
        replica = self.replicas[block]
        del self.frames[block][kept:]
        self.replicas[block] = replace(
            replica, log=replica.log.truncate(kept), acknowledged_count=0
        )

    def cut(self) -> None:
        """Cut every connection."""
        for connection in tuple(self._connections):
            connection.abort()

    def hang(self) -> None:
        """Nothing is read, nothing said: what is connected now is like a stopped process."""
        for connection, stream in self._connections.items():
            connection.pause_reading()
            stream.beats.stop()

    def data(self, block: BlockId) -> bytes:
        """The user bytes of a replica."""
        return b"".join(frame[HEADER_BYTES:] for frame in self.frames[block])

    def handle(self, request: Request, frame: bytes = b"") -> Reply:
        """One step of the acceptor: what is fetched first, then the new state, then the reply."""
        replica = self.replicas.get(request.block)
        supplied: tuple[ChunkName, ...] = ()
        fetched: list[bytes] = []
        if isinstance(request, RecoveryWrite | Finalize):
            missing = wanted(self.storage, replica, request)
            holder = next((self.peers[at] for at in request.holders if at != self.storage), None)
            if missing and holder is not None:
                log = holder.replicas[request.block].log
                supplied = log.slice(missing.start, missing.stop)
                fetched = holder.frames[request.block][missing.start : missing.stop]
        step = answer(self.storage, replica, request, supplied)
        frames = self.frames[request.block]
        match step.effect:
            case AppendChunk():
                frames.append(frame)
            case AdoptLog(keep=keep):
                frames[keep:] = fetched
            case _:
                pass
        match step.effect:
            case AdoptLog() | SyncChunks() | AppendChunk(sync=True):
                self.synced[request.block] = len(frames)
            case _:
                pass
        if step.replica is not None:
            self.replicas[request.block] = step.replica
        elif isinstance(step.effect, DropReplica):
            del self.replicas[request.block], self.frames[request.block]
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        return step.reply

    async def watch(self, watch: Watch) -> Reply:
        """Answer when there is news (see `Watch`)."""
        self.watches += 1
        try:
            async with asyncio.timeout(watch.wait_ms / 1000):
                while True:
                    changed = self._changed
                    reply = self.handle_read(watch.read)
                    if not isinstance(reply, ReadReply) or not is_good(reply, watch.generation):
                        return reply
                    if reply.length > watch.known_length:
                        return reply
                    await changed.wait()
        except TimeoutError:
            return self.handle_read(watch.read)

    def handle_read(self, read: Read) -> Reply:
        """The registers of a replica, after syncing it if that is asked for."""
        step = answer(self.storage, self.replicas.get(read.block), read)
        if isinstance(step.effect, SyncChunks):
            self.synced[read.block] = len(self.frames[read.block])
        return step.reply

    async def read_bytes(self, request: ReadBytes) -> Nack | Bulk:
        """Chunks of a version, damaged as the faults say."""
        self.reads_asked += 1
        if self.faults.silent_reads:
            await asyncio.Event().wait()
        reply = self.handle_read(Read(request.block))
        if not isinstance(reply, ReadReply) or not holds(request.version, reply):
            replica = self.replicas.get(request.block)
            reason = Reason.NO_REPLICA if replica is None else Reason.STALE
            return nack(self.storage, request.block, request.version.epoch, reason, replica)
        log = self.replicas[request.block].log.truncate(request.version.length)
        first = last = log.index_at(request.offset)
        stop = min(
            request.offset + request.size_bytes, log.start_of(first) + self.faults.most_read_bytes
        )
        while last < len(log) and (last == first or log.start_of(last) < stop):
            last += 1
        self.reads_served += 1
        frames = self.frames[request.block][first:last]
        named = log.truncate(first)
        for each in map(Header.unpack, frames):
            named = named.append(each.payload_length, each.payload_crc)
        chunks = [self._served(frame) for frame in frames]
        if self.faults.wrong_chunks:
            chunks.reverse()
        payload = b"".join(chunks)[: -1 if self.faults.short_chunks else None]
        index, size = ChunkIndex(first), len(payload)
        header = Header(FrameKind.RUN, payload_length=size, block=request.block, index=index)
        run = Run(first, log.start_of(first), named.entries(first, last))
        return Bulk(run, 1, (header.pack(), payload))

    def _served(self, frame: bytes) -> bytes:
        if self.faults.corrupt_reads and len(frame) > HEADER_BYTES:
            return frame[HEADER_BYTES:-1] + bytes([frame[-1] ^ 1])
        return frame[HEADER_BYTES:]


class _Stream:
    """The frames of one connection."""

    def __init__(self, node: MemoryDataNode) -> None:
        self._node = node
        self._calls = CallServer(_CALLS, _REPLIES, self._answer)
        self.beats = BeatSender(lambda: len(self._tasks), lambda: node.faults.disk_stands_s)
        self._tasks: set[asyncio.Task[None]] = set()

    def payload_buffer(self, header: Header) -> memoryview | None:
        return None

    def frame_received(
        self, connection: FrameConnection, header: Header, frame: memoryview
    ) -> None:
        self._node._connections[connection] = self
        if header.kind is FrameKind.CALL:
            self._calls.call_received(connection, header, frame)
            return
        if header.kind is FrameKind.BEAT:
            self.beats.asked(connection, header)
            return
        verify_payload(header, frame[HEADER_BYTES:])
        self._chunk(connection, header, bytes(frame))

    def payload_received(
        self, connection: FrameConnection, header: Header, payload: memoryview
    ) -> None:
        raise AssertionError("no buffer was given")

    def connection_lost(self, connection: FrameConnection, error: PaxosBlockError) -> None:
        self._node._connections.pop(connection, None)
        self.beats.stop()
        self._calls.connection_lost()

    def _chunk(self, connection: FrameConnection, header: Header, frame: bytes) -> None:
        reply = self._voted(header, frame)
        if reply is None:
            return
        task = asyncio.create_task(self._vote(connection, reply))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _voted(self, header: Header, frame: bytes) -> Reply | None:
        """The answer to a chunk; None: all connections are cut."""
        node, faults = self._node, self._node.faults
        if (
            faults.drop_after_chunks is not None
            and node.chunks_received >= faults.drop_after_chunks
        ):
            node.cut()
            return None
        node.chunks_received += 1
        write = Write(
            header.block,
            header.generation,
            header.index,
            header.payload_length,
            header.payload_crc,
            header.acknowledged,
            bool(header.flags & Flags.SYNC),
        )
        if faults.refuse_writes is not None:
            return Nack(
                write.block, write.generation, node.storage, faults.refuse_writes, write.generation,
                write.generation, 0,
            )  # fmt: skip
        return node.handle(write, frame)

    async def _vote(self, connection: FrameConnection, reply: Reply) -> None:
        await self._node.votes_may_go.wait()
        if self._node.faults.garbage_instead_of_votes:
            connection.send(b"this is no frame of the protocol, whatever it may be" * 2)
            return
        if isinstance(reply, Vote):
            index = ChunkIndex(reply.index + 1000 * self._node.faults.vote_for_unsent)
            flags = Flags.SYNC if reply.synced else 0
            header = Header(FrameKind.VOTE, flags, 0, 0, reply.block, reply.generation, index)
            connection.send_frame(header)
            return
        payload = msgspec.msgpack.encode(reply)
        connection.send_frame(Header.of(FrameKind.NACK, payload, block=reply.block), payload)

    async def _vote_of(self, request: CreateAndWrite, header: Header) -> Vote | Nack | NoAnswer:
        try:
            answer = await self._answer(request, header)
        except PaxosBlockError as error:
            return NoAnswer(encode_error(error))
        finally:
            self._node.calls.remove("CreateAndWrite")
        assert isinstance(answer, Vote | Nack)
        return answer

    async def _answer(self, request: object, header: Header) -> object:
        match request:
            case Envelope(message=Create() as create):
                self._node.calls.append("Create")
                if self._node.faults.refuse_create:
                    raise NotReadyError("no room for a replica")
                return self._node.handle(create)
            case CreateAndWrite(create=create, frame=frame):
                self._node.calls.append("CreateAndWrite")
                if self._node.faults.refuse_create:
                    raise NotReadyError("no room for a replica")
                created = self._node.handle(create)
                if not isinstance(created, Created):
                    return created
                voted = self._voted(first_chunk(request), frame)
                await self._node.votes_may_go.wait()
                if isinstance(voted, Vote) and self._node.faults.vote_for_unsent:
                    return replace(voted, index=ChunkIndex(voted.index + 1000))
                return voted or nack(self._node.storage, create.block, NO_GENERATION)
            case CreateAndWriteAll(each=each):
                self._node.calls.append(f"CreateAndWriteAll of {len(each)}")
                return Votes(tuple([await self._vote_of(one, header) for one in each]))
            case Envelope(message=Read() as read):
                self._node.reads_of_state += 1
                return self._node.handle_read(read)
            case Watch():
                return await self._node.watch(request)
            case ReadBytes():
                return await self._node.read_bytes(request)
            case _:
                raise InvalidRequestError(f"not asked in these tests: {request}")
