"""Every state that a power cut can leave of an upgrade, a rollback and a finalized upgrade.

Whichever it is: the replicas are those of before or those of after, or the start says that a
rollback is to be gone on with, which then ends with those of the snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paxosblock.datanode.store.damaged_file import DAMAGED
from paxosblock.datanode.store.identity import (
    Identity,
    decode_identity,
    enter_cluster,
    read_identity,
)
from paxosblock.datanode.volumes.cursor import SCRUB
from paxosblock.datanode.volumes.volume_snapshot import (
    PREVIOUS,
    ROLLBACK,
    finalize,
    is_kept,
    roll_back,
    saved_identity,
    settle,
)
from paxosblock.errors import ConfigError, NoSpaceError, StorageError
from paxosblock.protocol.types import BlockId, StorageId
from tests.datanode.node import Holder, name, running
from tests.disks.power_cut import Files, Moment
from tests.disks.simulated import SimulatedDisk
from tests.shares import IN_SHARES, share

FOLDER = Path("/volume")
KEPT = FOLDER / PREVIOUS
STATES_PER_POINT = 12
OPEN = BlockId(8)


async def volume() -> Files:
    """A volume with a finalized replica and one that is being written."""
    disk = SimulatedDisk()
    async with running(FOLDER, disk=disk, holder=Holder()) as node:
        await node.volumes[0].enter("cluster-1")
        await node.create()
        await node.write(2)
        await node.finalize(1, [name(0), name(1)])
        await node.create(OPEN)
        await node.next_gs(3, block=OPEN)
    return disk.files()


async def upgraded(before: Files) -> Files:
    """The same with a snapshot, changed since in every way."""
    disk = SimulatedDisk(before)
    async with running(FOLDER, disk=disk, holder=Holder(), upgrade=True) as node:
        await node.reopen(2, [name(0), name(1)], finalized=1)
        await node.write(2, 2, generation=2)
        await node.next_gs(7, block=OPEN)
        await node.create(BlockId(9))
    return disk.files()


def identity(disk: SimulatedDisk) -> Identity:
    found = read_identity(disk, FOLDER)
    assert found is not None
    return found


def replicas(files: Files, folder: Path = FOLDER) -> dict[str, bytes]:
    """The files of replicas, by their names in the volume or the snapshot."""
    found: dict[str, bytes] = {}
    for room in ("current", "rbw"):
        start = f"{folder}/{room}/"
        found |= {
            f"{room}/{str(path).removeprefix(start)}": data
            for path, data in files.items()
            if str(path).startswith(start)
        }
    return found


def recorded(files: Files, work: Callable[[SimulatedDisk], object]) -> list[Moment]:
    """Return what may be left after each step of `work`."""
    disk = SimulatedDisk(files, records=True)
    disk.note("begin")
    work(disk)
    return disk.history


def states(history: list[Moment]) -> Iterator[tuple[Files, bool]]:
    """Every state, and whether the work was done then."""
    for seed, moment in enumerate(history):
        for files in moment.states(STATES_PER_POINT, seed):
            yield files, moment is history[-1]


def with_halves(files: Files, work: Callable[[SimulatedDisk], object]) -> Iterator[SimulatedDisk]:
    """The disk after `work`, at once and after another power cut at each of its steps."""
    disk = SimulatedDisk(files, records=True)
    disk.note("begin")
    work(disk)
    yield disk
    for seed, moment in enumerate(disk.history):
        for half in moment.states(2, seed):
            again = SimulatedDisk(half)
            work(again)
            yield again


def upgrade(disk: SimulatedDisk) -> Identity:
    return settle(disk, FOLDER, identity(disk), upgrade=True)


def start(disk: SimulatedDisk) -> Identity:
    return settle(disk, FOLDER, identity(disk), upgrade=False)


def go_back(disk: SimulatedDisk) -> None:
    """`--rollback`, again and again until it has nothing to do: it may have been done before."""
    if is_kept(disk, FOLDER) or KEPT / ROLLBACK in disk.files():
        roll_back(disk, [FOLDER])
    start(disk)


def leftovers(disk: SimulatedDisk) -> list[Path]:
    return [path for path in disk.files() if KEPT in path.parents]


@IN_SHARES
async def test_an_upgrade_that_is_cut_off_goes_on_and_changes_no_replica(
    every: int,
) -> None:
    before = await volume()
    kept = 0
    for files, done in share(states(recorded(before, upgrade)), every):
        assert replicas(files) == replicas(before)
        disk = SimulatedDisk(files)
        found = start(disk)
        if is_kept(disk, FOLDER):
            kept += 1
            check_snapshot(disk, before, found)
        else:
            assert not done
            assert leftovers(disk) == []
            assert found == identity(SimulatedDisk(before))
        for again in with_halves(files, upgrade):
            assert replicas(again.files()) == replicas(before)
            check_snapshot(again, before, identity(again))
    assert kept > 0


def check_snapshot(disk: SimulatedDisk, before: Files, found: Identity) -> None:
    """It is what was before, byte for byte, and the volume is in a timeline of its own."""
    files = disk.files()
    assert replicas(files, KEPT) == replicas(before)
    assert files[KEPT / "VERSION"] == before[FOLDER / "VERSION"]
    saved = saved_identity(disk, FOLDER)
    assert saved is not None
    assert saved.timeline != found.timeline
    assert found.before == (saved.timeline,)
    assert (found.storage, found.cluster) == (saved.storage, saved.cluster)


@IN_SHARES
async def test_a_rollback_that_is_cut_off_has_not_begun_or_goes_on_to_its_end(
    every: int,
) -> None:
    before = await volume()
    after = await upgraded(before)
    assert replicas(after, KEPT) == replicas(before), "no step since has changed the snapshot"
    assert replicas(after) != replicas(before)
    after |= {FOLDER / name: b"format=9\n" for name in (SCRUB, DAMAGED)}
    not_begun = interrupted = 0
    recording = recorded(after, lambda disk: roll_back(disk, [FOLDER]))
    for files, done in share(states(recording), every):
        disk = SimulatedDisk(files)
        if KEPT / "VERSION" in files:
            not_begun += 1
            start(disk)
            assert replicas(disk.files()) == replicas(after)
            assert replicas(disk.files(), KEPT) == replicas(before)
        elif KEPT / ROLLBACK in files:
            interrupted += 1
            assert not done
            for work in (start, upgrade):
                with pytest.raises(ConfigError, match=r"rollback was interrupted.* --rollback"):
                    work(disk)
            with pytest.raises(ConfigError, match="rollback was interrupted"):
                finalize(disk, [FOLDER])
            assert disk.files() == files
        for again in with_halves(files, go_back):
            check_rolled_back(again, before)
    assert not_begun > 0
    assert interrupted > 0


def check_rolled_back(disk: SimulatedDisk, before: Files) -> None:
    """The volume is what it was, nothing of the snapshot is left, and it must be taken in anew."""
    assert replicas(disk.files()) == replicas(before)
    assert leftovers(disk) == []
    assert not {FOLDER / SCRUB, FOLDER / DAMAGED} & set(disk.files()), "they tell of what is gone"
    found, then = identity(disk), identity(SimulatedDisk(before))
    assert (found.storage, found.node, found.cluster) == (then.storage, then.node, then.cluster)
    assert (found.timeline, found.before) == (then.timeline, (then.timeline,))


async def test_a_finalized_upgrade_that_is_cut_off_leaves_a_whole_snapshot_or_none() -> None:
    before = await volume()
    after = await upgraded(before)
    kept = 0
    for files, done in states(recorded(after, lambda disk: finalize(disk, [FOLDER]))):
        assert replicas(files) == replicas(after)
        disk = SimulatedDisk(files)
        start(disk)
        assert replicas(disk.files()) == replicas(after)
        if is_kept(disk, FOLDER):
            kept += 1
            assert not done
            assert replicas(disk.files(), KEPT) == replicas(before)
        else:
            assert leftovers(disk) == []
    assert kept > 0


async def test_a_second_snapshot_is_of_the_state_then_and_of_another_timeline() -> None:
    before = await volume()
    after = await upgraded(before)
    disk = SimulatedDisk(after)
    first = upgrade(disk)
    assert replicas(disk.files(), KEPT) == replicas(before), "one is kept: there is no second"
    finalize(disk, [FOLDER])
    second = upgrade(disk)
    assert replicas(disk.files(), KEPT) == replicas(after)
    assert second.timeline != first.timeline
    assert set(second.before) == {*first.before, first.timeline}, "no NameNode was asked yet"


async def test_of_two_volumes_both_are_rolled_back_or_none() -> None:
    one = await volume()
    two = {Path("/other") / path.relative_to(FOLDER): data for path, data in one.items()}
    folders = [FOLDER, Path("/other")]
    disk = SimulatedDisk(one | two)
    upgrade(disk)
    with pytest.raises(ConfigError, match=r"^/other: no snapshot here"):
        roll_back(disk, folders)
    assert is_kept(disk, FOLDER), "nothing was changed"
    other = read_identity(disk, Path("/other"))
    assert other is not None
    settle(disk, Path("/other"), other, upgrade=True)
    disk.remove(FOLDER / "current" / "blk_7")
    disk.remove(Path("/other/current/blk_7"))
    for files, done in states(recorded(disk.files(), lambda disk: roll_back(disk, folders))):
        begun = [folder for folder in folders if folder / PREVIOUS / ROLLBACK in files]
        again = SimulatedDisk(files)
        if begun or any(is_kept(again, folder) for folder in folders):
            roll_back(again, folders)
        for folder, was in zip(folders, (one, two), strict=True):
            assert replicas(again.files(), folder) == replicas(was, folder)
            assert not (done and is_kept(again, folder))


async def test_without_room_for_the_copies_nothing_is_left_of_a_snapshot() -> None:
    before = await volume()
    disk = SimulatedDisk(before)
    disk.full = True
    with pytest.raises(NoSpaceError):
        upgrade(disk)
    assert replicas(disk.files()) == replicas(before)
    disk.full = False
    assert leftovers(disk) == []
    assert start(disk) == identity(SimulatedDisk(before))


async def test_a_disk_that_fails_at_any_step_of_a_rollback_leaves_it_to_be_gone_on_with() -> None:
    before = await volume()
    after = await upgraded(before)
    operations = len(recorded(after, lambda disk: roll_back(disk, [FOLDER])))
    for fuse in range(1, operations):
        disk = SimulatedDisk(after)
        disk.light(fuse)
        with pytest.raises(StorageError):
            roll_back(disk, [FOLDER])
        go_back(disk.next_process())
        check_rolled_back(disk, before)


async def test_without_a_snapshot_there_is_nothing_to_go_back_to_or_to_finalize() -> None:
    before = await volume()
    disk = SimulatedDisk(before)
    for work in (roll_back, finalize):
        with pytest.raises(ConfigError, match=r"^/volume: no snapshot here; `datanode --upgrade`"):
            work(disk, [FOLDER])
    assert disk.files() == before


async def test_a_volume_in_use_is_not_rolled_back() -> None:
    disk = SimulatedDisk(await upgraded(await volume()))
    held = disk.lock(FOLDER / "lock")
    before = disk.files()
    with pytest.raises(ConfigError, match="in use by another process"):
        roll_back(disk, [FOLDER])
    assert disk.files() == before
    disk.close(held)


async def test_a_volume_that_never_registered_keeps_that_it_did_not() -> None:
    disk = SimulatedDisk()
    async with running(FOLDER, disk=disk) as node:
        assert node.volumes[0].identity.cluster == ""
    upgrade(disk)
    enter_cluster(disk, FOLDER, identity(disk), "cluster-1")
    roll_back(disk, [FOLDER])
    assert identity(disk).cluster == ""


def test_the_identity_of_a_timeline_reads_as_it_was_written() -> None:
    for before in ((), ("",), ("", "t1"), ("t1", "t2")):
        for timeline in ("", "t3"):
            written = Identity(StorageId("storage-1"), "node-1", "cluster-1", timeline, before)
            assert decode_identity(written.encode(), FOLDER / "VERSION") == written
