"""One seed: a cluster, clients, and everything that can go wrong, in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from paxosblock.errors import CorruptionError, PaxosBlockError
from paxosblock.namenode.kv.interface import Edit
from paxosblock.namenode.raft.member_folder import Limits
from paxosblock.namenode.raft.options import Options
from tests.raft.changing_lists import Operator, newest_list
from tests.raft.checks import Checker
from tests.raft.clients import Client, History
from tests.raft.linearizability import UndecidedError, is_linearizable
from tests.raft.lost_folders import Doors
from tests.raft.members import Member, Members
from tests.raft.simulated_network import Weather
from tests.raft.virtual_time import VirtualTimeLoop, spread

CLIENTS = 4
FAULTS_S = 6.0
HEALING_S = 8.0
PATIENCE_S = 30.0
PAUSE_S = 1.5
FULL_DISKS_EVERY = 8
DAMAGE_EVERY = 8
LOST_EVERY = 8
CHANGED_EVERY = 8
"""In one of so many seeds disks run full, too, tables are damaged, folders are lost, or the
list of members changes; the others run as they would without that fault."""
MESSAGES_MAX = 300_000
RATES = (0.3, 0.7, 1.0, 1.0, 1.4, 3.0)
"""Rates at which a member's clock may go."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a seed: `violations` is empty when every rule held."""

    seed: int
    violations: tuple[str, ...]
    counts: Counter[str] = field(default_factory=Counter)


@contextmanager
def virtual_loop() -> Iterator[VirtualTimeLoop]:
    """A fresh loop; what is left on it is cancelled."""
    loop = VirtualTimeLoop()
    asyncio.set_event_loop(loop)
    try:
        yield loop
    finally:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        asyncio.set_event_loop(None)
        loop.close()


def options_of(rng: random.Random) -> Options:
    """Sizes small enough that every limit is reached, times as in a fast cluster."""
    low = rng.choice((0.15, 0.2, 0.4))
    return Options(
        heartbeat_s=0.05,
        election_min_s=low,
        election_max_s=low * rng.choice((1.05, 1.5, 3.0)),
        commit_timeout_s=rng.choice((0.5, 5.0)),
        away_after_s=low,
        append_entries_max=rng.choice((1, 2, 1024)),
        append_window=rng.choice((1, 4)),
        append_full=rng.choice((1, 3)),
        apply_entries_max=(turn := rng.choice((1, 3, 256))),
        forget_entries_max=turn,
        snapshot_chunk_bytes=rng.choice((64, 1024, 1 << 18)),
        limits=Limits(
            segment_bytes=rng.choice((200, 2000, 1 << 20)),
            flush_bytes=rng.choice((300, 1500, 1 << 30)),
            trailing_entries=rng.choice((0, 3, 10)),
        ),
    )


