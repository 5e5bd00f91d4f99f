"""The shipped NameNode and DataNodes in this process, each behind a proxy that may fail.

They keep their files in memory where the system has a folder for that. What a test does to a
DataNode happens on the wire or to its process: a client sees what it would see of a machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from paxosblock.api.file_pages import GET_FILE, FileView, GetFile
from paxosblock.api.namenode import BlockView
from paxosblock.api.status import CLUSTER_STATUS, ClusterStatusRequest
from paxosblock.client.async_client import AsyncClient
from paxosblock.config import ClientConfig, DataNodeConfig, NameNodeConfig
from paxosblock.datanode import datanode_server as datanode
from paxosblock.errors import PaxosBlockError
from paxosblock.namenode import namenode_server as namenode
from paxosblock.net.port.upgrade import STREAM
from paxosblock.net.wire import HEADER_BYTES, FrameKind, Header
from paxosblock.protocol.types import StorageId
from tests.calls_proxy import CallsProxy
from tests.waiting import until_one_ends, wait_until_async

LISTEN: Final = "127.0.0.1:0"
MEMORY: Final = Path("/dev/shm")
NAMENODE: Final = NameNodeConfig(
    heartbeat_interval_s=0.05,
    datanode_stale_after_s=1000.0,
    datanode_dead_after_s=1001.0,
    safe_mode_extension_s=0.0,
)
DATANODE: Final = DataNodeConfig(
    heartbeat_interval_s=0.05, reserved_space_bytes=0, scrub_period_s=0.0, short_circuit=False
)


class Wire:
    """Everything that is said to one DataNode, and that it says."""

    def __init__(self) -> None:
        self.target = ""
        """The address at which it listens; "" while it is down."""
        self.votes_may_go = asyncio.Event()
        """Cleared: of all that it says in streams only beats arrive, until it is set again."""
        self.votes_may_go.set()
        self.flips_chunks = False
        """A bit of each chunk is another one when it arrives."""
        self.answers = 0
        """Frames that it said in streams, without beats."""
        self._connections = dict[asyncio.Task[None], asyncio.Event]()

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
        going, ends = asyncio.Event(), [writer]
        going.set()
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
        if not host:
            return
        from_there, there = await asyncio.open_connection(host, int(port))
        ends.append(there)
        head = await reader.readuntil(b"\r\n\r\n")
        there.write(head)
        is_stream = head.split()[1] == STREAM.path.encode()
        back = self._pass_frames if is_stream else _pass_bytes
        forth = self._pass_chunks if is_stream else _pass_bytes
        await until_one_ends(forth(going, reader, there), back(going, from_there, writer))

    async def _pass_chunks(
        self, going: asyncio.Event, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while True:
            header, frame = await _next_frame(reader)
            await going.wait()
            if header.kind is FrameKind.CHUNK and self.flips_chunks:
                frame = frame[:-1] + bytes([frame[-1] ^ 1])
            writer.write(frame)
            await writer.drain()

    async def _pass_frames(
        self, going: asyncio.Event, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Pass on a stream of the DataNode; its beats overtake what is kept back."""
        kept = asyncio.Queue[bytes]()

        async def pass_kept() -> None:
            while True:
                frame = await kept.get()
                await self.votes_may_go.wait()
                writer.write(frame)

        writer.write(await reader.readuntil(b"\r\n\r\n"))
        passing = asyncio.create_task(pass_kept())
        try:
            while True:
                header, frame = await _next_frame(reader)
                await going.wait()
                if header.kind is FrameKind.BEAT:
                    writer.write(frame)
                else:
                    self.answers += 1
                    kept.put_nowait(frame)
        finally:
            passing.cancel()


async def _next_frame(reader: asyncio.StreamReader) -> tuple[Header, bytes]:
    head = await reader.readexactly(HEADER_BYTES)
    header = Header.unpack(head)
    return header, head + await reader.readexactly(header.payload_length)


