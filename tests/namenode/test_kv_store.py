"""The store of a cluster's only NameNode: edits go in, survive, and come out as a model says."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from paxosblock.errors import (
    ConfigError,
    CorruptionError,
    InvalidRequestError,
    Outcome,
    OutcomeUnknownError,
    StorageError,
    UnavailableError,
)
from paxosblock.host.disk import FileHandle, OsDisk
from paxosblock.namenode.kv.files import numbers
from paxosblock.namenode.kv.interface import (
    ABSENT,
    Committed,
    Conflict,
    Edit,
    Expect,
    ExpectEmpty,
    KeyValueStore,
    Versioned,
)
from paxosblock.namenode.kv.rocks_table import ROCKS
from paxosblock.namenode.kv.table import Tables
from paxosblock.namenode.raft.entry import RECORD_BYTES, Entry
from paxosblock.namenode.raft.machine import ReplicatedMachine, Slices
from paxosblock.namenode.raft.member_folder import Limits
from tests.disks.cut_short import CutShort
from tests.disks.faults import HELD, SYNCS, WRITES, Fault
from tests.disks.simulated import SimulatedDisk
from tests.journal.records import entries_in, payloads
from tests.memory_table import MEMORY
from tests.raft.alone import ADDRESS, alone, opened
from tests.waiting import wait_until_async

FOLDER = Path("/member")
LATE_SYNCS = Fault(SYNCS, delay_s=HELD)
LATER_SYNCS = Fault(SYNCS, delay_s=HELD + 1)
"""In the place of the former it lets those end that are late already."""
SMALL = Limits(segment_bytes=400, flush_bytes=1000)
NOOP = 1
"""Entries that a start adds: each begins a term."""


def put(key: bytes, value: bytes = b"v") -> Edit:
    return Edit(puts=((key, value),))


async def test_the_engine_is_a_key_value_store_and_always_leads(tmp_path: Path) -> None:
    store: KeyValueStore = alone(tmp_path / "member")
    assert store.leader() is None
    await store.start()
    assert store.is_leader(), "no election time-out comes first"
    assert store.leader() == ADDRESS
    await store.close()
    assert not store.is_leader()


async def test_what_was_committed_is_there_after_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        assert await store.commit(put(b"a", b"1")) == Committed(2)
        assert await store.commit(put(b"b", b"2")) == Committed(3)
        assert await store.commit(Edit((Expect(b"a", 9),))) == Conflict(b"a", 9, 2)
    async with opened(tmp_path) as store:
        view = await store.barrier()
        assert list(view.scan(b"", b"")) == [(b"a", Versioned(b"1", 2)), (b"b", Versioned(b"2", 3))]
        assert view.revision == 4 + NOOP
        assert await store.commit(put(b"c")) == Committed(6)


async def test_of_racing_compare_and_sets_exactly_one_is_committed(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.commit(put(b"a", b"start"))
        claims = [Edit((Expect(b"a", 2),), ((b"a", b"%d" % n),)) for n in range(20)]
        results = await asyncio.gather(*map(store.commit, claims))
        winners = [n for n, result in enumerate(results) if isinstance(result, Committed)]
        assert len(winners) == 1
        assert store.view().get(b"a").value == b"%d" % winners[0]


async def test_edits_that_arrive_during_a_sync_share_the_next_one() -> None:
    disk = SimulatedDisk()
    async with opened(FOLDER, disk) as store:
        before = len(disk.synced)
        disk.breaks(LATE_SYNCS)
        commits = [asyncio.create_task(store.commit(put(b"%d" % n))) for n in range(50)]
        await asyncio.sleep(0)
        disk.mend()
        results = await asyncio.gather(*commits)
        assert results == [Committed(index) for index in range(2, 52)]
        assert len(disk.synced) - before <= 2


async def test_nothing_is_visible_or_answered_before_it_is_durable() -> None:
    disk = SimulatedDisk()
    async with opened(FOLDER, disk) as store:
        disk.breaks(LATE_SYNCS)
        commit = asyncio.create_task(store.commit(put(b"a")))
        await wait_until_async(lambda: disk.plan.waiting)
        assert not commit.done()
        assert (await store.barrier()).get(b"a") == ABSENT
        disk.mend()
        await commit
        assert (await store.barrier()).get(b"a").exists


async def test_a_batch_is_applied_while_the_next_one_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = SimulatedDisk()
    async with opened(FOLDER, disk) as store:

        def patient(machine: ReplicatedMachine, index: int, entry: Entry, known: Edit) -> Slices:
            while index == 2 and not disk.plan.waiting:
                yield
            return machine.apply(index, known, entry.term)

        monkeypatch.setattr(ReplicatedMachine, "apply_entry", patient)
        disk.breaks(LATE_SYNCS)
        first = asyncio.create_task(store.commit(put(b"a")))
        await wait_until_async(lambda: disk.plan.waiting)
        second = asyncio.create_task(store.commit(put(b"b")))
        await asyncio.sleep(0)
        disk.breaks(LATER_SYNCS)
        async with asyncio.timeout(30):
            assert await first == Committed(2)
        assert not second.done()
        assert not store.view().get(b"b").exists
        disk.mend()
        assert await second == Committed(3)


async def test_what_is_being_written_when_the_store_fails_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = SimulatedDisk()

    def mistaken(*_: object) -> Slices:
        while not disk.plan.waiting:
            yield
        disk.mend()
        raise AssertionError("a mistake of our own")

    async with opened(FOLDER, disk) as store:
        monkeypatch.setattr(ReplicatedMachine, "apply_entry", mistaken)
        disk.breaks(LATE_SYNCS)
        commits = [asyncio.create_task(store.commit(put(b"a")))]
        await wait_until_async(lambda: disk.plan.waiting)
        commits.append(asyncio.create_task(store.commit(put(b"b"))))
        await asyncio.sleep(0)
        disk.breaks(LATER_SYNCS)
        for commit in commits:
            with pytest.raises(OutcomeUnknownError, match="after a restart"):
                await asyncio.wait_for(commit, 30)
    monkeypatch.undo()
    async with opened(FOLDER, disk) as store:
        assert store.view().get(b"a").exists


async def test_a_cancelled_caller_does_not_disturb_the_others() -> None:
    disk = SimulatedDisk()
    async with opened(FOLDER, disk) as store:
        disk.breaks(LATE_SYNCS)
        cancelled = asyncio.create_task(store.commit(put(b"a")))
        kept = asyncio.create_task(store.commit(put(b"b")))
        await asyncio.sleep(0)
        cancelled.cancel()
        disk.mend()
        assert await kept == Committed(3)
        assert store.view().get(b"a") == Versioned(b"v", 2)


async def test_closing_finishes_what_was_submitted(tmp_path: Path) -> None:
    store = alone(tmp_path)
    await store.start()
    commits = [asyncio.create_task(store.commit(put(b"%d" % n))) for n in range(10)]
    await asyncio.sleep(0)
    await asyncio.gather(store.close(), store.close())
    assert await asyncio.gather(*commits) == [Committed(index) for index in range(2, 12)]
    with pytest.raises(UnavailableError, match="is not open"):
        await store.commit(put(b"late"))
    with pytest.raises(UnavailableError, match="is not open"):
        await store.barrier()


async def test_a_folder_is_open_in_one_store_at_a_time(tmp_path: Path) -> None:
    async with opened(tmp_path):
        second = alone(tmp_path)
        with pytest.raises(ConfigError, match="in use by another process"):
            await second.start()
        await second.close()
    async with opened(tmp_path) as store:
        assert store.is_leader()


async def test_a_flush_replaces_the_segments_before_it(tmp_path: Path) -> None:
    async with opened(tmp_path, limits=SMALL) as store:
        for number in range(200):
            await store.commit(put(b"%d" % (number % 7), b"%d" % number))
        await wait_until_async(lambda: segments_of(tmp_path)[0] > 1)
        expected = list(store.view().scan(b"", b""))
    async with opened(tmp_path, limits=SMALL) as store:
        assert list(store.view().scan(b"", b"")) == expected
        assert store.view().revision == 200 + 2 * NOOP


def segments_of(folder: Path) -> list[int]:
    return numbers([path.name for path in folder.iterdir()], "journal")


async def test_a_flush_is_due_only_when_the_journal_has_grown_again() -> None:
    disk = SimulatedDisk()
    disk.breaks(Fault(("open",), path="/db-"))  # it is met, and nothing more
    async with opened(FOLDER, disk, SMALL) as store:
        for _ in range(200):
            await store.commit(put(b"k"))
    batch_bytes = 36 + 4 + RECORD_BYTES + 11
    assert 3 <= len(disk.met) <= 200 * batch_bytes // SMALL.flush_bytes


async def test_processes_that_live_shortly_do_not_let_the_journal_grow_for_ever(
    tmp_path: Path,
) -> None:
    """None of them writes as much as a flush waits for."""
    for number in range(40):
        async with opened(tmp_path, limits=SMALL) as store:
            for _ in range(5):
                await store.commit(put(b"k", b"%0100d" % number))
        written = sum(file.stat().st_size for file in tmp_path.glob("journal-*"))
        assert written < 3 * SMALL.flush_bytes


async def test_commits_go_on_during_a_flush() -> None:
    disk = SimulatedDisk()
    disk.breaks(Fault(("open",), path="/db-", delay_s=HELD))
    async with opened(FOLDER, disk, SMALL) as store:
        for number in range(100):
            await store.commit(put(b"%d" % number))
        assert not numbers(disk.names(FOLDER), "db")
        disk.mend()
    assert len(numbers(disk.names(FOLDER), "db")) == 1
    async with opened(FOLDER, disk) as store:
        assert store.view().revision == 100 + 2 * NOOP


@pytest.mark.parametrize(("calls", "error"), [(SYNCS, "ENOSPC"), (SYNCS, "EIO"), (WRITES, "EIO")])
async def test_after_a_failed_write_the_outcome_is_unknown_and_the_store_stops(
    calls: tuple[str, ...], error: str
) -> None:
    disk, reason = SimulatedDisk(), os.strerror(getattr(errno, error))
    async with opened(FOLDER, disk) as store:
        await store.commit(put(b"kept"))
        disk.breaks(Fault(calls, error=error, partly=True))
        with pytest.raises(OutcomeUnknownError, match=reason) as unknown:
            await store.commit(put(b"unknown"))
        assert unknown.value.outcome is Outcome.UNKNOWN
        assert disk.met == list(calls)
        disk.mend()  # the store does not try its luck again
        for refused in (store.commit(put(b"never")), store.barrier()):
            with pytest.raises(StorageError, match=reason) as never:
                await refused
            assert never.value.outcome is Outcome.NEVER
        failure = store.failure()
        assert failure is not None
        assert failure.outcome is Outcome.UNKNOWN
        assert await store.wait_failure() is failure
        assert not store.is_leader()
        assert len(disk.met) == 1
    async with opened(FOLDER, disk) as store:
        assert store.view().get(b"kept").exists
        assert not store.view().get(b"never").exists
        assert await store.commit(put(b"after")) == Committed(store.view().revision)


async def test_what_waited_behind_a_failed_write_did_not_happen() -> None:
    disk = SimulatedDisk()
    async with opened(FOLDER, disk) as store:
        await store.commit(put(b"a"))
        disk.breaks(Fault(SYNCS, error="EIO", delay_s=HELD))
        under_way = asyncio.create_task(store.commit(put(b"b")))
        await wait_until_async(lambda: disk.plan.waiting)
        waiting = asyncio.create_task(store.commit(put(b"c")))
        await asyncio.sleep(0)
        disk.mend()
        results = await asyncio.gather(under_way, waiting, return_exceptions=True)
    assert [type(result) for result in results] == [OutcomeUnknownError, OutcomeUnknownError]
    async with opened(FOLDER, disk) as store:
        assert not store.view().get(b"c").exists


async def test_an_error_nobody_expected_leaves_no_caller_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def mistaken(file: FileHandle) -> None:
        raise RuntimeError("a mistake")

    disk = SimulatedDisk()
    async with opened(FOLDER, disk) as store:
        monkeypatch.setattr(disk, "sync", mistaken)
        with pytest.raises(OutcomeUnknownError, match="a mistake"):
            await store.commit(put(b"a"))
        with pytest.raises(StorageError, match="a mistake"):
            await store.commit(put(b"b"))


async def test_a_flush_that_finds_no_room_does_not_stop_the_store(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = SimulatedDisk()
    disk.breaks(Fault(("open",), path="/db-", error="ENOSPC"))
    async with opened(FOLDER, disk, SMALL) as store:
        for number in range(200):
            await store.commit(put(b"%d" % number))
    assert len(disk.met) > 1
    assert "is not flushed: " in caplog.text
    assert not numbers(disk.names(FOLDER), "db")
    async with opened(FOLDER, disk) as store:
        assert store.view().revision == 200 + 2 * NOOP


async def test_an_edit_that_is_none_is_refused_and_the_store_goes_on(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        with pytest.raises(InvalidRequestError):
            await store.commit(Edit(deletes=("text",)))  # type: ignore[arg-type]  # the point
        assert await store.commit(put(b"a")) == Committed(2)


async def test_a_torn_tail_is_cut_off_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path, OsDisk()) as store:
        await store.commit(put(b"a"))
    (segment,) = tmp_path.glob("journal-*")
    size = segment.stat().st_size
    segment.write_bytes(segment.read_bytes() + b"torn")
    async with opened(tmp_path, OsDisk()) as store:
        assert store.view().get(b"a").exists
        assert segment.stat().st_size == size + 4, "segments are never changed any more"
    assert f"{segment}: left out a torn tail of 4 bytes" in caplog.text


async def test_a_start_removes_drafts(tmp_path: Path) -> None:
    async with opened(tmp_path, limits=SMALL) as store:
        for number in range(60):
            await store.commit(put(b"%d" % (number % 7)))
    superfluous = ["vote.tmp", "journal-9.tmp"]
    for name in superfluous:
        assert not (tmp_path / name).exists()
        (tmp_path / name).write_bytes(b"left by a crash")
    async with opened(tmp_path) as store:
        assert store.view().revision == 60 + 2 * NOOP
    assert not [name for name in superfluous if (tmp_path / name).exists()]


async def test_a_flipped_byte_in_the_journal_is_refused_in_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    async with opened(tmp_path / "member", limits=SMALL) as store:
        for number in range(60):
            await store.commit(put(b"%d" % number))
        shutil.copytree(tmp_path / "member", folder)
    victim = max(folder.glob("journal*"))
    data = bytearray(victim.read_bytes())
    data[payloads(bytes(data))[0].start] ^= 1
    victim.write_bytes(data)
    store = alone(folder)
    with pytest.raises(CorruptionError, match=rf"^{victim} is damaged at offset \d+[^\n]*backup$"):
        await store.start()
    await store.close()


async def test_a_folder_that_cannot_be_made_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = alone(tmp_path / "file" / "member")
    with pytest.raises(StorageError, match="Not a directory"):
        await store.start()
    await store.close()


class StoreAgainstModel(RuleBasedStateMachine):
    """Random edits and restarts; a dict says what must be there."""

    tables: Tables = ROCKS
    keys = st.sampled_from([b"\0", b"a", b"a/", b"a/b", b"a/c", b"b", b"\xff"])
    pairs = st.tuples(st.just(b"") | keys, st.just(b"") | keys)

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = TemporaryDirectory()
        self.model: dict[bytes, Versioned] = {}
        self.index = 0

    @initialize()
    def open(self) -> None:
        self.index += NOOP
        self.store = alone(Path(self.folder.name), limits=SMALL, tables=self.tables)
        self.runner.run(self.store.start())
        self.runner.run(self.store.wait_leadership())

    @rule()
    def restart(self) -> None:
        self.runner.run(self.store.close())
        self.open()

    @rule(
        expect=st.lists(st.tuples(keys, st.booleans()), max_size=2),
        empty=st.lists(pairs, max_size=1),
        puts=st.lists(st.tuples(keys, st.binary(max_size=40)), max_size=3).map(tuple),
        deletes=st.lists(keys, max_size=2).map(tuple),
    )
    def commit(
        self,
        expect: list[tuple[bytes, bool]],
        empty: list[tuple[bytes, bytes]],
        puts: tuple[tuple[bytes, bytes], ...],
        deletes: tuple[bytes, ...],
    ) -> None:
        self.index += 1
        revisions = [(key, self._revision(key) + (0 if holds else 1)) for key, holds in expect]
        result = self.runner.run(
            self.store.commit(
                Edit(
                    (*(Expect(*pair) for pair in revisions), *(ExpectEmpty(*r) for r in empty)),
                    puts,
                    deletes,
                )
            )
        )
        holds = all(self._revision(key) == revision for key, revision in revisions)
        if not holds or any(self._within(*each) for each in empty):
            assert isinstance(result, Conflict)
            return
        assert result == Committed(self.index)
        for key in deletes:
            self.model.pop(key, None)
        self.model |= {key: Versioned(value, self.index) for key, value in puts}

    @invariant()
    def the_store_shows_what_the_model_holds(self) -> None:
        view = self.store.view()
        assert list(view.scan(b"", b"")) == sorted(self.model.items(), key=lambda item: item[0])
        assert view.revision == self.index
        for first in (b"\0", b"a", b"b", b"c", b"\xff"):
            assert view.count(first) == sum(key.startswith(first) for key in self.model)

    def teardown(self) -> None:
        self.runner.run(self.store.close())
        self.runner.close()
        self.folder.cleanup()

    def _revision(self, key: bytes) -> int:
        return self.model[key].revision if key in self.model else 0

    def _within(self, start: bytes, end: bytes) -> list[bytes]:
        below: Callable[[bytes], bool] = (lambda key: key < end) if end else (lambda key: True)
        return [key for key in self.model if start <= key and below(key)]


TestStoreAgainstModel = StoreAgainstModel.TestCase
TestStoreAgainstModel.settings = settings(max_examples=20, stateful_step_count=30, deadline=None)


class StoreInMemoryAgainstModel(StoreAgainstModel):
    """The same of the engine that simulations have."""

    tables = MEMORY


TestStoreInMemoryAgainstModel = StoreInMemoryAgainstModel.TestCase
TestStoreInMemoryAgainstModel.settings = TestStoreAgainstModel.settings


async def test_after_a_clean_stop_no_record_is_left_to_read(tmp_path: Path) -> None:
    for stops in range(1, 4):
        async with opened(tmp_path, limits=SMALL) as store:
            for number in range(60):
                await store.commit(put(b"%d" % number, b"%d" % stops))
        assert entries_in(tmp_path) == []
        assert len(list(tmp_path.glob("journal-*"))) == 1
        async with opened(tmp_path) as store:
            view = store.view()
            assert {view.get(b"%d" % number).value for number in range(60)} == {b"%d" % stops}


async def test_a_stop_that_is_cut_short_anywhere_loses_nothing(tmp_path: Path) -> None:
    found = set()
    for steps in range(200):
        folder, disk, answered = tmp_path / f"{steps}", CutShort(steps), 0
        store = alone(folder, disk, SMALL, ROCKS)
        with suppress(StorageError, OutcomeUnknownError, UnavailableError):
            try:
                await store.start()
                await store.wait_leadership()
                for number in range(8):
                    await store.commit(put(b"k", b"%d" % number))
                    answered = number + 1
            finally:
                await store.close()
        async with opened(folder) as again:
            kept = again.view().get(b"k").value
            assert int(kept or b"-1") in (answered - 1, answered)
        found.add(disk.left < 0)
        if disk.left >= 0:
            break
    assert found == {True, False}
