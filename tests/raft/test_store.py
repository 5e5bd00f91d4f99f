"""The replicated store as the NameNode meets it: the `KeyValueStore`, its errors, its end."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from paxosblock.errors import (
    ConfigError,
    DeadlineError,
    InvalidRequestError,
    OutcomeUnknownError,
    StorageError,
    UnavailableError,
)
from paxosblock.namenode.kv.files import numbers
from paxosblock.namenode.kv.interface import Committed, Conflict, Edit, Expect, KeyValueStore
from paxosblock.namenode.raft.entry import RECORD_BYTES
from paxosblock.namenode.raft.member_folder import Limits
from paxosblock.namenode.raft.raft_messages import TimeoutNow
from paxosblock.namenode.raft.store import ReplicatedStore
from tests.disks.faults import HELD, Fault
from tests.disks.simulated import Burns, SimulatedDisk
from tests.raft.alone import LoneFolder, alone, opened
from tests.raft.members import node_of
from tests.raft.rig import OPTIONS, Rig, Wire, entry, put, rig
from tests.waiting import wait_until_async

FOLDER = Path("/member")


def lead_alone(member: Rig) -> None:
    member.run()
    assert member.store.is_leader()


async def test_a_member_alone_is_a_store_on_a_real_disk(tmp_path: Path) -> None:
    store: KeyValueStore = alone(tmp_path)
    await store.start()
    await store.wait_leadership()
    assert store.leader() == "a:1"
    result = await store.commit(put(b"k", b"1"))
    assert isinstance(result, Committed)
    refused = await store.commit(Edit((Expect(b"k", 99),)))
    assert refused == Conflict(b"k", 99, result.revision)
    await store.close()
    await store.close()
    with pytest.raises(UnavailableError, match="is not open"):
        await store.commit(put(b"late"))

    again = alone(tmp_path)
    await again.start()
    await wait_until_async(again.is_leader)
    assert (await again.barrier()).get(b"k").value == b"1"
    second = alone(tmp_path)
    with pytest.raises(ConfigError, match="in use by another process"):
        await second.start()
    await second.close()
    await again.close()


def test_a_follower_refuses_and_names_the_leader() -> None:
    with rig() as member:
        with pytest.raises(UnavailableError, match="no leader is known"):
            member.wait(member.store.commit(put(b"k")))
        member.append([])
        assert member.store.leader() == "n1:1"
        with pytest.raises(UnavailableError, match="n1:1 leads"):
            member.wait(member.store.barrier())
        assert not member.store.is_leader()


def test_when_the_disk_refuses_the_outcome_is_unknown_and_the_member_stops() -> None:
    with rig(1) as member:
        lead_alone(member)
        member.disk.light(1, Burns.BEFORE)
        with pytest.raises(OutcomeUnknownError):
            member.wait(member.store.commit(put(b"k")))
        assert isinstance(member.store.failure(), StorageError)
        with pytest.raises(StorageError, match="power is gone"):
            member.wait(member.store.commit(put(b"k")))
        assert not member.store.is_leader()


def test_when_the_vote_cannot_be_written_the_member_stops_without_voting() -> None:
    with rig() as member:
        member.disk.die()
        assert member.ask_for_vote("n1:1", term=5) is None
        assert isinstance(member.store.failure(), StorageError)
        member.run(10.0)
        assert member.wire.sent == []


def test_closing_finishes_what_a_majority_still_confirms() -> None:
    with rig() as member:
        member.become_leader()
        write = member.commit()
        closing = member.begin(member.store.close())
        member.run()
        member.acknowledge("n1:1")
        member.wait(_finished(closing))
        assert write.result() == Committed(2)


def test_closing_does_not_wait_for_ever() -> None:
    with rig() as member:
        member.become_leader()
        write = member.commit()
        member.wait(member.store.close())
        assert isinstance(write.exception(), OutcomeUnknownError)


async def _finished(task: asyncio.Task[None]) -> None:
    await task


def test_too_many_pending_writes_are_refused_not_kept() -> None:
    with rig(options=replace(OPTIONS, pending_max=2)) as member:
        member.become_leader()
        writes = [member.commit(b"%d" % number) for number in range(3)]
        assert isinstance(writes[2].exception(), UnavailableError)
        member.acknowledge("n1:1")
        assert [write.result() for write in writes[:2]] == [Committed(2), Committed(3)]


def test_the_lead_is_handed_over_when_the_other_has_everything() -> None:
    with rig() as member:
        member.become_leader()
        write = member.commit()
        handing = member.begin(member.store.hand_over("n1:1"))
        with pytest.raises(UnavailableError, match="being handed over"):
            member.wait(member.store.commit(put(b"other")))
        assert member.sent(TimeoutNow) == []
        member.acknowledge("n1:1")
        assert write.done()
        member.run(0.15)
        assert {peer for peer, m in member.wire.sent if isinstance(m, TimeoutNow)} == {"n1:1"}
        member.append([], term=member.term + 1)
        member.wait(_finished(handing))
        assert member.store.leader() == "n1:1"


def test_a_hand_over_that_fails_leaves_the_leader_working() -> None:
    with rig() as member:
        member.become_leader()
        handing = member.begin(member.store.hand_over("n1:1", timeout_s=0.3))
        for _ in range(4):
            member.acknowledge(last_log_index=1)
            member.run(0.1)
        assert isinstance(handing.exception(), DeadlineError), "it may take over later"
        member.commit()
        member.run()
        member.acknowledge("n1:1")
        assert member.store.view().get(b"k").exists
        with pytest.raises(InvalidRequestError, match="no other member"):
            member.wait(member.store.hand_over("n0:1"))


def test_who_waits_for_the_end_of_a_lead_is_told() -> None:
    with rig() as member:
        member.wait(member.store.wait_deposed())
        member.become_leader()
        waiting = member.begin(member.store.wait_deposed())
        member.run()
        assert not waiting.done()
        member.append([], term=member.term + 1)
        assert waiting.done()


async def test_writes_and_reads_go_on_during_a_flush() -> None:
    disk = SimulatedDisk()
    disk.breaks(Fault(("open",), path="/db-", delay_s=HELD))
    store = alone(FOLDER, disk, Limits(flush_bytes=1))
    await store.start()
    await store.wait_leadership()
    await store.commit(put(b"first"))
    await wait_until_async(lambda: disk.met)
    for number in range(20):
        assert isinstance(await store.commit(put(b"%d" % number)), Committed)
        assert (await store.barrier()).get(b"%d" % number).exists
    assert numbers(disk.names(FOLDER), "db") == []
    disk.mend()
    await wait_until_async(lambda: store.status().snapshot_index > 0)
    await store.close()
    assert len(numbers(disk.names(FOLDER), "db")) >= 1


async def test_processes_that_live_shortly_do_not_let_the_journal_grow_for_ever(
    tmp_path: Path,
) -> None:
    """None of them writes as much as a flush waits for."""
    limits = Limits(segment_bytes=400, flush_bytes=1000)
    for number in range(40):
        async with opened(tmp_path, limits=limits) as store:
            for _ in range(5):
                await store.commit(put(b"k", b"%0100d" % number))
        written = sum(file.stat().st_size for file in tmp_path.glob("journal-*"))
        assert written < 4 * limits.flush_bytes


def test_what_a_flush_covers_is_dropped_from_memory_in_slices() -> None:
    limits = Limits(flush_bytes=50 * RECORD_BYTES, trailing_entries=0)
    with rig(options=replace(OPTIONS, limits=limits, forget_entries_max=3)) as member:
        log, bases = member.node.log, [0]

        async def watch_every_turn() -> None:
            while bases[-1] < 50:
                await asyncio.sleep(0)
                bases.append(log.base_index)

        watching = member.begin(watch_every_turn())
        member.append([entry(1)] * 50, commit=50)
        member.wait(_finished(watching))
        assert max(after - before for before, after in pairwise(bases)) == 3


def test_the_entries_that_stay_in_memory_after_a_flush_are_few_if_they_are_long() -> None:
    """Ten thousand edits of a MiB each would be all of the machine's memory."""
    limits = Limits(flush_bytes=20_000, trailing_entries=1000, trailing_bytes=5000)
    with rig(options=replace(OPTIONS, limits=limits)) as member:
        member.append([entry(1, bytes(1000))] * 20, commit=20)
        assert member.store.status().snapshot_index == 20
        assert 0 < member.node.log.last_log_index - member.node.log.base_index < 6


