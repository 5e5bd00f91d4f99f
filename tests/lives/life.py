"""One life: a cluster, its users, what happens to it by chance, and then a while of quiet."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from paxosblock.api.care import BALANCE, SET_ADMIN_STATE, AdminState, Balance, SetAdminState
from paxosblock.client.async_client import AsyncClient
from paxosblock.errors import PaxosBlockError
from paxosblock.protocol.types import BlockId
from tests.disks.simulated import ROOMY, Burns
from tests.lives.checks import Checker, Held, Where
from tests.lives.cluster import BLOCK_BYTES, Cluster, Machine
from tests.lives.namenodes import Seat
from tests.lives.network import Weather
from tests.lives.one_file import OneFile
from tests.lives.users import PATIENCE_S, Users
from tests.lives.world import World, new_world

RACKS: Final = ("/a", "/a", "/b", "/b", "/c", "/c")
NAMENODES: Final = (3, 1)
"""By seed; with three another one leads when something happens to the one that does."""
NODES_MIN: Final = 3
"""Nodes that are up, not to be left and not in maintenance, whatever happens."""
BETWEEN_LOSSES_S: Final = 9.0
"""From one loss for good to the next: a NameNode must know of the first, or it begins a block at
both, of which then too few members are left to tell that nothing was written."""
LEADER_CHANCE: Final = 0.8
"""That what happens to a NameNode happens to the one that leads."""
ELECTED_WITHIN_S: Final = 4.0
THRESHOLD: Final = BLOCK_BYTES / ROOMY
"""The distance of a storage's use from the mean that those allow who ask for balance."""
INSIDE_CHANCE: Final = 0.6
"""That a process ends between two steps of what it does, not while it waits."""
TROUBLE_S: Final = 75.0
LOOK_EVERY_S: Final = 0.25
WHOLE_WITHIN_S: Final = 200.0
"""Of quiet, in virtual time."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a life: `mistakes` is empty when everything held all the time, `unfinished`
    when all was whole after the quiet.
    """

    seed: int
    mistakes: tuple[str, ...]
    unfinished: tuple[str, ...]
    trace: tuple[str, ...] = field(repr=False)
    counts: Counter[str]


