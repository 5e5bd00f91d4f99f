"""The indexes of the log's segments: a start that reads them finds what the records say."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paxosblock.datanode.store.disk_format import SmallLimits
from paxosblock.datanode.store.file_store import FileStore
from paxosblock.datanode.volumes.volume_snapshot import roll_back
from paxosblock.errors import StorageError
from paxosblock.journal.segment import HEADER_BYTES
from paxosblock.protocol.messages import Created, Delete, Deleted, Finalized, Vote
from paxosblock.protocol.types import BlockId, Generation
from tests.datanode.node import Node, chunk, frame, name, running
from tests.disks.faults import WRITES, Fault
from tests.disks.power_cut import Files
from tests.disks.simulated import SimulatedDisk
from tests.format.loading import load_all
from tests.format.test_small_log import found, put

FOLDER = Path("/volume")
SMALL = FOLDER / "small"
BLOCKS = tuple(BlockId(number) for number in range(1, 9))


SHORT_SEGMENTS = SmallLimits(segment_bytes=1000)


@asynccontextmanager
async def tidied(disk: SimulatedDisk, limits: SmallLimits = SHORT_SEGMENTS) -> AsyncIterator[Node]:
    """A node whose whole segments all have indexes in the end."""
    async with running(FOLDER, disk=disk, limits=limits) as node:
        yield node
        for _ in range(20):
            await node.volumes[0].run(node.volumes[0].store.tidy)


async def written() -> Files:
    """Some replicas, two of which are deleted, in several segments, each with its index."""
    disk = SimulatedDisk()
    async with tidied(disk) as node:
        for block in BLOCKS:
            await put(node, block, finalized=block != BLOCKS[-2])
        for block in BLOCKS[2:4]:
            assert isinstance(await node.ask(Delete(block, Generation(1))), Deleted)
        await put(node, BlockId(100))
    return disk.files()


LIVING = {block: chunk(0, salt=int(block)) for block in (*BLOCKS[:2], *BLOCKS[4:], BlockId(100))}


def indexes(files: Files) -> list[Path]:
    return sorted(path for path in files if path.suffix == ".index")


def segments(files: Files) -> list[Path]:
    return sorted(
        path
        for path in files
        if path.parent == SMALL and path.name.startswith("log_") and not path.suffix
    )


def without_indexes(files: Files) -> Files:
    return {path: data for path, data in files.items() if path.suffix != ".index"}


async def test_each_segment_but_the_last_has_an_index_and_a_start_without_makes_the_same() -> None:
    files = await written()
    assert len(indexes(files)) == len(segments(files)) - 1 > 3
    disk = SimulatedDisk(without_indexes(files))
    assert {one.block for one in load_all(FileStore(disk, FOLDER, "boot-2"))} == LIVING.keys()
    made = disk.files()
    assert {path: made[path] for path in indexes(made)} == {
        path: files[path] for path in indexes(files)
    }
    assert found(files, "boot-2") == found(without_indexes(files), "boot-2") == LIVING


async def test_a_start_with_indexes_reads_no_records_of_other_segments_than_the_last() -> None:
    """Damage in one costs the replicas whose bytes are read, when they are."""
    files = await written()
    first = segments(files)[0]
    files[first] = files[first][:HEADER_BYTES] + bytes(len(files[first]) - HEADER_BYTES)
    there = found(files, "boot-2")
    assert there.keys() == LIVING.keys()
    assert there[BLOCKS[0]] is None
    assert there[BlockId(100)] == LIVING[BlockId(100)]
    del files[SMALL / "durable"]
    with pytest.raises(StorageError, match="log_1 is damaged"):
        found(without_indexes(files), "boot-2")


@functools.cache
def files_once() -> Files:
    """Written once for all examples."""
    return asyncio.run(written())


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_an_index_that_is_damaged_is_made_anew(data: st.DataObject) -> None:
    files = files_once()
    path = data.draw(st.sampled_from(indexes(files)))
    changed = bytearray(files[path])
    bit = data.draw(st.integers(0, len(changed) * 8 - 1))
    changed[bit // 8] ^= 1 << bit % 8
    disk = SimulatedDisk(files | {path: bytes(changed)})
    assert {one.block for one in load_all(FileStore(disk, FOLDER, "boot-2"))} == LIVING.keys()
    assert disk.files()[path] == files[path]
    cut = data.draw(st.integers(0, len(changed) - 1))
    assert found(files | {path: files[path][:cut]}, "boot-2") == LIVING


async def test_an_index_of_other_segments_is_not_believed() -> None:
    """A volume was rolled back, and its log went on: the names are the same, the bytes are not."""
    disk = SimulatedDisk()
    async with tidied(disk) as node:
        await put(node, BLOCKS[0])
    async with tidied_upgraded(disk.next_process()) as node:
        for block in BLOCKS[1:4]:
            await put(node, block)
    left = indexes(disk.files())
    roll_back(disk.next_process(), [FOLDER])
    async with running(FOLDER, disk=disk.next_process(), limits=SHORT_SEGMENTS) as node:
        await node.volumes[0].be_taken_in()
        for block in BLOCKS[4:7]:
            await put(node, block)
    assert left[-1] in disk.files(), "of a segment that was rolled back"
    wanted = {block: chunk(0, salt=int(block)) for block in (BLOCKS[0], *BLOCKS[4:7])}
    assert found(disk.files(), "boot-1") == wanted


@asynccontextmanager
async def tidied_upgraded(disk: SimulatedDisk) -> AsyncIterator[Node]:
    async with running(FOLDER, disk=disk, upgrade=True, limits=SHORT_SEGMENTS) as node:
        await node.volumes[0].be_taken_in()
        yield node
        for _ in range(10):
            await node.volumes[0].run(node.volumes[0].store.tidy)


async def test_an_index_that_finds_no_room_is_made_at_the_next_start() -> None:
    files = without_indexes(await written())
    disk = SimulatedDisk(files)
    disk.breaks(Fault(WRITES, ".index.new", "ENOSPC"))
    assert len(load_all(FileStore(disk, FOLDER, "boot-2"))) == len(LIVING)
    assert not indexes(disk.files())
    disk.mend()
    assert len(load_all(FileStore(disk, FOLDER, "boot-2"))) == len(LIVING)
    assert indexes(disk.files())


async def test_a_removed_segment_takes_its_index_with_it() -> None:
    disk = SimulatedDisk()
    async with tidied(disk, replace(SHORT_SEGMENTS, worth_bytes=1)) as node:
        for block in BLOCKS:
            await put(node, block)
        for block in BLOCKS[:-1]:
            assert isinstance(await node.ask(Delete(block, Generation(1))), Deleted)
    names = {path.name for path in disk.files()}
    assert "log_1" not in names
    assert "log_1.index" not in names
    assert found(disk.files(), "boot-1") == {BLOCKS[-1]: LIVING[BLOCKS[-1]]}


class Steps:
    """Random steps of a node, and what its replicas must be by them."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.written: dict[BlockId, bool] = {}
        """True: it is finalized."""

    async def take(self, number: int, what: str) -> None:
        """Bring the replica of a block one step further, or delete it."""
        node, block = self.node, BlockId(number)
        if what == "tidy":
            await node.volumes[0].run(node.volumes[0].store.tidy)
        elif block not in self.written:
            assert isinstance(await node.create(block, small=True), Created)
            vote = await node.send(frame(0, chunk(0, salt=number), block=block))
            assert isinstance(vote, Vote)
            self.written[block] = False
        elif what == "delete" and self.written[block]:
            assert isinstance(await node.ask(Delete(block, Generation(1))), Deleted)
            del self.written[block]
        elif not self.written[block]:
            answer = await node.finalize(1, [name(0, salt=number)], block=block)
            assert isinstance(answer, Finalized)
            self.written[block] = True


@given(
    st.lists(
        st.tuples(st.integers(1, 6), st.sampled_from(["go on", "delete", "tidy"])), max_size=60
    ),
    st.integers(0, 5),
)
@settings(max_examples=60, deadline=None)
def test_what_is_found_is_what_was_written_with_some_indexes_and_without(
    steps: list[tuple[int, str]], kept: int
) -> None:
    async def run() -> None:
        disk = SimulatedDisk()
        async with running(FOLDER, disk=disk, limits=SHORT_SEGMENTS) as node:
            taken = Steps(node)
            for number, what in steps:
                await taken.take(number, what)
        files = disk.files()
        wanted = {block: chunk(0, salt=int(block)) for block in taken.written}
        gone = indexes(files)[kept:]
        some = {path: data for path, data in files.items() if path not in gone}
        assert found(files, "boot-1") == wanted
        assert found(some, "boot-2") == wanted
        assert found(without_indexes(files), "boot-2") == wanted

    asyncio.run(run())
