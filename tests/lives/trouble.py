"""The blows of chance to the machines, disks, networks and NameNodes of a cluster."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Final

from paxosblock.protocol.types import BlockId
from tests.disks.simulated import Burns
from tests.lives.checks import Checker, Held, Where
from tests.lives.cluster import Cluster, Machine
from tests.lives.namenodes import Seat
from tests.lives.network import Weather
from tests.lives.world import World

RACKS: Final = ("/a", "/a", "/b", "/b", "/c", "/c")
NAMENODES: Final = (3, 1)
"""By seed; with three another one leads when something happens to the one that does."""
NODES_MIN: Final = 3
"""Nodes that are up, not to be left and not in maintenance, whatever happens."""
BETWEEN_LOSSES_S: Final = 9.0
"""From one loss for good to the next: a NameNode must know of the first, or it begins a block at
both, of which then too few members are left to tell that nothing was written."""
JUMP_S: Final = 30.0
"""The furthest that the clock on the wall jumps."""
LEADER_CHANCE: Final = 0.8
"""That what happens to a NameNode happens to the one that leads."""
ELECTED_WITHIN_S: Final = 4.0
AGAIN_CHANCE: Final = 0.2
"""That the power goes in the middle of what a process does first."""
INSIDE_CHANCE: Final = 0.6
"""That a process ends between two steps of what it does, not while it waits."""


class Trouble:
    """The blows in the life of one seed, and what comes back after them."""

    def __init__(self, seed: int, world: World) -> None:
        self.seed = seed
        self.world = world
        self.loop = world.loop
        self.rng = random.Random(world.rng.random())
        world.network.mistake = world.mistake
        self.cluster = Cluster(world, RACKS, NAMENODES[seed % len(NAMENODES)])
        self.checker = Checker(world, self.cluster)
        self.counts: Counter[str] = Counter()
        self._namenode_suffers = False
        """One of them at a time: a minority, where there are several."""
        self.truce = False
        """Nothing happens to nodes and networks: somebody waits until all are up."""
        self.in_safe_mode = 0
        """Number of operators who are in safe mode, and will leave it."""
        self.spared: list[Machine] = []
        """Machines to which nothing happens for a while."""
        self._no_loss_before_s = 0.0
        self._to_return: list[Callable[[], None]] = []
        """Calls that bring back, in the end at the latest, what is away."""

    def _about(self, *seconds: float) -> float:
        """Return a random time, on the average one of these."""
        return self.rng.choice(seconds) * self.rng.uniform(0, 2)

    def _happens(self, what: str, *facts: str) -> None:
        self.counts[what] += 1
        self.world.pairs.fault(what)
        self.world.note(" ".join((what, *facts)))

    def _later(self, seconds: float, do: Callable[[], None]) -> None:
        """Do it after so much time, or when the trouble ends."""

        def once() -> None:
            if once in self._to_return:
                self._to_return.remove(once)
                do()

        self.world.pairs.lasts(seconds)
        self._to_return.append(once)
        self.loop.in_world(seconds, once)

    def make_truce(self) -> None:
        """Let all that may come back do so, and nothing more happen."""
        self.truce = True
        self.checker.look()
        for back in tuple(self._to_return):
            back()
        for machine in self.cluster.machines:
            machine.disk.light(0)
        self._heal_networks()
        self.checker.rebase()

    def end_truce(self) -> None:
        """Let things happen again."""
        self.truce = False
        self.checker.rebase()
        self._let_it_be_known()

    def _up(self) -> list[Machine]:
        return [each for each in self.cluster.machines if each.node is not None]

    def _victim(self) -> Machine | None:
        """Return a machine that others can do without for a while."""
        up = self._up()
        staying = [each for each in up if not each.leaving and not self._in_maintenance(each)]
        if len(staying) <= NODES_MIN:
            return None
        machine = self.rng.choice(up)
        return None if machine in self.spared else machine

    def _in_maintenance(self, machine: Machine) -> bool:
        return self.loop.now < machine.maintained_until_s

    def _end_process(self) -> None:
        self._go_down(self._victim(), power_cut=False)

    def _cut_power(self) -> None:
        self._go_down(self._victim(), power_cut=True)

    def _go_down(self, machine: Machine | None, *, power_cut: bool, again: bool = False) -> None:
        """Now, or in the middle of what it does with its disk next."""
        if machine is None or self.truce or machine in self.spared:
            return

        def happen() -> None:
            if machine.host is not None and machine in self.cluster.machines:
                self.checker.look()
                forgets = power_cut and self.checker.may_forget(machine)
                self._happens("power cut" if forgets else "process killed", machine.name)
                self.counts["power cut after a start"] += forgets and again
                machine.disk.die()
                self.checker.kill(machine, power_cut=forgets)
                self._come_back(machine)
                self.checker.rebase()

        if again or self.rng.random() < INSIDE_CHANCE:
            machine.disk.light(self.rng.randint(1, 40), self.rng.choice((*Burns,)), happen)
        else:
            happen()

    def _fill_disk(self) -> None:
        """There is no room for a while, of what is written half fits."""
        machine = self._victim()
        if machine is not None:
            self._happens("disk full", machine.name)
            disk = machine.disk
            disk.full = True

            def make_room() -> None:
                disk.full = machine.disk.full = False

            self._later(self._about(1.0, 6.0), make_room)

    def _come_back(self, machine: Machine) -> None:
        def back() -> None:
            if machine in self.cluster.machines and machine.host is None:
                self._happens("process started", machine.name)
                self.cluster.start(machine)
                if self.rng.random() < AGAIN_CHANCE:
                    self._go_down(machine, power_cut=True, again=True)

        self._later(self._about(0.2, 3.0, 15.0), back)

    def _destroy(self) -> None:
        """It never comes back; an empty one does, in its rack."""
        machine = self._victim()
        if machine is None or not self._may_lose(lambda held: held.machine is machine):
            return
        self._happens("machine lost", machine.name)
        self.cluster.destroy(machine)

        def replace() -> None:
            self._happens("machine added", self.cluster.add_machine(machine.rack).name)

        self._later(self.rng.uniform(0, 20), replace)

    def _may_lose(self, lost: Where) -> bool:
        """True if this may be lost for good now; then it is."""
        known = self.cluster.namenode is not None and self.loop.now >= self._no_loss_before_s
        if not known or not self.checker.survives(lost):
            return False
        self._no_loss_before_s = self.loop.now + BETWEEN_LOSSES_S
        return True

    def _break_volume(self) -> None:
        machine = self._victim()
        if machine is None or machine.broken:
            return
        folder = self.rng.choice(machine.folders)

        def lost(held: Held) -> bool:
            return held.machine is machine and held.folder == folder

        if self._may_lose(lost):
            self._happens("volume failed", machine.name, folder.name)
            machine.break_volume(folder)

    def _damage(self) -> None:
        """A bit of a block file flips, or of a small replica's chunk in the log that it shares, and
        nobody is told."""
        found: dict[str, list[tuple[BlockId, Held]]] = {}
        for block, held in self.checker.may_damage():
            if held.place and held.file is not None:
                whole_file = len(held.place) == len(held.file.data)
                kind = "byte damaged" if whole_file else "byte of the log damaged"
                found.setdefault(kind, []).append((block, held))
        if found:
            kind = self.rng.choice(sorted(found))  # there are few small replicas
            block, held = self.rng.choice(found[kind])
            assert held.file is not None
            self._happens(kind, held.machine.name, str(block))
            held.file.data[self.rng.choice(held.place)] ^= 1 << self.rng.randrange(8)
            held.file.settle()
            self.checker.damaged.add((held.file, block))

    def _pause(self) -> None:
        machine = self._victim()
        if machine is not None and (host := machine.host) is not None and not host.paused:
            self._happens("process stopped", machine.name)
            host.pause()
            self._later(
                self.rng.uniform(0.1, 9), lambda: host.resume() if machine.host is host else None
            )

    def _cut_off(self) -> None:
        machine = self._victim()
        if machine is not None and machine.host is not None:
            self._happens("cut off", machine.name)
            self.world.network.cut(machine.host)
            self._later(self.rng.uniform(0.5, 9), self._heal_networks)

    def _jump_clock(self) -> None:
        """The clocks on the walls of all show another time for a while."""
        self._happens("clock jumped")
        self.world.wall_ahead_s = self.rng.choice((-JUMP_S, JUMP_S)) * self.rng.random()

        def right() -> None:
            self.world.wall_ahead_s = 0.0

        self._later(self._about(1.0, 6.0), right)

    def _bad_weather(self) -> None:
        self._happens("bad weather")
        self.world.network.weather = Weather(lost=0.03, late=0.05)
        self._later(self.rng.uniform(1, 8), self._heal_networks)

    def _slow_streams(self) -> None:
        """Make streams take seconds for a while, so that copies overlap with all that happens."""
        self._happens("streams slow")
        self.world.network.weather = Weather(late=0.6, late_s=3.0)
        self._later(self.rng.uniform(4, 16), self._heal_networks)

    def _namenode_trouble(self) -> None:
        """Of the one that leads, mostly: with several, another one comes to lead meanwhile."""
        namenodes = self.cluster.namenodes
        leading = namenodes.leading()
        if self._namenode_suffers or leading is None:
            return
        seat = leading if self.rng.random() < LEADER_CHANCE else self.rng.choice(namenodes.seats)
        self._namenode_suffers = True
        several = len(namenodes.seats) > 1
        trouble = self.rng.choice((self._kill_namenode, self._stop_namenode, self._cut_namenode))
        if not several:
            trouble = self._kill_namenode
        self.counts["leader killed"] += (
            several and seat is leading and trouble == self._kill_namenode
        )
        back = trouble(seat)
        self._let_it_be_known()

        def end() -> None:
            self._namenode_suffers = False
            self._happens("NameNode back", seat.address)
            back()
            if not several:
                self._let_it_be_known()

        self._later(self._about(0.1, 3.0, 8.0), end)

    def _let_it_be_known(self) -> None:
        """Nothing more is lost before whoever leads now can know what was lost before."""
        known_s = self.loop.now + ELECTED_WITHIN_S + BETWEEN_LOSSES_S
        self._no_loss_before_s = max(self._no_loss_before_s, known_s)

    def _kill_namenode(self, seat: Seat) -> Callable[[], None]:
        self._happens("NameNode killed", seat.address)
        self.cluster.namenodes.kill(seat, power_cut=self.rng.random() < 0.5)
        return lambda: self.cluster.namenodes.start(seat)

    def _stop_namenode(self, seat: Seat) -> Callable[[], None]:
        """It goes on later, and does not know that others decided meanwhile."""
        self._happens("NameNode stopped", seat.address)
        assert seat.host is not None
        seat.host.pause()
        return seat.host.resume

    def _cut_namenode(self, seat: Seat) -> Callable[[], None]:
        self._happens("NameNode cut off", seat.address)
        self.cluster.namenodes.cut(seat)
        return self._heal_networks

    def _heal_networks(self) -> None:
        self.world.network.heal()
        self.cluster.namenodes.heal()
