"""Several writers of one file, who take it from each other, stand still, and go on.

Each opens the file, by whatever policy for members that fail, adds bytes, flushes some, and closes
it, leaves it or dies. Some stand still for longer than a lease in the middle of that, and wake when
somebody else has gone on. What was acknowledged to anybody must stand where he put it, for ever,
unless a rival has asked since to cut the file there.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from paxosblock import WriteOptions
from paxosblock.api.rebuild import REBUILD_BLOCK
from paxosblock.base.replacement import OnFailure, Replacement
from paxosblock.client.async_client import AsyncClient
from paxosblock.client.writing.file_writer import AsyncFileWriter
from paxosblock.errors import (
    FencedError,
    LeaseError,
    NotFoundError,
    Outcome,
    PaxosBlockError,
)
from tests.lives.cluster import BLOCK_BYTES, Cluster
from tests.lives.users import PATIENCE_S, File, all_ended
from tests.lives.world import World
from tests.raft.virtual_time import Host
from tests.services.content import content

PATH: Final = "/shared"
LONGEST_STILL_S: Final = 40.0
LONGEST_SESSION_BYTES: Final = BLOCK_BYTES
CUT_CHANCE: Final = 0.2
LATE_S: Final = 120.0
"""After so long a cut that was asked for, and not answered, has been made or never will be."""
FAR: Final = 1 << 40
"""More bytes than the file has."""


@dataclass(slots=True, eq=False)
class Session:
    """One writer's turn at the file: its bytes stand from `start` on."""

    number: int
    start: int
    sent: int
    acknowledged: int
    cut: int = FAR
    """A rival has asked to cut the file here since it began: nothing is promised beyond."""
    of_the_past: bool = False
    """It began before a backup was brought back: nothing is promised beyond what `acknowledged` was
    at the backup, but its bytes may be there."""

    def bytes(self, stop: int) -> bytes:
        """Return what it put between its start and `stop`."""
        return content(str(self.number), 0, max(0, stop - self.start))


