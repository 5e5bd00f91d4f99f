"""Full disks, failing disks, and volumes that are not what they should be."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest

from paxosblock.config import DataNodeConfig
from paxosblock.datanode.data_node import open_volumes
from paxosblock.datanode.store.disk_format import LoadedReplicas
from paxosblock.datanode.store.identity import (
    VERSION,
    Identity,
    enter_cluster,
    give_identity,
    kept_node_id,
    new_node_id,
    read_identity,
)
from paxosblock.datanode.store.layout import SMALL
from paxosblock.datanode.store.open_file import OpenFile
from paxosblock.datanode.volumes import volume as volume_module
from paxosblock.datanode.volumes.hung_disk import answers, find_hung
from paxosblock.datanode.volumes.volume import open_volume
from paxosblock.errors import (
    ConfigError,
    CorruptionError,
    NoSpaceError,
    Outcome,
    StorageError,
)
from paxosblock.host.disk import OsDisk, publish
from paxosblock.protocol.messages import (
    Created,
    Delete,
    Finalized,
    LastVote,
    Nack,
    Read,
    Vote,
)
from paxosblock.protocol.types import (
    FIRST_GENERATION,
    BlockId,
    Durability,
    Generation,
    Reason,
)
from tests.datanode.node import (
    BLOCK,
    Holder,
    chunk,
    frame,
    hold_group_commit,
    name,
    refusal,
    running,
)
from tests.disks.faults import HELD, SYNCS, WRITES, Fault
from tests.disks.simulated import SimulatedDisk
from tests.waiting import wait_until_async

OTHER = BlockId(8)
FULL = Fault(WRITES, error="ENOSPC", partly=True)
LATE_SYNCS = Fault(SYNCS, delay_s=HELD)


def failing_sync(folder: Path, delay_s: float = 0.0) -> Fault:
    """The next sync of a file below `folder` fails, and those after it succeed."""
    return Fault(SYNCS, path=f"{folder}/", error="EIO", delay_s=delay_s, times=1)


async def test_a_chunk_that_finds_no_room_is_refused_and_leaves_no_trace(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    async with running(tmp_path, disk=disk) as node:
        await node.create()
        await node.write(1)
        disk.breaks(FULL)
        refused = await node.send(frame(1))
        assert isinstance(refused, Nack)
        assert (refused.reason, refused.length) == (Reason.NO_SPACE, 1)
        assert disk.files()[tmp_path / "rbw" / "blk_7"] == frame(0)[1]
        disk.mend()
        assert isinstance(await node.send(frame(1)), Vote)
        assert node.volumes[0].failed == ""


async def test_a_promise_that_finds_no_room_is_an_error_and_not_made(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    async with running(tmp_path, disk=disk) as node:
        await node.create()
        disk.breaks(FULL)
        with pytest.raises(NoSpaceError):
            await node.next_gs(3)
        disk.mend()
        assert isinstance(await node.send(frame(0)), Vote)
        assert disk.names(tmp_path / "tmp") == []


async def test_no_replica_is_made_in_the_reserve(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    async with running(tmp_path, disk=disk, reserved_bytes=1000) as node:
        disk.capacity_bytes = disk.used_bytes() + 1000
        with pytest.raises(NoSpaceError):
            await node.create()
        assert node.acceptor.count == 0
        disk.capacity_bytes += 1
        assert isinstance(await node.create(), Created)


async def test_a_failed_sync_fails_the_volume_and_no_vote_leaves(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    async with running(tmp_path, disk=disk) as node:
        await node.create()
        disk.breaks(failing_sync(tmp_path))
        assert refusal(await node.send(frame(0))) is Reason.NO_REPLICA
        assert "Input/output error" in node.volumes[0].report(0).failed
        with pytest.raises(StorageError, match="has failed"):
            await node.ask(Read(BLOCK))


async def test_a_failed_sync_is_not_tried_again_for_those_who_came_later(tmp_path: Path) -> None:
    """The second sync would succeed, without the bytes that the first one dropped."""
    disk = SimulatedDisk()
    async with running(tmp_path, disk=disk) as node:
        await node.create()
        disk.breaks(failing_sync(tmp_path, HELD), LATE_SYNCS)
        first = node.send(frame(0))
        second = node.send(frame(1))
        before = len(disk.synced)
        await wait_until_async(lambda: disk.plan.waiting == 1)
        disk.mend()
        assert isinstance(await first, Nack)
        assert isinstance(await second, Nack)
        assert (disk.met, len(disk.synced)) == (["sync"], before)


async def test_no_vote_leaves_after_a_promise_met_the_failed_sync(tmp_path: Path) -> None:
    """The vote's own sync would succeed, without the bytes that the promise's one dropped."""
    disk = SimulatedDisk()
    async with running(tmp_path, disk=disk) as node:
        await node.create()
        volume = node.volumes[0]
        syncs = hold_group_commit(volume)
        vote = node.send(frame(0))
        disk.breaks(failing_sync(tmp_path))
        with pytest.raises(StorageError, match="Input/output error"):
            await node.next_gs(1)
        syncs.set()
        assert isinstance(await vote, Nack)


async def test_a_sync_of_a_deleted_replica_says_nothing_about_the_one_made_after(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as node:
        await node.create()
        syncs = hold_group_commit(node.volumes[0])
        votes = [node.send(frame(index)) for index in range(2)]
        await asyncio.gather(node.ask(Delete(BLOCK, FIRST_GENERATION)), node.create())
        syncs.set()
        await asyncio.gather(*votes)
        syncs = hold_group_commit(node.volumes[0])
        vote = node.send(frame(0))
        assert not vote.done(), "it waits for the disk"
        syncs.set()
        assert isinstance(await vote, Vote)


async def test_a_sync_beside_a_failed_one_of_the_same_file_fails_as_well(tmp_path: Path) -> None:
    """The system tells of what it dropped once; the second sync would succeed."""
    disk = SimulatedDisk()
    file = OpenFile(disk, disk.create(tmp_path / "data"))
    disk.breaks(failing_sync(tmp_path, HELD))
    both = [asyncio.create_task(asyncio.to_thread(file.sync)) for _ in range(2)]
    await wait_until_async(lambda: disk.plan.waiting == 1)
    disk.mend()
    for sync in both:
        with pytest.raises(StorageError, match="Input/output error"):
            await sync
    assert (disk.met, disk.synced) == (["sync"], [])
    file.retire()


async def test_no_promise_leaves_after_a_vote_met_the_failed_sync(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    async with running(tmp_path, disk=disk) as node:
        await node.create()
        disk.breaks(failing_sync(tmp_path, HELD))
        vote = node.send(frame(0))
        await wait_until_async(lambda: disk.plan.waiting == 1)
        promise = asyncio.create_task(node.next_gs(1))
        disk.mend()
        with pytest.raises(StorageError):
            await promise
        assert isinstance(await vote, Nack)


async def test_a_volume_whose_folder_is_removed_or_replaced_fails_at_the_next_look(
    tmp_path: Path,
) -> None:
    async with running(tmp_path / "a", tmp_path / "b") as node:
        (tmp_path / "a").rename(tmp_path / "elsewhere")
        assert "No such file or directory" in node.volumes[0].report(0).failed
        (tmp_path / "b" / VERSION).unlink()  # as under a disk that was unmounted
        assert "VERSION is gone" in node.volumes[1].report(0).failed
        await wait_until_async(lambda: all(volume.failed for volume in node.volumes))


async def test_a_volume_that_cannot_be_read_in_one_place_goes_on_if_it_works_in_others(
    tmp_path: Path,
) -> None:
    disk = SimulatedDisk()
    async with running(tmp_path, disk=disk) as node:
        (volume,) = node.volumes
        volume.doubted = True
        assert volume.report(0).failed == ""
        assert not volume.doubted
        assert disk.names(tmp_path / "tmp") == []
        disk.full = True
        volume.doubted = True
        assert volume.report(0).failed == "", "it is full, and works"
        disk.full = False


@pytest.mark.parametrize("call", ["open", "read", "write", "sync"])
async def test_a_volume_that_was_doubted_fails_when_it_does_not_work(
    tmp_path: Path, call: str
) -> None:
    disk = SimulatedDisk()
    async with running(tmp_path, disk=disk) as node:
        (volume,) = node.volumes
        disk.breaks(Fault((call,), path=f"{tmp_path}/tmp/", error="EIO"))
        assert volume.report(0).failed == "", "nobody has met it yet"
        volume.doubted = True
        assert "Input/output error" in volume.report(0).failed


async def test_a_failed_volume_takes_only_its_own_replicas_with_it(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    async with running(tmp_path / "a", tmp_path / "b", disk=disk) as node:
        first, second = (volume.storage for volume in node.volumes)
        await node.create(BLOCK, storage=first)
        await node.create(OTHER, storage=second)
        disk.breaks(failing_sync(tmp_path / "a"))
        assert isinstance(await node.send(frame(0, block=BLOCK)), Nack)
        assert isinstance(await node.send(frame(0, block=OTHER)), Vote)


async def test_a_block_has_one_replica_per_node(tmp_path: Path) -> None:
    async with running(tmp_path / "a", tmp_path / "b") as node:
        first, second = (volume.storage for volume in node.volumes)
        await node.create(storage=first)
        refused = await node.create(storage=second)
        assert isinstance(refused, Nack)
        assert (refused.reason, refused.storage) == (Reason.NO_REPLICA, second)


async def test_a_block_of_a_failed_volume_comes_back_on_another_volume_of_its_node(
    tmp_path: Path,
) -> None:
    disk, log = SimulatedDisk(), [name(0), name(1)]
    volumes = tmp_path / "a", tmp_path / "b"
    async with running(*volumes, disk=disk, holder=Holder([chunk(0), chunk(1)])) as node:
        lost, kept = (volume.storage for volume in node.volumes)
        await node.create()
        await node.write(2)
        await node.finalize(1, log)
        assert refusal(await node.finalize(1, log, storage=kept)) is Reason.NO_REPLICA, (
            "one replica per node"
        )
        node.volumes[0].fail(OSError("it burns"))
        assert await node.finalize(1, log, storage=kept) == Finalized(BLOCK, Generation(1), kept, 2)
        with pytest.raises(StorageError, match="it burns"):
            await node.ask(Read(BLOCK), lost)
        await node.finalize(2, log, storage=kept)
    for order in (volumes, volumes[::-1]):
        async with running(*order, disk=disk.next_process()) as node:
            found = node.acceptor.find(BLOCK, kept)
            assert found is not None, "the one that is of today"
            assert node.acceptor.find(BLOCK, lost) is None


async def test_a_volume_that_cannot_be_read_at_the_start_is_reported_and_not_used(
    tmp_path: Path,
) -> None:
    async with running(tmp_path / "a", tmp_path / "b") as node:
        pass
    (tmp_path / "a" / "tmp" / "a folder where files are meant").mkdir()
    async with running(tmp_path / "a", tmp_path / "b") as node:
        assert [bool(volume.failed) for volume in node.volumes] == [True, False]
        assert isinstance(await node.create(storage=node.volumes[1].storage), Created)


async def test_votes_wait_for_the_running_sync_and_share_the_next(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    async with running(tmp_path, disk=disk) as node:
        await node.create()
        before = len(disk.synced)
        disk.breaks(LATE_SYNCS)
        votes = [node.send(frame(0))]
        await wait_until_async(lambda: disk.plan.waiting == 1)
        votes += [node.send(frame(index)) for index in range(1, 20)]
        assert not any(vote.done() for vote in votes)
        disk.mend()
        assert all(isinstance(vote, Vote) for vote in await asyncio.gather(*votes))
        assert len(disk.synced) == before + 2, "the first vote's sync, and one for the others"


async def test_a_promise_tells_of_chunks_only_once_they_are_durable(tmp_path: Path) -> None:
    """In disk mode a chunk that waits for its sync is named to no caller before."""
    disk = SimulatedDisk()
    async with running(tmp_path, disk=disk) as node:
        await node.create()
        may_go = hold_group_commit(node.volumes[0])
        vote = node.send(frame(0))
        disk.synced.clear()
        last = await node.next_gs(1)
        assert isinstance(last, LastVote)
        assert last.length == 1
        assert disk.synced[0] == tmp_path / "rbw" / f"blk_{BLOCK}", "the step syncs it itself"
        assert not vote.done()
        may_go.set()
        assert isinstance(await vote, Vote), "voted for before the promise, so it still counts"


async def test_a_memory_vote_does_not_wait_for_a_slow_disk(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    async with running(tmp_path, disk=disk) as node:
        await node.create(durability=Durability.MEMORY)
        disk.breaks(LATE_SYNCS)
        slow = node.send(frame(0, sync=True))
        assert node.send(frame(1)).done()
        assert not slow.done()
        disk.mend()
        assert isinstance(await slow, Vote)


async def test_blocks_without_an_identity_are_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.create()
    (tmp_path / VERSION).unlink()
    with pytest.raises(ConfigError, match="holds blocks but no VERSION file"):
        open_volume(OsDisk(), tmp_path, "node-1", boot="boot-1", sync_threads=1)


async def test_a_volume_that_no_cluster_took_gets_another_node_and_no_other_does(
    tmp_path: Path,
) -> None:
    """Its node was refused, as one of its name lives: only an empty folder helped."""
    refused, taken = tmp_path / "refused", tmp_path / "taken"
    for folder in (refused, taken):
        open_volume(OsDisk(), folder, "node-1", boot="boot-1", sync_threads=1).close()
    enter_cluster(OsDisk(), taken, given(taken), "one")
    first = given(refused).storage
    open_volume(OsDisk(), refused, "node-2", boot="boot-1", sync_threads=1).close()
    assert given(refused).node == "node-2"
    assert given(refused).storage != first
    with pytest.raises(ConfigError, match="taken belongs to node node-1, not node-2"):
        open_volume(OsDisk(), taken, "node-2", boot="boot-1", sync_threads=1)
    (refused / SMALL / "0000000001").touch()
    with pytest.raises(ConfigError, match="refused belongs to node node-2, not node-3"):
        open_volume(OsDisk(), refused, "node-3", boot="boot-1", sync_threads=1)


def given(folder: Path) -> Identity:
    identity = read_identity(OsDisk(), folder)
    assert identity is not None
    return identity


def test_a_node_without_an_id_has_that_of_its_folders_or_a_new_one(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("missing", "new", "broken", "old")]
    for folder in folders[1:]:
        folder.mkdir()
    assert kept_node_id(OsDisk(), folders) is None
    (folders[2] / VERSION).write_bytes(b"garbage")
    give_identity(OsDisk(), folders[3], "host:9864")
    assert kept_node_id(OsDisk(), folders) == "host:9864"
    assert new_node_id() != new_node_id()


async def test_a_damaged_identity_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path):
        pass
    damaged = (tmp_path / VERSION).read_bytes().replace(b"storage=", b"storage=0")
    (tmp_path / VERSION).write_bytes(damaged)
    with pytest.raises(CorruptionError, match="is damaged"):
        open_volume(OsDisk(), tmp_path, "node-1", boot="boot-1", sync_threads=1)
    with pytest.raises(StorageError, match=r"no volume can be used: .*VERSION is damaged"):
        open_volumes(OsDisk(), [tmp_path], "node-1", DataNodeConfig(), "boot-1")


async def test_a_damaged_identity_costs_its_volume_alone(tmp_path: Path) -> None:
    damaged, sound = folders = [tmp_path / "a", tmp_path / "b"]
    async with running(*folders) as node:
        storage = node.volumes[1].storage
    before = (damaged / VERSION).read_bytes()[:-3]
    (damaged / VERSION).write_bytes(before)
    opened, lost = open_volumes(OsDisk(), folders, "node-1", DataNodeConfig(), "boot-1")
    assert [(each.folder, each.storage) for each in opened] == [(sound, storage)]
    assert [(each.folder, "is damaged" in each.reason) for each in lost] == [(damaged, True)]
    assert (damaged / VERSION).read_bytes() == before
    for each in opened:
        each.close()


async def test_the_folder_of_another_node_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.create()
    with pytest.raises(ConfigError, match="belongs to node node-1, not node-2"):
        open_volume(OsDisk(), tmp_path, "node-2", boot="boot-1", sync_threads=1)


async def test_a_folder_that_is_in_use_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path):
        with pytest.raises(ConfigError, match="is in use by another process"):
            open_volume(OsDisk(), tmp_path, "node-1", boot="boot-1", sync_threads=1)


async def test_a_disk_that_hangs_before_the_start_is_found_and_the_others_are_not(
    tmp_path: Path,
) -> None:
    hung, other, fresh = (tmp_path / each for each in ("hung", "other", "new"))
    disk = SimulatedDisk()
    async with running(hung, other, disk=disk):
        pass
    disk.breaks(
        Fault(("read",), path=f"{hung}/", delay_s=HELD),
        Fault(("read",), path=f"{other}/", error="EIO"),
    )
    (lost,) = await find_hung(disk, [hung, other, fresh], 0.1)
    assert (lost.folder, lost.reason) == (hung, f"{hung}: it hangs: no answer in 0.1 s")
    disk.mend()
    assert await find_hung(disk, [hung, other, fresh], 30.0) == []


async def test_a_disk_that_hangs_while_it_is_loaded_is_not_waited_for(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    async with running(tmp_path, disk=disk) as node:
        await node.create()
    volume = open_volume(disk, tmp_path, "node-1", boot="boot-1", sync_threads=1)
    disk.breaks(Fault(("read",), path=f"{tmp_path}/", delay_s=HELD))
    assert await volume.load(0.1) == LoadedReplicas()
    assert "it hangs" in volume.failed
    disk.mend()
    volume.close()


async def test_a_disk_that_is_slow_but_answers_is_loaded_however_long_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered: list[bool] = []

    async def counted(*asked: Any) -> bool:
        answered.append(await answers(*asked))
        return answered[-1]

    monkeypatch.setattr(volume_module, "answers", counted)
    disk = SimulatedDisk()
    async with running(tmp_path, disk=disk) as node:
        await node.create()
    volume = open_volume(disk, tmp_path, "node-1", boot="boot-1", sync_threads=1)
    disk.breaks(Fault(("read",), path=f"{tmp_path}/rbw/", delay_s=HELD))
    loading = asyncio.create_task(volume.load(0.01))
    await wait_until_async(lambda: len(answered) > 3, what="some questions")
    assert all(answered)
    assert not loading.done()
    disk.mend()
    (loaded,) = (await loading).loaded
    assert (loaded.block, volume.failed) == (BLOCK, "")
    volume.close()


def test_what_a_failed_publication_left_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "meta").mkdir()
    with pytest.raises(StorageError, match="cannot rename") as caught:
        publish(OsDisk(), tmp_path / "draft", tmp_path / "meta", [b"new"])
    assert (caught.value.outcome, caught.value.errno) == (Outcome.UNKNOWN, errno.EISDIR)
