"""One file that is written, appended to, cut, renamed and read, in a cluster in trouble.

Its owner does one thing after the other, and is killed in the middle of some; what he was told is
kept as the *versions* that the file may have. Readers take part all the time: what they see is the
beginning of a version that was possible while they read, or an error.
"""

from __future__ import annotations

import asyncio
import random
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from paxosblock import WriteOptions
from paxosblock.client.async_client import AsyncClient
from paxosblock.client.writing.file_writer import AsyncFileWriter
from paxosblock.errors import NotFoundError, PaxosBlockError
from tests.lives.cluster import BLOCK_BYTES, Cluster
from tests.lives.users import PATIENCE_S, File, all_ended
from tests.lives.world import World
from tests.services.content import content

PATHS: Final = ("/one", "/other")
WAYS: Final = ("seal", "rebuild")
LONGEST_APPEND_BYTES: Final = 2 * BLOCK_BYTES

Thing = Callable[[AsyncClient, random.Random], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Version:
    """The file may be any beginning of `data` that has `at_least` bytes."""

    data: bytes
    at_least: int

    def allows(self, seen: bytes) -> bool:
        """True if this may be the whole file."""
        return len(seen) >= self.at_least and self.data.startswith(seen)

    def __str__(self) -> str:
        return f"{self.at_least} or more of {_told(self.data)}"


@dataclass(slots=True)
class OneFile:
    """The file's owner and readers; stands where `Users` stands in a life."""

    world: World
    cluster: Cluster
    rng: random.Random
    counts: Counter[str] = field(default_factory=Counter)
    over: bool = False
    history: list[tuple[Version, ...]] = field(default_factory=lambda: [(Version(b"", 0),)])
    """The versions that were possible, the present ones last."""
    _file: File = field(default_factory=lambda: File(PATHS[0], 3))
    _begun: bool = False
    _moving: bool = False
    """It may be under the other name by now."""
    _deleting: bool = False
    """It may be deleted by now, or later."""
    _late: tuple[Version, ...] = ()
    """Versions that a truncate that was asked for, and not answered, may still make of it."""
    _sessions: int = 0
    _left: list[AsyncFileWriter] = field(default_factory=list)
    """Writers whose owner was killed or gave up: no owner is there to be warned of them."""
    _running: list[asyncio.Task[None]] = field(default_factory=list)

    def start(self, writers: int, readers: int) -> None:
        """Let the owner and the readers begin; there is one owner, whatever `writers` says."""
        assert writers
        self._running.append(self.world.new_host().run(self._own()))
        for _ in range(readers):
            self._running.append(self.world.new_host().run(self._watch()))

    async def end(self) -> None:
        """Let each end what it has begun, and wait for that."""
        self.over = True
        await all_ended(self.world, self._running, 4 * PATIENCE_S)
        for out in self._left:
            out._closed = True

    def alive(self) -> list[File]:
        """Return the file, once it is there."""
        return [self._file] if self._begun else []

    @property
    def now(self) -> tuple[Version, ...]:
        """The versions that are possible."""
        return self.history[-1]

    def _may_be(self, *versions: Version) -> None:
        self.history.append(versions)

    # -- the owner --------------------------------------------------------------------------------

    async def _own(self) -> None:
        rng = random.Random(self.rng.random())
        while not self.over:
            await self._one_thing(rng)
            await self.world.loop.pass_time(rng.uniform(0.05, 1.5))

    async def _one_thing(self, rng: random.Random) -> None:
        things: tuple[Thing, ...] = (
            *[self._append] * 6,
            *[self._truncate] * 3,
            self._rename,
            self._delete,
        )
        thing = rng.choice(things) if self._begun else self._create
        doomed = rng.random() < 0.25
        patience_s = rng.choice((0.05, 0.5, 3.0)) * rng.random() if doomed else PATIENCE_S
        host = self.world.new_host()
        try:
            await host.ask(self._as_client(thing, rng), patience_s)
        except PaxosBlockError as error:
            self.counts[f"refused {type(error).__name__}"] += 1
        except TimeoutError:
            if not doomed:
                self.world.mistake(f"the owner waits longer than {PATIENCE_S:g} s")
            self.counts["owners killed"] += doomed
            host.pause()  # for ever
            self.world.network.unplug(host)
        await self.world.new_host().ask(self._settle())

    async def _as_client(self, thing: Thing, rng: random.Random) -> None:
        async with self.cluster.new_client() as fs:
            await thing(fs, rng)

    async def _create(self, fs: AsyncClient, rng: random.Random) -> None:
        self._begun = True
        out = await fs.create(
            self._file.path, overwrite=True, options=WriteOptions(on_failure=rng.choice(WAYS))
        )
        await self._write(out, rng)

    async def _append(self, fs: AsyncClient, rng: random.Random) -> None:
        new_block, way = rng.random() < 0.2, rng.choice(WAYS)
        out = await fs.append(
            self._file.path, new_block=new_block, options=WriteOptions(on_failure=way)
        )
        await self._write(out, rng)

    async def _write(self, out: AsyncFileWriter, rng: random.Random) -> None:
        """Add some bytes, flush some of them; close the file, or leave it as it is."""
        self._left.append(out)
        self._file.closed, self._late = False, ()
        (before,) = (one for one in self.now if len(one.data) == out.tell())
        self._sessions += 1
        whole = before.data + content(str(self._sessions), 0, LONGEST_APPEND_BYTES)
        sent = len(before.data)
        goal = sent + rng.choice((0, 1, 10, BLOCK_BYTES // 4, rng.randrange(LONGEST_APPEND_BYTES)))
        while sent < goal:
            start, sent = sent, min(goal, sent + rng.randint(1, BLOCK_BYTES))
            self._may_be(Version(whole[:sent], self.now[0].at_least))
            await out.write(whole[start:sent])
            if rng.random() < 0.5:
                synced = rng.random() >= 0.7
                receipt = await (out.hsync() if synced else out.hflush())
                self.counts["hsyncs" if synced else "hflushes"] += 1
                if receipt.size != sent:
                    self.world.mistake(f"a flush of {sent} bytes acknowledged {receipt.size}")
                self._may_be(Version(whole[:sent], sent))
        if rng.random() < 0.8:
            await out.close()
            self._may_be(Version(whole[:sent], sent))
            self._file.closed = True
            self.counts["appends"] += 1

    async def _truncate(self, fs: AsyncClient, rng: random.Random) -> None:
        whole, *_ = self.now
        length = rng.choice((0, len(whole.data), rng.randint(0, len(whole.data))))
        cut = Version(whole.data[:length], length)
        self._late = (*self._late, cut)
        self._may_be(whole, *self._late)
        await fs.truncate(self._file.path, length)
        self._may_be(cut)
        self.counts["truncates"] += 1

    async def _rename(self, fs: AsyncClient, rng: random.Random) -> None:
        path = self._file.path
        other = PATHS[1 - PATHS.index(path)]
        self._moving = True
        await fs.rename(path, other)
        self._file.path, self._moving = other, False
        self.counts["renames"] += 1

    async def _delete(self, fs: AsyncClient, _: random.Random) -> None:
        self._deleting = True
        await fs.delete(self._file.path)
        self._is_gone()
        self._deleting = False
        self.counts["deletes"] += 1

    # -- what became of it ------------------------------------------------------------------------

    async def _settle(self) -> None:
        """Find out under which name the file is, end it, and see which version it became."""
        async with self.cluster.new_client() as fs:
            while not await self._is_settled(fs):
                await self.world.loop.pass_time(0.5)

    async def _is_settled(self, fs: AsyncClient) -> bool:
        try:
            found = [path for path in PATHS if await fs.exists(path)]
            if not found and self._moving:  # it may have come to the one behind us
                found = [path for path in PATHS if await fs.exists(path)]
            if not found:
                self._is_gone()
                return True
            (self._file.path,) = found
            length = await fs.take_over(self._file.path)
            async with await fs.open(self._file.path) as opened:
                data = await opened.read()
            stat = await fs.stat(self._file.path)
        except (NotFoundError, ValueError):
            return False  # a rename that was asked for long ago came about just now
        except PaxosBlockError as error:
            self.counts[f"not settled {type(error).__name__}"] += 1
            return False
        self._moving, sizes = False, {length, stat.size, len(data)}
        if len(sizes) > 1 and any(len(one.data) in sizes for one in self._late):
            return False  # a cut that was asked for long ago came about just now
        if not any(version.allows(data) for version in self.now):
            self.world.mistake(f"the file is {_told(data)}, not {' or '.join(map(str, self.now))}")
        if len(sizes) > 1:
            self.world.mistake(f"ended with {length} bytes, stat {stat.size}, read {len(data)}")
        self._late = tuple(one for one in self._late if len(one.data) < len(data))
        self._may_be(Version(data, len(data)), *self._late)
        self._file.closed = True
        return True

    def _is_gone(self) -> None:
        if not self._deleting and any(version.at_least for version in self.now):
            self.world.mistake(f"the file is gone; looked for at {', '.join(PATHS)}")
        self._may_be(Version(b"", 0))
        self._begun, self._late = False, ()

    # -- readers ----------------------------------------------------------------------------------

    async def _watch(self) -> None:
        rng = random.Random(self.rng.random())
        async with self.cluster.new_client() as fs:
            while not self.over:
                try:
                    async with asyncio.timeout(PATIENCE_S):
                        await self.check(fs, self._file)
                except PaxosBlockError as error:
                    self.counts[f"reader refused {type(error).__name__}"] += 1
                except TimeoutError:
                    self.world.mistake(f"a reader waits longer than {PATIENCE_S:g} s")
                await self.world.loop.pass_time(rng.uniform(0.05, 1.5))

    async def check(self, fs: AsyncClient, file: File) -> None:
        """Read the file to its end: it is the beginning of a version that was possible meanwhile.

        Raises what the client does.
        """
        began, moving = len(self.history) - 1, self._moving
        try:
            async with await fs.open(file.path) as opened:
                data = await opened.read()
        except NotFoundError:
            if not (moving or self._moving) and self.history[began][0].at_least:
                self.counts["reader not found"] += 1
            return
        possible = [version for moment in self.history[began:] for version in moment]
        if not any(version.data.startswith(data) for version in possible):
            self.world.mistake(f"read {_told(data)}, possible: {'; '.join(map(str, possible))}")
        at_least = min(version.at_least for version in possible)
        if len(data) < at_least:
            self.world.mistake(f"read {len(data)} bytes, {at_least} were acknowledged before")
        self.counts["bytes read"] += len(data)


def _told(data: bytes) -> str:
    return f"{len(data)} bytes, CRC {zlib.crc32(data):08x}"
