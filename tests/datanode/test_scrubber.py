"""The scrubber: damage that it finds, when it reads, when it waits, and what it remembers."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from paxosblock.base.units import GIB, MIB
from paxosblock.datanode import scrubber as scrubber_module
from paxosblock.datanode.scrubber import SEEK_BYTES, SLICE_BYTES, Scrubber
from paxosblock.datanode.volumes import volume as volume_module
from paxosblock.datanode.volumes.cursor import NEVER, SCRUB, Cursor, decode_cursor, read_cursor
from paxosblock.host.disk import FileHandle, OsDisk, opened
from paxosblock.protocol.messages import Delete, Finalized, Read
from paxosblock.protocol.types import BlockId, Generation, Reason
from tests.datanode.node import (
    BLOCK,
    Holder,
    Node,
    chunk,
    frame,
    hold_group_commit,
    name,
    refusal,
    running,
)
from tests.disks.faults import HELD, Fault
from tests.disks.power_cut import Wrote
from tests.disks.simulated import SimulatedDisk
from tests.waiting import wait_until_async

WEEKS_S = 3 * 7 * 24 * 3600.0
LOG = [name(i) for i in range(3)]
REPLICA_BYTES = sum(len(frame(i)[1]) for i in range(3))


@dataclass
class Clock:
    """The wall clock of a scrubber: it goes on when the test says so."""

    ms: int = 1_700_000_000_000

    def __call__(self) -> int:
        return self.ms

    def go_on(self, seconds: float) -> bool:
        """Return False, for a condition that lets time pass."""
        self.ms += int(seconds * 1000)
        return False


@asynccontextmanager
async def scrubbing(
    node: Node, clock: Clock, *, period_s: float = WEEKS_S, bytes_per_s: int = 100 * GIB
) -> AsyncIterator[asyncio.Task[None]]:
    """A scrubber of the node's first volume, for the length of a `with`."""
    volume = node.volumes[0]
    scrubber = Scrubber(
        volume, node.acceptor, period_s=period_s, bytes_per_s=bytes_per_s, now_ms=clock
    )
    task = asyncio.create_task(scrubber.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def whole_pass(node: Node, clock: Clock | None = None) -> None:
    """Read all of the first volume once."""
    clock = clock or Clock()
    before = node.volumes[0].scrubbed.whole_ms
    async with scrubbing(node, clock):
        await wait_until_async(
            lambda: node.volumes[0].scrubbed.whole_ms > before, what="the end of a pass"
        )


async def finalized(node: Node, *blocks: int) -> None:
    """Blocks of three chunks of 100 bytes, finalized under generation 1."""
    for block in map(BlockId, blocks):
        await node.create(block)
        for index in range(3):
            await node.send(frame(index, block=block))
        await node.finalize(1, LOG, block=block)


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


DAMAGE: dict[str, tuple[str, Callable[[Path], None]]] = {
    "a byte of the first header": ("blk_7", lambda path: flip(path, 3)),
    "a byte of the last chunk": ("blk_7", lambda path: flip(path, REPLICA_BYTES - 1)),
    "the end is cut off": ("blk_7", lambda path: cut(path, REPLICA_BYTES - 1)),
    "the file is empty": ("blk_7", lambda path: cut(path, 0)),
    "the file is gone": ("blk_7", Path.unlink),
    "a byte of the metadata": ("blk_7.meta", lambda path: flip(path, 40)),
    "the metadata is cut off": ("blk_7.meta", lambda path: cut(path, 20)),
    "the metadata is gone": ("blk_7.meta", Path.unlink),
}


@pytest.mark.parametrize("damage", DAMAGE, ids=str)
async def test_damage_is_found_without_a_reader_and_a_full_copy_mends_it(
    tmp_path: Path, damage: str
) -> None:
    file, harm = DAMAGE[damage]
    async with running(tmp_path, holder=Holder([chunk(i) for i in range(3)])) as node:
        await finalized(node, 6, 7, 8)
        harm(tmp_path / "current" / file)
        await whole_pass(node)
        ((block, storage, _),) = node.notes.corrupt
        assert (block, storage) == (BLOCK, node.storage)
        assert node.volumes[0].scrubbed.damaged == 1
        assert refusal(await node.ask(Read(BLOCK))) is Reason.CORRUPT
        healed = await node.finalize(1, LOG)
        assert healed == Finalized(BLOCK, Generation(1), node.storage, 3)
        await whole_pass(node, Clock(Clock().ms + int(WEEKS_S * 1000)))
        assert len(node.notes.corrupt) == 1
        assert node.volumes[0].failed == ""
    async with running(tmp_path) as node:
        names = sorted(path.name for path in (tmp_path / "current").iterdir())
        assert names == [
            *("blk_6", "blk_6.meta", "blk_7.1", "blk_7.meta", "blk_8", "blk_8.meta"),
        ]
        await whole_pass(node, Clock(Clock().ms + 2 * int(WEEKS_S * 1000)))
        assert node.notes.corrupt == []


async def test_metadata_of_another_time_is_damage_though_its_checksum_fits(tmp_path: Path) -> None:
    """A write that the disk lost: what is there is sound in itself, and old."""
    async with running(tmp_path) as node:
        await finalized(node, 7)
        meta = tmp_path / "current" / "blk_7.meta"
        before = meta.read_bytes()
        await node.next_gs(5, base=1)
        assert meta.read_bytes() != before
        meta.write_bytes(before)
        await whole_pass(node)
        assert [reason for _, _, reason in node.notes.corrupt] == [
            "metadata of block 7 is not what was written"
        ]


async def test_a_pass_reads_all_of_its_volume_and_of_no_other(tmp_path: Path) -> None:
    async with running(tmp_path / "a", tmp_path / "b") as node:
        await finalized(node, 2, 4, 6)
        other = node.volumes[1].storage
        await node.create(BlockId(5), storage=other)
        await whole_pass(node)
        first, second = (volume.scrubbed for volume in node.volumes)
        assert (first.read_bytes, second.read_bytes) == (3 * REPLICA_BYTES, 0)
        assert (first.damaged, node.notes.corrupt) == (0, [])


async def test_of_an_open_replica_the_durable_chunks_are_read_and_no_others(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as node:
        await node.create()
        await node.write(2)
        may_go = hold_group_commit(node.volumes[0])
        vote = node.send(frame(2))
        clock = Clock()
        async with scrubbing(node, clock, period_s=0.001):
            # It is late: it does not wait for the vote.
            await wait_until_async(lambda: clock.go_on(60) or node.volumes[0].scrubbed.whole_ms)
        assert node.volumes[0].scrubbed.read_bytes == 2 * len(frame(0)[1])
        may_go.set()
        await vote
        flip(tmp_path / "rbw" / "blk_7", 60)
        await whole_pass(node, Clock(clock.ms + int(WEEKS_S * 1000)))
        ((block, _, reason),) = node.notes.corrupt
        assert (block, "chunk 0" in reason) == (BLOCK, True)


async def test_a_replica_that_is_changed_while_it_is_read_is_not_damaged(tmp_path: Path) -> None:
    """The files are cut, moved, replaced and removed under the scrubber."""
    holder = Holder([chunk(i) for i in range(3)])
    clock = Clock()
    async with (
        running(tmp_path, holder=holder) as node,
        scrubbing(node, clock, period_s=0.001),
    ):
        volume = node.volumes[0]
        for generation in range(1, 6000, 3):
            if node.notes.corrupt or (generation > 60 and volume.scrubbed.read_bytes):
                break
            await node.finalize(generation, LOG)
            clock.go_on(60)
            await node.reopen(generation + 1, LOG, finalized=generation)
            await node.write(1, start=3, generation=generation + 1)
            await node.next_gs(generation + 1, base=generation + 1)
            await node.finalize(generation + 2, LOG, epoch=generation + 1)
            if generation % 2:
                await node.ask(Delete(BLOCK, Generation(generation + 2)))
        await node.finalize(9000, LOG)  # and is left alone: the scrubber may have come late
        await wait_until_async(
            lambda: clock.go_on(60) or volume.scrubbed.read_bytes, what="something that was read"
        )
        await wait_until_async(lambda: volume.scrubbed.whole_ms, what="a pass")
        assert node.notes.corrupt == []
        assert volume.failed == ""


Change = Callable[[Node], Awaitable[object]]


async def append(node: Node) -> None:
    """The block is opened again, gets a chunk, and is ended with it."""
    await node.reopen(2, LOG, finalized=1)
    await node.write(1, start=3, generation=2)
    await node.finalize(3, [*LOG, name(3)], epoch=2)


async def both(node: Node) -> None:
    """The APPEND is set up here and given up by the NameNode, and then the file is cut."""
    await node.reopen(2, LOG, finalized=1)
    await node.finalize(3, LOG)
    await node.finalize(4, LOG[:1])


CHANGES: dict[str, tuple[Change, int]] = {
    "a cut": (lambda node: node.finalize(2, LOG[:1]), 1),
    "a cut to nothing": (lambda node: node.finalize(2, []), 0),
    "a new version of the same": (lambda node: node.finalize(2, LOG), 3),
    "an append that was just set up": (lambda node: node.reopen(2, LOG, finalized=1), 3),
    "an append": (append, 4),
    "an append that is given up, and a cut": (both, 1),
}
"""Changes that may come while a replica of three chunks is read, and the chunks it has then."""


METADATA = "/current/blk_7.meta"
WHILE: dict[str, tuple[Fault, ...]] = {
    "the metadata is read": (Fault(("read",), path=METADATA, delay_s=HELD, times=1),),
    "the chunks are read": (
        Fault(("read",), path=METADATA),
        Fault(("read",), path="/current/blk_7", delay_s=HELD, times=1),
    ),
}


@pytest.mark.parametrize("held", WHILE)
@pytest.mark.parametrize("change", CHANGES)
async def test_a_cut_and_an_append_beside_the_scrubber_are_no_damage(
    tmp_path: Path, change: str, held: str
) -> None:
    disk, (happens, length) = SimulatedDisk(), CHANGES[change]
    async with running(tmp_path, disk=disk) as node:
        await finalized(node, 7)
        disk.breaks(*WHILE[held])
        async with scrubbing(node, Clock()):
            await wait_until_async(lambda: disk.plan.waiting, what="the scrubber to read")
            await happens(node)
            disk.mend()
            await wait_until_async(lambda: node.volumes[0].scrubbed.whole_ms, what="a pass")
        assert (node.notes.corrupt, node.volumes[0].failed) == ([], "")
        found = node.acceptor.find(BLOCK, node.storage)
        assert found is not None
        assert found.replica is not None
        assert found.replica.length == length


async def test_damage_of_what_a_cut_left_is_found_and_of_what_it_took_away_is_none(
    tmp_path: Path,
) -> None:
    disk = SimulatedDisk()
    async with running(tmp_path, disk=disk) as node:
        await finalized(node, 7, 8)
        disk.breaks(*WHILE["the chunks are read"])
        async with scrubbing(node, Clock()):
            await wait_until_async(lambda: disk.plan.waiting, what="the scrubber to read")
            for block, byte in ((7, REPLICA_BYTES - 1), (8, 0)):
                file = disk.names_now[tmp_path / "current" / f"blk_{block}"]
                harmed = bytes([file.data[byte] ^ 1])
                file.change(Wrote(byte, harmed))
                await node.finalize(2, LOG[:1], block=BlockId(block))
            disk.mend()
            await wait_until_async(lambda: node.volumes[0].scrubbed.whole_ms, what="a pass")
        assert [block for block, _, _ in node.notes.corrupt] == [BlockId(8)]


# -- when ------------------------------------------------------------------------------------------


async def test_the_next_pass_begins_a_period_after_the_last_one_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrubber_module, "LOOK_AGAIN_S", 0.001)
    clock = Clock()
    async with running(tmp_path) as node:
        await finalized(node, 7)
        scrubbed = node.volumes[0].scrubbed
        begun_ms = clock.ms
        async with scrubbing(node, clock):
            await wait_until_async(lambda: scrubbed.whole_ms == begun_ms)
            clock.go_on(WEEKS_S - 1)
            for _ in range(20):
                await node.volumes[0].run(lambda: None)
            assert scrubbed.read_bytes == REPLICA_BYTES
            clock.go_on(1)
            await wait_until_async(lambda: scrubbed.read_bytes == 2 * REPLICA_BYTES)
            await wait_until_async(lambda: scrubbed.whole_ms == clock.ms)
            clock.go_on(-10 * WEEKS_S)  # set back: who knows when the last one was
            await wait_until_async(lambda: scrubbed.read_bytes == 3 * REPLICA_BYTES)


async def test_a_pass_tells_when_it_ends_at_its_pace_so_far(tmp_path: Path) -> None:
    """A third is read after an hour: two more hours are left."""
    clock = Clock()
    async with running(tmp_path) as node:
        await finalized(node, 6, 7, 8)
        volume = node.volumes[0]
        begun_ms, told = clock.ms, list[int]()

        def read(store: Callable[..., Any], *args: Any) -> Any:
            told.append(volume.scrubbed.ends_ms)
            clock.go_on(3600)
            return store(*args)

        watched = partial(read, volume.store.read_stored)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(volume.store, "read_stored", watched)
            await whole_pass(node, clock)
        assert told == [0, begun_ms + 3 * 3_600_000, begun_ms + 3 * 3_600_000]
        assert volume.report(0).scrub_ends_ms == 0, "it is over"


async def test_it_waits_while_the_volume_is_used_unless_it_would_be_late(tmp_path: Path) -> None:
    clock, done = Clock(), threading.Event()
    async with running(tmp_path) as node:
        await finalized(node, 7)
        volume = node.volumes[0]
        reader = asyncio.create_task(volume.run_read(done.wait, 60))
        try:
            async with scrubbing(node, clock):
                await wait_until_async(lambda: volume.busy)
                for _ in range(20):
                    await asyncio.to_thread(lambda: None)
                assert volume.scrubbed.read_bytes == 0
                await wait_until_async(
                    lambda: clock.go_on(WEEKS_S / 2) or volume.scrubbed.read_bytes == REPLICA_BYTES
                )
                assert not reader.done()
        finally:
            done.set()
            await reader


async def test_a_volume_rests_once_the_last_chunk_is_a_moment_ago(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(volume_module, "QUIET_S", 1.0)  # a busy machine looks late
    async with running(tmp_path) as node:
        volume = node.volumes[0]
        await node.create()
        assert volume.busy
        await wait_until_async(lambda: not volume.busy, what="rest")
        await node.write(1)
        assert volume.busy
        await wait_until_async(lambda: not volume.busy, what="rest")
        await volume.run_read_quietly(lambda: None)
        assert not volume.busy


async def test_no_more_is_read_in_a_second_than_the_rate(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await finalized(node, 6, 7, 8)
        began_s = time.monotonic()
        async with scrubbing(node, Clock(), bytes_per_s=10 * SEEK_BYTES):
            await wait_until_async(lambda: node.volumes[0].scrubbed.whole_ms)
        assert time.monotonic() - began_s >= 0.2, (
            "two seeks are waited for, a tenth of a second each"
        )


async def test_a_big_replica_is_read_in_slices(tmp_path: Path) -> None:
    class Watched(OsDisk):
        def __init__(self) -> None:
            self.sizes: list[int] = []

        def read_stored(self, file: FileHandle, size_bytes: int, offset: int) -> bytes:
            self.sizes.append(size_bytes)
            return super().read_stored(file, size_bytes, offset)

    chunks = [chunk(i, size=MIB // 4) for i in range(20)]
    disk = Watched()
    async with running(tmp_path, disk=disk) as node:
        await node.create()
        for index, payload in enumerate(chunks):
            await node.send(frame(index, payload))
        await node.finalize(1, [name(i, size=MIB // 4) for i in range(20)])
        await whole_pass(node)
        assert node.notes.corrupt == []
        assert max(disk.sizes) <= SLICE_BYTES + 5 * len(frame(0)[1])
        assert sum(disk.sizes) >= 5 * MIB


def test_what_was_read_from_the_disk_does_not_stay_in_memory(tmp_path: Path) -> None:
    disk, path = OsDisk(), tmp_path / "file"
    path.write_bytes(bytes(MIB))
    with opened(disk, path) as file:
        disk.sync(file)
        disk.read(file, MIB, 0)
        assert disk.read_cached(file, memoryview(bytearray(MIB)), 0)
        assert disk.read_stored(file, MIB, 0) == bytes(MIB)
        if tmp_path_is_memory(tmp_path):
            pytest.skip("these files are nowhere but in memory")
        assert not disk.read_cached(file, memoryview(bytearray(MIB)), 0)


def tmp_path_is_memory(path: Path) -> bool:
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    inside = [mount for mount in mounts if path.is_relative_to(mount[0])]
    return max(inside, key=lambda mount: len(mount[0]))[1] == "tmpfs"


# -- what it remembers -----------------------------------------------------------------------------


async def test_a_pass_goes_on_where_the_process_before_left_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrubber_module, "SAVE_EVERY_S", 0.0)
    clock = Clock()
    async with running(tmp_path) as node:
        await finalized(node, *range(1, 9))
        async with scrubbing(node, clock, bytes_per_s=20 * SEEK_BYTES):
            await wait_until_async((tmp_path / SCRUB).exists)
        left = read_cursor(OsDisk(), tmp_path)
        assert BlockId(0) < left.block < BlockId(8)
        assert (left.begun_ms, left.ended) == (clock.ms, False)
    async with running(tmp_path) as node:
        clock.go_on(3600)
        await whole_pass(node, clock)
        assert node.volumes[0].scrubbed.read_bytes == (8 - left.block) * REPLICA_BYTES
        ended = read_cursor(OsDisk(), tmp_path)
        assert (ended.ended, ended.begun_ms, ended.whole_ms) == (True, left.begun_ms, clock.ms)
        assert ended.read_bytes == 8 * REPLICA_BYTES
    async with running(tmp_path) as node, scrubbing(node, clock):
        await wait_until_async(lambda: node.volumes[0].scrubbed.whole_ms == clock.ms)
        assert node.volumes[0].report(0).scrubbed_ms == clock.ms
        assert node.volumes[0].scrubbed.read_bytes == 0, "it waits for the next period"


async def test_a_cursor_that_cannot_be_kept_for_lack_of_room_stops_nothing(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    async with running(tmp_path, disk=disk) as node:
        await finalized(node, 7)
        disk.full = True
        await whole_pass(node)
        assert node.volumes[0].failed == ""
        assert disk.refusals > 0


def test_a_damaged_or_foreign_cursor_begins_anew() -> None:
    sound = Cursor(BlockId(7), 1_700_000_000_000, 300, 1_600_000_000_000)
    data = sound.encode()
    assert decode_cursor(data) == sound
    assert decode_cursor(replace(sound, block=BlockId(2**64)).encode()) == NEVER
    for position in range(len(data)):
        assert decode_cursor(data[:position]) == NEVER
        for bit in range(8):
            harmed = bytearray(data)
            harmed[position] ^= 1 << bit
            assert decode_cursor(bytes(harmed)) == NEVER
    newer = sound.encode().replace(b"format=1", b"format=2")
    assert decode_cursor(newer) == NEVER


# -- a disk that fails -----------------------------------------------------------------------------


async def test_a_replica_that_cannot_be_read_is_dead_and_its_volume_is_doubted(
    tmp_path: Path,
) -> None:
    disk = SimulatedDisk()
    async with running(tmp_path, disk=disk) as node:
        await finalized(node, 6, 7)
        disk.breaks(Fault(("read",), path="/current/blk_7", error="EIO"))
        await whole_pass(node)
        assert [(block, reason) for block, _, reason in node.notes.corrupt] == [
            (BLOCK, "cannot read: Input/output error")
        ]
        assert node.volumes[0].doubted


async def test_the_scrubber_of_a_volume_that_fails_ends(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    async with running(tmp_path, disk=disk) as node:
        await finalized(node, 7)
        disk.breaks(Fault(("sync",), path=SCRUB, error="EIO"))
        async with scrubbing(node, Clock()) as task:
            await asyncio.wait_for(task, 30)
        assert "Input/output error" in node.volumes[0].failed
        assert node.notes.corrupt == []


async def test_a_vanished_block_file_costs_its_replica_and_not_the_volume(tmp_path: Path) -> None:
    """A later version is told before a node noticed: the bytes to keep are not there."""
    async with running(tmp_path, holder=Holder([chunk(i) for i in range(3)])) as node:
        await finalized(node, 7)
        (tmp_path / "current" / "blk_7").unlink()
        assert refusal(await node.finalize(2, LOG)) is Reason.CORRUPT
        assert [block for block, _, _ in node.notes.corrupt] == [BLOCK]
        assert await node.finalize(2, LOG) == Finalized(BLOCK, Generation(2), node.storage, 3)
        assert node.volumes[0].failed == ""
        await whole_pass(node)
        assert len(node.notes.corrupt) == 1


async def test_damaged_metadata_of_an_empty_replica_is_written_again(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.create()
        await node.finalize(1, [])
        flip(tmp_path / "current" / "blk_7.meta", 40)
        await whole_pass(node)
        assert refusal(await node.ask(Read(BLOCK))) is Reason.CORRUPT
        assert isinstance(await node.finalize(1, []), Finalized)
        await whole_pass(node, Clock(Clock().ms + int(WEEKS_S * 1000)))
        assert len(node.notes.corrupt) == 1
    async with running(tmp_path) as node:
        await whole_pass(node, Clock(Clock().ms + 2 * int(WEEKS_S * 1000)))
        assert node.notes.corrupt == []