@dataclass(slots=True)
class Rivals:
    """The writers, and readers; stands where `Users` stands in a life."""

    world: World
    cluster: Cluster
    rng: random.Random
    counts: Counter[str] = field(default_factory=Counter)
    over: bool = False
    sessions: list[Session] = field(default_factory=list)
    _file: File = field(default_factory=lambda: File(PATH, 3))
    _begun: bool = False
    cuts: bool = True
    """Some cut the file: not between a backup and its return."""
    _cuts: dict[int, int] = field(default_factory=dict)
    """The lengths of cuts that were asked for, and may be made by now, or later; by number."""
    _asked: int = 0
    """Number of cuts that were asked for."""
    _restores: int = 0
    _still: list[Host] = field(default_factory=list)
    """Writers that stand still, and shall wake."""
    _left: list[AsyncFileWriter] = field(default_factory=list)
    _running: list[asyncio.Task[None]] = field(default_factory=list)

    def start(self, writers: int, readers: int) -> None:
        """Let them begin: there is one writer more than others have."""
        self.world.network.promises.hears.append(self._wake_by_rebuild)
        for step in [self._write] * (writers + 1) + [self._read] * readers:
            rng = random.Random(self.rng.random())
            self._running.append(self.world.new_host().run(step(rng)))

    async def end(self) -> None:
        """Let each end what it has begun, and wait for that."""
        self.over = True
        for host in tuple(self._still):
            self._wake(host)
        await all_ended(self.world, self._running, 4 * PATIENCE_S)
        for out in self._left:
            out._closed = True
        await self.world.new_host().ask(self._close())

    async def _close(self) -> None:
        """End the file as an operator does, so that its last block is decided."""
        async with self.cluster.new_client() as fs:
            end_s = self.world.loop.now + PATIENCE_S
            while self._begun and not self._file.closed:
                try:
                    await fs.take_over(PATH)
                    self._file.closed = True
                except NotFoundError:
                    self._begun = False  # it was never made
                    if any(each.acknowledged > each.start for each in self.sessions):
                        self.world.mistake(f"{PATH} is gone")
                except PaxosBlockError as error:
                    self.counts[f"not closed {type(error).__name__}"] += 1
                    if self.world.loop.now > end_s:
                        self.world.mistake(f"the file cannot be taken over: {error}")
                        return
                    await self.world.loop.pass_time(0.5)

    def alive(self) -> list[File]:
        """Return the file, once it is there."""
        return [self._file] if self._begun else []

    # -- a backup ---------------------------------------------------------------------------------

    def now(self) -> list[tuple[Session, int]] | None:
        """Return the writers' turns, each with what was acknowledged; None before the first."""
        return [(each, each.acknowledged) for each in self.sessions] or None

    def are_again(self, past: list[tuple[Session, int]]) -> None:
        """A backup of that moment is brought back: the file has what was acknowledged then, and in
        its last block perhaps what was sent since."""
        self._restores += 1
        self.cuts = True
        before = dict(past)
        for each in self.sessions:
            each.of_the_past = True
            each.acknowledged = before.get(each, each.start)
        self._file.closed = False

    def must_have(self) -> set[str]:
        """Return the paths of files that no tool may call lost."""
        return {PATH for each in self.sessions if each.acknowledged > each.start}

    # -- standing still ---------------------------------------------------------------------------

    def _stand_still(self, host: Host, rng: random.Random) -> None:
        """Do so a moment from now, for less or more than a lease."""

        def fall_asleep() -> None:
            if not self.over and not host.paused:
                self.counts["writers that stood still"] += 1
                host.pause()
                self._still.append(host)
                self.world.loop.in_world(rng.choice((3.0, 14.0, LONGEST_STILL_S)), self._wake, host)

        self.world.loop.in_world(rng.choice((0.002, 0.05, 0.5)) * rng.random(), fall_asleep)

    def _wake(self, host: Host) -> None:
        if host in self._still:
            self._still.remove(host)
            host.resume()

    def _wake_by_rebuild(self, asking: Host | None, method: str, _: object) -> None:
        """One that stands still wakes while another one's block is rebuilt, which is rare else."""
        if method == REBUILD_BLOCK.name:
            for host in self._still:
                if host is not asking and self.rng.random() < 0.7:
                    self.counts["woke during a rebuild"] += 1
                    self.world.loop.in_world(self.rng.uniform(0, 1.5), self._wake, host)

    # -- writers ----------------------------------------------------------------------------------

    async def _write(self, rng: random.Random) -> None:
        while not self.over:
            host = self.world.new_host()
            if rng.random() < 0.4:
                self.world.loop.in_world(rng.uniform(0, 3), self._stand_still, host, rng)
            doomed = rng.random() < 0.15
            patience_s = 4 * rng.random() if doomed else LONGEST_STILL_S + 2 * PATIENCE_S
            try:
                await host.ask(self._session(rng), patience_s)
            except FencedError:
                self.counts["sessions fenced"] += 1
            except PaxosBlockError as error:
                self.counts[f"refused {type(error).__name__}"] += 1
            except TimeoutError:
                self.counts["writers killed"] += doomed
                if not doomed:
                    self.world.mistake("a rival waits for ever")
                self._die(host)
            await self.world.loop.pass_time(rng.uniform(0.05, 2.0))

    def _die(self, host: Host) -> None:
        self._still = [each for each in self._still if each is not host]
        host.pause()
        self.world.network.unplug(host)

    async def _session(self, rng: random.Random) -> None:
        async with self.cluster.new_client() as fs:
            restores = self._restores
            out = await self._opened(fs, rng)
            self._left.append(out)
            late = restores < self._restores
            start, cut = out.tell(), min(self._cuts.values(), default=FAR)
            session = Session(len(self.sessions), start, start, start, cut, late)
            self.sessions.append(session)
            self._file.closed = False
            try:
                if self.cuts and rng.random() < CUT_CHANCE:
                    await self._cut(fs, rng)  # from under his own hands, or another one's
                await self._add(out, session, rng)
            except FencedError:
                await self._ask_again(out)
                raise

    async def _opened(self, fs: AsyncClient, rng: random.Random) -> AsyncFileWriter:
        way, replacing = rng.choice([*OnFailure]), rng.choice([*Replacement])
        best_effort = rng.random() < 0.5
        if not self._begun:
            self._begun = True
            return await fs.create(
                PATH,
                options=WriteOptions(
                    on_failure=way, replace_on_failure=replacing, best_effort=best_effort
                ),
            )
        if rng.random() < 0.6:
            try:
                await fs.take_over(PATH)
                self.counts["taken over"] += 1
            except (LeaseError, NotFoundError):
                pass
        try:
            return await fs.append(
                PATH,
                new_block=rng.random() < 0.1,
                options=WriteOptions(
                    on_failure=way, replace_on_failure=replacing, best_effort=best_effort
                ),
            )
        except NotFoundError:
            # Whoever was to make it was refused or killed: else none of them ever writes.
            self._begun = bool(self.sessions)
            raise

    async def _add(self, out: AsyncFileWriter, session: Session, rng: random.Random) -> None:
        goal = session.start + rng.choice((1, 40, rng.randrange(1, LONGEST_SESSION_BYTES)))
        while session.sent < goal:
            before = session.sent
            session.sent = min(goal, before + rng.randint(1, BLOCK_BYTES // 4))
            await out.write(session.bytes(session.sent)[before - session.start :])
            if rng.random() < 0.6:
                receipt = await (out.hflush() if rng.random() < 0.7 else out.hsync())
                self._acknowledge(session, receipt.size)
            await self.world.loop.pass_time(rng.choice((0.0, 0.2, 2.0)) * rng.random())
        if rng.random() < 0.6:
            await out.close()
            self._acknowledge(session, session.sent)
            self.counts["sessions closed"] += 1

    async def _cut(self, fs: AsyncClient, rng: random.Random) -> None:
        """Take the file over from its writer, and cut it."""
        longest = max((each.acknowledged for each in self.sessions), default=0)
        length = max(0, longest - rng.randrange(BLOCK_BYTES))
        number, self._asked = self._asked, self._asked + 1
        self._cuts[number] = length
        self.world.loop.in_world(LATE_S, self._cuts.pop, number, None)
        for each in self.sessions:
            each.cut = min(each.cut, length)
            each.acknowledged = max(each.start, min(each.acknowledged, length))
        try:
            await fs.take_over(PATH)
            await fs.truncate(PATH, length)
        except PaxosBlockError as error:
            self.counts[f"not cut {type(error).__name__}"] += 1
            if error.outcome is not Outcome.NEVER:
                return
        else:
            self.counts["cuts"] += 1
        del self._cuts[number]

    async def _ask_again(self, out: AsyncFileWriter) -> None:
        """A writer that was told "fenced" is not acknowledged any more."""
        try:
            await out.write(b"late")
            receipt = await out.hflush()
        except PaxosBlockError:
            self.counts["refused again"] += 1
        else:
            self.world.mistake(f"a fenced writer's flush of {receipt.size} bytes is acknowledged")

    def _acknowledge(self, session: Session, length: int) -> None:
        if length != session.sent:
            self.world.mistake(f"a flush of {session.sent} bytes acknowledged {length}")
        self.counts["acknowledged"] += 1
        if session.of_the_past:
            return
        session.acknowledged = max(session.start, min(length, session.cut))
        for other in self.sessions:
            start = max(session.start, other.start)
            stop = min(session.acknowledged, other.acknowledged)
            if other is not session and start < stop:
                self.world.mistake(
                    f"bytes {start} to {stop} were acknowledged to writers "
                    f"{session.number} and {other.number}"
                )

    # -- readers ----------------------------------------------------------------------------------

    async def _read(self, rng: random.Random) -> None:
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
        """Read the file to its end: all that was acknowledged before stands where it was put, and
        every byte was put there by a writer.

        Raises what the client does.
        """
        known, restores = [(each, each.acknowledged) for each in self.sessions], self._restores
        try:
            async with await fs.open(file.path) as opened:
                data = await opened.read()
        except NotFoundError:
            gone = any(stop > each.start for each, stop in known)
            if gone and restores == self._restores:
                self.world.mistake(f"{file.path} is not found")
            return
        if restores < self._restores:
            return
        for each, before in known:
            stop = min(before, each.acknowledged)
            if stop > each.start and data[each.start : stop] != each.bytes(stop):
                self.world.mistake(
                    f"of {len(data)} bytes read, {each.start} to {stop} are not those that were "
                    f"acknowledged to writer {each.number}"
                )
        strange = self._never_sent(data)
        if strange is not None:
            self.world.mistake(f"byte {strange} of {len(data)} was never sent to that place")
        self.counts["bytes read"] += len(data)

    def _never_sent(self, data: bytes) -> int | None:
        """Return the first place whose byte no writer sent to be there; None: each was sent."""
        unknown = set(range(len(data)))
        for each in self.sessions:
            stop = min(each.sent, len(data))
            sent, found = each.bytes(stop), data[each.start : stop]
            if sent == found:
                unknown.difference_update(range(each.start, stop))
            else:
                same = (
                    at for at, pair in enumerate(zip(sent, found, strict=True)) if len({*pair}) == 1
                )
                unknown.difference_update(each.start + at for at in same)
        return min(unknown, default=None)
