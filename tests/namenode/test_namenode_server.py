"""The NameNode over real HTTP, against DataNodes over real HTTP."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import aiohttp
import pytest

from paxosblock.api.file_pages import GET_FILE, GetFile
from paxosblock.api.methods import Method
from paxosblock.api.namenode import (
    ADD_BLOCK,
    CLOSE_FILE,
    CREATE,
    DELETE,
    FINALIZE_BLOCK,
    GET_BLOCK,
    LIST,
    MKDIRS,
    NO_BLOCK,
    NO_FILE,
    RENAME,
    RENEW_LEASES,
    SEAL_BLOCK,
    STAT,
    TAKE_OVER,
    AddBlock,
    BlockRequest,
    BlockView,
    CloseFile,
    DeletePath,
    FinalizeBlock,
    ListDirectory,
    MakeDirectories,
    PathRequest,
    RenamePath,
    RenewLeases,
    TakeOver,
)
from paxosblock.api.reports import ALL_BLOCKS, BLOCK_REPORT, BlockReport
from paxosblock.api.status import CLUSTER_STATUS, EXPLAIN, ClusterStatusRequest
from paxosblock.config import NameNodeConfig
from paxosblock.errors import (
    ConfigError,
    ExistsError,
    FencedError,
    InvalidRequestError,
    LeaseError,
    NoSpaceError,
    NotFoundError,
    NotReadyError,
    PaxosBlockError,
    ProtocolError,
)
from paxosblock.namenode import namenode_server
from paxosblock.net.calls.rpc import RpcClient
from paxosblock.protocol.types import FIRST_GENERATION, BlockId, StorageId
from tests.namenode.cluster import CHUNK_BYTES, acceptors
from tests.namenode.datanode import HttpDataNode, serving
from tests.namenode.scene import ANN, BOB, create_request
from tests.waiting import wait_until_async

Q = TypeVar("Q")
A = TypeVar("A")

CONFIG = NameNodeConfig(recovery_timeout_s=20.0, heartbeat_interval_s=0.1)


@dataclass
class Remote:
    """A NameNode, three DataNodes and a client, all on loopback."""

    namenode: str
    client: RpcClient
    datanodes: dict[StorageId, HttpDataNode]

    async def call(self, method: Method[Q, A], request: Q) -> A:
        return await self.client.call(self.namenode, method.name, request, method.answer, 10.0)

    async def patient(self, method: Method[Q, A], request: Q) -> A:
        """Like `call`, again and again while the node is not ready."""

        async def attempt() -> A | None:
            try:
                return await self.call(method, request)
            except NotReadyError:
                return None

        answer = await wait_until_async(attempt)
        assert answer is not None
        return answer

    async def new_block(self, path: str, counts: tuple[int, ...] = (0, 0, 0)) -> BlockView:
        """A file with one block; its members hold this many chunks."""
        status = (await self.call(CREATE, create_request(path))).status
        view = await self.patient(ADD_BLOCK, AddBlock(status.file_id, ANN, NO_BLOCK, 2))
        for storage, count in zip(view.record.members, counts, strict=True):
            self.datanodes[storage].acceptor.create(view.record.block)
            self.datanodes[storage].acceptor.write(view.record.block, count)
        return view


@pytest.fixture
async def remote(tmp_path: Path) -> AsyncIterator[Remote]:
    async with AsyncExitStack() as stack:
        namenode = await stack.enter_async_context(
            namenode_server.running(
                CONFIG, listen="127.0.0.1:0", path=tmp_path / "nn", node_id="nn"
            )
        )
        address = namenode.address
        client = await stack.enter_async_context(RpcClient())
        nodes = {
            storage: await stack.enter_async_context(serving(acceptor))
            for storage, acceptor in acceptors("s1", "s2", "s3").items()
        }
        for node in nodes.values():
            await node.register(client, address)
        yield Remote(address, client, nodes)


async def test_a_file_is_made_written_closed_and_seen(remote: Remote) -> None:
    view = await remote.new_block("/logs/a", (2, 2, 2))
    block = view.record.block
    assert [member.live for member in view.members] == [True] * 3
    assert {member.address for member in view.members} == {
        node.address for node in remote.datanodes.values()
    }
    finalize = FinalizeBlock(block, ANN, FIRST_GENERATION, 2, 2 * CHUNK_BYTES)
    decided = await remote.call(FINALIZE_BLOCK, finalize)
    assert (decided.record.length, decided.record.finalized) == (2, True)
    file = (await remote.call(STAT, PathRequest("/logs/a"))).file_id
    closed = await remote.call(CLOSE_FILE, CloseFile(file, ANN))
    assert (closed.open, closed.size) == (False, 2 * CHUNK_BYTES)
    seen = await remote.call(GET_FILE, GetFile("/logs/a"))
    assert [(b.record.block, b.offset, b.complete) for b in seen.blocks] == [(block, 0, True)]
    listing = await remote.call(LIST, ListDirectory("/logs"))
    assert [entry.path for entry in listing.entries] == ["/logs/a"]


async def test_the_namespace_verbs_work_over_the_wire(remote: Remote) -> None:
    await remote.call(MKDIRS, MakeDirectories("/a/b"))
    moved = await remote.call(RENAME, RenamePath("/a/b", "/a/c"))
    assert moved.path == "/a/c"
    assert (await remote.call(DELETE, DeletePath("/a", recursive=True))).existed
    with pytest.raises(NotFoundError, match="'/a/c': no such file or directory"):
        await remote.call(STAT, PathRequest("/a/c"))


async def test_a_seal_with_a_dead_member_does_not_wait_for_it(remote: Remote) -> None:
    view = await remote.new_block("/f", (3, 3, 3))
    await remote.datanodes[view.record.members[0]].stop()
    started = time.perf_counter()
    sealed = await remote.call(SEAL_BLOCK, BlockRequest(view.record.block, ANN))
    assert sealed.record.length == 3
    assert time.perf_counter() - started < CONFIG.recovery_timeout_s / 2


async def test_a_node_that_refuses_connections_gets_no_new_block_while_others_live(
    remote: Remote,
) -> None:
    view = await remote.new_block("/f", (1, 1, 1))
    gone = view.record.members[0]
    await remote.datanodes[gone].stop()
    await remote.call(SEAL_BLOCK, BlockRequest(view.record.block, ANN))
    request = AddBlock(NO_FILE, ANN, NO_BLOCK, 2, replication=2)
    placed = [await remote.call(ADD_BLOCK, request) for _ in range(10)]
    assert all(gone not in view.record.members for view in placed)


async def test_take_over_fences_the_writer_and_closes_the_file(remote: Remote) -> None:
    view = await remote.new_block("/f", (3, 2, 2))
    status = await remote.call(TAKE_OVER, TakeOver("/f"))
    assert not status.open
    assert status.size in (2 * CHUNK_BYTES, 3 * CHUNK_BYTES)
    with pytest.raises(FencedError, match="'/f': was closed by namenode"):
        await remote.call(ADD_BLOCK, AddBlock(status.file_id, ANN, view.record.block, 2))
    assert (await remote.call(RENEW_LEASES, RenewLeases((ANN,)))).lost == (ANN,)
    again = await remote.call(TAKE_OVER, TakeOver("/f"))
    assert again == status


async def test_a_block_of_a_live_writer_is_not_sealed_for_somebody_else(remote: Remote) -> None:
    view = await remote.new_block("/f", (1, 1, 1))
    with pytest.raises(LeaseError, match="is being written by ann; take_over ends that"):
        await remote.call(SEAL_BLOCK, BlockRequest(view.record.block, BOB))


async def test_a_block_without_a_file_is_for_embedders(remote: Remote) -> None:
    view = await remote.call(ADD_BLOCK, AddBlock(NO_FILE, ANN, NO_BLOCK, 2, replication=2))
    assert len(view.members) == 2
    sealed = await remote.call(SEAL_BLOCK, BlockRequest(view.record.block))
    assert sealed.record.finalized
    explained = await remote.call(EXPLAIN, BlockRequest(view.record.block))
    assert explained.path == ""


async def test_a_deleted_file_is_deleted_from_the_datanodes(remote: Remote) -> None:
    view = await remote.new_block("/f", (1, 1, 1))
    await remote.call(DELETE, DeletePath("/f"))
    await wait_until_async(
        lambda: not any(node.acceptor.replicas for node in remote.datanodes.values())
    )
    with pytest.raises(NotFoundError, match="no such block"):
        await remote.call(GET_BLOCK, BlockRequest(view.record.block))


async def test_a_leftover_replica_of_a_deleted_block_goes_with_its_report(remote: Remote) -> None:
    view = await remote.new_block("/f", (1, 1, 1))
    away = remote.datanodes[view.record.members[0]]
    kept = dict(away.acceptor.replicas)
    await remote.call(DELETE, DeletePath("/f"))
    await wait_until_async(lambda: not away.acceptor.replicas)
    away.acceptor.replicas.update(kept)  # as if it had been away meanwhile
    await away.report(remote.client, remote.namenode)
    await wait_until_async(lambda: not away.acceptor.replicas)


async def test_a_block_of_another_cluster_is_an_alarm_and_is_left_alone(remote: Remote) -> None:
    node = remote.datanodes[StorageId("s1")]
    node.acceptor.create(BlockId(4711))
    await node.report(remote.client, remote.namenode)
    text = await fetch(f"http://{remote.namenode}/metrics")
    assert "paxosblock_namenode_alarms 1.0" in text
    assert BlockId(4711) in node.acceptor.replicas


async def test_cluster_status_counts_what_there_is(remote: Remote) -> None:
    await remote.new_block("/f", (1, 1, 1))
    status = await remote.call(CLUSTER_STATUS, ClusterStatusRequest())
    assert (status.files, status.blocks, status.open_files) == (1, 1, 1)
    assert [(node.node, node.state) for node in status.datanodes] == [
        ("dn-s1", "live"),
        ("dn-s2", "live"),
        ("dn-s3", "live"),
    ]


async def test_a_heartbeat_of_an_unknown_process_is_asked_to_register(remote: Remote) -> None:
    node = remote.datanodes[StorageId("s1")]
    assert not (await node.heartbeat(remote.client, remote.namenode)).register
    node.incarnation = "run-2"
    assert (await node.heartbeat(remote.client, remote.namenode)).register


async def test_a_report_of_an_unregistered_process_is_refused(remote: Remote) -> None:
    report = BlockReport("dn-s1", "run-9", StorageId("s1"), 1, ALL_BLOCKS, ())
    with pytest.raises(NotReadyError, match="dn-s1 must register before it reports"):
        await remote.call(BLOCK_REPORT, report)


async def test_bad_requests_get_one_line_that_names_the_mistake(remote: Remote) -> None:
    await remote.call(CREATE, create_request("/f"))
    with pytest.raises(ExistsError, match=r"^'/f': exists already"):
        await remote.call(CREATE, create_request("/f", BOB))
    with pytest.raises(InvalidRequestError, match=r"^'f': a path starts with '/'"):
        await remote.call(STAT, PathRequest("f"))
    with pytest.raises(InvalidRequestError, match="malformed request of stat"):
        await remote.client.call(remote.namenode, "stat", {"path": 7}, dict, 5.0)
    with pytest.raises(ProtocolError, match="no control call 'nonsense'"):
        await remote.client.call(remote.namenode, "nonsense", {}, dict, 5.0)


async def test_without_datanodes_a_block_finds_no_place(tmp_path: Path) -> None:
    async with (
        namenode_server.running(CONFIG, listen="127.0.0.1:0", path=tmp_path, node_id="nn") as node,
        RpcClient() as client,
    ):
        remote = Remote(node.address, client, {})
        file = (await remote.call(CREATE, create_request("/f"))).status.file_id
        with pytest.raises(NoSpaceError, match="found 0 of 3 replicas, 1 needed"):
            await remote.patient(ADD_BLOCK, AddBlock(file, ANN, NO_BLOCK, 2))


async def test_a_restarted_namenode_remembers_files_and_asks_datanodes_to_register(
    tmp_path: Path,
) -> None:
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(RpcClient())
        (acceptor,) = acceptors("s1").values()
        node = await stack.enter_async_context(serving(acceptor))
        async with namenode_server.running(
            CONFIG, listen="127.0.0.1:0", path=tmp_path, node_id="nn"
        ) as namenode:
            await node.register(client, namenode.address)
            first = Remote(namenode.address, client, {acceptor.storage: node})
            view = await first.new_block("/f", (2,))
        async with namenode_server.running(
            CONFIG, listen="127.0.0.1:0", path=tmp_path, node_id="nn"
        ) as namenode:
            address = namenode.address
            second = Remote(address, client, {acceptor.storage: node})
            assert (await second.call(RENEW_LEASES, RenewLeases((ANN,)))).lost == ()
            assert (await node.heartbeat(client, address)).register
            await node.register(client, address)
            sealed = await second.call(SEAL_BLOCK, BlockRequest(view.record.block, ANN))
            assert sealed.record.length == 2
            file = (await second.call(STAT, PathRequest("/f"))).file_id
            assert not (await second.call(CLOSE_FILE, CloseFile(file, ANN))).open


async def test_a_port_that_is_taken_is_a_clear_error(tmp_path: Path, remote: Remote) -> None:
    with pytest.raises(ConfigError, match=f"cannot listen at {remote.namenode}"):
        async with namenode_server.running(
            CONFIG, listen=remote.namenode, path=tmp_path / "b", node_id="b"
        ):
            pass


async def test_a_folder_in_use_is_a_clear_error(tmp_path: Path, remote: Remote) -> None:
    with pytest.raises(ConfigError, match="in use"):
        async with namenode_server.running(
            CONFIG, listen="127.0.0.1:0", path=tmp_path / "nn", node_id="other"
        ):
            pass


SERVE = """
import asyncio, sys
from pathlib import Path
from paxosblock.config import NameNodeConfig
from paxosblock.namenode.namenode_server import serve
path = Path(sys.argv[1])
asyncio.run(serve(NameNodeConfig(), listen="127.0.0.1:0", path=path, node_id="nn"))
"""


@asynccontextmanager
async def namenode_process(folder: Path) -> AsyncIterator[tuple[Process, str]]:
    """A NameNode in a process of its own, and its address; killed at the end if it still runs."""
    (folder / "address").unlink(missing_ok=True)  # a killed process leaves it behind
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", SERVE, str(folder))
    try:
        await wait_until_async((folder / "address").exists)
        yield process, (folder / "address").read_text().strip()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_a_process_answers_once_its_address_is_there_and_ends_cleanly_on_sigterm(
    tmp_path: Path,
) -> None:
    async with namenode_process(tmp_path) as (process, address):
        assert '"status": "ok"' in await fetch(f"http://{address}/healthz")
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
        assert not (tmp_path / "address").exists()


async def test_every_create_that_was_answered_survives_kill_9(tmp_path: Path) -> None:
    answered: set[str] = set()

    async def create_files(remote: Remote, writer: int) -> None:
        for number in range(10_000):
            path = f"/d{writer}/f{number}"
            await remote.call(CREATE, create_request(path))
            answered.add(path)

    async with RpcClient() as client:
        for round_ in range(3):
            async with namenode_process(tmp_path) as (process, address):
                remote = Remote(address, client, {})
                seen = await all_files(remote)
                assert answered <= seen
                assert len(seen) <= len(answered) + 8 * round_  # each kill leaves 8 unanswered
                before = len(answered)
                clients = [create_files(remote, 10 * round_ + n) for n in range(8)]
                creating = asyncio.gather(*clients, return_exceptions=True)
                await wait_until_async(lambda: len(answered) > before + 100)  # noqa: B023 - awaited here
                process.kill()
                outcomes = await creating
                assert all(isinstance(outcome, PaxosBlockError) for outcome in outcomes)


async def all_files(remote: Remote) -> set[str]:
    """Every file of directories that hold less than a page."""
    found: set[str] = set()
    for directory in (await remote.call(LIST, ListDirectory("/"))).entries:
        page = await remote.call(LIST, ListDirectory(directory.path))
        assert not page.more
        found |= {entry.path for entry in page.entries}
    return found


async def fetch(url: str) -> str:
    """The body of a GET."""
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return await response.text()
