"""Blows to the folders of NameNodes: bits that flip, files that are cut, maps that are damaged, and
power that goes in the middle of what a NameNode does first.

A member that is down whose vote, journal or table is damaged refuses to start, or has forgotten
nothing. Then an operator replaces the folders of all as `docs/operations.md` says: the one that
leads is stopped last, once all others that answered showed its term, and has what all get.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from paxosblock.errors import CorruptionError
from paxosblock.namenode.raft.raft_node import RaftNode
from paxosblock.namenode.raft.store import ReplicatedStore
from tests.disks.simulated import Burns, SimulatedDisk
from tests.lives.namenodes import RAFT, Seat
from tests.raft.members import node_of

if TYPE_CHECKING:
    from tests.lives.life import Life

DAMAGED: Final = ("vote", "journal-", "snapshot-")
"""Beginnings of the names of the files that a member needs to have forgotten nothing."""
WITHIN_S: Final = 30.0
"""Of one blow: that a member is back, or its map is there again."""


class Folders:
    """The blows in the life of one seed, one at a time: a minority suffers."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self.rng = random.Random(f"{life.seed} folders")
        self.namenodes = life.cluster.namenodes

    async def run(self, until_s: float) -> None:
        """Let them fall now and then."""
        blows = [self._cut_power_again]
        if len(self.namenodes.seats) > 1:
            blows += [self._find_damage, self._damage]
        while self.life.loop.now < until_s:
            await self.life.loop.pass_time(self.rng.uniform(3, 20))
            leading = self.namenodes.leading()
            if leading is not None and not self.life._namenode_suffers:
                self.life._namenode_suffers = True
                seat = self.rng.choice((leading, *self.namenodes.seats))
                await self.rng.choice(blows)(seat)
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
                    {path: data for path, data in files.items() if path.is_relative_to(RAFT)}
                )
        for each in self.namenodes.seats:
            if each.host is None and (same or each is not lost):
                self.namenodes.start(each)
        return same


def _node(seat: Seat) -> RaftNode | None:
    if seat.node is None:
        return None
    store = seat.node._store
    assert isinstance(store, ReplicatedStore)
    return node_of(store) if store._node is not None else None
