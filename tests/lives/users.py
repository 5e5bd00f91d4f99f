"""Writers and readers of a simulated cluster, and what each file must hold."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from paxosblock import WriteOptions
from paxosblock.base.replacement import OnFailure, Replacement
from paxosblock.client.async_client import AsyncClient
from paxosblock.client.writing.file_writer import AsyncFileWriter
from paxosblock.errors import NotFoundError, PaxosBlockError
from paxosblock.protocol.types import Durability
from tests.lives.cluster import BLOCK_BYTES, Cluster
from tests.lives.world import World
from tests.services.content import content, first_difference

PATIENCE_S: Final = 120.0
"""Nothing that a user does may take longer, done or refused."""
FILES_MAX: Final = 12
DURABILITIES: Final = (Durability.DISK, Durability.MEMORY)


@dataclass(slots=True, eq=False)
class File:
    """A file as its users know it: its bytes are those of `content(path)`."""

    path: str
    replication: int
    durability: Durability = Durability.DISK
    sent: int = 0
    acknowledged: int = 0
    closed: bool = False
    """Its writer was told so: it has `sent` bytes."""
    rests: tuple[bytes, ...] = (b"",)
    """The bytes of files that were joined to it: one of these stands behind its own."""
    tails: tuple[bytes, ...] = (b"",)
    """All `rests` that it ever had, in the order in which it got them."""
    left: bool = False
    """Its writer is gone, and does not know what became of its last steps."""
    deleted: bool = False
    """A user asked for that."""
    joined_to: File | None = None
    """The file to whose end it was moved."""
    of_the_past: bool = False
    """A backup was brought back: another `File` is this one from then on, if there is any. What its
    users do to it still, and see of it, tells nothing."""

    def like(self, other: File) -> bool:
        """True if both had all the same bytes when they were closed."""
        same = (self.sent, self.rests) == (other.sent, other.rests)
        return same and self.closed and other.closed


FAR: Final = 1 << 40
"""More bytes than any file has."""


async def all_ended(world: World, running: list[asyncio.Task[None]], timeout_s: float) -> None:
    """Wait for users who have been told to end; one that does not, or failed, is a mistake."""
    await asyncio.wait(running, timeout=timeout_s)
    for task in running:
        if not task.done():
            world.mistake("a user waits for ever")
        elif task.exception() is not None:
            world.mistake(f"a user failed: {task.exception()!r}")


@asynccontextmanager
async def patiently(world: World, counts: Counter[str], who: str, step: str) -> AsyncIterator[None]:
    """Count the error of a step, as it may fail in bad weather; but it must end in time."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield
    except PaxosBlockError as error:
        counts[f"{who} {step} {type(error).__name__}"] += 1
    except TimeoutError:
        world.mistake(f"{step} waits longer than {PATIENCE_S} s")


async def until_done(world: World, what: Callable[[], Awaitable[object]]) -> None:
    """Do something in the quiet, again and again if it fails; it may be that nothing is there."""
    end_s = world.loop.now + PATIENCE_S
    while world.loop.now < end_s:
        try:
            await what()
        except NotFoundError:
            return
        except PaxosBlockError:
            await world.loop.pass_time(1.0)
        else:
            return
    world.mistake(f"in the quiet cannot be done: {what}")


Step = Callable[[AsyncClient, random.Random], Awaitable[None]]


