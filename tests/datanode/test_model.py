"""The acceptor on a disk answers as the pure one does, whatever is asked and in any order.

Each step goes to both: to a node on a real folder, which is started anew now and then, and to
`protocol.register` alone. Their answers and their replicas must be equal after every step, and at
the end the bytes on the disk are those that were voted for. Some of the starts make a snapshot:
no later step changes a byte of it, and at the end the node goes back to it.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from paxosblock.api.datanode import FetchChunks, StorageAddress
from paxosblock.base.checksum import crc32c
from paxosblock.datanode.store.disk_format import FetchedChunks
from paxosblock.datanode.store.layout import CURRENT, RBW
from paxosblock.datanode.store.records import check_records
from paxosblock.datanode.volumes.snapshot import PREVIOUS, roll_back
from paxosblock.datanode.volumes.volume import Volume
from paxosblock.errors import UnavailableError
from paxosblock.host.disk import OsDisk
from paxosblock.net.streams.stream_calls import Bulk
from paxosblock.protocol import register
from paxosblock.protocol.log import ChunkLog
from paxosblock.protocol.messages import (
    Create,
    Delete,
    Finalize,
    Nack,
    NextGS,
    Read,
    RecoveryWrite,
    Reply,
    Request,
    Write,
)
from paxosblock.protocol.register import Replica
from paxosblock.protocol.types import (
    ChunkIndex,
    ChunkName,
    Durability,
    Generation,
    Reason,
)
from tests.datanode.node import BLOCK, WINDOW, Holder, Node, chunk, frame, name, running

HOLDS = 6
"""Chunks that another replica can send."""
KINDS = (Write, Create, Write, Write, Write, Write, NextGS, RecoveryWrite, Finalize, Read)


def sent(request: RecoveryWrite | Finalize, chunks: range) -> tuple[ChunkName, ...]:
    """Return those of `chunks` that another replica sends: all or none, of the decided log only."""
    names = tuple(name(index) for index in chunks if index < HOLDS)
    full_copy = isinstance(request, Finalize) and chunks == range(request.length)
    if full_copy and sum(each.size_bytes for each in names) != request.size_bytes:
        return ()
    return names if len(names) == len(chunks) else ()


class DecidedHolder(Holder):
    """Sends what `sent` says."""

    async def fetch(
        self,
        volume: Volume,
        request: RecoveryWrite | Finalize,
        chunks: range,
        peers: tuple[StorageAddress, ...],
    ) -> FetchedChunks:
        """The chunks, in a draft of `volume`."""
        if not sent(request, chunks):
            raise UnavailableError("no holder has them")
        return await super().fetch(volume, request, chunks, peers)


def _says_corrupt(reply: Reply) -> bool:
    return isinstance(reply, Nack) and reply.reason is Reason.CORRUPT


@dataclass
class Both:
    """A node, and what the acceptor alone makes of the same requests."""

    folder: Path
    node: Node = field(init=False)
    replica: Replica | None = None
    boot: int = 0
    saved: tuple[Replica | None, int] | None = None
    """The replica when the snapshot was made, and the boot that it was in."""
    saved_files: dict[Path, bytes] = field(default_factory=dict)
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def start(self, *, upgrade: bool = False) -> None:
        holder = DecidedHolder([chunk(index) for index in range(HOLDS)])
        boot = f"boot-{self.boot}"
        node = running(self.folder, boot=boot, holder=holder, upgrade=upgrade)
        self.node = await self.stack.enter_async_context(node)

    async def restart(self, *, same_boot: bool, upgrade: bool = False) -> None:
        await self.stack.aclose()
        if upgrade and self.saved is None:
            self.saved = self.replica, self.boot
            self.saved_files = files_below(self.folder, CURRENT, RBW)
        self.boot += not same_boot
        await self.start(upgrade=upgrade)
        if self.replica is not None:
            self.replica = register.restarted(self.replica, same_boot=same_boot)
        self.check()

    async def begin_with_a_snapshot(self) -> None:
        """Of a finalized replica, whose files it shares."""
        await self.take(Create(BLOCK, WINDOW, Durability.DISK))
        for index in range(3):
            payload = chunk(index)
            named = (ChunkIndex(index), len(payload), crc32c(payload))
            await self.take(Write(BLOCK, Generation(0), *named, 0, sync=False), payload)
        decided = (3, sum(name(index).size_bytes for index in range(3)))
        generations = (Generation(1), Generation(0))
        await self.take(Finalize(BLOCK, *generations, *decided, (), WINDOW, Durability.DISK))
        await self.restart(same_boot=True, upgrade=True)

    async def go_back(self) -> None:
        """Roll back to the snapshot, if there is one."""
        if self.saved is None:
            return
        await self.stack.aclose()
        roll_back(OsDisk(), [self.folder])
        assert files_below(self.folder, CURRENT, RBW) == self.saved_files
        assert not (self.folder / PREVIOUS).exists()
        self.replica, boot = self.saved
        self.saved = None
        await self.start()
        if self.replica is not None:
            self.replica = register.restarted(self.replica, same_boot=boot == self.boot)
        self.check()

    async def take(self, request: Request, payload: bytes = b"") -> None:
        expected = self.answer_of(request)
        if isinstance(request, Write):
            header, sent = frame(
                request.index,
                payload,
                generation=request.generation,
                sync=request.sync,
                acknowledged=request.acknowledged_count,
            )
            answered: Reply = await self.node.send((header, sent))
        else:
            answered = await self.node.ask(request)
        if isinstance(answered, Nack) and not answered.storage:
            answered = replace(answered, storage=self.node.storage)  # a node without the block
        assert answered == expected
        self.check()

    def answer_of(self, request: Request) -> Reply:
        storage = self.node.storage
        supplied: tuple[ChunkName, ...] = ()
        if isinstance(request, RecoveryWrite | Finalize):
            supplied = sent(request, register.wanted(storage, self.replica, request))
        step = register.answer(storage, self.replica, request, supplied)
        if isinstance(request, Finalize) and _says_corrupt(step.reply):
            # D9: a log that is not the one that was decided gives way to a full copy of that.
            copy = sent(request, range(request.length))
            if copy and register.heals(self.replica, request):
                step = register.answer(storage, None, request, copy)
        self.replica = step.replica
        return step.reply

    def check(self) -> None:
        found = self.node.acceptor.find(BLOCK, self.node.storage)
        assert (None if found is None else found.replica) == self.replica
        if self.saved is not None:
            assert files_below(self.folder / PREVIOUS, CURRENT, RBW) == self.saved_files

    async def check_bytes(self) -> None:
        """Check that another DataNode would be sent what the log names, byte for byte."""
        if self.replica is None or not self.replica.length:
            return
        accepted = (self.replica.registers.accepted_generation,)
        asked = FetchChunks(BLOCK, self.node.storage, accepted, 0, self.replica.length)
        bulk = await self.node.reader.fetch_chunks(asked)
        assert isinstance(bulk, Bulk)
        assert bulk.count == self.replica.length
        check_records(BLOCK, self.replica.log.slice(0, self.replica.length), b"".join(bulk.frames))


def files_below(folder: Path, *parts: str) -> dict[Path, bytes]:
    """All files in these folders of a volume, or of its snapshot."""
    paths = (path for part in parts for path in (folder / part).iterdir())
    return {path.relative_to(folder): path.read_bytes() for path in paths}


@asynccontextmanager
async def both(folder: Path) -> AsyncIterator[Both]:
    pair = Both(folder)
    await pair.start()
    try:
        yield pair
    finally:
        await pair.stack.aclose()


def drawn_request(pair: Both, draw: st.DataObject) -> tuple[Request, bytes]:
    """Any message at all, more often than not one that fits the replica; and a Write's chunk."""
    kind = draw.draw(st.sampled_from(KINDS))
    promised = 0 if pair.replica is None else pair.replica.registers.max_generation
    generation = Generation(max(0, promised + draw.draw(st.sampled_from((1, 0, 0, 2, -1)))))
    durability = draw.draw(st.sampled_from(Durability))
    if kind is Create:
        return Create(BLOCK, WINDOW, durability), b""
    if kind is Write:
        return drawn_write(pair, draw, generation)
    if kind is NextGS:
        base = Generation(draw.draw(st.integers(0, 2)))
        return NextGS(BLOCK, generation, base, WINDOW, durability), b""
    if kind is RecoveryWrite:
        return drawn_recovery(pair, draw, generation, durability), b""
    if kind is Finalize:
        epoch = Generation(draw.draw(st.integers(0, generation)))
        log = drawn_log(pair, draw)
        size = log.size_bytes
        return Finalize(BLOCK, generation, epoch, len(log), size, (), WINDOW, durability), b""
    if not draw.draw(st.integers(0, 3)):
        return Delete(BLOCK, generation), b""
    return Read(BLOCK, sync=draw.draw(st.booleans())), b""


