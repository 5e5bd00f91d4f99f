"""One block whose replicas move: a DataNode is asked to leave, then the file asks for fewer.

That is a copy, K12, and twice K13, P5 and D7, of which every step on every disk can be the last one
before a process ends, the power goes, or a disk is full.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import chain
from typing import Final

from paxosblock.client.async_client import AsyncClient
from paxosblock.errors import NotFoundError, PaxosBlockError
from tests.disks.simulated import Burns, SimulatedDisk
from tests.lives.checks import Checker
from tests.lives.cluster import Cluster, Machine
from tests.lives.life import say_if_leaving
from tests.lives.world import World, new_world
from tests.raft.virtual_time import Host
from tests.services.content import content

RACKS: Final = ("/a", "/a", "/b", "/b")
PATH: Final = "/block"
SIZE_BYTES: Final = 300
LOOK_EVERY_S: Final = 0.02
BACK_AFTER_S: Final = 0.5
FULL_FOR_S: Final = 3.0
PATIENCE_S: Final = 120.0


class Blow(enum.Enum):
    """An event in the middle of a step."""

    KILL = "kill"
    POWER_CUT = "power cut"
    FULL_DISK = "full disk"


@dataclass(frozen=True, slots=True)
class Hit:
    """A blow with the `step`-th change of a disk: that of a DataNode by its number, or (-1) of the
    NameNode.
    """

    victim: int
    step: int
    burns: Burns
    blow: Blow


@dataclass(frozen=True, slots=True)
class Told:
    """The result of a step: what broke a promise, what was not as it should be in the end, and how
    many changes each disk saw (the NameNode's last); `met` if the blow fell.
    """

    mistakes: tuple[str, ...]
    unfinished: tuple[str, ...]
    steps: tuple[int, ...]
    met: bool


class Story:
    """A cluster, its block, and perhaps a blow."""

    def __init__(self, world: World, hit: Hit | None) -> None:
        self.world = world
        world.network.mistake = world.mistake
        self.cluster = Cluster(world, RACKS)
        self.machines = tuple(self.cluster.machines)
        (self._seat,) = self.cluster.namenodes.seats
        self.checker = Checker(world, self.cluster)
        self.met = False
        self._hit = hit
        self._user: Host = world.new_host()

    async def tell(self) -> Told:
        """Let it happen."""
        loop = self.world.loop
        self._start_namenode()
        await self._until(lambda: all(each.node is not None for each in self.machines))
        await self._write()
        await self._until(lambda: not self._unfinished())
        begun = self._operations()
        self.checker.rebase()
        watching = loop.create_task(self._watch())
        self._arm()
        leaving = next(each for each in self.machines if self._holds(each))
        leaving.leaving = True
        await self._ask(lambda fs: say_if_leaving(fs, leaving))
        await self._until(lambda: not self._unfinished())
        await self._ask(lambda fs: fs.set_replication(PATH, 2))
        await self._until(lambda: not self._unfinished())
        watching.cancel()
        await self._read()
        steps = tuple(now - at for now, at in zip(self._operations(), begun, strict=True))
        unfinished = tuple(self._unfinished())
        return Told(tuple(self.world.mistakes), unfinished, steps, self.met)

    def _start_namenode(self) -> None:
        self.cluster.namenodes.start(self._seat)

    # -- the blow ---------------------------------------------------------------------------------

    def _arm(self) -> None:
        hit = self._hit
        if hit is None:
            return
        disk = self._disk(hit.victim)
        disk.light(hit.step, hit.burns, lambda: self._fall(hit, disk))

    def _disk(self, victim: int) -> SimulatedDisk:
        return self._seat.disk if victim < 0 else self.machines[victim].disk

    def _fall(self, hit: Hit, disk: SimulatedDisk) -> None:
        self.met = True
        self.checker.look()  # what comes to be on the disk of a process that is gone is not seen
        self.world.note(f"{hit.blow.value} of {hit.victim} at its change {hit.step}")
        power_cut = hit.blow is Blow.POWER_CUT
        if hit.blow is Blow.FULL_DISK:
            disk.full = True
            self._later(FULL_FOR_S, lambda: setattr(disk, "full", False))
        elif hit.victim < 0:
            disk.die()
            self.cluster.namenodes.kill(self._seat, power_cut=power_cut)
            self._later(BACK_AFTER_S, self._start_namenode)
        else:
            machine = self.machines[hit.victim]
            disk.die()
            self.checker.kill(machine, power_cut=power_cut)
            self._later(BACK_AFTER_S, lambda: self.cluster.start(machine))

    def _later(self, seconds: float, do: Callable[[], None]) -> None:
        self.world.loop.in_world(seconds, do)

    # -- looking ----------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            await self.world.loop.pass_time(LOOK_EVERY_S)
            self.checker.look()

    def _unfinished(self) -> list[str]:
        if self.cluster.namenode is None:
            return ["the NameNode does not serve"]
        return self.checker.unfinished(
            frozenset(each.name for each in self.machines if not each.leaving)
        )

    def _holds(self, machine: Machine) -> bool:
        held = chain.from_iterable(each.values() for each in self.checker.held.values())
        return any(each.machine is machine for each in held)

    def _operations(self) -> tuple[int, ...]:
        disks = [each.disk for each in self.machines]
        return tuple(disk.operations for disk in (*disks, self._seat.disk))

    async def _until(self, done: Callable[[], bool]) -> None:
        end_s = self.world.loop.now + PATIENCE_S
        while not done() and self.world.loop.now < end_s:
            await self.world.loop.pass_time(LOOK_EVERY_S)

    # -- the user ---------------------------------------------------------------------------------

    async def _write(self) -> None:
        async def write() -> None:
            async with self.cluster.new_client() as fs, await fs.create(PATH) as out:
                await out.write(content(PATH, 0, SIZE_BYTES))

        await self._user.ask(write(), PATIENCE_S)

    async def _ask(self, what: Callable[[AsyncClient], Awaitable[object]]) -> None:
        async def ask() -> None:
            async with self.cluster.new_client() as fs:
                while True:
                    try:
                        await what(fs)
                    except NotFoundError:  # a NameNode that has just begun knows no DataNode yet
                        await self.world.loop.pass_time(LOOK_EVERY_S)
                    else:
                        return

        try:
            await self._user.ask(ask(), PATIENCE_S)
        except PaxosBlockError as error:
            self.world.mistake(f"an operator is refused: {error!r}")
        if self.cluster.namenode is not None:  # its walk would come to the block, in half a minute
            for block in self.checker.blocks:
                self.cluster.namenode.monitor.look_at(block)

    async def _read(self) -> None:
        async def read() -> bytes:
            async with self.cluster.new_client() as fs, await fs.open(PATH) as file:
                return await file.read()

        if await self._user.ask(read(), PATIENCE_S) != content(PATH, 0, SIZE_BYTES):
            self.world.mistake("other bytes are read than were written")


def tell(hit: Hit | None = None, seed: int = 1) -> Told:
    """Tell the story, with a blow if there is one."""
    with new_world(seed) as world:
        return world.loop.run_until_complete(Story(world, hit).tell())


def every_hit(
    blows: tuple[Blow, ...], burns: tuple[Burns, ...], victims: tuple[int, ...]
) -> list[Hit]:
    """Return a hit for each step that each victim takes when nothing happens."""
    steps = tell().steps
    return [
        Hit(victim, step, burn, blow)
        for victim in victims
        for step in range(1, steps[victim] + 1)
        for burn in burns
        for blow in blows
    ]


def some(hits: list[Hit], count: int, seed: int) -> list[Hit]:
    """Return so many of them, by chance."""
    return random.Random(seed).sample(hits, min(count, len(hits)))
