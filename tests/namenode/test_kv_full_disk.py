"""The store of a cluster's only NameNode while its disk is full: changes are refused, and nothing
else is."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from paxosblock.errors import NoSpaceError, Outcome
from paxosblock.host.disk import OsDisk
from paxosblock.namenode.kv.files import numbers
from paxosblock.namenode.kv.interface import Committed, Edit
from paxosblock.namenode.raft import log
from paxosblock.namenode.raft.member_folder import Limits
from paxosblock.namenode.raft.store import ReplicatedStore
from tests.disks.simulated import SimulatedDisk
from tests.journal.records import begun_journal, entries_in
from tests.raft.alone import alone
from tests.waiting import wait_until_async

FOLDER = Path("/member")


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "ROOM_POLL_S", 0.01)


def put(key: bytes, value: bytes = b"v") -> Edit:
    return Edit(puts=((key, value),))


async def opened(disk: SimulatedDisk, segment_bytes: int = 1 << 20) -> ReplicatedStore:
    store = alone(FOLDER, disk, Limits(segment_bytes))
    await store.start()
    await store.wait_leadership()
    return store


async def refused(store: ReplicatedStore) -> NoSpaceError:
    with pytest.raises(NoSpaceError) as caught:
        await store.commit(put(b"refused"))
    assert caught.value.details["address"] == "a:1", "clients tell it from a lack of DataNodes"
    return caught.value


async def test_a_full_disk_refuses_changes_serves_reads_and_goes_on_when_it_has_room() -> None:
    disk = SimulatedDisk()
    store = await opened(disk)
    await store.commit(put(b"before"))
    disk.full = True
    error = await refused(store)
    assert error.outcome is Outcome.NEVER
    assert str(FOLDER) in str(error)
    assert "full" in str(error)
    assert "\n" not in str(error)
    await refused(store)
    assert disk.refusals == 1, "the disk is not asked again for each change"
    assert (await store.barrier()).get(b"before").exists
    assert store.failure() is None
    assert store.is_leader()
    assert store.impaired() is not None
    disk.full = False
    await wait_until_async(lambda: store.impaired() is None)
    assert await store.commit(put(b"after")) == Committed(3)
    await store.close()
    again = await opened(disk)
    assert [key for key, _ in again.view().scan(b"", b"")] == [b"after", b"before"]
    await again.close()


async def test_what_waits_behind_the_change_that_finds_no_room_is_refused_too() -> None:
    disk = SimulatedDisk()
    store = await opened(disk)
    disk.full = True
    commits = [asyncio.create_task(store.commit(put(b"%d" % number))) for number in range(20)]
    results = await asyncio.gather(*commits, return_exceptions=True)
    assert {type(result) for result in results} == {NoSpaceError}
    await store.close()
    disk.full = False
    again = await opened(disk)
    assert not list(again.view().scan(b"", b""))
    await again.close()


async def test_a_segment_that_finds_no_room_to_begin_begins_when_there_is() -> None:
    disk = SimulatedDisk()
    store = await opened(disk, segment_bytes=200)
    for number in range(20):
        await store.commit(put(b"%02d" % number, bytes(30)))
        disk.full = True
        await refused(store)
        disk.full = False
        await wait_until_async(lambda: store.impaired() is None)
    await store.close()
    assert len(numbers(disk.names(FOLDER), "journal")) > 4
    again = await opened(disk)
    assert [key for key, _ in again.view().scan(b"", b"")] == [b"%02d" % n for n in range(20)]
    await again.close()


async def test_a_store_whose_disk_stays_full_closes_at_once() -> None:
    disk = SimulatedDisk()
    store = await opened(disk)
    disk.full = True
    await refused(store)
    async with asyncio.timeout(10):
        await store.close()
    assert store.impaired() is not None


def test_the_system_s_lack_of_room_is_told_from_a_failure_of_the_disk() -> None:
    disk = OsDisk()
    file = disk.create(Path("/dev/full"))  # every write to it fails so
    with pytest.raises(NoSpaceError, match="No space left on device"):
        disk.write(file, b"data", 0)
    disk.close(file)


def test_a_segment_goes_on_as_it_was_when_the_next_one_finds_no_room_to_begin(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = SimulatedDisk()
    journal = begun_journal(FOLDER, 100, disk)
    journal.append([bytes(100)])
    (segment,) = (path for path in disk.files() if path.name.startswith("journal-"))
    disk.full = True
    with pytest.raises(NoSpaceError):
        journal.append([b"refused"])
    disk.full = False
    size_bytes = len(disk.files()[segment])
    journal.close()  # its last mark goes into the segment that is open
    data = disk.files()[segment]
    assert len(data) > size_bytes
    assert [index for index, _ in entries_in(FOLDER, disk)] == [1]
    assert "torn" not in caplog.text
