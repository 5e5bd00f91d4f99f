"""Syncs by the kernel and in threads: one at a time of a file, and a failure counts for both."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from paxosblock.datanode.store.open_file import OpenFile
from paxosblock.datanode.volumes.group_commit import GroupCommit
from paxosblock.errors import PaxosBlockError, StorageError
from paxosblock.host.disk import OsDisk
from paxosblock.host.kernel_syncs import Done, KernelSyncs
from tests.disks.simulated import SimulatedDisk
from tests.waiting import wait_until_async


class Held(KernelSyncs):
    """Takes so many syncs as `room` says; they end when the test says so."""

    def __init__(self, room: int = 1) -> None:
        super().__init__()
        self.room = room
        self.taken: list[Done] = []

    def begin(self, file: int, done: Done) -> bool:
        if len(self.taken) >= self.room:
            return False
        self.taken.append(done)
        return True


@pytest.fixture
def file(tmp_path: Path) -> Iterator[OpenFile]:
    disk = OsDisk()
    file = OpenFile(disk, disk.create(tmp_path / "file"))
    disk.write(file.handle, b"something", 0)
    yield file
    file.retire()


async def test_a_thread_waits_for_the_kernel_and_fails_with_it(file: OpenFile) -> None:
    """The system tells of what it dropped once: the second sync would succeed."""
    kernel, told = Held(), list[PaxosBlockError | None]()
    assert file.begin_sync(kernel, told.append)
    beside = asyncio.create_task(asyncio.to_thread(file.sync))
    assert not file.begin_sync(kernel, told.append), "one at a time"
    kernel.taken[0](OSError(errno.EIO, os.strerror(errno.EIO)))
    with pytest.raises(StorageError, match="Input/output error"):
        await beside
    assert len(told) == 1
    assert isinstance(told[0], StorageError)
    kernel.room = 2
    assert not file.begin_sync(kernel, told.append), "nothing is tried again"
    with pytest.raises(StorageError, match="Input/output error"):
        file.sync()
    kernel.close()


async def test_a_file_is_synced_once_for_what_was_written_and_again_for_what_came_meanwhile(
    tmp_path: Path,
) -> None:
    disk, kernel = SimulatedDisk(), Held()
    file = OpenFile(disk, disk.create(tmp_path / "file"))
    file.sync()
    file.sync()
    assert len(disk.synced) == 1, "whoever opens it does not know what was written before"
    file.write(b"something", 0)
    assert file.begin_sync(kernel, lambda _: None)
    file.write(b"more", 9)
    kernel.taken[0](None)
    file.sync()
    assert len(disk.synced) == 2, "the kernel's sync may have passed that"
    file.write(b"the end", 13)
    kernel.room = 2
    assert file.begin_sync(kernel, lambda _: None)
    kernel.taken[1](None)
    file.sync()
    assert len(disk.synced) == 2
    file.retire()
    kernel.close()


async def test_what_the_kernel_refuses_is_synced_in_a_thread(file: OpenFile) -> None:
    kernel, told = Held(room=0), list[PaxosBlockError | None]()
    commit = GroupCommit(ThreadPoolExecutor(1), 1, kernel)
    commit.wait(file, told.append)
    await wait_until_async(lambda: told == [None])
    kernel.close()


async def test_who_comes_while_the_kernel_syncs_waits_for_the_next_sync(file: OpenFile) -> None:
    kernel, told = Held(room=2), list[str]()
    commit = GroupCommit(ThreadPoolExecutor(1), 1, kernel)
    for name in ("first", "second", "third"):
        commit.wait(file, partial(lambda name, _: told.append(name), name))
    assert len(kernel.taken) == 1
    kernel.taken[0](None)
    assert (told, len(kernel.taken)) == (["first"], 2)
    kernel.taken[1](None)
    assert (told, commit.sync_count) == (["first", "second", "third"], 2)
    kernel.close()
