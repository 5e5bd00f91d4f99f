"""NameNodes sign, with keys that they replace while DataNodes know them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from paxosblock.api import namenode as api
from paxosblock.api.capability import Right, Stamp, check, key_id
from paxosblock.api.file_pages import GET_FILE, GetFile
from paxosblock.api.reports import HEARTBEAT, REGISTER, Heartbeat, Register, StorageReport
from paxosblock.config import NameNodeConfig
from paxosblock.datanode.own_keys import OwnKeys
from paxosblock.errors import AccessDeniedError, NotReadyError
from paxosblock.host.disk import OsDisk
from paxosblock.namenode.backups import Backup, begin
from paxosblock.namenode.blocks.datanodes import DataNodes
from paxosblock.namenode.blocks.signer import Signer
from paxosblock.namenode.catalog.catalog import Catalog
from paxosblock.namenode.kv.interface import Versioned
from paxosblock.namenode.raft.machine import ReplicatedMachine
from paxosblock.protocol.types import FIRST_GENERATION, BlockId, Generation, StorageId
from tests.memory_table import MemoryTable, Place
from tests.namenode.memory_store import MemoryStore
from tests.namenode.scene import ANN, BOB, MEMBERS, Scene, create_request, new_scene

HOUR_S = 3600.0
START_S = 1_800_000_000.0
READ = int(Right.READ)
WRITE = int(Right.READ | Right.WRITE)
CREATE = WRITE | int(Right.CREATE)
SIGNING = NameNodeConfig(block_tokens=True)


class Cluster:
    """NameNodes on one store, whose wall clock the test sets, and a DataNode's keys."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.now_s = START_S
        self.datanode = self.new_datanode()

    def new_datanode(self) -> OwnKeys:
        return OwnKeys(lambda: None, lambda: self.now_s)

    async def namenode(self, interval_s: float = HOUR_S) -> Signer:
        catalog = Catalog(self.store, clock_ms=lambda: round(self.now_s * 1000))
        await catalog.start(5, "cluster-1")
        return Signer(catalog, interval_s)

    def beat(self, signer: Signer) -> None:
        self.datanode.take(signer.keys_for("dn"))


def signed(signer: Signer, node: str = "dn") -> bytes:
    return signer.sign((node,), BlockId(7), READ, FIRST_GENERATION)[0]


async def test_a_datanode_knows_a_key_an_interval_before_and_after_it_is_used() -> None:
    cluster = Cluster()
    leader = await cluster.namenode()
    await leader.turn()
    cluster.beat(leader)
    kept: list[tuple[float, bytes]] = []
    used = set()
    for _ in range(200):
        cluster.now_s += 0.09 * HOUR_S
        await leader.turn()
        one = signed(leader)
        used.add(one[:4])
        assert cluster.datanode.check(one), "though it has not heard of the latest roll"
        cluster.beat(leader)
        kept.append((cluster.now_s, one))
        for at_s, earlier in kept[-12:]:
            if cluster.now_s < at_s + HOUR_S:
                assert cluster.datanode.check(earlier)
        kept = kept[-12:]
        assert len(leader.keys_for("dn")) <= 3
    assert 15 <= len(used) <= 19
    cluster.now_s += 2 * HOUR_S
    with pytest.raises(AccessDeniedError):
        cluster.datanode.check(kept[-1][1])


async def test_another_namenode_goes_on_with_the_same_keys() -> None:
    cluster = Cluster()
    leader, follower = await cluster.namenode(), await cluster.namenode()
    assert signed(follower) == b"", "there are no keys yet"
    assert follower.keys_for("dn") == ()
    await leader.turn()
    assert follower.keys_for("dn") == leader.keys_for("dn")
    cluster.beat(follower)
    assert cluster.datanode.check(signed(leader))
    await follower.turn()  # it leads now
    assert signed(follower) == signed(leader)


async def test_each_datanode_has_keys_of_its_own() -> None:
    cluster = Cluster()
    leader = await cluster.namenode()
    await leader.turn()
    assert not {each.key for each in leader.keys_for("dn")} & {
        each.key for each in leader.keys_for("other")
    }
    cluster.beat(leader)
    with pytest.raises(AccessDeniedError):
        cluster.datanode.check(signed(leader, "other"))


@pytest.mark.parametrize("hours", [-30.0, -0.001, 30.0])
async def test_a_clock_that_is_set_stops_neither_keys_nor_what_is_signed(hours: float) -> None:
    cluster = Cluster()
    leader = await cluster.namenode()
    await leader.turn()
    cluster.beat(leader)
    cluster.now_s += hours * HOUR_S
    first = leader.keys_for("dn")
    for _ in range(30):
        await leader.turn()
        cluster.beat(leader)
        assert cluster.datanode.check(signed(leader))
        cluster.now_s += HOUR_S / 10
    assert leader.keys_for("dn") != first, "they are replaced on"


async def test_a_shorter_interval_is_followed_at_once() -> None:
    cluster = Cluster()
    await (await cluster.namenode(100 * HOUR_S)).turn()
    leader = await cluster.namenode(1.0)
    await leader.turn()
    before = leader.keys_for("dn")
    cluster.now_s += 1.0
    await leader.turn()
    assert leader.keys_for("dn")[-2] == before[-1]
    assert leader.turn_s < 1.0


