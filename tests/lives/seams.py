"""Whoever starts a service on a block at which another one is at work.

Some pairs of services come together once in a thousand lives by chance (`pairs.py` counts them). So
somebody has files of his own, to which he does anything at any time; and when a service begins to
work on a block of one of them, he starts another one there at once, that was not there with it yet.
He is refused often. What the blocks must hold is checked as for all others; of the bytes of his
files he knows that they are the beginning of one sequence, unless another file was joined to them.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from paxosblock import WriteOptions
from paxosblock.base.replacement import OnFailure
from paxosblock.client.async_client import AsyncClient
from paxosblock.client.writing.file_writer import AsyncFileWriter
from paxosblock.errors import LeaseError, NotFoundError, PaxosBlockError
from paxosblock.protocol.types import BlockId
from tests.lives.cluster import BLOCK_BYTES, CHUNK_BYTES
from tests.lives.pairs import pair
from tests.lives.users import PATIENCE_S
from tests.services.content import content, first_difference

if TYPE_CHECKING:
    from tests.lives.life import Life

FILES: Final = 3
CUTS: Final = ("truncate", "concat")
LARGEST_BYTES: Final = 3 * BLOCK_BYTES
KEY: Final = "seams"
"""Of the bytes of all files."""
LEFT_CHANCE: Final = 0.5
"""That somebody writes at once to a file that was cut, and leaves it: a file is closed when it is
cut, so that its last block is recovered while its members hear of the cut in no other way."""
REACTIONS_MAX: Final = 40
"""In one life: a service that is started may start another one, and so on."""
SETREP_EVERY_S: Final = 6.0
"""Of one file: between two looks of the checker the number of replicas may change once."""

Start = Callable[[AsyncClient, str], Awaitable[None]]


class Seams:
    """The files and what is done to them, in the life of one seed."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self.rng = random.Random(f"{life.seed} seams")
        self.counts: Counter[str] = Counter()
        self._pairs = life.world.pairs
        self._pairs.watches.append(self._began)
        self._host = life.world.new_host()
        self._made = 0
        self._paths: list[str] = []
        self._joined: set[str] = set()
        self._of: dict[BlockId, str] = {}
        self._open: dict[str, AsyncFileWriter] = {}
        self._left: list[AsyncFileWriter] = []
        self._filled: list[AsyncFileWriter] = []
        """Those that are at work now."""
        self._over = False
        self._reactions = 0
        self._busy: set[str] = set()
        """Files at which a reaction is under way."""
        self._set_s: dict[str, float] = {}
        """The times of the last requests for another number of replicas."""
        self._running: set[asyncio.Task[None]] = set()
        self._starts: dict[str, Start] = {
            "write": self._write,
            "append": self._append,
            "rebuild": self._rebuild,
            "recovery": self._recover,
            "copy": self._copy,
            "reduce": self._reduce,
            "delete": self._delete,
            "truncate": self._truncate,
            "concat": self._concat,
        }

    async def run(self, until_s: float) -> None:
        """Start services now and then."""
        await self._host.ask(self._run(until_s))

    async def end(self) -> None:
        """End all files, and read them."""
        await self._host.ask(self._end_all())

    async def _run(self, until_s: float) -> None:
        loop = self.life.loop
        async with self.life.cluster.new_client() as fs:
            self._fs = fs
            while loop.now < until_s:
                await loop.pass_time(self.rng.choice((0.5, 3.0, 6.0)) * self.rng.random() * 2)
                if len(self._paths) < FILES:
                    await self._try(self._create, f"/seam-{self._made}")
                else:
                    start = self._starts[self.rng.choice(self._services())]
                    await self._try(start, self.rng.choice(self._paths))
            self._over = True
            await asyncio.gather(*self._running)
        for out in self._left:
            out._closed = True  # no owner is there to be warned of them

    def _services(self) -> list[str]:
        return [each for each in self._starts if self.life.may_cut or each not in CUTS]

    async def _try(self, start: Start, path: str) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                await start(self._fs, path)
        except PaxosBlockError as error:
            self.counts[f"{start.__name__} {type(error).__name__}"] += 1
        except TimeoutError:
            self.life.world.mistake(f"{start.__name__} of {path} waits longer than {PATIENCE_S} s")

    def _began(self, service: str, block: BlockId) -> None:
        """A service is at work on a block: start another one there."""
        path = self._of.get(block)
        if path is None or self._over or path not in self._paths or path in self._busy:
            return
        wanted = [
            other
            for other in self._services()
            if other != service and not self._pairs.of_services[pair(service, other)]
        ]
        if service == "restore" and "write" in wanted and path in self._open:
            wanted = ["write"]  # the writer at the backup is about to be fenced
        if wanted and (self._reactions < REACTIONS_MAX or service == "restore"):
            self._reactions += 1
            self._busy.add(path)
            self._host.call(self, self._react, self._starts[self.rng.choice(wanted)], path)

    def _react(self, start: Start, path: str) -> None:
        async def react() -> None:
            await self._try(start, path)
            self._busy.discard(path)

        if not self._over:
            self.life.counts["services started beside another one"] += 1
            task = self._host.run(react())
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    # -- the services -----------------------------------------------------------------------------

    async def _create(self, fs: AsyncClient, path: str) -> None:
        self._made += 1
        way = self.rng.choice((OnFailure.REBUILD, OnFailure.REBUILD, OnFailure.SEAL))
        out = await fs.create(path, options=WriteOptions(on_failure=way))
        self._left.append(out)
        self._paths.append(path)
        self._open[path] = out
        await self._fill(out, path)
        if self.rng.random() < 0.7:
            await self._close(path)

    async def _fill(self, out: AsyncFileWriter, path: str) -> None:
        if out in self._filled:
            return  # its bytes must follow those that are written now
        self._filled.append(out)
        try:
            start = out.tell()
            stop = start + self.rng.choice((CHUNK_BYTES, BLOCK_BYTES // 2, BLOCK_BYTES))
            await out.write(content(KEY, start, stop))
            await out.hflush()
        finally:
            self._filled.remove(out)
        await self._learn(self._fs, path)

    async def _learn(self, fs: AsyncClient, path: str) -> None:
        for location in await fs.locations(path):
            self._of[location.block] = path

    async def _close(self, path: str) -> None:
        out = self._open.pop(path, None)
        if out is not None:
            await out.close()

    async def _write(self, fs: AsyncClient, path: str) -> None:
        if path in self._open:
            await self._fill(self._open[path], path)
        else:
            await self._append(fs, path)

    async def _append(self, fs: AsyncClient, path: str) -> None:
        way = self.rng.choice((OnFailure.REBUILD, OnFailure.SEAL))
        await self._fill(await self._reopened(fs, path, way), path)

    async def _reopened(self, fs: AsyncClient, path: str, way: OnFailure) -> AsyncFileWriter:
        await self._closed(fs, path)
        out = await fs.append(path, options=WriteOptions(on_failure=way))
        self._left.append(out)
        self._open[path] = out
        return out

    async def _closed(self, fs: AsyncClient, path: str) -> None:
        """Let no writer write the file."""
        out = self._open.pop(path, None)
        if out is not None and self.rng.random() < 0.5:
            await out.close()
        elif out is not None:
            await fs.take_over(path)

    async def _rebuild(self, fs: AsyncClient, path: str) -> None:
        """Write on when a member of the last block has just died."""
        out = self._open.get(path) or await self._reopened(fs, path, OnFailure.REBUILD)
        last = [block for block, of in self._of.items() if of == path][-1:]
        held = [self.life.checker.held.get(block, {}).values() for block in last]
        machine = self.life._victim(among=[each.machine for some in held for each in some])
        self.life._go_down(machine, power_cut=False, inside=False)
        await self._fill(out, path)

    async def _recover(self, fs: AsyncClient, path: str) -> None:
        if path not in self._open:
            await self._reopened(fs, path, OnFailure.SEAL)
        self._open.pop(path, None)
        await fs.take_over(path)

    async def _truncate(self, fs: AsyncClient, path: str) -> None:
        await self._closed(fs, path)
        size = (await fs.stat(path)).size
        await fs.truncate(path, size - self.rng.randint(0, min(size, BLOCK_BYTES)))
        if self.rng.random() < LEFT_CHANCE:
            await self._append(fs, path)
            self._open.pop(path, None)
            await fs.take_over(path)

    async def _concat(self, fs: AsyncClient, path: str) -> None:
        await self._closed(fs, path)
        if (await fs.stat(path)).size > LARGEST_BYTES:
            await self._delete(fs, path)
            return
        source = f"/seam-{self._made}"
        await self._create(fs, source)
        await self._closed(fs, source)
        self._joined |= {path, source}
        await fs.concat(path, [source])
        self._forget(source)
        await self._learn(fs, path)

    async def _copy(self, fs: AsyncClient, path: str) -> None:
        await self._set_replication(fs, path, 4)

    async def _reduce(self, fs: AsyncClient, path: str) -> None:
        await self._set_replication(fs, path, 2)

    async def _set_replication(self, fs: AsyncClient, path: str, count: int) -> None:
        now_s = self.life.loop.now
        if now_s >= self._set_s.get(path, -SETREP_EVERY_S) + SETREP_EVERY_S:
            self._set_s[path] = now_s
            await fs.set_replication(path, count)

    async def _delete(self, fs: AsyncClient, path: str) -> None:
        self._forget(path)
        await fs.delete(path)

    def _forget(self, path: str) -> None:
        self._paths = [each for each in self._paths if each != path]
        self._open.pop(path, None)

    # -- the end ----------------------------------------------------------------------------------

    async def _end_all(self) -> None:
        async with self.life.cluster.new_client() as fs:
            for path in self._paths:
                await self._end(fs, path)

    async def _end(self, fs: AsyncClient, path: str) -> None:
        data = await ended(self.life, fs, path)
        difference = None
        if data is not None and path not in self._joined:
            difference = first_difference(KEY, 0, data)
        if difference is not None:
            self.life.world.mistake(f"{path} differs at byte {difference}")


async def ended(life: Life, fs: AsyncClient, path: str) -> bytes | None:
    """End the writing of a file, as an operator does, and return its bytes; None: it is gone, or
    that does not go, which is a mistake."""
    end_s = life.loop.now + PATIENCE_S
    while True:
        try:
            await fs.take_over(path)
            async with await fs.open(path) as opened:
                return await opened.read()
        except NotFoundError:
            return None
        except PaxosBlockError as error:
            if life.loop.now > end_s and not isinstance(error, LeaseError):
                life.world.mistake(f"{path} cannot be ended and read: {error}")
                return None
            await life.loop.pass_time(0.5)
