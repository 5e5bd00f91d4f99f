"""A DataNode's acceptor on real folders, and short words for what they are asked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from paxosblock.api.datanode import Control, Envelope, StorageAddress
from paxosblock.base.checksum import crc32c
from paxosblock.datanode.acceptor import Acceptor
from paxosblock.datanode.replica_reads import Reader
from paxosblock.datanode.store.disk_format import SHIPPED, FetchedChunks, SmallLimits
from paxosblock.datanode.volumes.first_reads import read_all
from paxosblock.datanode.volumes.group_commit import GroupCommit
from paxosblock.datanode.volumes.volume import Volume, open_volume
from paxosblock.errors import UnavailableError
from paxosblock.host.disk import Disk, OsDisk
from paxosblock.net.wire import Flags, FrameKind, Header
from paxosblock.protocol.messages import (
    Create,
    Finalize,
    Nack,
    NextGS,
    Read,
    RecoveryWrite,
    Reply,
    Vote,
)
from paxosblock.protocol.types import (
    BlockId,
    ChunkIndex,
    ChunkName,
    Durability,
    Generation,
    Reason,
    StorageId,
)

BLOCK = BlockId(7)
WINDOW = 4


def chunk(index: int, size: int = 100, salt: int = 0) -> bytes:
    """The user data of a chunk: different for every index and salt."""
    return bytes((index * 31 + salt * 17 + i) % 251 for i in range(size))


def name(index: int, size: int = 100, salt: int = 0) -> ChunkName:
    """Return the name of what `chunk` makes of the same arguments."""
    return ChunkName(ChunkIndex(index), size, crc32c(chunk(index, size, salt)))


def frame(
    index: int,
    payload: bytes | None = None,
    *,
    generation: int = 0,
    sync: bool = False,
    block: BlockId = BLOCK,
    acknowledged: int = 0,
) -> tuple[Header, bytes]:
    """A chunk frame, as its header and as its bytes."""
    payload = chunk(index) if payload is None else payload
    header = Header.of(
        FrameKind.CHUNK,
        payload,
        flags=int(Flags.SYNC) if sync else 0,
        block=block,
        generation=Generation(generation),
        index=ChunkIndex(index),
        acknowledged=acknowledged,
    )
    return header, header.pack() + payload


def refusal(answer: object) -> Reason:
    """Return why the node refused, which it must have done."""
    assert isinstance(answer, Nack), answer
    return answer.reason


def finalization(
    generation: int, names: Sequence[ChunkName], epoch: int = 0, block: BlockId = BLOCK
) -> Finalize:
    """The order to finalize a log of these chunks."""
    return Finalize(
        block=block,
        finalized_generation=Generation(generation),
        epoch=Generation(epoch),
        length=len(names),
        size_bytes=sum(named.size_bytes for named in names),
        holders=(),
        window=WINDOW,
        durability=Durability.DISK,
    )


@dataclass
class Holder:
    """A `Fetcher` that has the chunks of another replica, or (None) no holder at all."""

    payloads: Sequence[bytes] | None = None
    generation: int = 0

    async def fetch(
        self,
        volume: Volume,
        request: RecoveryWrite | Finalize,
        chunks: range,
        peers: tuple[StorageAddress, ...],
    ) -> FetchedChunks:
        """The chunks, in a draft of `volume`."""
        if self.payloads is None:
            raise UnavailableError("there is no holder")
        draft = await volume.run(volume.store.draft, request.block, chunks.start)
        for index in chunks:
            payload = self.payloads[index]
            _, record = frame(index, payload, generation=self.generation, block=request.block)
            named = ChunkName(ChunkIndex(index), len(payload), crc32c(payload))
            await volume.run(draft.append, (named,), record)
        return draft


@dataclass
class Notes:
    """A `ReplicaListener` that takes down what it hears."""

    changed: list[BlockId] = field(default_factory=list)
    corrupt: list[tuple[BlockId, StorageId, str]] = field(default_factory=list)

    def replica_changed(self, block: BlockId, storage: StorageId) -> None:
        """A replica was made, changed or deleted."""
        self.changed.append(block)

    def replica_corrupt(self, block: BlockId, storage: StorageId, reason: str) -> None:
        """A replica is dead."""
        self.corrupt.append((block, storage, reason))


@dataclass
class Node:
    """An acceptor with its volumes, on a running loop."""

    volumes: list[Volume]
    acceptor: Acceptor
    reader: Reader
    notes: Notes
    holder: Holder

    @property
    def storage(self) -> StorageId:
        """Of the first volume."""
        return self.volumes[0].storage

    async def ask(
        self,
        request: Control | Read,
        storage: StorageId | None = None,
    ) -> Reply:
        """Send one message to a storage (default: the first) and return the answer."""
        return await self.acceptor.take(Envelope(storage or self.storage, request))

    async def create(
        self,
        block: BlockId = BLOCK,
        durability: Durability = Durability.DISK,
        storage: StorageId | None = None,
        *,
        small: bool = False,
    ) -> Reply:
        """D1."""
        return await self.ask(Create(block, WINDOW, durability, small), storage)

    async def next_gs(self, generation: int, base: int = 0, block: BlockId = BLOCK) -> Reply:
        """D3."""
        request = NextGS(block, Generation(generation), Generation(base), WINDOW, Durability.DISK)
        return await self.ask(request)

    async def recover(
        self,
        generation: int,
        names: Sequence[ChunkName],
        *,
        durability: Durability = Durability.DISK,
    ) -> Reply:
        """D4: accept the log of `names` in a seal of the first config."""
        request = RecoveryWrite(
            block=BLOCK,
            generation=Generation(generation),
            base=Generation(0),
            epoch=Generation(0),
            length=len(names),
            size_bytes=sum(named.size_bytes for named in names),
            tail=tuple(names[-WINDOW:]),
            chosen_generation=Generation(0),
            members=(self.storage,),
            holders=(),
            window=WINDOW,
            durability=durability,
        )
        return await self.ask(request)

    async def reopen(self, generation: int, names: Sequence[ChunkName], finalized: int) -> Reply:
        """D4 of an APPEND: a new epoch on the finalized version of `names`."""
        request = RecoveryWrite(
            block=BLOCK,
            generation=Generation(generation),
            base=Generation(0),
            epoch=Generation(generation),
            length=len(names),
            size_bytes=sum(named.size_bytes for named in names),
            tail=tuple(names[-WINDOW:]),
            chosen_generation=Generation(finalized),
            members=(self.storage,),
            holders=(),
            window=WINDOW,
            durability=Durability.DISK,
            finalized_generation=Generation(finalized),
        )
        return await self.ask(request)

    async def finalize(
        self,
        generation: int,
        names: Sequence[ChunkName],
        epoch: int = 0,
        block: BlockId = BLOCK,
        storage: StorageId | None = None,
    ) -> Reply:
        """D5."""
        return await self.ask(finalization(generation, names, epoch, block), storage)

    def send(self, sent: tuple[Header, bytes]) -> asyncio.Future[Vote | Nack]:
        """Hand over a chunk frame; the future gets the vote."""
        future: asyncio.Future[Vote | Nack] = asyncio.get_running_loop().create_future()
        self.acceptor.write(sent[0], memoryview(sent[1]), future.set_result)
        return future

    async def write(self, count: int, start: int = 0, generation: int = 0) -> list[Vote | Nack]:
        """Send chunks and wait for all votes."""
        sent = [self.send(frame(i, generation=generation)) for i in range(start, start + count)]
        return list(await asyncio.gather(*sent))


@asynccontextmanager
async def running(
    *folders: Path,
    disk: Disk | None = None,
    boot: str = "boot-1",
    holder: Holder | None = None,
    reserved_bytes: int = 0,
    max_read_bytes: int = 1 << 20,
    upgrade: bool = False,
    unread: bool = False,
    limits: SmallLimits = SHIPPED,
) -> AsyncIterator[Node]:
    """A node on these folders. Leaving it syncs nothing: it is like the end of a process.

    `unread` leaves it as it is when it begins to serve.
    """
    disk = disk or OsDisk()
    volumes = [
        open_volume(
            disk, folder, "node-1", boot=boot, sync_threads=2, upgrade=upgrade, limits=limits
        )
        for folder in folders
    ]
    notes, holder = Notes(), holder or Holder()
    acceptor = Acceptor(volumes, holder, notes, reserved_bytes=reserved_bytes)
    await acceptor.load(30.0)
    for volume in () if unread else volumes:
        await read_all(volume)
    try:
        reader = Reader(acceptor, max_read_bytes=max_read_bytes)
        yield Node(volumes, acceptor, reader, notes, holder)
    finally:
        await acceptor.close()
        for volume in volumes:
            volume.close()


def hold_group_commit(volume: Volume) -> threading.Event:
    """Syncs for votes begin only when the result is set; those of control steps go on."""
    may_go = threading.Event()
    threads = ThreadPoolExecutor(1)
    threads.submit(may_go.wait, 30)
    volume.commit = GroupCommit(threads, 1)
    return may_go


def unadopted(folder: Path) -> list[str]:
    """The files of chunks that wait in `tmp/`, where metadata that was replaced waits, too."""
    return [each.name for each in (folder / "tmp").iterdir() if each.suffix != ".meta"]