def drawn_write(pair: Both, draw: st.DataObject, generation: Generation) -> tuple[Write, bytes]:
    held = 0 if pair.replica is None else pair.replica.length
    if pair.replica is not None and draw.draw(st.integers(0, 5)):
        generation = pair.replica.registers.accepted_generation
    index = max(0, held + draw.draw(st.sampled_from((0, 0, 0, 0, -1, 1))))
    payload = chunk(index, draw.draw(st.sampled_from((100, 100, 0))), draw.draw(st.integers(0, 1)))
    size, crc, sync = len(payload), crc32c(payload), draw.draw(st.booleans())
    acknowledged = draw.draw(st.integers(0, held))
    write = Write(BLOCK, generation, ChunkIndex(index), size, crc, acknowledged, sync)
    return write, payload


def drawn_recovery(
    pair: Both, draw: st.DataObject, generation: Generation, durability: Durability
) -> RecoveryWrite:
    log = drawn_log(pair, draw)
    base = Generation(draw.draw(st.integers(0, generation)))
    return RecoveryWrite(
        block=BLOCK,
        generation=generation,
        base=base,
        epoch=draw.draw(st.sampled_from((base, generation))),
        length=len(log),
        size_bytes=log.size_bytes,
        tail=log.tail(WINDOW),
        chosen_generation=base,
        members=(pair.node.storage,) * draw.draw(st.integers(0, 1)),
        holders=(),
        window=WINDOW,
        durability=durability,
    )


def drawn_log(pair: Both, draw: st.DataObject) -> ChunkLog:
    """Draw the log that the replica has, as far as it goes, or one that another replica has."""
    own = pair.replica is not None and draw.draw(st.booleans())
    log = pair.replica.log if pair.replica is not None and own else ChunkLog()
    length = draw.draw(st.integers(0, HOLDS))
    if length <= len(log):
        return log.truncate(length)
    return log.extend(name(index) for index in range(len(log), length))


async def check_story(folder: Path, draw: st.DataObject) -> None:
    async with both(folder) as pair:
        if draw.draw(st.booleans()):
            await pair.begin_with_a_snapshot()
        for _ in range(draw.draw(st.integers(1, 40))):
            if draw.draw(st.integers(0, 11)):
                await pair.take(*drawn_request(pair, draw))
            else:
                same_boot, upgrade = draw.draw(st.booleans()), draw.draw(st.booleans())
                await pair.restart(same_boot=same_boot, upgrade=upgrade)
        await pair.check_bytes()
        await pair.go_back()
        await pair.check_bytes()


@settings(max_examples=60)
@given(st.data())
def test_a_node_answers_as_the_acceptor_does(draw: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(check_story(Path(folder), draw))
