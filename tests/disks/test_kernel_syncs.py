"""Syncs by the kernel: when they end, what is refused, and what a node does without them."""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paxosblock.host.kernel_syncs import SYNCS_AT_ONCE, KernelSyncs
from paxosblock.protocol.messages import Vote
from tests.datanode.node import running
from tests.waiting import wait_until_async


@pytest.fixture
async def kernel() -> AsyncIterator[KernelSyncs]:
    kernel = KernelSyncs()
    yield kernel
    kernel.close()


def opened(path: Path) -> int:
    """A file with something that is not synced."""
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    os.write(file, b"something")
    return file


async def test_the_end_of_a_sync_is_told_on_the_loop(kernel: KernelSyncs, tmp_path: Path) -> None:
    file = opened(tmp_path / "file")
    for _ in range(3):
        ended = asyncio.get_running_loop().create_future()
        assert kernel.begin(file, ended.set_result)
        assert not ended.done(), "not before the loop's next turn"
        assert await ended is None
    os.close(file)


async def test_there_are_not_more_syncs_than_fit(kernel: KernelSyncs, tmp_path: Path) -> None:
    files = [opened(tmp_path / str(number)) for number in range(SYNCS_AT_ONCE)]
    ended: list[OSError | None] = []
    for _ in range(2):
        assert all(kernel.begin(file, ended.append) for file in files)
        assert not kernel.begin(files[0], ended.append)
        await wait_until_async(lambda: len(ended) == len(files))
        assert ended == [None] * len(files)
        ended.clear()
    for file in files:
        os.close(file)


async def test_a_listener_that_fails_keeps_the_end_of_its_sync_from_no_other(
    kernel: KernelSyncs, tmp_path: Path
) -> None:
    files = [opened(tmp_path / str(number)) for number in range(4)]
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: failures.append(context["exception"])
    )
    ended: list[OSError | None] = []

    def fail(_: OSError | None) -> None:
        raise ValueError("a mistake of ours")

    listeners = (fail, ended.append, fail, ended.append)
    for file, done in zip(files, listeners, strict=True):
        assert kernel.begin(file, done)
    await wait_until_async(lambda: len(ended) == len(failures) == 2)
    for file in files:
        os.close(file)


async def test_what_cannot_be_synced_is_refused_and_not_told_twice(kernel: KernelSyncs) -> None:
    """A caller that tries it in a thread then gets the error."""
    reader, writer = os.pipe()
    ended: list[OSError | None] = []
    assert not kernel.begin(writer, ended.append)
    os.close(reader)
    os.close(writer)
    assert not kernel.begin(writer, ended.append)
    assert ended == []


async def test_what_is_under_way_comes_to_its_end_after_the_close(tmp_path: Path) -> None:
    file = opened(tmp_path / "file")
    ended: list[OSError | None] = []
    before = len(os.listdir("/proc/self/fd"))
    kernel = KernelSyncs()
    assert kernel.begin(file, ended.append)
    kernel.close()
    assert not kernel.begin(file, ended.append)
    await wait_until_async(lambda: ended == [None])
    assert len(os.listdir("/proc/self/fd")) == before, "nothing of it is left"
    os.close(file)


@pytest.mark.parametrize("machine", ["mips", platform.machine()])
async def test_a_node_votes_with_the_kernel_and_without(
    machine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    async with running(tmp_path) as node:
        (volume,) = node.volumes
        kernel = volume.disk.kernel_syncs()
        assert (kernel is None) == (machine == "mips")
        if kernel is not None:
            kernel.close()
        await node.create()
        assert all(isinstance(vote, Vote) for vote in await node.write(4))
        assert volume.commit.sync_count > 0