class Life:
    """The life of one seed."""

    def __init__(
        self, seed: int, world: World, make_users: Callable[..., Users | OneFile] = Users
    ) -> None:
        self.seed = seed
        self.world = world
        self.loop = world.loop
        self.rng = random.Random(world.rng.random())
        world.network.mistake = world.mistake
        self.cluster = Cluster(world, RACKS, NAMENODES[seed % len(NAMENODES)])
        self.checker = Checker(world, self.cluster)
        self.users = make_users(world, self.cluster, random.Random(world.rng.random()))
        self.counts: Counter[str] = Counter()
        self._admin = world.new_host()
        self._namenode_suffers = False
        """One of them at a time: a minority, where there are several."""
        self._no_loss_before_s = 0.0
        self._to_return: list[Callable[[], None]] = []
        """Calls that bring back, in the end at the latest, what is away."""

    async def run(self) -> Outcome:
        """Live to the end."""
        for seat in self.cluster.namenodes.seats:
            self.cluster.namenodes.start(seat)
        self.users.start(writers=2, readers=2)
        watching = self.loop.create_task(self._watch())
        await self._trouble()
        await self._heal()
        await self.users.end()
        await self._say_again()
        unfinished = await self._become_whole()
        watching.cancel()
        await self._read_all()
        counts = self.counts + self.users.counts + self.checker.counts
        mistakes, trace = tuple(self.world.mistakes), tuple(self.world.trace)
        return Outcome(self.seed, mistakes, unfinished, trace, counts)

    async def _watch(self) -> None:
        while True:
            await self.loop.pass_time(LOOK_EVERY_S)
            self.checker.look()

    # -- what happens -----------------------------------------------------------------------------

    async def _trouble(self) -> None:
        events: tuple[tuple[int, Callable[[], object]], ...] = (
            (3, self._end_process),
            (3, self._cut_power),
            (3, self._destroy),
            (2, self._break_volume),
            (3, self._damage),
            (1, self._fill_disk),
            (2, self._pause),
            (2, self._cut_off),
            (2, self._bad_weather),
            (3, self._slow_streams),
            (4, self._namenode_trouble),
            (3, self._set_replication),
            (1, self._take_over),
            (1, self._decommission),
            (1, self._recommission),
            (2, self._maintain),
            (2, self._balance),
        )
        deck: list[Callable[[], object]] = []
        while self.loop.now < TROUBLE_S:
            if not deck:  # so that each has its turn, and none too many
                deck = [event for weight, event in events for _ in range(weight)]
                self.rng.shuffle(deck)
            await self.loop.pass_time(
                self.rng.choice((0.05, 0.5, 2.0, 6.0)) * self.rng.random() * 2
            )
            self.checker.look()
            deck.pop()()
            self.checker.rebase()

    def _about(self, *seconds: float) -> float:
        """Return a random time, on the average one of these."""
        return self.rng.choice(seconds) * self.rng.uniform(0, 2)

    def _happens(self, what: str, *facts: str) -> None:
        self.counts[what] += 1
        self.world.note(" ".join((what, *facts)))

    def _later(self, seconds: float, do: Callable[[], None]) -> None:
        """Do it after so much time, or when the trouble ends."""

        def once() -> None:
            if once in self._to_return:
                self._to_return.remove(once)
                do()

        self._to_return.append(once)
        self.loop.in_world(seconds, once)

    def _up(self) -> list[Machine]:
        return [each for each in self.cluster.machines if each.node is not None]

    def _victim(self) -> Machine | None:
        """Return a machine that others can do without for a while."""
        up = self._up()
        staying = [each for each in up if not each.leaving and not self._in_maintenance(each)]
        return self.rng.choice(up) if len(staying) > NODES_MIN else None

    def _in_maintenance(self, machine: Machine) -> bool:
        return self.loop.now < machine.maintained_until_s

    def _end_process(self) -> None:
        self._go_down(self._victim(), power_cut=False)

    def _cut_power(self) -> None:
        self._go_down(self._victim(), power_cut=True)

    def _go_down(self, machine: Machine | None, *, power_cut: bool) -> None:
        """Now, or in the middle of what it does with its disk next."""
        if machine is None:
            return

        def happen() -> None:
            if machine.host is not None and machine in self.cluster.machines:
                self.checker.look()
                forgets = power_cut and self.checker.may_forget(machine)
                self._happens("power cut" if forgets else "process killed", machine.name)
                machine.disk.die()
                self.checker.kill(machine, power_cut=forgets)
                self._come_back(machine)
                self.checker.rebase()

        if self.rng.random() < INSIDE_CHANCE:
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

    # -- what an operator asks for ----------------------------------------------------------------

    def _set_replication(self) -> None:
        files = [file for file in self.users.alive() if file.closed]
        if files:
            recent = self.rng.choice((files, files[-2:]))  # whose members may lag behind
            file, count = self.rng.choice(recent), self.rng.choice((2, 3, 4))
            self._happens("setrep", file.path, str(count))
            self._ask(lambda fs: fs.set_replication(file.path, count))

    def _take_over(self) -> None:
        if files := [file for file in self.users.alive() if not file.closed]:
            file = self.rng.choice(files)
            self._happens("take over", file.path)
            self._ask(lambda fs: fs.take_over(file.path))

    def _decommission(self) -> None:
        machine = self._victim()
        if machine is not None and not machine.leaving:
            self._happens("decommission", machine.name)
            self.counts["members decommissioned"] += self.checker.holds_any(machine)
            machine.leaving = True
            self._ask(lambda fs: say_if_leaving(fs, machine))

    def _recommission(self) -> None:
        if leaving := [each for each in self.cluster.machines if each.leaving]:
            machine = self.rng.choice(leaving)
            self._happens("recommission", machine.name)
            machine.leaving = False
            self._ask(lambda fs: say_if_leaving(fs, machine))

    def _maintain(self) -> None:
        """A while without a node, told before; mostly it does go."""
        machine = self._victim()
        if machine is None or machine.leaving or self._in_maintenance(machine):
            return
        for_s, power_cut = self.rng.uniform(5, 25), self.rng.random() < 0.5
        self._happens("maintenance", machine.name)
        machine.maintained_until_s = self.loop.now + for_s

        async def maintain(fs: AsyncClient) -> None:
            await set_admin_state(fs, machine, AdminState.IN_MAINTENANCE, for_s)
            if self.loop.now < TROUBLE_S:
                self._go_down(machine, power_cut=power_cut)

        self._ask(maintain)

    def _balance(self) -> None:
        """Somebody asks for balance for a while, and leaves whether it is reached or not."""
        self._happens("balancer")
        balancer = f"balancer {self.counts['balancer']}"
        until_s = min(TROUBLE_S, self.loop.now + self.rng.uniform(2, 25))

        async def balance(fs: AsyncClient) -> None:
            moved: dict[str, int] = {}
            while self.loop.now < until_s:
                status = await fs._core.namenodes.call(BALANCE, Balance(balancer, THRESHOLD))
                self.counts["replicas moved"] += status.moved_blocks - moved.get(status.run, 0)
                moved[status.run] = status.moved_blocks
                await self.loop.pass_time(1.0)

        self._ask(balance)

    def _ask(self, what: Callable[[AsyncClient], Awaitable[object]]) -> None:
        """Ask, and go on without the answer."""

        async def ask() -> None:
            try:
                async with self.cluster.new_client() as fs:
                    await what(fs)
            except PaxosBlockError as error:
                self.counts[f"admin refused {type(error).__name__}"] += 1

        self._admin.run(ask())

    # -- the end ----------------------------------------------------------------------------------

    async def _heal(self) -> None:
        """All that may come back does; what is gone for good stays gone."""
        self.checker.look()
        for back in tuple(self._to_return):
            back()
        for machine in self.cluster.machines:
            machine.disk.light(0)
        self._heal_networks()
        self.checker.rebase()
        self._happens("quiet")

    async def _say_again(self) -> None:
        """Tell the NameNode once more who is to leave: it may not have heard."""

        async def say() -> None:
            async with self.cluster.new_client() as fs:
                for machine in self.cluster.machines:
                    while not await self._is_set(fs, machine):
                        await self.loop.pass_time(1.0)

        try:
            await self._admin.ask(say(), PATIENCE_S)
        except TimeoutError:
            down = [each.name for each in self.cluster.machines if each.node is None]
            self.world.mistake(f"an operator is not heard; not up are {down}")

    async def _is_set(self, fs: AsyncClient, machine: Machine) -> bool:
        try:
            await say_if_leaving(fs, machine)
        except PaxosBlockError:
            return False  # such as: it has not registered yet
        return True

    def _usable(self) -> frozenset[str]:
        return frozenset(each.name for each in self.cluster.machines if not each.leaving)

    async def _become_whole(self) -> tuple[str, ...]:
        """Wait until all is as it must be; return what is not, after so long."""
        end_s = self.loop.now + WHOLE_WITHIN_S
        while problems := self._unfinished():
            if self.loop.now > end_s:
                return tuple(problems)
            await self.loop.pass_time(1.0)
        self.counts["blocks whole"] += len(self.checker.blocks)
        self.world.note("all is whole")
        return ()

    def _unfinished(self) -> list[str]:
        if self.cluster.namenode is None:
            return ["the NameNode does not serve"]
        return self.checker.unfinished(self._usable())

    async def _read_all(self) -> None:
        """Every file, to its end, by somebody new."""

        async def read() -> None:
            async with self.cluster.new_client() as fs:
                for file in self.users.alive():
                    try:
                        await self.users.check(fs, file)
                    except PaxosBlockError as error:
                        self.world.mistake(f"{file.path} cannot be read: {error}")

        await self._admin.ask(read(), 10 * PATIENCE_S)


async def say_if_leaving(fs: AsyncClient, machine: Machine) -> None:
    """Say whether a machine is to leave; if it is not, it is in service, and in no maintenance."""
    admin = AdminState.DECOMMISSIONED if machine.leaving else AdminState.IN_SERVICE
    await set_admin_state(fs, machine, admin)


async def set_admin_state(
    fs: AsyncClient, machine: Machine, admin: AdminState, for_s: float = 0.0
) -> None:
    """Say it as `paxosblock admin decommission` and its like do."""
    await fs._core.namenodes.call_once(
        SET_ADMIN_STATE, lambda once: SetAdminState(machine.name, admin, for_s, once)
    )


def live(seed: int, *, one_file: bool = False) -> Outcome:
    """Live the life of `seed`; the same seed lives the same way. With `one_file` all users are
    about a single one."""
    with new_world(seed) as world:
        users = OneFile if one_file else Users
        return world.loop.run_until_complete(Life(seed, world, users).run())
