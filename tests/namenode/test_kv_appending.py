"""Appends to the journal from the event loop: by the kernel, in the thread, and what goes wrong."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from paxosblock.base.checksum import Buffer
from paxosblock.errors import NoSpaceError, StorageError
from paxosblock.host.disk import Disk, FileHandle, OsDisk
from paxosblock.host.kernel_syncs import Done, KernelSyncs
from paxosblock.journal.durable_mark import read_mark
from paxosblock.journal.record_log import MARK_NAME
from paxosblock.namenode.kv.interface import Committed, Edit
from paxosblock.namenode.kv.journal import FORMAT, LOOP_BYTES, Appending, Journal
from tests.journal.records import begun_journal, entries_in
from tests.raft.alone import opened as opened_store

SEGMENT_BYTES = 1000


class Held(KernelSyncs):
    """Takes syncs while it `takes` any; they end when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.takes = True
        self.taken: list[Done] = []

    def begin(self, file: int, done: Done) -> bool:
        if self.takes:
            self.taken.append(done)
        return self.takes


class NotedDisk(OsDisk):
    """Notes the threads that write to the journal."""

    def __init__(self) -> None:
        super().__init__()
        self.writers: list[int] = []

    def write(self, file: FileHandle, data: Buffer, offset: int) -> None:
        self.writers.append(threading.get_ident())
        super().write(file, data, offset)


class FullDisk(OsDisk):
    """Half of each write finds room while it is `full`."""

    full = False

    def write(self, file: FileHandle, data: Buffer, offset: int) -> None:
        super().write(file, data[: len(data) // 2] if self.full else data, offset)
        if self.full:
            raise NoSpaceError("no room")


@asynccontextmanager
async def opened(
    folder: Path,
    kernel: KernelSyncs,
    disk: Disk | None = None,
    segment_bytes: int = SEGMENT_BYTES,
) -> AsyncIterator[Appending]:
    """A new journal in `folder`, which is closed at the end, unless a sync failed."""
    journal = begun_journal(folder, segment_bytes, disk)
    with ThreadPoolExecutor(1) as executor:
        appending = Appending(journal, executor, kernel)
        yield appending
        await appending.close()
    journal.close()


def marked(folder: Path) -> int:
    """Return the last entry that the mark knows to be durable."""
    mark = read_mark(OsDisk(), folder / MARK_NAME, FORMAT)
    assert mark is not None
    return mark.highest


def found(folder: Path) -> list[bytes]:
    """Return the entries that a start finds in the journal."""
    return [payload for _, payload in entries_in(folder)]


async def test_what_the_kernel_synced_is_found_again_over_all_segments(tmp_path: Path) -> None:
    async with opened(tmp_path, KernelSyncs()) as appending:
        for number in range(40):
            assert appending.next_index == number * 2 + 1
            assert await appending.begin([b"%d" % number, bytes(40)]) > 40
    assert found(tmp_path) == [entry for n in range(40) for entry in (b"%d" % n, bytes(40))]
    assert len(list(tmp_path.glob("journal-*"))) > 3


async def test_an_entry_counts_when_its_sync_has_ended_and_not_before(tmp_path: Path) -> None:
    kernel = Held()
    async with opened(tmp_path, kernel) as appending:
        appended = appending.begin([b"one"])
        await asyncio.sleep(0)
        assert not appended.done()
        assert (appending.next_index, marked(tmp_path)) == (1, 0)
        kernel.taken[0](None)
        await appended
        assert (appending.next_index, marked(tmp_path)) == (2, 1)


async def test_after_a_sync_that_failed_nothing_is_appended(tmp_path: Path) -> None:
    """The system tells of what it dropped once: the second sync would succeed."""
    kernel = Held()
    async with opened(tmp_path, kernel) as appending:
        appended = appending.begin([b"one"])
        kernel.taken[0](OSError(errno.EIO, os.strerror(errno.EIO)))
        with pytest.raises(StorageError, match="cannot sync: Input/output error"):
            await appended
        with pytest.raises(AssertionError, match="never retried"):
            await appending.begin([b"two"])
        assert marked(tmp_path) == 0


async def test_what_the_kernel_does_not_take_the_thread_appends_once(tmp_path: Path) -> None:
    kernel = Held()
    kernel.takes = False
    async with opened(tmp_path, kernel) as appending:
        await appending.begin([b"one"])
        kernel.takes = True
        appended = appending.begin([b"two"])
        kernel.taken[0](None)
        await appended
    assert found(tmp_path) == [b"one", b"two"]


async def test_a_long_batch_is_written_by_the_thread_so_that_the_loop_goes_on(
    tmp_path: Path,
) -> None:
    disk, kernel = NotedDisk(), KernelSyncs()
    entries = [[bytes(LOOP_BYTES)], [bytes(LOOP_BYTES // 2), bytes(LOOP_BYTES // 2), b"more"]]
    async with opened(tmp_path, kernel, disk, segment_bytes=10 * LOOP_BYTES) as appending:
        by_loop = []
        for batch in entries:
            disk.writers.clear()
            await appending.begin(batch)
            by_loop.append(disk.writers[0] == threading.get_ident())
    assert by_loop == [True, False]
    assert found(tmp_path) == [entry for batch in entries for entry in batch]


async def test_a_batch_that_finds_no_room_leaves_nothing_behind(tmp_path: Path) -> None:
    disk, kernel = FullDisk(), Held()
    async with opened(tmp_path, kernel, disk) as appending:
        disk.full = True
        with pytest.raises(NoSpaceError):
            await appending.begin([b"a longer one that is refused"])
        disk.full = False
        assert kernel.taken == []
        appended = appending.begin([b"one"])
        kernel.taken[0](None)
        await appended
    assert found(tmp_path) == [b"one"]


async def test_the_close_waits_for_what_is_under_way_though_nobody_does(tmp_path: Path) -> None:
    kernel = Held()
    async with opened(tmp_path, kernel) as appending:
        appending.begin([b"one"]).cancel()
        asyncio.get_running_loop().call_soon(lambda: kernel.taken[0](None))
    assert found(tmp_path) == [b"one"], "the last mark is behind it"


async def test_a_store_commits_without_its_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened_store(tmp_path) as store:
        with monkeypatch.context() as patched:
            patched.delattr(Journal, "append")
            for number in range(2, 5):
                change = Edit(puts=((b"k", b"%d" % number),))
                assert await store.commit(change) == Committed(number)