async def test_a_member_alone_keeps_no_entry_in_memory_and_all_on_the_disk_until_a_flush() -> None:
    disk = SimulatedDisk()
    async with opened(FOLDER, disk, Limits(segment_bytes=400, flush_bytes=5000)) as store:
        log = node_of(store).log
        for number in range(30):
            await store.commit(put(b"%d" % number, bytes(50)))
            assert log.base_index == log.last_log_index
        kept = numbers(disk.names(FOLDER), "journal")
        assert (kept[0], len(kept) > 3) == (1, True)
        for number in range(30, 90):
            await store.commit(put(b"%d" % number, bytes(50)))
        await wait_until_async(lambda: numbers(disk.names(FOLDER), "journal")[0] > 1)
        flushed = store.status().snapshot_index
        following = min(each for each in numbers(disk.names(FOLDER), "journal"))
        assert following <= flushed + 1, "no record is removed that the flush does not cover"
    async with opened(FOLDER, disk) as store:
        assert len(list(store.view().scan(b"", b""))) == 90


async def test_what_comes_during_a_flush_stays_in_the_journal_of_a_member_alone() -> None:
    disk = SimulatedDisk()
    disk.breaks(Fault(("open",), path="/db-", delay_s=HELD))
    async with opened(FOLDER, disk, Limits(segment_bytes=300, flush_bytes=3000)) as store:
        number = 0
        while not disk.plan.waiting:  # until a flush is under way
            await store.commit(put(b"%d" % (number := number + 1), bytes(50)))
        for _ in range(10):
            await store.commit(put(b"%d" % (number := number + 1), bytes(50)))
        disk.mend()
        await wait_until_async(lambda: numbers(disk.names(FOLDER), "journal")[0] > 1)
        left = SimulatedDisk(disk.files())
    assert len(LoneFolder(left, FOLDER).machine) == number


