"""The shipped NameNode and DataNodes in this process, each behind a proxy that may fail.

They keep their files in memory where the system has a folder for that. What a test does to a
DataNode happens on the wire or to its process: a client sees what it would see of a machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

from paxosblock.api.care import SET_ADMIN_STATE, AdminState, SetAdminState
from paxosblock.api.file_pages import GET_FILE, PAGE_BLOCKS, FileView, GetFile
from paxosblock.api.methods import Method
from paxosblock.api.namenode import (
    SEAL_BLOCK,
    BlockMember,
    BlockRequest,
    BlockView,
)
from paxosblock.api.status import CLUSTER_STATUS, ClusterStatusRequest
from paxosblock.base.encoding import encode, msgpack_decoder
from paxosblock.client.async_client import AsyncClient
from paxosblock.config import ClientConfig, DataNodeConfig, NameNodeConfig
from paxosblock.datanode import datanode_server as datanode
from paxosblock.errors import PaxosBlockError
from paxosblock.namenode import namenode_server as namenode
from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.types import BlockId, BlockState, ReplicaState, StorageId
from tests.calls_proxy import CallsProxy, served
from tests.client.wire import Wire
from tests.waiting import PATIENCE_S, wait_until_async

Q = TypeVar("Q")
R = TypeVar("R")
LISTEN: Final = "127.0.0.1:0"
MEMORY: Final = Path("/dev/shm")
NAMENODE: Final = NameNodeConfig(
    heartbeat_interval_s=0.05,
    datanode_stale_after_s=1000.0,
    datanode_dead_after_s=1001.0,
    safe_mode_extension_s=0.0,
    replicate_after_s=1000.0,
)
DATANODE: Final = DataNodeConfig(
    heartbeat_interval_s=0.05, reserved_space_bytes=0, scrub_period_s=0.0, short_circuit=False
)
NEAR: Final = "here"
"""The machine of the first DataNode: the first replica of what a client with `host=NEAR` writes is
made there."""


class ShippedDataNode:
    """A DataNode that may be killed and started again; others know it by the address of a wire."""

    def __init__(self, name: str, folder: Path, namenode: str, config: DataNodeConfig) -> None:
        self.name, self.folder, self.wire, self.config = name, folder, Wire(), config
        self.address = ""
        self.silent = False
        """The NameNode hears nothing of it."""
        self._kept = folder.with_suffix(".kept")
        self._to_namenode = CallsProxy(namenode, call=self._is_heard)
        self._process, self._wires = AsyncExitStack(), AsyncExitStack()

    @property
    def storage(self) -> StorageId:
        """The id of its one volume."""
        return self.wire.storage

    @property
    def alive(self) -> bool:
        """True between `start` and `kill`."""
        return bool(self.wire.target)

    async def start(self, boot: str | None = None) -> None:
        """Serve, behind the same wire as before; with a `boot`, the machine was off meanwhile."""
        if not self.address:
            enter = self._wires.enter_async_context
            self._namenode = await enter(served(self._to_namenode.serve))
            self.address = await enter(served(self.wire.serve))
        process = datanode.running(
            self.config,
            listen=LISTEN,
            paths=[self.folder],
            namenodes=[self._namenode],
            node_id=self.name,
            advertise=self.address,
            boot=boot,
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
        """End it and its wires."""
        await self.kill()
        await self._wires.aclose()

    async def _is_heard(self, _method: str) -> bool:
        return not self.silent


class ShippedCluster:
    """One NameNode, some DataNodes, and what clients asked the NameNode for."""

    def __init__(
        self,
        configs: Sequence[DataNodeConfig],
        folder: Path,
        config: NameNodeConfig,
        page_blocks: int,
    ) -> None:
        """`configs` are those of the DataNodes, `config` is that of the NameNode, which shows
        `page_blocks` blocks of a file in a page.
        """
        self._page_blocks = page_blocks
        self.calls = list[str]()
        """The names of the calls of clients at the NameNode; those that are carried out."""
        self._requests = list[tuple[str, bytes]]()
        self.refusal: PaxosBlockError | None = None
        """The answer of the NameNode to whatever it is asked; None: its own."""
        self.changes = dict[Method[Any, Any], Callable[[Any], Any]]()
        """By call: a function of its answer that returns the one that arrives."""
        self.answers_lost = set[str]()
        """Calls that are carried out, but whose answers do not arrive."""
        self.answering = dict[str, Callable[[], Awaitable[None]]]()
        """By name of a call: a coroutine function that runs before its answer arrives."""
        self.nodes = list[ShippedDataNode]()
        self.by_storage = dict[StorageId, ShippedDataNode]()
        self.address = ""
        self._configs, self._folder, self._config = configs, folder, config
        self._real = LISTEN
        self._sealing: asyncio.Task[BlockView] | None = None
        self._namenode, self._proxy, self._all = (AsyncExitStack() for _ in range(3))
        self._observer: AsyncClient

    def from_thread(self, work: Coroutine[Any, Any, R]) -> R:
        """Do this on the cluster's loop, for a thread that has none."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    async def start(self) -> None:
        """Serve, and wait until the NameNode has heard of all DataNodes."""
        self._loop = asyncio.get_running_loop()
        await self.start_namenode()
        proxy = CallsProxy(
            self._real,
            call=self._heard,
            answer=self._arrives,
            request=self._requests.append,
            change=self._changed,
            refusal=lambda: self.refusal,
        )
        self.address = await self._proxy.enter_async_context(served(proxy.serve))
        for number, config in enumerate(self._configs):
            name = f"datanode-{number}"
            node = ShippedDataNode(name, self._folder / name, self._real, config)
            self.nodes.append(node)
            self._all.push_async_callback(node.close)
            await node.start()
        self._observer = await self._all.enter_async_context(AsyncClient([self._real]))
        await wait_until_async(self._all_registered, what="the DataNodes to register")

    async def start_namenode(self) -> None:
        """Serve; again on the same port when it ran before."""
        process = namenode.running(
            self._config,
            listen=self._real,
            path=self._folder / "names",
            node_id="names",
            page_blocks=self._page_blocks,
        )
        self._real = (await self._namenode.enter_async_context(process)).address

    async def stop_namenode(self) -> None:
        """Stop the NameNode alone."""
        await self._namenode.aclose()

    async def close(self) -> None:
        """End all."""
        if self._sealing is not None:
            self._sealing.cancel()
            await asyncio.wait([self._sealing])
        await self._all.aclose()
        await self.stop_namenode()
        await self._proxy.aclose()

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
        for storage, node in self.by_storage.items():
            node.wire.storage = storage
        return len(self.by_storage) == len(self._configs)

    async def _heard(self, method: str) -> bool:
        self.calls.append(method)
        return True

    async def _arrives(self, method: str) -> bool:
        if method in self.answering:
            await self.answering[method]()
        return method not in self.answers_lost

    def _changed(self, name: str, answer: bytes) -> bytes:
        for method, change in self.changes.items():
            if method.name == name:
                return encode(change(msgpack_decoder(method.answer).decode(answer)))
        return answer

    def asked(self, method: Method[Q, Any]) -> list[Q]:
        """The requests of clients of this kind, in their order."""
        name, decoder = method.name, msgpack_decoder(method.request)
        return [decoder.decode(each) for called, each in self._requests if called == name]

    async def blocks(self, path: str) -> tuple[BlockView, ...]:
        """The blocks of a file, as the NameNode shows them."""
        found, place = list[BlockView](), 0
        while True:
            ask = self._observer._session.namenodes.call(GET_FILE, GetFile(path, place))
            view: FileView = await ask
            found += view.blocks
            if view.next_place is None:
                return tuple(found)
            place = view.next_place

    async def records(self, path: str) -> list[BlockRecord]:
        """The records of a file's blocks."""
        return [view.record for view in await self.blocks(path)]

    def hold_namenode(self) -> None:
        """No DataNode hears anything of the NameNode until `release_namenode`."""
        for node in self.nodes:
            node.wire.namenode_may_speak.clear()

    def release_namenode(self) -> None:
        """The DataNodes hear what they did not hear meanwhile."""
        for node in self.nodes:
            node.wire.namenode_may_speak.set()

    async def decommission(self, node: ShippedDataNode) -> None:
        """Ask a DataNode to leave for good."""
        request = SetAdminState(node.name, AdminState.DECOMMISSIONED)
        await self._observer._session.namenodes.call(SET_ADMIN_STATE, request)

    async def has_replica(self, member: BlockMember, block: BlockId) -> bool:
        """True if the DataNode of a member of a block, now or before, has a replica of it."""
        with contextlib.suppress(PaxosBlockError):
            await self._observer.blocks.datanode(member).state(block)
            return True
        return False

    async def tell(self, node: ShippedDataNode, block: BlockId) -> None:
        """Let one DataNode hear the NameNode again, and wait until its replica is finalized."""
        node.wire.namenode_may_speak.set()
        view = await self._observer.blocks.get(block)
        (member,) = [each for each in view.members if each.storage == node.storage]

        async def is_told() -> bool:
            state = await self._observer.blocks.datanode(member).state(block)
            return state.registers.state is ReplicaState.FINALIZED

        await wait_until_async(is_told)

    async def begin_recovery(self, path: str) -> None:
        """Let the NameNode end the last block of a file (K2); its members hear of that later."""
        self.hold_namenode()
        *_, last = await self.records(path)
        seal = BlockRequest(last.block, last.writer)
        call = self._observer._session.namenodes.call
        self._sealing = asyncio.create_task(call(SEAL_BLOCK, seal))

        async def is_begun() -> bool:
            return (await self.records(path))[-1].state is BlockState.UNDER_RECOVERY

        await wait_until_async(is_begun)

    async def end_recovery(self) -> None:
        """Let the recovery that was begun come to its end."""
        assert self._sealing is not None
        self.release_namenode()
        await self._sealing

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
    count: int = 3,
    names: NameNodeConfig = NAMENODE,
    nodes: Sequence[DataNodeConfig] = (),
    page_blocks: int = PAGE_BLOCKS,
    **settings: Any,
) -> AsyncIterator[tuple[ShippedCluster, AsyncClient]]:
    """A running cluster and a client of it; `settings` are fields of `ClientConfig`.

    `nodes` are the settings of the DataNodes; else there are `count` of the same.
    """
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        here, *others = nodes or [DATANODE] * count
        configs = [replace(here, host=NEAR), *others]
        cluster = ShippedCluster(configs, Path(folder), names, page_blocks)
        try:
            await cluster.start()
            config = replace(ClientConfig(retry_for_s=30.0, vote_timeout_s=30.0), **settings)
            async with AsyncClient([cluster.address], config) as client:
                yield cluster, client
        finally:
            await cluster.close()
