"""Commands of an operator with the wrong options: DataNodes that are started in the name of another
one or with a volume less, and ones that are upgraded and rolled back alone.

What is promised (docs/operations.md): a DataNode with volumes of another name refuses, and changes
nothing; one that was rolled back by itself is believed by no NameNode. And whatever is done,
nothing that was acknowledged is lost: that is what the users of a life look at.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from paxosblock.datanode.volumes import volume_snapshot
from tests.disks.simulated import SimulatedDisk
from tests.lives.checks import Held
from tests.lives.cluster import Machine
from tests.lives.volumes import Volumes, taken

if TYPE_CHECKING:
    from tests.lives.life import Life

WITHIN_S: Final = 30.0
REFUSED_FOR_S: Final = 3.0
"""Seconds for which a DataNode that was rolled back tries to be believed."""


class WrongFlags:
    """The commands in the life of one seed."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self.rng = random.Random(f"{life.seed} flags")
        self._volumes = Volumes(life)

    async def run(self, until_s: float) -> None:
        """Give some to DataNodes now and then."""
        commands = self._other_name, self._volume_left_out, self._upgrade
        deck: list[Callable[[Machine], Awaitable[None]]] = []
        while self.life.loop.now < until_s:
            await self.life.loop.pass_time(self.rng.uniform(2, 15))
            machine = self._volumes.one_that_rests()
            if machine is None or machine.disk.full:
                continue  # an upgrade needs room
            if self.life.loop.now < until_s:
                self.life.spared.append(machine)
                machine.disk.light(0)
                deck = deck or self.rng.sample(commands, len(commands))
                command = deck.pop()
                if self.life.may_cut or command != self._upgrade:
                    await command(machine)
                self.life.spared.remove(machine)

    async def _until(self, done: Callable[[], bool], what: str) -> None:
        end_s = self.life.loop.now + WITHIN_S
        while not done():
            if self.life.loop.now > end_s:
                self.life.world.mistake(f"{what}: not within {WITHIN_S:g} s")
                return
            await self.life.loop.pass_time(0.1)

    async def _other_name(self, machine: Machine) -> None:
        """Start it in the name of another DataNode, if a cluster took its volumes: before that they
        have promised nothing, and may come in by any name."""
        if not all(taken(machine.disk, each) for each in machine.folders):
            return
        self._volumes.kill(machine)
        files = machine.disk.files()
        other = self.rng.choice(
            [each for each in self.life.cluster.machines if each is not machine]
        )
        self.life._happens("DataNode started wrongly", machine.name, "--id", other.name)
        machine.may_refuse = True
        self.life.cluster.start(machine, called=other.name)
        await self._until(lambda: bool(machine.refusal), f"{machine.name} refuses")
        machine.may_refuse = False
        if machine.node is not None or machine.disk.files() != files:
            self.life.world.mistake(f"{machine.name} works as {other.name}")
        self.life.cluster.kill(machine)
        self._volumes.start(machine)

    async def _volume_left_out(self, machine: Machine) -> None:
        """Start it with one of its two volumes, and later with both."""
        left_out = self.rng.choice(machine.folders)

        def lost(held: Held) -> bool:
            return held.machine is machine and held.folder == left_out

        if not self.life._may_lose(lost):
            return
        self._volumes.kill(machine)
        self.life._happens("DataNode started wrongly", machine.name, "without", left_out.name)
        checker = self.life.checker
        left = {block for block, there in checker.held.items() if any(map(lost, there.values()))}
        checker.loses(lost)
        others = tuple(each for each in machine.folders if each != left_out)
        self.life.cluster.start(machine, folders=others)
        checker.rebase()
        await self.life.loop.pass_time(self.rng.uniform(0.5, 12))
        self._volumes.kill(machine)
        # A block that came to the other volume meanwhile is there twice, and one of the two counts.
        twice = [
            one
            for block in left
            for one in checker.held.get(block, {}).values()
            if one.machine is machine
        ]
        checker.loses(lambda held: any(held is one for one in twice))
        self._volumes.start(machine)
        checker.rebase()

    async def _upgrade(self, machine: Machine) -> None:
        """Start it with --upgrade; later end that, or roll it back, which no other node does."""
        self._volumes.kill(machine)
        self.life._happens("DataNode upgraded", machine.name)
        self.life.cluster.start(machine, upgrade=True)
        self.life.spared.remove(machine)
        await self.life.loop.pass_time(self.rng.uniform(1, 15))
        self.life.spared.append(machine)
        if machine not in self._volumes.resting() or machine.broken or machine.disk.full:
            return
        machine.disk.light(0)

        def mine(held: Held) -> bool:
            return held.machine is machine

        # Whoever never knew of the upgrade believes what is rolled back, and may.
        known = bool(self._volumes.where_known(machine.address))
        if self.rng.random() < 0.5 or not known or not self.life._may_lose(mine):
            volume_snapshot.finalize(machine.disk, machine.folders)
            self.life.counts["upgrades finalized"] += 1
            return
        self._volumes.kill(machine)
        self.life._happens("DataNode rolled back", machine.name)
        self.life.checker.loses(mine)
        machine.strange = True
        volume_snapshot.roll_back(machine.disk, machine.folders)
        self.life.cluster.start(machine)
        self.life.checker.rebase()
        end_s = self.life.loop.now + REFUSED_FOR_S
        while self.life.loop.now < end_s:
            await self.life.loop.pass_time(0.1)
            if self._volumes.where_known(machine.address):
                self.life.world.mistake(
                    f"{machine.name} was rolled back by itself, and is believed"
                )
                break
        self.life.cluster.kill(machine)
        machine.disk, machine.strange = SimulatedDisk(), False
        self._volumes.start(machine)
        self.life.checker.rebase()
