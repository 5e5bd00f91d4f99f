"""Metadata that is replaced: the replaced files are written again, but never one with a name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from paxosblock.datanode.store.drafts import KEPT_MAX
from paxosblock.errors import NoSpaceError, StorageError
from paxosblock.host.disk import FileHandle
from paxosblock.protocol.messages import Created, Finalized, LastVote, RecoveryVote
from paxosblock.protocol.types import BlockId
from tests.datanode.node import BLOCK, Node, name, running
from tests.disks.simulated import SimulatedDisk

FOLDER = Path("/volume")
NAMES = [name(0), name(1)]
RBW, CURRENT = (FOLDER / folder / f"blk_{BLOCK}.meta" for folder in ("rbw", "current"))


class CountingDisk(SimulatedDisk):
    """Tells which files were made and removed: `changed`; and given a second name: `linked`."""

    def __init__(self) -> None:
        super().__init__()
        self.changed: list[Path] = []
        self.linked: list[Path] = []

    def link(self, source: Path, target: Path) -> None:
        self.linked.append(source)
        super().link(source, target)

    def create(self, path: Path) -> FileHandle:
        self.changed.append(path)
        return super().create(path)

    def remove(self, path: Path) -> None:
        self.changed.append(path)
        super().remove(path)


class WithoutLinks(CountingDisk):
    """A file has one name there."""

    def link(self, source: Path, target: Path) -> None:
        raise StorageError(f"cannot link {source} to {target}: Operation not permitted")


@asynccontextmanager
async def opened_again(disk: SimulatedDisk) -> AsyncIterator[Node]:
    """A replica of two chunks that was finalized under 1 and opened again under 2."""
    async with running(FOLDER, disk=disk) as node:
        await node.create()
        await node.write(2)
        await node.finalize(1, NAMES)
        assert isinstance(await node.reopen(2, NAMES, finalized=1), RecoveryVote)
        yield node


async def to_and_fro(node: Node, generation: int) -> None:
    """An append that wrote nothing: finalized under `generation`, opened again under the next."""
    answer = await node.finalize(generation, NAMES, epoch=generation - 1)
    assert isinstance(answer, Finalized), answer
    answer = await node.reopen(generation + 1, NAMES, finalized=generation)
    assert isinstance(answer, RecoveryVote), answer


async def test_a_replica_that_goes_to_and_fro_needs_no_new_files() -> None:
    disk = CountingDisk()
    async with opened_again(disk) as node:
        await to_and_fro(node, 3)
        await to_and_fro(node, 5)
        disk.changed.clear()
        for generation in range(7, 27, 2):
            await to_and_fro(node, generation)
        assert disk.changed == []


async def test_metadata_that_comes_to_a_folder_with_its_replica_replaces_none_there() -> None:
    """A second name for what is not there would be one vain call of the disk for each replica."""
    disk = CountingDisk()
    async with running(FOLDER, disk=disk) as node:
        await node.create()
        await node.write(2)
        await node.finalize(1, NAMES)
        assert CURRENT not in disk.linked


async def test_a_replica_that_is_opened_again_where_it_is_needs_no_new_file() -> None:
    disk = CountingDisk()
    async with opened_again(disk) as node:
        await node.reopen(3, NAMES, finalized=1)
        disk.changed.clear()
        for generation in range(4, 14):
            answer = await node.reopen(generation, NAMES, finalized=1)
            assert isinstance(answer, RecoveryVote), answer
        assert disk.changed == []


async def test_the_metadata_that_is_written_over_longer_metadata_is_whole() -> None:
    disk = SimulatedDisk()
    many = [name(index) for index in range(20)]
    async with running(FOLDER, disk=disk) as node:
        await node.create()
        await node.write(20)
        await node.finalize(1, many)
        for generation in (2, 4, 6):
            await node.reopen(generation, many[:2], finalized=1)
            done = await node.finalize(generation + 1, many[:2], epoch=generation)
            assert isinstance(done, Finalized), done
    async with running(FOLDER, disk=disk.next_process()) as node:
        block = node.acceptor.find(BLOCK, node.storage)
        assert block is not None
        assert (block.corrupt, block.replica and block.replica.length) == ("", 2)


async def test_a_meta_file_that_a_snapshot_shares_is_never_written_again() -> None:
    disk, kept = SimulatedDisk(), FOLDER / "previous" / "current" / CURRENT.name
    async with running(FOLDER, disk=disk) as node:
        await node.create()
        await node.write(2)
        await node.finalize(1, NAMES)
        disk.link(CURRENT, kept)
        before = disk.files()[kept]
        await node.reopen(2, NAMES, finalized=1)
        for generation in (3, 5, 7):
            await to_and_fro(node, generation)
        assert disk.files()[kept] == before


async def test_where_files_have_no_second_names_metadata_is_replaced_all_the_same() -> None:
    async with opened_again(WithoutLinks()) as node:
        for generation in range(3, 9):
            answer = await node.reopen(generation, NAMES, finalized=1)
            assert isinstance(answer, RecoveryVote), answer
        await to_and_fro(node, 9)


async def test_only_a_few_files_are_kept() -> None:
    disk = SimulatedDisk()
    blocks = [BlockId(number) for number in range(100, 100 + 3 * KEPT_MAX)]
    async with running(FOLDER, disk=disk) as node:
        for block in blocks:
            assert isinstance(await node.create(block), Created)
        for block in blocks:
            assert isinstance(await node.finalize(1, [], block=block), Finalized)
        assert len(disk.names(FOLDER / "tmp")) == KEPT_MAX


async def test_a_file_that_found_no_successor_has_no_second_name() -> None:
    """It is still in use, and must not be written to."""
    disk = SimulatedDisk()
    async with opened_again(disk) as node:
        before, disk.full = disk.files()[RBW], True
        with pytest.raises(NoSpaceError):
            await node.next_gs(3, base=2)
        disk.full = False
        assert disk.files()[RBW] == before
        assert disk.link_count(disk.open(RBW)) == 1
        assert isinstance(await node.next_gs(4, base=2), LastVote)
