"""Blows to the folders of NameNodes: bits that flip, files that are cut, maps that are damaged,
folders that are lost, copied, swapped and rolled back and then started with any flag, and power
that goes in the middle of what a NameNode does first.

A member that is down whose vote, journal or table is damaged refuses to start, or has forgotten
nothing. One with a lost folder, or that of another member, refuses, whatever its flag, or waits; it
never helps to elect a member. Then an operator replaces the folders of all as `docs/operations.md`
says: the one that leads is stopped last, once all others that answered showed its term, and has
what all get. An old folder of a member is put back only when all others have what it had: else it
is a loss that no node promises to notice.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from paxosblock.errors import CorruptionError
from paxosblock.namenode.raft.member_folder import OWNER
from paxosblock.namenode.raft.raft_node import RaftNode
from paxosblock.namenode.raft.store import ReplicatedStore
from tests.disks.simulated import Burns, SimulatedDisk
from tests.lives.first_starts import Flag
from tests.lives.namenodes import RAFT, Seat
from tests.raft.members import node_of

if TYPE_CHECKING:
    from tests.lives.life import Life

DAMAGED: Final = ("vote", "journal-", "db-")
"""Beginnings of the names of the files that a member needs to have forgotten nothing."""
WITHIN_S: Final = 30.0
"""Of one blow: that a member is back, or its map is there again."""
STRANGE_FOR_S: Final = 4.0
"""Seconds for which a folder that is none of the cluster's may wait for others, and try to come in.
"""
SETTLED_S: Final = 5.0
"""After so long no message is on its way any more that was sent before."""


class Folders:
    """The blows in the life of one seed, one at a time: a minority suffers."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self.rng = random.Random(f"{life.seed} folders")
        self.namenodes = life.cluster.namenodes

    async def run(self, until_s: float) -> None:
        """Let them fall now and then."""
        blows: list[Callable[[Seat], Awaitable[None]]] = [self._cut_power_again]
        if len(self.namenodes.seats) > 1:
            blows += [self._find_damage, self._damage, self._lose, self._swap, self._roll_back]
        deck: list[Callable[[Seat], Awaitable[None]]] = []
        while self.life.loop.now < until_s:
            await self.life.loop.pass_time(self.rng.uniform(1, 15))
            leading = self.namenodes.leading()
            if leading is not None and not self.life._namenode_suffers:
                self.life._namenode_suffers = True
                seat = self.rng.choice((leading, *self.namenodes.seats))
                deck = deck or self.rng.sample(blows, len(blows))  # so that each has its turn
                await deck.pop()(seat)
                self.life._let_it_be_known()
                self.life._namenode_suffers = False

    async def _until(self, done: Callable[[], bool], what: str) -> None:
        end_s = self.life.loop.now + WITHIN_S
        while not done():
            if self.life.loop.now > end_s:
                self.life.world.mistake(f"{what}: not within {WITHIN_S:g} s")
                return
            await self.life.loop.pass_time(0.1)

    def _kill(self, seat: Seat, *, power_cut: bool = False) -> None:
        self.life.checker.look()
        self.namenodes.kill(seat, power_cut=power_cut)
        self.life.checker.rebase()

    # -- power ------------------------------------------------------------------------------------

    async def _cut_power_again(self, seat: Seat) -> None:
        """Kill it, start it, and cut the power in the middle of what it does then."""
        self.life._happens("NameNode killed", seat.address)
        self._kill(seat)
        cut: list[float] = []

        def happen() -> None:
            self.life._happens("NameNode's power cut after a start", seat.address)
            seat.disk.die()
            self._kill(seat, power_cut=True)
            cut.append(self.life.loop.now)

        await self.life.loop.pass_time(self.rng.uniform(0, 2))
        seat.disk.light(self.rng.randint(1, 30), self.rng.choice((*Burns,)), happen)
        self.namenodes.start(seat)
        end_s = self.life.loop.now + 5
        while not cut and self.life.loop.now < end_s:
            await self.life.loop.pass_time(0.1)
        seat.disk.light(0)
        if cut:
            self.namenodes.start(seat)
        await self._until(lambda: seat.node is not None, f"{seat.address} starts")
        self.life._happens("NameNode back", seat.address)

    # -- damage -----------------------------------------------------------------------------------

    async def _find_damage(self, seat: Seat) -> None:
        """It reads damage in its map, and gets the map of the one that leads."""
        node = _node(seat)
        if node is None or seat.host is None:
            return
        self.life._happens("NameNode's map damaged", seat.address)
        seat.host.call(self, node.found_damage, CorruptionError("simulated"))
        await self.life.loop.pass_time(0.1)
        await self._until(lambda: node.damage is None, f"{seat.address} gets another map")

    async def _damage(self, seat: Seat) -> None:
        """Flip a bit of a file, or cut it, while the NameNode is down; replace all folders if it
        does not start then."""
        node = _node(seat)
        if node is None:
            return
        before = node.hard_state.term, node.log.durable_index
        self._kill(seat)
        what = self._flip_or_cut(seat.disk)
        self.life._happens("NameNode's file damaged", seat.address, what)
        seat.may_refuse = True
        self.namenodes.start(seat)
        await self._until(
            lambda: seat.node is not None or bool(seat.refusal), f"{seat.address} starts or refuses"
        )
        seat.may_refuse = False
        if seat.refusal:
            self.life.counts["damaged NameNodes refused to start"] += 1
            await self._replace(seat)
            return
        self.life.counts["damaged NameNodes started"] += 1
        node = _node(seat)
        if node is not None:
            after = node.hard_state.term, node.log.last_log_index
            if after[0] < before[0] or after[1] < before[1]:
                self.life.world.mistake(f"{seat.address}, {what}: knows {after}, {before} before")

    def _flip_or_cut(self, disk: SimulatedDisk) -> str:
        files = sorted(
            (path, file)
            for path, file in disk.names_now.items()
            if path.name.startswith(DAMAGED) and file.data
        )
        path, file = self.rng.choice(files)
        place = self.rng.randrange(len(file.data))
        if self.rng.random() < 0.5:
            file.data[place] ^= 1 << self.rng.randrange(8)
            what = f"bit flipped in byte {place} of {len(file.data)}"
        else:
            what = f"cut to {place} of {len(file.data)} bytes"
            del file.data[place:]
        file.settle()
        return f"{path.name} {what}"

    # -- folders that are none of the cluster's ---------------------------------------------------

    async def _lose(self, lost: Seat) -> None:
        """Lose its folder, and start it with each flag: beside one that was down for a while, when
        all others are down, and when they are up. Then replace the folders of all."""
        others = [each for each in self.namenodes.seats if each is not lost]
        stale, *fresh = self.rng.sample(others, len(others))
        if any(_node(each) is None for each in self.namenodes.seats):
            return
        self._kill(stale)
        await self.life.loop.pass_time(self.rng.uniform(0.5, 5))
        self.life._happens("NameNode's folder lost", lost.address)
        for each in (lost, *fresh):
            self._kill(each)
        lost.disk = SimulatedDisk()
        self.namenodes.start(stale)
        await self._start_wrongly(lost, alone=True)
        for each in fresh:
            self.namenodes.start(each)
        await self._until(lambda: self.namenodes.leading() is not None, "the others lead")
        await self._start_wrongly(lost, alone=False)
        await self._replace(lost)

    async def _start_wrongly(self, lost: Seat, *, alone: bool) -> None:
        """Start it with each flag. If `alone` with members that are no majority none may lead."""
        for flag in self.rng.sample((*Flag,), len(Flag)):
            self.life.world.note(f"{lost.address} without its folder starts {flag.value}")
            await self._must_stay_out(lost, flag, "its folder was lost", alone=alone)
            if lost.host is not None:
                self._kill(lost)

    async def _must_stay_out(
        self, seat: Seat, flag: Flag, why: str, *, alone: bool = False
    ) -> None:
        """Start it for a while, or until it refuses, as it must unless others are waited for."""
        seat.may_refuse = True
        self.namenodes.start(seat, flag)
        end_s = self.life.loop.now + (STRANGE_FOR_S if alone else WITHIN_S)
        while not seat.refusal and self.life.loop.now < end_s:
            await self.life.loop.pass_time(0.1)
            if seat.node is not None or (alone and self.namenodes.leading() is not None):
                self.life.world.mistake(f"{seat.address}, {why}: comes in with {flag}")
                break
        if not (alone or seat.refusal):
            self.life.world.mistake(f"{seat.address}, {why}: does not refuse {flag}")
        self.life.counts["NameNodes refused to start"] += bool(seat.refusal)
        seat.may_refuse = False

    async def _swap(self, seat: Seat) -> None:
        """Start it with a copy of the folder of another one, which goes on; then let the two have
        each other's folder."""
        other = self.rng.choice([each for each in self.namenodes.seats if each is not seat])
        await self._exchange([seat], other, "NameNode's folder copied")
        await self._exchange([seat, other], other, "NameNode folders swapped")

    async def _exchange(self, pair: list[Seat], other: Seat, what: str) -> None:
        """Start the first of `pair` with the folder of `other`, and that with the first one's if it
        is one of the pair; then all with their own."""
        seat = pair[0]
        if _node(seat) is None or _node(other) is None:
            return
        for each in pair:
            self._kill(each)
        own = [each.disk for each in pair]
        files = seat.disk.files(), other.disk.files()
        self.life._happens(what, seat.address, other.address)
        for each, theirs in zip(pair, reversed(files), strict=False):
            each.disk = SimulatedDisk(theirs)
            await self._must_stay_out(each, self.rng.choice((*Flag,)), "has another one's folder")
        for each, disk in zip(pair, own, strict=True):
            if each.host is not None:
                self._kill(each)
            each.disk = disk
            self.namenodes.start(each)
        await self._until(lambda: all(each.node is not None for each in pair), "both start")

    async def _roll_back(self, seat: Seat) -> None:
        """Put back an old folder, when all others have what it lacks, and replace all by the book.

        Until another one leads it lacks that: to a leader its answers look like late ones (L9).
        """
        if _node(seat) is None:
            return
        self._kill(seat)
        old = seat.disk.files()
        self.namenodes.start(seat)
        await self.life.loop.pass_time(self.rng.uniform(2, 15))
        if not self._others_have_all(seat):
            return
        self._kill(seat)
        end_s = self.life.loop.now + SETTLED_S
        while self.life.loop.now < end_s:
            await self.life.loop.pass_time(0.5)
        self.life._happens("NameNode's folder rolled back", seat.address)
        seat.disk = SimulatedDisk(old)
        self.namenodes.start(seat)
        await self._until(lambda: seat.node is not None, f"{seat.address} starts")
        await self.life.loop.pass_time(self.rng.uniform(0, 10))
        await self._replace(seat)

    def _others_have_all(self, seat: Seat) -> bool:
        """True if each other one knows its term, and that all of its entries are decided."""
        node = _node(seat)
        others = [_node(each) for each in self.namenodes.seats if each is not seat]
        return node is not None and all(
            each is not None
            and each.hard_state.term >= node.hard_state.term
            and each.log.commit_index >= node.log.last_log_index
            for each in others
        )

    # -- replacing folders ------------------------------------------------------------------------

    async def _replace(self, lost: Seat) -> None:
        """Give all the folder of the one that leads."""
        self.life._happens("NameNode folders replaced", lost.address)
        while not await self._stopped_in_one_term(lost):
            await self.life.loop.pass_time(1.0)
        self.life.checker.rebase()
        await self._until(
            lambda: all(seat.node is not None for seat in self.namenodes.seats), "all start"
        )

    async def _stopped_in_one_term(self, lost: Seat) -> bool:
        leader = self.namenodes.leading()
        node = None if leader is None else _node(leader)
        if leader is None or node is None:
            return False
        term = node.hard_state.term
        if lost.host is not None:
            self._kill(lost)
        others = [each for each in self.namenodes.seats if each is not leader and each is not lost]
        for each in others:
            if each.host is not None:
                self._kill(each)
            await self.life.loop.pass_time(self.rng.uniform(0, 1))
            if leader.host is None or node.hard_state.term != term:
                break
        same = leader.host is not None and node.hard_state.term == term
        if same:
            self._kill(leader)
            files = leader.disk.files()
            for each in self.namenodes.seats:
                each.disk = SimulatedDisk(
                    {
                        path: data
                        for path, data in files.items()
                        if path.is_relative_to(RAFT) and path.name != OWNER
                    }
                )
        for each in self.namenodes.seats:
            if each.host is None and (same or each is not lost):
                self.namenodes.start(each)
        return same


def _node(seat: Seat) -> RaftNode | None:
    if seat.node is None:
        return None
    store = seat.node.store
    assert isinstance(store, ReplicatedStore)
    return node_of(store) if store._node is not None else None