@dataclass(slots=True)
class Users:
    """All users, and their files."""

    world: World
    cluster: Cluster
    rng: random.Random
    files: list[File] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    over: bool = False
    """They are to come to an end."""
    _running: list[asyncio.Task[None]] = field(default_factory=list)
    _made: int = 0
    _busy: list[File] = field(default_factory=list)
    """Files that somebody is at work on; he does not know yet what becomes of that."""

    def start(self, writers: int, readers: int) -> None:
        """Let them begin, each in a process of its own."""
        for step in [self._write] * writers + [self._read] * readers:
            rng = random.Random(self.rng.random())
            self._running.append(self.world.new_host().run(self._repeat(step, rng)))

    async def end(self) -> None:
        """Let each end what it has begun, and wait for that."""
        self.over = True
        await all_ended(self.world, self._running, 2 * PATIENCE_S)

    def alive(self) -> list[File]:
        """Return the files that no user asked to delete."""
        return [file for file in self.files if not file.deleted]

    # -- a backup ---------------------------------------------------------------------------------

    def must_have(self) -> set[str]:
        """Return the paths of files that no tool may call lost."""
        return {file.path for file in self.alive() if file.acknowledged or file.closed}

    def now(self) -> list[tuple[File, File]] | None:
        """Return the files, each with what is true of it at this moment."""
        return [(file, replace(file)) for file in self.files]

    def are_again(self, past: list[tuple[File, File]]) -> None:
        """A backup of that moment is brought back: names are as they were, blocks as they are.

        Files that were not there are gone. One that was changed since has what it had in the
        blocks that it had, and in the last of them perhaps what came since.
        """
        for file in self.files:
            file.of_the_past = True
        self.files = [self._again(file, then) for file, then in past]

    def _again(self, file: File, then: File) -> File:
        into = file
        while into.joined_to is not None:
            into = into.joined_to
        joins = into in self._busy and (into is not file or file.rests != (b"",))
        if into.deleted or then.deleted or joins:
            self.counts["files that were gone at a restore"] += 1
            return replace(then, deleted=True)
        same_bytes = replace(file, rests=then.rests).like(then) and file not in self._busy
        if same_bytes:
            self.counts["files that were the same at a restore"] += 1
            return replace(then)
        self.counts["files that were changed at a restore"] += 1
        sent = FAR if file in self._busy else file.sent
        return replace(then, sent=sent, closed=False, left=True)

    @contextmanager
    def _at_work(self, *files: File) -> Iterator[None]:
        self._busy += files
        try:
            yield
        finally:
            self._busy = [each for each in self._busy if each not in files]

    async def _repeat(self, step: Step, rng: random.Random) -> None:
        async with self.cluster.new_client() as fs:
            while not self.over:
                try:
                    async with asyncio.timeout(PATIENCE_S):
                        await step(fs, rng)
                except PaxosBlockError as error:
                    self.counts[f"refused {type(error).__name__}"] += 1
                except TimeoutError:
                    self.world.mistake(f"a user waits longer than {PATIENCE_S:g} s")
                await self.world.loop.pass_time(rng.uniform(0.05, 1.5))

    # -- writers ----------------------------------------------------------------------------------

    async def _write(self, fs: AsyncClient, rng: random.Random) -> None:
        if len(self.alive()) >= FILES_MAX:
            await rng.choice((self._delete, self._join, self._append))(fs, rng)
            return
        file = File(f"/f{self._made}", rng.choice((2, 3, 3)), rng.choice(DURABILITIES))
        self._made += 1
        self.files.append(file)
        try:
            with self._at_work(file):
                await self._write_file(fs, rng, file)
        finally:
            file.left = not file.closed

    async def _delete(self, fs: AsyncClient, rng: random.Random) -> None:
        file = rng.choice(self.alive())
        file.deleted = True
        await fs.delete(file.path)
        self.counts["files deleted"] += 1

    async def _join(self, fs: AsyncClient, rng: random.Random) -> None:
        """Move the blocks of one file to the end of another one."""
        closed = [each for each in self.alive() if each.closed and len(each.rests) == 1]
        # One to which another user appends may be longer by the time that it is moved.
        closed = [each for each in closed if each not in self._busy]
        if len(closed) < 2:
            return
        target, source = rng.sample(closed, 2)
        source.deleted, source.joined_to = True, target
        (before,) = target.rests
        joined = before + content(source.path, 0, source.sent) + source.rests[0]
        target.rests = (before, joined)
        target.tails += (joined,)
        with self._at_work(target):
            await fs.concat(target.path, [source.path])
        target.rests = (joined,)
        self.counts["files joined"] += 1

    async def _append(self, fs: AsyncClient, rng: random.Random) -> None:
        closed = [each for each in self.alive() if each.closed and each.rests == (b"",)]
        if not closed:
            return
        file = rng.choice(closed)
        with self._at_work(file):
            async with await fs.append(file.path) as out:
                if out.tell() != file.sent:
                    return  # another file was joined to it meanwhile
                file.closed = False
                await self._add(out, rng, file, file.sent + rng.randrange(BLOCK_BYTES))
        self.counts["files appended to"] += 1

    async def _write_file(self, fs: AsyncClient, rng: random.Random, file: File) -> None:
        goal = rng.choice((0, 1, rng.randrange(4 * BLOCK_BYTES)))
        creating = fs.create(
            file.path,
            replication=file.replication,
            durability=file.durability,
            options=WriteOptions(
                on_failure=rng.choice([*OnFailure]),
                replace_on_failure=rng.choice([*Replacement]),
                best_effort=True,
            ),
        )
        async with await creating as out:
            await self._add(out, rng, file, goal)
        self.counts["files written"] += 1

    async def _add(self, out: AsyncFileWriter, rng: random.Random, file: File, goal: int) -> None:
        """Write up to byte `goal`, and close the file."""
        while file.sent < goal:
            stop = min(goal, file.sent + rng.randint(1, BLOCK_BYTES))
            start, file.sent = file.sent, stop
            await out.write(content(file.path, start, stop))
            if rng.random() < 0.4:
                receipt = await out.hflush()
                file.acknowledged = receipt.size
            if rng.random() < 0.2:
                await self.world.loop.pass_time(rng.uniform(0, 5))
        await out.close()
        file.acknowledged, file.closed = file.sent, True

    # -- readers ----------------------------------------------------------------------------------

    async def _read(self, fs: AsyncClient, rng: random.Random) -> None:
        if files := self.alive():
            await self.check(fs, rng.choice(files))

    async def check(self, fs: AsyncClient, file: File) -> None:
        """Read a file to its end: all that was acknowledged before is there, and nothing else.

        Raises what the client does.
        """
        at_least, closed, rests, known = file.acknowledged, file.closed, file.rests, len(file.tails)
        try:
            async with await fs.open(file.path) as opened:
                data = await opened.read()
        except NotFoundError:
            if not (file.deleted or file.of_the_past) and (at_least or closed):
                self.world.mistake(f"{file.path} is not found")
            return
        self.counts["bytes read"] += len(data)
        if file.of_the_past:
            return
        possible = {*rests, *file.rests, *file.tails[known:]}
        if b"" in possible and len(data) <= file.sent:  # what is joined may not be there yet
            self._check(file, data, at_least, closed=closed)
        elif data not in {content(file.path, 0, file.sent) + rest for rest in possible}:
            sizes = sorted(file.sent + len(rest) for rest in possible)
            self.world.mistake(
                f"{file.path} is not what was joined: {len(data)} bytes, not {sizes}"
            )

    def _check(self, file: File, data: bytes, at_least: int, *, closed: bool) -> None:
        difference = first_difference(file.path, 0, data)
        if difference is not None:
            self.world.mistake(f"{file.path} differs at byte {difference}")
        if not at_least <= len(data) <= file.sent:
            told = f"{at_least} were acknowledged, {file.sent} sent{', closed' * closed}"
            self.world.mistake(f"{file.path} has {len(data)} bytes; {told}")