def test_a_member_alone_applies_its_log_before_it_has_started() -> None:
    """No other member can be elected, so each entry that it has on the disk is committed."""
    with rig(1) as member:
        lead_alone(member)
        for number in range(200):
            member.commit(b"%03d" % number)
        member.run()
        member.crash()
        assert len(list(member.store.view().scan(b"", b""))) == 200
        assert member.store.status().applied_index == 201


async def test_a_member_alone_that_is_idle_does_nothing() -> None:
    async with opened(FOLDER, SimulatedDisk()) as store:
        await store.commit(put(b"k"))
        loop = asyncio.get_running_loop()
        assert not [each for each in loop._scheduled if not each.cancelled()]  # type: ignore[attr-defined]  # what an idle NameNode would be woken for


@pytest.mark.parametrize(("entries", "turns"), [(1, [1, 2, 3, 4, 5]), (2, [2, 4, 5]), (9, [5])])
def test_entries_of_many_changes_are_applied_a_few_in_each_turn(
    entries: int, turns: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each may hold the changes of all clients that came at once."""
    payload = entry(1).payload
    options = replace(OPTIONS, apply_bytes_max=entries * len(payload))
    with rig(options=options) as member:
        member.append([entry(1) for _ in range(5)])
        seen = []
        wake = member.node._wake

        def woken() -> None:
            seen.append(member.node.machine.revision)
            wake()

        monkeypatch.setattr(member.node, "_wake", woken)
        member.append([], previous=(5, 1), commit=5)
        assert seen == turns


def test_the_status_tells_role_term_commit_and_lag() -> None:
    with rig() as member:
        assert member.store.status().role == "follower"
        member.become_leader()
        member.commit().cancel()
        member.run()
        status = member.store.status()
        assert (status.role, status.term, status.leader) == ("leader", 1, "n0:1")
        assert (status.commit_index, status.last_index) == (1, 2)
        assert status.lag == {"n1:1": 1, "n2:1": 1}


def test_who_asks_late_why_a_store_failed_is_told_and_not_refused() -> None:
    """A process that begins to wait for the failure ends by it, also when it came before."""
    with rig() as member:
        member.disk.die()
        member.append_only([entry(1)])
        member.run()
        assert "the power is gone" in str(member.wait(member.store.wait_failure()))


def test_a_list_of_members_that_makes_no_sense_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="each member is listed once"):
        ReplicatedStore(tmp_path, "a:1", ["a:1", "a:1"], Wire())
