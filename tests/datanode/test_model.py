"""The acceptor on a disk answers as the pure one does, whatever is asked and in any order.

Each step goes to both: to a node on a real folder, which is started anew now and then, and to
`protocol.register` alone. Their answers and their replicas must be equal after every step, and at
the end the bytes on the disk are those that were voted for. Some of the starts make a snapshot:
no later step changes a byte of it, and at the end the node goes back to it.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from paxosblock.api.datanode import FetchChunks
from paxosblock.base.checksum import crc32c
from paxosblock.datanode.store.chunk_records import check_records
from paxosblock.datanode.store.layout import CURRENT, RBW
from paxosblock.datanode.volumes.volume_snapshot import PREVIOUS, roll_back
from paxosblock.host.disk import OsDisk
from paxosblock.net.streams.stream_calls import Bulk
from paxosblock.protocol import register
from paxosblock.protocol.messages import (
    Create,
    Finalize,
    Nack,
    Reply,
    Request,
    Write,
)
from paxosblock.protocol.register import Replica
from paxosblock.protocol.types import (
    ChunkIndex,
    Durability,
    Generation,
)
from tests.datanode.any_request import AnyRequest, DecidedHolder, expected
from tests.datanode.node import BLOCK, WINDOW, Node, chunk, frame, name, running

T = TypeVar("T")


class Drawn:
    """Decides as hypothesis says."""

    def __init__(self, draw: st.DataObject) -> None:
        self._draw = draw

    def choice(self, seq: Sequence[T], /) -> T:
        """Return one of them."""
        return self._draw.draw(st.sampled_from(seq))

    def randint(self, a: int, b: int, /) -> int:
        """Return a number from `a` to `b`."""
        return self._draw.draw(st.integers(a, b))


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
        boot = f"boot-{self.boot}"
        node = running(self.folder, boot=boot, holder=DecidedHolder(), upgrade=upgrade)
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
        step = expected(self.node.storage, self.replica, request)
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


async def check_story(folder: Path, draw: st.DataObject) -> None:
    async with both(folder) as pair:
        if draw.draw(st.booleans()):
            await pair.begin_with_a_snapshot()
        for _ in range(draw.draw(st.integers(1, 40))):
            if draw.draw(st.integers(0, 11)):
                drawn = AnyRequest(Drawn(draw), BLOCK, pair.node.storage)
                await pair.take(*drawn.about(pair.replica))
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