async def _pass_bytes(
    going: asyncio.Event, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    while some := await reader.read(1 << 18):
        await going.wait()
        writer.write(some)
        await writer.drain()


class ShippedDataNode:
    """A DataNode that may be killed and started again; others know it by the address of a wire."""

    def __init__(self, name: str, folder: Path, namenode: str) -> None:
        self.name, self.folder, self.wire = name, folder, Wire()
        self.address = ""
        self._namenode, self._kept = namenode, folder.with_suffix(".kept")
        self._process = AsyncExitStack()
        self._server: asyncio.Server | None = None

    @property
    def alive(self) -> bool:
        """True between `start` and `kill`."""
        return bool(self.wire.target)

    async def start(self) -> None:
        """Serve, behind the same wire as before."""
        if self._server is None:
            self._server = await asyncio.start_server(self.wire.serve, "127.0.0.1", 0)
            self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        process = datanode.running(
            DATANODE,
            listen=LISTEN,
            paths=[self.folder],
            namenodes=[self._namenode],
            node_id=self.name,
            advertise=self.address,
        )
        self.wire.target = (await self._process.enter_async_context(process)).address

    async def kill(self) -> None:
        """Cut every connection and serve no more; the replicas stay."""
        self.wire.target = ""
        self.wire.cut()
        await self._process.aclose()

    def block_files(self) -> list[Path]:
        """The block files of its finalized replicas."""
        current = (self.folder / "current").iterdir()
        return sorted(each for each in current if each.suffix != ".meta")

    def keep_folder(self) -> None:
        """Copy its folder as it is now, for `roll_back`."""
        shutil.copytree(self.folder, self._kept, dirs_exist_ok=True)

    def roll_back(self) -> None:
        """Put the folder that was kept in place of the one of a node that was killed."""
        shutil.rmtree(self.folder)
        self._kept.rename(self.folder)

    async def close(self) -> None:
        """End it and its wire."""
        await self.kill()
        if self._server is not None:
            self._server.close()


class ShippedCluster:
    """One NameNode, some DataNodes, and what clients asked the NameNode for."""

    def __init__(self, count: int, folder: Path) -> None:
        self.calls = list[str]()
        """The names of the calls of clients at the NameNode; those that are carried out."""
        self.answers_lost = set[str]()
        """Calls that are carried out, but whose answers do not arrive."""
        self.answering = dict[str, Callable[[], Awaitable[None]]]()
        """By name of a call: a coroutine function that runs before its answer arrives."""
        self.nodes = list[ShippedDataNode]()
        self.by_storage = dict[StorageId, ShippedDataNode]()
        self.address = ""
        self._count, self._folder = count, folder
        self._real = LISTEN
        self._namenode, self._all = AsyncExitStack(), AsyncExitStack()
        self._observer: AsyncClient

    async def start(self) -> None:
        """Serve, and wait until the NameNode has heard of all DataNodes."""
        await self.start_namenode()
        proxy = CallsProxy(self._real, call=self._heard, answer=self._arrives)
        server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
        self._all.callback(server.close)
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for number in range(self._count):
            name = f"datanode-{number}"
            node = ShippedDataNode(name, self._folder / name, self._real)
            self.nodes.append(node)
            self._all.push_async_callback(node.close)
            await node.start()
        self._observer = await self._all.enter_async_context(AsyncClient([self._real]))
        await wait_until_async(self._all_registered, what="the DataNodes to register")

    async def start_namenode(self) -> None:
        """Serve; again on the same port when it ran before."""
        process = namenode.running(
            NAMENODE, listen=self._real, path=self._folder / "names", node_id="names"
        )
        self._real = (await self._namenode.enter_async_context(process)).address

    async def stop_namenode(self) -> None:
        """Stop the NameNode alone."""
        await self._namenode.aclose()

    async def close(self) -> None:
        """End all."""
        await self._all.aclose()
        await self.stop_namenode()

    async def _all_registered(self) -> bool:
        call = self._observer._session.namenodes.call
        seen = await call(CLUSTER_STATUS, ClusterStatusRequest())
        by_name = {node.name: node for node in self.nodes}
        self.by_storage = {
            each.storage: by_name[node.node]
            for node in seen.datanodes
            if node.state == "live"
            for each in node.storages
        }
        return len(self.by_storage) == self._count

    async def _heard(self, method: str) -> bool:
        self.calls.append(method)
        return True

    async def _arrives(self, method: str) -> bool:
        if method in self.answering:
            await self.answering[method]()
        return method not in self.answers_lost

    async def blocks(self, path: str) -> tuple[BlockView, ...]:
        """The blocks of a file, as the NameNode shows them."""
        view: FileView = await self._observer._session.namenodes.call(GET_FILE, GetFile(path))
        return view.blocks

    async def members(self, path: str) -> list[ShippedDataNode]:
        """The DataNodes that have the last block of a file, in the order of its record."""
        *_, last = await self.blocks(path)
        return [self.by_storage[member.storage] for member in last.members]

    async def content(self, path: str) -> bytes:
        """Return the bytes of a closed file, once all replicas of a block that live are equal."""
        counted = range(len(await self.blocks(path)))
        return b"".join([await self._bytes_of(path, index) for index in counted])

    async def _bytes_of(self, path: str, index: int) -> bytes:
        async def found() -> set[bytes]:
            # Asked for at each try, as a replica may be copied and another removed meanwhile.
            view = (await self.blocks(path))[index]
            record = view.record
            assert record.finalized
            alive = [each for each in view.members if self.by_storage[each.storage].alive]
            verbs = map(self._observer.blocks.datanode, alive)
            replicas = {(await one.read(record.block, 0, record.size_bytes))[1] for one in verbs}
            return replicas if {len(each) for each in replicas} == {record.size_bytes} else set()

        async def whole() -> set[bytes]:
            with contextlib.suppress(PaxosBlockError):  # one that was told its end meanwhile
                return await found()
            return set()

        replicas = await wait_until_async(whole, what="replicas as long as their block")
        assert len(replicas) == 1, "replicas of a finalized block are equal"
        return replicas.pop()


@asynccontextmanager
async def shipped_cluster(
    count: int = 3, **settings: Any
) -> AsyncIterator[tuple[ShippedCluster, AsyncClient]]:
    """A running cluster and a client of it; `settings` are fields of `ClientConfig`."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        cluster = ShippedCluster(count, Path(folder))
        try:
            await cluster.start()
            config = replace(ClientConfig(retry_for_s=30.0, vote_timeout_s=30.0), **settings)
            async with AsyncClient([cluster.address], config) as client:
                yield cluster, client
        finally:
            await cluster.close()
