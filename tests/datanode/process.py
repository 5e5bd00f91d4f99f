"""A real DataNode process, and a client that talks to it frame by frame."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from paxosblock.api.datanode import (
    STREAM_CALLS,
    STREAM_REPLIES,
    Answer,
    Control,
    Envelope,
    ReadBytes,
    Run,
    StorageAddress,
)
from paxosblock.errors import PaxosBlockError
from paxosblock.net.calls import control
from paxosblock.net.streams.stream_calls import CallChannel, open_channel
from paxosblock.net.wire import FrameKind, Header, MessageTable
from paxosblock.protocol.messages import Create, Created, LastVote, Nack, NextGS, Read
from paxosblock.protocol.types import BlockId, Durability, Generation, StorageId
from tests.children import memory_bytes
from tests.datanode.node import BLOCK, WINDOW
from tests.fork_server import Program
from tests.waiting import wait_until, wait_until_async

NOBODY = "127.0.0.1:1"
"""An address at which no NameNode listens."""


@dataclass
class DataNodeProcess:
    """`python -m paxosblock datanode` with its folders below `folder`."""

    folder: Path
    volumes: int = 1
    namenodes: str = NOBODY
    process: subprocess.Popen[bytes] | None = None

    @property
    def paths(self) -> list[Path]:
        return [self.folder / f"volume-{number}" for number in range(self.volumes)]

    def start(self) -> None:
        """Start it and wait until it is ready."""
        (self.paths[0] / "address").unlink(missing_ok=True)
        command = [sys.executable, "-m", "paxosblock", "datanode", "--id", self.folder.name]
        command += ["--listen", "127.0.0.1:0", "--namenodes", self.namenodes]
        for path in self.paths:
            command += ["--path", str(path)]
        with (self.folder / "log").open("ab") as log:
            self.process = Program(command, stdout=log, stderr=log)
        wait_until(self._ready, what=f"{self.folder.name} to be ready: {self.log()}")

    def _ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log()
        return (self.paths[0] / "address").exists()

    def log(self) -> str:
        return (self.folder / "log").read_text()

    @property
    def address(self) -> str:
        return (self.paths[0] / "address").read_text().strip()

    @property
    def healthy(self) -> bool:
        return control.healthy(self.address)

    @property
    def storage(self) -> StorageId:
        """Of the first volume."""
        lines = (self.paths[0] / "VERSION").read_text().splitlines()
        return StorageId(lines[1].removeprefix("storage="))

    @property
    def resident_bytes(self) -> int:
        assert self.process is not None
        return memory_bytes(self.process.pid)

    def end(self, number: signal.Signals) -> int:
        """Send the signal, wait for the end, return the exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(timeout=20)

    def kill(self) -> None:
        """SIGKILL, if it still runs."""
        if self.process is not None and self.process.poll() is None:
            self.end(signal.SIGKILL)


@contextmanager
def datanode(
    folder: Path, *, volumes: int = 1, namenodes: str = NOBODY
) -> Iterator[DataNodeProcess]:
    """A running DataNode, killed at the end."""
    folder.mkdir(exist_ok=True)
    node = DataNodeProcess(folder, volumes, namenodes)
    try:
        node.start()
        yield node
    finally:
        node.kill()


@dataclass
class Votes:
    """A `VoteHandler` that takes down what comes."""

    votes: list[Header] = field(default_factory=list)
    nacks: list[Nack] = field(default_factory=list)
    beats: list[Header] = field(default_factory=list)
    lost: list[PaxosBlockError] = field(default_factory=list)

    def vote_received(self, header: Header, payload: memoryview) -> None:
        if header.kind is FrameKind.VOTE:
            self.votes.append(header)
        else:
            self.nacks.append(msgspec.msgpack.decode(payload, type=Nack))

    def beat_received(self, header: Header) -> None:
        self.beats.append(header)

    def connection_lost(self, error: PaxosBlockError) -> None:
        self.lost.append(error)


class Received:
    """A `ChunkSink` that keeps the payloads."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []

    def reply_received(self, reply: object, count: int) -> None:
        pass

    def payload_buffer(self, header: Header) -> memoryview | None:
        return None

    def chunk_received(self, header: Header, payload: memoryview) -> None:
        self.payloads.append(bytes(payload))


class Client:
    """One data stream to a DataNode."""

    def __init__(self, node: DataNodeProcess, channel: CallChannel, votes: Votes) -> None:
        self.node = node
        self.channel = channel
        self.votes = votes.votes
        self.nacks = votes.nacks
        self.lost = votes.lost

    def send(self, sent: tuple[Header, bytes]) -> None:
        """Send a chunk frame."""
        self.channel.connection.send(sent[1])

    async def ask(self, message: Control | Read, *peers: StorageAddress) -> Answer:
        answer: Answer = await self.channel.call(
            Envelope(self.node.storage, message, peers), timeout_s=20
        )
        return answer

    async def create(
        self, block: BlockId = BLOCK, durability: Durability = Durability.DISK
    ) -> None:
        created = await self.ask(Create(block, WINDOW, durability))
        assert isinstance(created, Created), created

    async def last_vote(self, generation: int, block: BlockId = BLOCK) -> LastVote:
        request = NextGS(block, Generation(generation), Generation(0), WINDOW, Durability.DISK)
        vote = await self.ask(request)
        assert isinstance(vote, LastVote), vote
        return vote

    async def read(self, request: ReadBytes) -> tuple[Run, bytes]:
        received = Received()
        reply = await self.channel.call(request, timeout_s=20, sink=received)
        assert isinstance(reply, Run), reply
        return reply, b"".join(received.payloads)

    async def wait_votes(self, count: int) -> None:
        await wait_until_async(lambda: len(self.votes) >= count, what=f"{count} votes")


@asynccontextmanager
async def client_of(node: DataNodeProcess) -> AsyncIterator[Client]:
    """A client for the length of a `with`."""
    host, _, port = node.address.rpartition(":")
    votes = Votes()
    calls, replies = MessageTable(STREAM_CALLS), MessageTable(STREAM_REPLIES)
    channel = await open_channel(host, int(port), calls, replies, votes)
    try:
        yield Client(node, channel, votes)
    finally:
        channel.connection.abort()
        await channel.connection.wait_closed()


async def raw_connection(
    node: DataNodeProcess,
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A socket on which the upgrade is done and nothing else."""
    host, _, port = node.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        b"GET /stream HTTP/1.1\r\nHost: x\r\nUpgrade: paxosblock-stream/3\r\n"
        b"Connection: Upgrade\r\n\r\n"
    )
    head = await reader.readuntil(b"\r\n\r\n")
    assert b" 101 " in head
    return reader, writer