async def test_a_datanode_waits_for_the_keys_of_a_cluster_that_was_brought_back(
    tmp_path: Path,
) -> None:
    """It knows later ones than those in the backup, which it would refuse."""
    cluster = Cluster()
    leader = await cluster.namenode(1.0)
    saved, entry = dict[bytes, Versioned](), 0
    for number in range(10):
        await leader.turn()
        cluster.now_s += 1.0
        if number == 1:
            view = cluster.store.view()
            saved, entry = dict(view.scan(b"", b"")), view.revision
    cluster.beat(leader)
    table = MemoryTable(place=Place(OsDisk(), tmp_path))
    table.write(entry, saved)
    begin(Backup(entry, "cluster-1"), table)
    cluster.store.machine = ReplicatedMachine(table)
    cluster.now_s += 5.0
    restored = await cluster.namenode(1.0)
    await restored.turn()
    with pytest.raises(NotReadyError):
        cluster.datanode.check(signed(restored))
    cluster.beat(restored)
    assert cluster.datanode.check(signed(restored))


# -- what calls bring -------------------------------------------------------------------------


async def registered(scene: Scene, storage: str) -> dict[int, Stamp]:
    """The keys that a DataNode is told when it registers, and with each heartbeat."""
    name, room = f"dn-{storage}", StorageReport(StorageId(storage), 1 << 40, 1 << 40, 0)
    told = await scene.service.call(
        REGISTER, Register(name, f"{name}:9864", "run-1", (room,), heartbeat_s=1.0)
    )
    beat = await scene.service.call(HEARTBEAT, Heartbeat(name, "run-1", (room,), 0))
    assert beat.keys == told.keys
    return {each.id: Stamp(each) for each in told.keys}


def rights(view: api.BlockView, keys: dict[int, Stamp], now_s: float) -> tuple[int, int]:
    """Rights and generation that a view brings for the first member."""
    (member,) = (each for each in view.members if each.storage == MEMBERS[0])
    found = check(member.capability, keys.get(key_id(member.capability)), now_s)
    assert found.block == view.record.block
    return found.rights, found.generation


async def test_who_writes_gets_a_right_to_write_and_who_reads_to_read() -> None:
    scene = await new_scene(config=SIGNING)
    try:
        call, keys, now_s = scene.service.call, await registered(scene, "s1"), 0.0
        first = await call(
            api.CREATE,
            api.CreateFile(
                "/a", ANN, False, 3, 1 << 20, create_request("/a").durability,
                first=api.FirstBlock(2),
            ),
        )  # fmt: skip
        assert first.first is not None
        assert rights(first.first, keys, now_s) == (CREATE, FIRST_GENERATION)
        view = await scene.add_block(await scene.create("/b"))
        assert rights(view, keys, now_s) == (CREATE, FIRST_GENERATION)
        block = view.record.block

        async def shown(request: api.BlockRequest) -> tuple[int, int]:
            return rights(await call(api.GET_BLOCK, request), keys, now_s)

        assert await shown(api.BlockRequest(block)) == (READ, FIRST_GENERATION)
        assert await shown(api.BlockRequest(block, BOB)) == (READ, FIRST_GENERATION)
        assert await shown(api.BlockRequest(block, ANN)) == (CREATE, FIRST_GENERATION)
        page = await call(GET_FILE, GetFile("/b"))
        assert page.last_block is not None
        assert rights(page.last_block, keys, now_s) == (READ, FIRST_GENERATION)
        scene.write(view, 2, 2, 2)
        await call(api.SEAL_BLOCK, api.BlockRequest(block, ANN))
        assert await shown(api.BlockRequest(block, ANN)) == (READ, FIRST_GENERATION)
    finally:
        await scene.close()


async def test_a_writer_whose_block_went_on_may_write_in_that_generation_only() -> None:
    scene = await new_scene(config=SIGNING)
    try:
        call, keys = scene.service.call, await registered(scene, "s1")
        file = await scene.create("/a")
        view = await scene.add_block(file)
        scene.write(view, 1, 1, 1)
        finalize = api.FinalizeBlock(view.record.block, ANN, FIRST_GENERATION, 1, 10)
        await call(api.CLOSE_FILE, api.CloseFile(file, ANN, finalize))
        await call(api.APPEND, api.AppendFile("/a", BOB, window=2, chunks=5))
        request = api.ReopenBlock(file, BOB, view.record.block, 2, 10, 5)
        reopened = await call(api.REOPEN_BLOCK, request)
        assert reopened.view is not None, reopened.why
        generation = reopened.view.record.writer_generation
        assert generation > FIRST_GENERATION
        assert rights(reopened.view, keys, 0.0) == (WRITE, generation)
    finally:
        await scene.close()


async def test_without_the_setting_nothing_is_signed_and_nothing_sent() -> None:
    scene = await new_scene()
    try:
        assert await registered(scene, "s1") == {}
        view = await scene.add_block(await scene.create("/a"))
        assert {each.capability for each in view.members} == {b""}
        assert not _sent(view)
    finally:
        await scene.close()


def _sent(view: Any) -> bool:
    return b"capability" in msgspec.msgpack.encode(view)


async def test_what_is_asked_of_a_datanode_is_signed_for_it() -> None:
    cluster = Cluster()
    leader = await cluster.namenode()
    await leader.turn()
    datanodes = DataNodes(60.0, 60.0)
    room = StorageReport(StorageId("s"), 1, 1, 0)
    datanodes.register(Register("dn", "h:1", "run-1", (room,)), 0.0)
    assert datanodes.signed(StorageId("s"), BlockId(7), READ) == b""
    datanodes.signer = leader
    cluster.beat(leader)
    found = cluster.datanode.check(datanodes.signed(StorageId("s"), BlockId(7), READ))
    assert (found.block, found.rights, found.generation) == (7, READ, Generation(0))
    assert datanodes.signed(StorageId("strange"), BlockId(7), READ) == b""
