"""Copies of whole replicas: no caller waits for one, so they make way for all else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from paxosblock.api.datanode import Chunks, Envelope, FetchChunks, ReadBytes, StorageAddress
from paxosblock.base.units import MIB
from paxosblock.datanode import transfer as transfer_module
from paxosblock.datanode.acceptor import Acceptor
from paxosblock.datanode.replica_reads import Reader
from paxosblock.datanode.transfer import MAX_COPIES, MAX_KEPT, Transfer
from paxosblock.datanode.volumes.throttle import Throttle
from paxosblock.datanode.volumes.volume import SERVED_S
from paxosblock.errors import NoSpaceError, UnavailableError
from paxosblock.host.disk import Disk
from paxosblock.net.streams.stream_calls import Bulk
from paxosblock.net.wire import Header
from paxosblock.protocol.messages import Finalize, Finalized, Nack, RecoveryWrite
from paxosblock.protocol.read import Version
from paxosblock.protocol.register import nack
from paxosblock.protocol.types import NO_GENERATION, BlockId, Durability, Generation, Reason
from tests.datanode.node import BLOCK, WINDOW, Node, Notes, frame, name, running
from tests.datanode.test_transfer import HOLDER, Holder
from tests.disks.simulated import SimulatedDisk
from tests.net.streams import HOST, node
from tests.waiting import wait_until_async

CHUNKS = 3
SIZE_BYTES = sum(name(index).size_bytes for index in range(CHUNKS))
ALL_THE_ROOM = 1 << 62


def whole(start: int = 0) -> Bulk:
    """The chunks of a block from `start` on, as a holder sends them."""
    frames = tuple(frame(index)[1] for index in range(start, CHUNKS))
    size_bytes = sum(name(index).size_bytes for index in range(start, CHUNKS))
    return Bulk(Chunks(start, 0, CHUNKS - start, size_bytes), CHUNKS - start, frames)


def copy() -> Finalize:
    """The message that makes a copy."""
    decided = Generation(5), Generation(0)
    return Finalize(BLOCK, *decided, CHUNKS, SIZE_BYTES, (HOLDER,), WINDOW, Durability.DISK)


def recovery() -> RecoveryWrite:
    """A recovery that lacks all chunks."""
    return RecoveryWrite(
        block=BLOCK,
        generation=Generation(5),
        base=Generation(0),
        epoch=Generation(0),
        length=CHUNKS,
        size_bytes=SIZE_BYTES,
        tail=(),
        chosen_generation=Generation(0),
        members=(HOLDER,),
        holders=(HOLDER,),
        window=WINDOW,
        durability=Durability.DISK,
    )


class SlowHolder(Holder):
    """Sends copies once it is `let`, anything else at once."""

    def __init__(self) -> None:
        super().__init__(whole())
        self.let = asyncio.Event()

    async def _ask(self, request: FetchChunks, header: Header) -> Bulk:
        self.asked.append(request)
        if request.copy:
            await self.let.wait()
        return whole(request.start)


@asynccontextmanager
async def beside(
    folder: Path, holder: Holder, disk: Disk | None = None
) -> AsyncIterator[tuple[Node, StorageAddress]]:
    """A node with an empty volume, and where the holder is reached."""
    async with node(lambda _request: holder) as port, running(folder, disk=disk) as target:
        yield target, StorageAddress(HOLDER, f"{HOST}:{port}")


async def test_a_recovery_never_waits_behind_copies(tmp_path: Path) -> None:
    holder = SlowHolder()
    async with beside(tmp_path, holder) as (target, address):
        transfer, volume = Transfer(), target.volumes[0]
        copies = [
            asyncio.create_task(transfer.fetch(volume, copy(), range(CHUNKS), (address,)))
            for _ in range(2 * MAX_COPIES)
        ]
        await wait_until_async(lambda: len(holder.asked) == MAX_COPIES)
        recovered = await transfer.fetch(volume, recovery(), range(CHUNKS), (address,))
        mended = await transfer.fetch(volume, copy(), range(1, CHUNKS), (address,))
        assert (recovered.stop, mended.stop) == (CHUNKS, CHUNKS)
        assert not any(made.done() for made in copies)
        holder.let.set()
        for draft in (recovered, mended, *await asyncio.gather(*copies)):
            await volume.run(draft.discard)


async def test_a_copy_leaves_the_reserve_free_and_asks_no_holder_in_vain(tmp_path: Path) -> None:
    holder = Holder(whole())
    async with beside(tmp_path, holder) as (target, address):
        volume = target.volumes[0]
        acceptor = Acceptor([volume], Transfer(reserved_bytes=ALL_THE_ROOM), Notes())
        asked = Envelope(volume.storage, copy(), (address,))
        with pytest.raises(NoSpaceError, match="has no room"):
            await acceptor.take(asked)
        assert holder.asked == []
        assert (acceptor.count, volume.failed) == (0, "")
        free_bytes = volume.disk.room(volume.folder).free_bytes
        roomy = Acceptor([volume], Transfer(reserved_bytes=free_bytes // 2), Notes())
        assert isinstance(await roomy.take(asked), Finalized)
        await roomy.close()


async def test_a_copy_ends_when_it_would_go_into_the_reserve(tmp_path: Path) -> None:
    """Room that was there when it began may be gone: others write, too."""
    holder, disk = SlowHolder(), SimulatedDisk(capacity_bytes=10_000)
    async with beside(tmp_path, holder, disk) as (target, address):
        transfer, volume = Transfer(reserved_bytes=5000), target.volumes[0]
        made = asyncio.create_task(transfer.fetch(volume, copy(), range(CHUNKS), (address,)))
        await wait_until_async(lambda: len(holder.asked) == 1)
        other = disk.create(tmp_path / "of-others")
        disk.write(other, bytes(4900 - disk.used_bytes()), 0)
        holder.let.set()
        with pytest.raises(NoSpaceError, match="has no room"):
            await made
        assert (disk.names(tmp_path / "tmp"), volume.failed) == ([], "")


class LaterHolder(Holder):
    """Sends one chunk of the version `first` at a time, and is at the version `later` by then."""

    def __init__(self, first: int, later: int) -> None:
        super().__init__(whole())
        self.version, self.later = Generation(first), Generation(later)

    async def _ask(self, request: FetchChunks, header: Header) -> Bulk | Nack:
        self.asked.append(request)
        if self.version not in request.generations:
            return nack(HOLDER, request.block, max(request.generations), Reason.STALE)
        self.version = self.later
        _, chunk = frame(request.start, block=request.block)
        return Bulk(Chunks(request.start, 0, 1, name(request.start).size_bytes), 1, (chunk,))


@pytest.mark.parametrize(
    ("epoch", "beginning", "length", "goes_on_from"),
    [
        (0, NO_GENERATION, CHUNKS, 1),  # a member left (K13)
        (0, NO_GENERATION, 2, 1),  # it was cut behind what is here (K8)
        (0, NO_GENERATION, 0, None),  # it was cut before
        (6, 5, CHUNKS, 1),  # it was appended to (K7)
        (6, 6, CHUNKS, 0),  # it was cut, then appended to
        (6, NO_GENERATION, CHUNKS, 0),  # no record says what came between
    ],
)
async def test_a_copy_that_is_overtaken_goes_on_from_what_it_has(
    tmp_path: Path, epoch: int, beginning: int, length: int, goes_on_from: int | None
) -> None:
    holder = LaterHolder(5, 7)
    async with beside(tmp_path, holder) as (target, address):
        volume, transfer = target.volumes[0], Transfer()
        acceptor = Acceptor([volume], transfer, Notes())
        refused = await acceptor.take(Envelope(volume.storage, copy(), (address,)))
        assert isinstance(refused, Nack)
        assert [asked.start for asked in holder.asked] == [0, 1]
        holder.asked.clear()
        later = msgspec.structs.replace(
            copy(),
            finalized_generation=Generation(7),
            epoch=Generation(epoch),
            beginning=Generation(beginning),
            length=length,
            size_bytes=sum(name(index).size_bytes for index in range(length)),
        )
        done = await acceptor.take(Envelope(volume.storage, later, (address,)))
        assert isinstance(done, Finalized)
        starts = [] if goes_on_from is None else list(range(goes_on_from, length))
        assert [asked.start for asked in holder.asked] == starts
        await acceptor.close()
        await transfer.close()
        assert list((tmp_path / "tmp").iterdir()) == []


async def test_unfinished_copies_are_few_and_go_when_the_node_stops(tmp_path: Path) -> None:
    holder = LaterHolder(5, 7)
    async with beside(tmp_path, holder) as (target, address):
        volume, transfer = target.volumes[0], Transfer()
        for block in range(MAX_KEPT + 2):
            holder.version = Generation(5)
            asked = msgspec.structs.replace(copy(), block=BlockId(block))
            with pytest.raises(UnavailableError):
                await transfer.fetch(volume, asked, range(CHUNKS), (address,))
        assert len(list((tmp_path / "tmp").iterdir())) == MAX_KEPT
        await transfer.close()
        assert list((tmp_path / "tmp").iterdir()) == []


async def test_an_unfinished_copy_is_not_kept_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer_module, "KEPT_S", 0.01)
    async with beside(tmp_path, LaterHolder(5, 7)) as (target, address):
        transfer = Transfer()
        with pytest.raises(UnavailableError):
            await transfer.fetch(target.volumes[0], copy(), range(CHUNKS), (address,))
        await wait_until_async(lambda: not list((tmp_path / "tmp").iterdir()))


async def test_a_recovery_may_use_the_reserve(tmp_path: Path) -> None:
    async with beside(tmp_path, Holder(whole())) as (target, address):
        transfer = Transfer(reserved_bytes=ALL_THE_ROOM)
        draft = await transfer.fetch(target.volumes[0], recovery(), range(CHUNKS), (address,))
        assert draft.stop == CHUNKS
        await target.volumes[0].run(draft.discard)


async def test_what_is_taken_together_keeps_to_the_pace() -> None:
    loop, pace = asyncio.get_running_loop(), Throttle(1000)
    begun_s = loop.time()
    await asyncio.gather(*(pace.take(50) for _ in range(5)))
    assert loop.time() - begun_s >= 0.19  # the time of all but the last


def test_while_others_are_let_by_copies_are_slower_and_never_stand_still() -> None:
    busy = True
    paces = [
        Throttle(64 * MIB, lambda: busy),
        Throttle(2 * MIB, lambda: busy),
        Throttle(1000, lambda: busy),
    ]
    assert [pace.bytes_per_s for pace in paces] == [16 * MIB, MIB, 1000]
    busy = False
    assert [pace.bytes_per_s for pace in paces] == [64 * MIB, 2 * MIB, 1000]


async def test_a_client_that_writes_or_reads_is_served_before_copies_and_a_copy_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as source:
        (volume,) = source.volumes
        await source.create()
        assert not volume.serves_clients
        await source.write(2)
        assert volume.serves_clients
        monkeypatch.setattr(volume, "_served_s", -SERVED_S)
        reader = Reader(source.acceptor, max_read_bytes=1 << 20)
        asked = FetchChunks(BLOCK, source.storage, (Generation(0),), 0, 2, copy=True)
        await reader.fetch_chunks(asked)
        await volume.run(lambda: None)
        assert not volume.serves_clients
        version = Version(Generation(0), NO_GENERATION, 2)
        await reader.read_bytes(ReadBytes(BLOCK, source.storage, version, 0, 1))
        assert volume.serves_clients


async def test_the_target_of_copies_keeps_to_its_pace(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    async with beside(tmp_path, Holder(whole())) as (target, address):
        transfer = Transfer(pace=Throttle(10 * SIZE_BYTES))
        begun_s = loop.time()
        for _ in range(3):
            draft = await transfer.fetch(target.volumes[0], copy(), range(CHUNKS), (address,))
            await target.volumes[0].run(draft.discard)
        assert loop.time() - begun_s >= 0.2  # the third begins when two are paid


async def test_the_source_of_copies_keeps_to_its_pace_and_sends_others_at_once(
    tmp_path: Path,
) -> None:
    loop = asyncio.get_running_loop()
    async with running(tmp_path) as source:
        await source.create()
        await source.write(1)
        copies = Throttle(1000)
        reader = Reader(source.acceptor, max_read_bytes=1 << 20, copies=copies)
        asked = FetchChunks(BLOCK, source.storage, (Generation(0),), 0, 1, copy=True)
        begun_s = loop.time()
        for _ in range(3):
            await reader.fetch_chunks(asked)
        assert loop.time() - begun_s >= 0.2
        await copies.take(1_000_000)
        await reader.fetch_chunks(msgspec.structs.replace(asked, copy=False))


async def test_a_holder_sends_a_second_of_its_pace_at_a_time_for_a_copy(tmp_path: Path) -> None:
    async with running(tmp_path) as source:
        await source.create()
        await source.write(4)
        reader = Reader(source.acceptor, max_read_bytes=1 << 20, copies=Throttle(250))

        async def sent(start: int, *, paced: bool) -> int:
            asked = FetchChunks(BLOCK, source.storage, (Generation(0),), start, 4, paced)
            answer = await reader.fetch_chunks(asked)
            assert isinstance(answer, Bulk)
            return answer.count

        assert await sent(0, paced=False) == 4
        assert await sent(0, paced=True) == 2
        assert await sent(3, paced=True) == 1
