"""The blows of chance to the machines, disks, networks and NameNodes of a cluster."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection
from typing import Final

from paxosblock.protocol.types import BlockId
from tests.disks.power_cut import File
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
ONE_CLOCK_CHANCE: Final = 0.7
LEADER_CHANCE: Final = 0.8
"""That what happens to a NameNode happens to the one that leads."""
ELECTED_WITHIN_S: Final = 4.0
SECOND_CHANCE: Final = 0.4
"""That something else happens to another NameNode, too, so that none serves for a while."""
AGAIN_CHANCE: Final = 0.2
"""That the power goes in the middle of what a process does first."""
INSIDE_CHANCE: Final = 0.6
"""That a process ends between two steps of what it does, not while it waits."""


class Trouble:
    """The blows in the life of one seed, and what comes back after them."""

    def __init__(
        self, seed: int, world: World, *, signed: bool = False, history_s: float = 0.0
    ) -> None:
        self.seed = seed
        self.world = world
        self.loop = world.loop
        self.rng = random.Random(world.rng.random())
        world.network.mistake = world.mistake
        namenodes = NAMENODES[seed % len(NAMENODES)]
        self.cluster = Cluster(world, RACKS, namenodes, signed=signed, history_s=history_s)
        self.checker = Checker(world, self.cluster)
        self.counts: Counter[str] = Counter()
        self._namenode_suffers = False
        """One of them at a time: a minority, where there are several."""
        self.truce = False
        """Nothing happens to nodes and networks: the life waits until all are up."""
        self.in_safe_mode = 0
        """Number of operators who are in safe mode, and will leave it."""
        self.spared: list[Machine] = []
        """Machines to which nothing happens for a while."""
        self._no_loss_before_s = 0.0
        self.owed: list[Callable[[], None]] = []
        """Losses for which it was too early."""
        self.full_when_lost: random.Random | None = None
        """The chance that, when a machine is lost, the disk of another one has no room."""
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

    def _victim(self, among: Collection[Machine] | None = None) -> Machine | None:
        """Return a machine that others can do without for a while, of these, if some are named."""
        up = self._up()
        staying = [each for each in up if not each.leaving and not self._in_maintenance(each)]
        found = up if among is None else [each for each in up if each in among]
        if len(staying) <= NODES_MIN or not found:
            return None
        machine = self.rng.choice(found)
        return None if machine in self.spared else machine

    def _in_maintenance(self, machine: Machine) -> bool:
        return self.loop.now < machine.maintained_until_s

    def _end_process(self) -> None:
        self._go_down(self._victim(), power_cut=False)

    def _cut_power(self) -> None:
        self._go_down(self._victim(), power_cut=True)

    def _go_down(
        self,
        machine: Machine | None,
        *,
        power_cut: bool,
        again: bool = False,
        inside: bool | None = None,
    ) -> None:
        """Now, or `inside` of what it does with its disk next; None: by chance."""
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

        if inside is None:
            inside = again or self.rng.random() < INSIDE_CHANCE
        if inside:
            machine.disk.light(self.rng.randint(1, 40), self.rng.choice((*Burns,)), happen)
        else:
            happen()

    def _fill_disk(self) -> None:
        """There is no room for a while, of what is written half fits."""
        machine = self._victim()
        if machine is not None:
            self._fill_disk_of(machine, self._about(1.0, 6.0))

    def _fill_disk_of(self, machine: Machine, for_s: float) -> None:
        self._happens("disk full", machine.name)
        disk = machine.disk
        disk.full = True

        def make_room() -> None:
            disk.full = machine.disk.full = False

        self._later(for_s, make_room)

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
        if machine is None:
            return
        if not self._may_lose(lambda held: held.machine is machine):
            self.owed.append(self._destroy)
            return
        self._happens("machine lost", machine.name)
        self.cluster.destroy(machine)

        def replace() -> None:
            self._happens("machine added", self.cluster.add_machine(machine.rack).name)

        self._later(self.rng.uniform(0, 20), replace)
        if (rng := self.full_when_lost) is not None and (others := self._up()):
            self._fill_disk_of(rng.choice(others), rng.uniform(1, 6))

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
            self.world.pairs.lasts(BETWEEN_LOSSES_S)
            machine.break_volume(folder)
        else:
            self.owed.append(self._break_volume)

    def _damage(self) -> None:
        """A bit of a block file flips, of its metadata, or of a small replica's chunk in the log
        that it shares, and no node is told."""
        found: dict[str, list[tuple[BlockId, Held, File, range]]] = {}
        for block, held in self.checker.may_damage():
            if held.place and held.file is not None:
                whole_file = len(held.place) == len(held.file.data)
                kind = "byte damaged" if whole_file else "byte of the log damaged"
                found.setdefault(kind, []).append((block, held, held.file, held.place))
            if held.meta is not None:
                place = range(len(held.meta.data))
                found.setdefault("metadata damaged", []).append((block, held, held.meta, place))
        if found:
            kind = self.rng.choice(sorted(found))  # there are few small replicas
            block, held, file, place = self.rng.choice(found[kind])
            self._happens(kind, held.machine.name, str(block))
            self.world.pairs.lasts(held.machine.scrub_period_s)
            damaged = self.rng.choice(place)
            file.data[damaged] ^= 1 << self.rng.randrange(8)
            file.settle()
            if file is held.meta:
                self.checker.damaged_meta[file, block] = bytes(file.data)
            else:
                self.checker.damaged[file, block] = damaged

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
        """The clocks on the walls of all, or that of one process, show another time for a while."""
        ahead_s = self.rng.choice((-JUMP_S, JUMP_S)) * self.rng.random()
        hosts = [each.host for each in self.cluster.machines]
        hosts += [each.host for each in self.cluster.namenodes.seats]
        host = self.rng.choice(hosts) if self.rng.random() < ONE_CLOCK_CHANCE else None
        whose = "of all" if host is None else "of one"
        self._happens("clock jumped", f"{whose} by {ahead_s:.1f} s")
        if host is None:
            self.world.wall_ahead_s = ahead_s
        else:
            self.counts["clock of one jumped"] += 1
            self.world.own_wall_ahead_s[host] = ahead_s

        def right() -> None:
            if host is None:
                self.world.wall_ahead_s = 0.0
            else:
                self.world.own_wall_ahead_s.pop(host, None)

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
        """Of the one that leads, mostly: with several, another one comes to lead meanwhile; unless
        something else happens to that one, too. No folder is lost by it, so nothing else is."""
        namenodes = self.cluster.namenodes
        leading = namenodes.leading()
        if self._namenode_suffers or leading is None:
            return
        seat = leading if self.rng.random() < LEADER_CHANCE else self.rng.choice(namenodes.seats)
        self._namenode_suffers = True
        if len(namenodes.seats) == 1:
            troubles = [self._kill_namenode]
        else:
            kinds = self._kill_namenode, self._stop_namenode, self._cut_namenode
            troubles = self.rng.sample(kinds, 2 if self.rng.random() < SECOND_CHANCE else 1)
            self.counts["leader killed"] += seat is leading and troubles[0] == self._kill_namenode
        others = [each for each in namenodes.seats if each is not seat and each.host is not None]
        victims = [seat, *self.rng.sample(others, min(len(others), len(troubles) - 1))]
        backs = [trouble(each) for trouble, each in zip(troubles, victims, strict=False)]
        self.counts["two NameNodes suffered"] += len(backs) > 1
        self._let_it_be_known()

        def end() -> None:
            self._namenode_suffers = False
            self._happens("NameNode back", *(each.address for each in victims))
            for back in backs:
                back()
            if len(backs) > 1 or len(namenodes.seats) == 1:
                self._let_it_be_known()

        self._later(self._about(0.1, 3.0, 8.0), end)

    def owed_now(self) -> Callable[[], None] | None:
        """Return a loss that was owed, if none is too early any more."""
        if self.owed and self.loop.now >= self._no_loss_before_s:
            return self.owed.pop(0)
        return None

    def _let_it_be_known(self) -> None:
        """Nothing more is lost before the leader of now can know what was lost before."""
        known_s = self.loop.now + ELECTED_WITHIN_S + BETWEEN_LOSSES_S
        self._no_loss_before_s = max(self._no_loss_before_s, known_s)

    def _kill_namenode(self, seat: Seat) -> Callable[[], None]:
        self._happens("NameNode killed", seat.address)
        self.cluster.namenodes.kill(seat, power_cut=self.rng.random() < 0.5)
        return lambda: self.cluster.namenodes.start(seat)

    def _stop_namenode(self, seat: Seat) -> Callable[[], None]:
        """It goes on later, and does not know that others decided meanwhile."""
        self._happens("NameNode stopped", seat.address)
        host = seat.host
        assert host is not None
        host.pause()
        return host.resume

    def _cut_namenode(self, seat: Seat) -> Callable[[], None]:
        self._happens("NameNode cut off", seat.address)
        self.cluster.namenodes.cut(seat)
        return self._heal_networks

    def _heal_networks(self) -> None:
        self.world.network.heal()
        self.cluster.namenodes.heal()
