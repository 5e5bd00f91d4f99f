"""The catalog of a NameNode that stopped between two steps, and how the next one goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from paxosblock.api.namenode import CloseFile, DeletePath, ListDirectory
from paxosblock.config import NameNodeConfig
from paxosblock.namenode.catalog import ids, keys
from paxosblock.namenode.catalog.catalog import Catalog
from paxosblock.namenode.catalog.garbage import Swept
from paxosblock.namenode.catalog.records import (
    BlockEntry,
    ClusterRecord,
    decode_cluster,
    encode,
)
from paxosblock.namenode.kv.interface import Edit, Versioned
from paxosblock.namenode.kv.state_machine import StateMachine
from paxosblock.namenode.name_node import NameNode
from tests.memory_table import MemoryTable
from tests.namenode.cluster import Network, acceptors
from tests.namenode.memory_store import MemoryStore
from tests.namenode.scene import (
    ANN,
    TAG,
    Clock,
    NamedCatalog,
    add_block,
    blocks_of,
    create_request,
    file_with_blocks,
    finalize,
    new_catalog,
    new_scene,
    sweep_everything,
)
from tests.raft.alone import opened
from tests.waiting import wait_until_async


@asynccontextmanager
async def catalog_in(
    folder: Path, tag: int = 5, new_id: str = "cluster-1"
) -> AsyncIterator[NamedCatalog]:
    """A catalog on the files of a folder, as one run of a NameNode sees it."""
    async with opened(folder) as store:
        catalog = NamedCatalog(store)
        await catalog.start(tag, new_id)
        yield catalog


async def test_nothing_that_was_answered_is_lost(tmp_path: Path) -> None:
    async with catalog_in(tmp_path) as catalog:
        file = await file_with_blocks(catalog, "/logs/a", 2)
        await catalog.close_file(CloseFile(file.number, ANN))
        half = await file_with_blocks(catalog, "/logs/b", 1)
        listing, blocks = (
            await catalog.list(ListDirectory("/logs")),
            await blocks_of(catalog, half.number),
        )
    async with catalog_in(tmp_path) as catalog:
        again = await catalog.list(ListDirectory("/logs"))
        assert again == msgspec.structs.replace(listing, revision=again.revision)
        assert again.revision > listing.revision, "the start added an entry"
        assert await blocks_of(catalog, half.number) == blocks
        assert [inode.number for inode in await catalog.open_files()] == [half.number]


async def test_a_writer_goes_on_where_the_old_namenode_stopped(tmp_path: Path) -> None:
    async with catalog_in(tmp_path) as catalog:
        file = await catalog.create(create_request("/f"))
        entry = await add_block(catalog, file.number)
    async with catalog_in(tmp_path) as catalog:
        assert await add_block(catalog, file.number) == entry
        await finalize(catalog, entry, 3)
    async with catalog_in(tmp_path) as catalog:
        assert (await catalog.close_file(CloseFile(file.number, ANN))).inode.length == 30


async def test_ids_and_the_clusters_tag_survive_and_ids_are_not_reused(tmp_path: Path) -> None:
    async with catalog_in(tmp_path, tag=5) as catalog:
        first = await catalog.next_block()
    async with catalog_in(tmp_path, tag=6) as catalog:
        second = await catalog.next_block()
        assert catalog.was_allocated(first)
    assert first >> 32 == second >> 32 == 5
    assert second > first


def test_no_id_that_was_given_since_a_backup_is_given_again_however_often_one_is_brought_back() -> (
    None
):
    table, first = MemoryTable(), ClusterRecord(TAG, 1, "cluster-1")
    table.write(1, {keys.CLUSTER: Versioned(encode(first), 1)})
    files, tags = {1}, {TAG}
    for index in range(2, 52):
        changes = ids.skipped(table)
        again = ids.skipped(table)  # the same backup is brought back twice
        for each in (changes, again):
            files.add(keys.unpack_number(each[keys.FILE_COUNTER]) // ids.FILES_SKIPPED)
            cluster = decode_cluster(each[keys.CLUSTER])
            assert tags >= set(cluster.earlier_tags)
            assert cluster.block_tag not in cluster.earlier_tags
        tags.add(decode_cluster(changes[keys.CLUSTER]).block_tag)
        table.write(index, {key: Versioned(value, index) for key, value in changes.items()})
    assert max(files) * ids.FILES_SKIPPED < 1 << 63
    assert len(files) > 90, "one of a thousand places is hardly drawn twice"
    found = ids.was_allocated
    for tag in tags - {cluster.block_tag}:
        view = StateMachine(table)
        assert found(view, cluster, ids.block_id(tag, 7)) is (tag in cluster.earlier_tags)


async def test_the_id_of_the_cluster_survives(tmp_path: Path) -> None:
    async with catalog_in(tmp_path) as catalog:
        assert catalog.cluster_id == "cluster-1"
    async with catalog_in(tmp_path, new_id="another") as catalog:
        assert catalog.cluster_id == "cluster-1"


async def test_a_cluster_of_before_there_were_ids_gets_one_and_keeps_its_tag(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as store:
        old = msgspec.msgpack.encode({"block_tag": 7, "created_ms": 1})
        await store.commit(Edit(puts=((keys.CLUSTER, old),)))
    async with catalog_in(tmp_path, tag=5, new_id="given") as catalog:
        assert catalog.cluster_id == "given"
        assert (await catalog.next_block()) >> 32 == 7
    async with catalog_in(tmp_path, new_id="another") as catalog:
        assert catalog.cluster_id == "given"


async def test_a_half_swept_delete_goes_on_after_a_restart(tmp_path: Path) -> None:
    async with catalog_in(tmp_path) as catalog:
        for n in range(5):
            await file_with_blocks(catalog, f"/d/sub{n}/f", 1)
        await catalog.delete(DeletePath("/d", recursive=True))
        assert await catalog.sweep() == Swept(())
    async with catalog_in(tmp_path) as catalog:
        assert len(await sweep_everything(catalog)) == 5
        counts = await catalog.counts()
        assert (counts.files, counts.blocks, counts.open_files) == (0, 0, 0)


async def test_sweeping_leaves_no_key_behind() -> None:
    store = MemoryStore()
    catalog = await new_catalog(store)
    await file_with_blocks(catalog, "/warm/up", 1)
    await catalog.delete(DeletePath("/warm", recursive=True))
    await sweep_everything(catalog)
    clean = len(store.machine)
    for n in range(3):
        await file_with_blocks(catalog, f"/d/e{n}/f", 1, 2)
    await catalog.delete(DeletePath("/d", recursive=True))
    assert len(await sweep_everything(catalog)) == 6
    assert len(store.machine) == clean


async def test_a_node_that_starts_gives_open_files_fresh_leases() -> None:
    store = MemoryStore()
    first = await new_scene(store=store)
    await first.create("/f")
    await first.close()
    second = NameNode("nn", NameNodeConfig(), store, Clock(5000.0), lambda _: first.network)
    await second.start()
    assert second.leases.is_live(ANN, 5059.0)
    assert not second.leases.is_live(ANN, 5060.0)
    await second.close()


async def test_a_take_over_that_a_crash_interrupted_is_finished_by_the_next_process() -> None:
    store = MemoryStore()
    network = Network(acceptors("s1", "s2", "s3"))
    first = await new_scene(store=store, network=network)
    view = await first.add_block(await first.create("/f"))
    first.write(view, 2, 2, 2)
    await first.node.catalog.fence("/f")
    await first.close()
    config = NameNodeConfig(heartbeat_interval_s=0.02)
    second = await new_scene(store=store, network=network, config=config)
    await wait_until_async(lambda: file_is_closed(second.node.catalog, "/f"))
    assert (await second.node.catalog.status("/f")).size == 20
    await second.close()


async def test_members_that_never_heard_of_the_decision_hear_it_when_they_report() -> None:
    store = MemoryStore()
    network = Network(acceptors("s1", "s2", "s3"))
    first = await new_scene(store=store, network=network)
    view = await first.add_block(await first.create("/f"))
    first.write(view, 2, 2, 2)
    await finalize(first.node.catalog, BlockEntry(view.record), 2)
    await first.close()
    second = await new_scene(store=store, network=network)
    record = (await second.node.catalog.get_block(view.record.block)).record
    await wait_until_async(lambda: len(second.node.replicas.holders(record)) == 3)
    assert all(a.replicas[record.block].length == 2 for a in network.reach.values())
    await second.close()


async def test_a_node_that_starts_sweeps_what_the_old_one_left() -> None:
    store = MemoryStore()
    catalog = await new_catalog(store)
    await file_with_blocks(catalog, "/d/f", 1)
    await catalog.delete(DeletePath("/d", recursive=True))
    scene = await new_scene(store=store)

    await wait_until_async(lambda: not scene.node.catalog.has_garbage)
    assert (await scene.node.catalog.counts()).blocks == 0
    await scene.close()


async def file_is_closed(catalog: Catalog, path: str) -> bool:
    return not (await catalog.status(path)).open