class Simulation:
    """The run of one seed."""

    def __init__(
        self,
        seed: int,
        loop: VirtualTimeLoop,
        faults: bool = True,
        doors: type[Doors] = Doors,
    ) -> None:
        self.rng = random.Random(seed)
        self.loop = loop
        self.seed = seed
        self.faults = faults
        self.storm = faults and seed % 4 == 3
        self.standstill = faults and seed % 8 == 2
        size = self.rng.choice((3, 3, 3, 5, 5, 1, 2, 4))
        if self.storm or self.standstill:
            size = 5 if self.storm else 3
        loses = faults and seed % LOST_EVERY == 4
        if loses:
            size = 5 if size > 3 else 3
        addresses = tuple(f"n{number}:1" for number in range(size))
        self.members = Members(loop, self.rng, options_of(self.rng), addresses)
        self.checker: Checker = self.members.checker
        if loses:
            self.members.doors = doors(self.members, random.Random(f"{seed}/doors"))
        self.operator: Operator | None = None
        if faults and seed % CHANGED_EVERY == 1 and size > 2:
            self.operator = Operator(self.members, random.Random(f"{seed}/operator"))
        self._set_clocks()
        self.history = History()
        slowest = self.rng.choice((0.001, 0.01, 0.03, 0.12))
        disk_rng = random.Random(self.rng.random())
        loop.disk_delay = lambda: spread(disk_rng, 0.0002, slowest)

    def _set_clocks(self) -> None:
        """In some lives the clocks differ by more than the time-outs allow for."""
        if self.faults and self.rng.random() < 0.4:
            for member in self.members.every.values():
                self.members.set_rate(member, self.rng.choice(RATES))

    async def run(self) -> Outcome:
        for address in self.members.addresses:
            self.members.start(self.members.every[address])
        work = [self.loop.create_task(client.run(FAULTS_S)) for client in self._clients()]
        work.append(self.loop.create_task(self._watch()))
        if self.faults:
            work.append(self.loop.create_task(self._break_things()))
        if self.faults and self.seed % FULL_DISKS_EVERY == 5:
            work.append(self.loop.create_task(self._fill_disks()))
        if self.faults and self.seed % DAMAGE_EVERY == 6 and len(self.members.addresses) > 2:
            work.append(self.loop.create_task(self._damage_tables()))
        if self.members.doors is not None:
            work.append(self.loop.create_task(self._lose_folders(self.members.doors)))
        if self.operator is not None:
            work.append(self.loop.create_task(self.operator.run(FAULTS_S)))
        try:
            async with asyncio.timeout(FAULTS_S + PATIENCE_S):
                await asyncio.gather(*work)
        except TimeoutError:
            self.checker.violated("answers", "a client waits for ever")
        await self._heal()
        self._check_history()
        self.checker.found += self.loop.lost
        return Outcome(self.seed, tuple(self.checker.found), self._counts())

    def _clients(self) -> list[Client]:
        return [
            Client(
                f"c{n}", self.loop, random.Random(f"{self.seed}/{n}"), self.members, self.history
            )
            for n in range(CLIENTS)
        ]

    def _counts(self) -> Counter[str]:
        counts = self.checker.counts
        for member in self.members.up():
            self.members.count(member.node, member.disk)
        counts["answered"] = self.history.answered
        counts["read at followers"] = self.history.read_at_followers
        counts["messages"] = self.members.network.sent
        return counts

    async def _watch(self) -> None:
        while self.loop.now < FAULTS_S:
            await self.loop.pass_time(0.1)
            self.checker.check_logs(each.node for each in self.members.up())
            if self.members.network.sent > MESSAGES_MAX:
                self.checker.violated("economy", f"{MESSAGES_MAX} messages were sent")
                raise RuntimeError(self.checker.found[-1])

    # -- faults ---------------------------------------------------------------------------------

    async def _break_things(self) -> None:
        self.members.blink = 0.3 if self.storm else self.rng.choice((0, 0, 0.2))
        self.members.stall = 0.04 if self.standstill else self.rng.choice((0, 0.001))
        while self.loop.now < FAULTS_S:
            if self.standstill:
                await self.loop.pass_time(1.0)
            elif self.storm:
                await self._contend()
            else:
                await self.loop.pass_time(self.rng.uniform(0.05, 1.0))
                self._break_one_thing()

    async def _fill_disks(self) -> None:
        """Disks without room for a while, of one member or several."""
        rng = random.Random(f"{self.seed}/full")
        while self.loop.now < FAULTS_S:
            await self.loop.pass_time(rng.uniform(0.05, 0.7))
            disk = rng.choice(list(self.members.every.values())).disk
            if self.seed % (2 * FULL_DISKS_EVERY) == 5:
                disk.full = not disk.full
                self.checker.counts["disks filled"] += disk.full
            else:  # what is kept for votes and for the beginning of a term is there
                roomy = disk.capacity_bytes is None
                disk.capacity_bytes = disk.used_bytes() if roomy else None
                self.checker.counts["disks filled"] += roomy

    async def _lose_folders(self, doors: Doors) -> None:
        """Folders of a minority are lost, at best while a member does not hear of the last changes
        and the others that know them are down."""
        rng = random.Random(f"{self.seed}/lost")
        while self.loop.now < FAULTS_S:
            await self.loop.pass_time(rng.uniform(0.2, 1.5))
            every = list(self.members.every.values())
            stale = rng.choice(every)
            self.members.network.partition({stale.address}, self.members.addresses)
            await self.loop.pass_time(rng.uniform(0.3, 1.0))
            lost = doors.lose_one()
            down = [each for each in every if each not in (stale, lost)][: len(every) // 2]
            for each in down if lost is not None else ():
                self.members.kill(each)
                self.loop.call_later(rng.uniform(0.5, 2.0), self.members.start, each)
            self.members.network.heal()
            for each in every:
                if each not in down:
                    self.members.start(each)

    async def _damage_tables(self) -> None:
        """A member finds damage in its table, whatever it does just then, and others have none."""
        rng = random.Random(f"{self.seed}/damage")
        while self.loop.now < FAULTS_S:
            await self.loop.pass_time(rng.uniform(0.05, 1.0))
            if members := self.members.up():
                victim = rng.choice(members)
                victim.host.call(self, self._find_damage, victim)

    def _find_damage(self, victim: Member) -> None:
        """Damage one table, not two at once: what a majority has lost, no member brings back."""
        if victim.up and not any(each.node.damage for each in self.members.up()):
            victim.node.found_damage(CorruptionError("simulated"))
            self.checker.counts["tables damaged"] += 1

    def _break_one_thing(self) -> None:
        rng, members = self.rng, self.members
        victim = rng.choice(list(members.every.values()))
        match rng.randrange(17):
            case 0:
                group = rng.sample(members.addresses, rng.randint(1, len(members.addresses)))
                members.network.partition(set(group), members.addresses)
            case 1:
                members.network.cut.add((rng.choice(members.addresses), victim.address))
            case 2:
                leading = [each.address for each in members.leaders()]
                members.network.partition(set(leading), members.addresses)
            case 3 | 4:
                members.network.heal()
            case 5:
                members.network.weather = self._weather()
            case 6:
                self._restart(victim)
            case 7 | 10 | 11 | 12:  # only this shows who promised what its disk did not have
                for member in members.every.values():
                    self._restart(member)
            case 8:
                members.light_fuse(victim)
                self.loop.call_later(rng.uniform(0.1, 1.5), members.start, victim)
            case 13 | 14 | 15:
                for each in rng.choice(([victim], members.leaders())):
                    members.pause(each, rng.uniform(0.05, PAUSE_S))
            case _:
                self._hand_over(victim)

    def _weather(self) -> Weather:
        rng = self.rng
        late_s = rng.choice((0.1, 1.0, 3.0))
        return Weather(rng.uniform(0, 0.2), rng.uniform(0, 0.3), rng.uniform(0, 0.2), late_s)

    def _restart(self, victim: Member) -> None:
        self.members.kill(victim)
        self.loop.call_later(self.rng.uniform(0.001, 0.8), self.members.start, victim)

    def _hand_over(self, victim: Member) -> None:
        async def hand_over(leader: Member) -> None:
            try:
                await leader.host.ask(leader.store.hand_over(victim.address, 0.5))
            except PaxosBlockError:
                self.checker.counts["hand-overs failed"] += 1
            else:
                self.checker.counts["hand-overs"] += 1

        for leader in self.members.leaders():
            self.loop.create_task(hand_over(leader))

    async def _contend(self) -> None:
        """Elections on purpose, with repeated and late messages: voting bugs show only here."""
        rng = self.rng
        self.members.network.weather = Weather(0.05, 0.5, 0.5, rng.choice((0.05, 0.3, 1.0)))
        await self.loop.pass_time(rng.uniform(0.005, 0.25))
        followers = [each for each in self.members.up() if not each.store.is_leader()]
        for member in rng.sample(followers, min(len(followers), rng.randint(1, 3))):
            member.host.call(self, _stand, member)
        if rng.random() < 0.1:
            self._restart(rng.choice(list(self.members.every.values())))

    # -- the end --------------------------------------------------------------------------------

    async def _heal(self) -> None:
        """Without faults there is progress, and all come to the same state."""
        self.members.blink = self.members.stall = 0.0
        self.members.network.heal()
        for member in self.members.every.values():
            member.disk.light(0)
            self.members.set_rate(member, 1.0)
            member.disk.full, member.disk.capacity_bytes = False, None
            self.members.start(member)
            if member.process is not None:
                member.host.resume()
        try:
            async with asyncio.timeout(HEALING_S if self.members.doors is None else 3 * HEALING_S):
                await self._have_folders()
                while not await self._agreed():
                    await self.loop.pass_time(0.05)
        except TimeoutError:
            self.checker.violated("progress", f"none: {[each.node for each in self.members.up()]}")
        self.checker.check_logs(each.node for each in self.members.up())

    async def _have_folders(self) -> None:
        """Let the operator replace what was lost, and start the members that were refused."""
        doors = self.members.doors
        while doors is not None:
            lost = any(map(doors.is_lost, self.members.every.values()))
            if not lost and len(self.members.up()) == len(self.members.every):
                return
            if lost and self.checker.leaders and await doors.replace_all():
                continue
            for member in self.members.every.values():
                self.members.start(member)
            await self.loop.pass_time(0.5)

    async def _agreed(self) -> bool:
        for leader in self.members.leaders():
            try:
                edit = Edit(puts=((b"last", b""),))
                await leader.host.ask(leader.store.commit(edit))
            except PaxosBlockError:
                return False
            await self.loop.pass_time(0.3)
            listed = self._listed()
            there = [each for each in self.members.up() if each.address in listed]
            views = [list(each.store.view().scan(b"", b"")) for each in there]
            return len(views) == len(listed) and all(each == views[0] for each in views)
        return False

    def _listed(self) -> list[str]:
        """The members that must agree: those of the list, but for those whose folders are lost."""
        if self.operator is None:
            return list(self.members.every)
        newest = newest_list([each.node for each in self.members.up()])
        return [name for name in newest if not self.members.every[name].lost]

    def _check_history(self) -> None:
        for key, operations in self.history.operations.items():
            try:
                if not is_linearizable(operations):
                    self.checker.violated("linearizability", f"no order explains key {key!r}")
            except UndecidedError:
                self.checker.counts["undecided"] += 1


def _stand(member: Member) -> None:
    if member.up and not member.store.is_leader():
        member.node.guarded(member.node.state.to_candidate)()


def simulate(seed: int, faults: bool = True, doors: type[Doors] = Doors) -> Outcome:
    """Run one seed; the same seed runs the same way."""
    with virtual_loop() as loop:
        try:
            return loop.run_until_complete(Simulation(seed, loop, faults, doors).run())
        except RuntimeError as error:
            return Outcome(seed, (str(error),))
