"""An operator who changes the list of members while everything else goes wrong.

Servers wait with empty folders. Over and over one of them is added, or a member is removed, as
`admin namenodes` does it: it learns first, and the leader does not remove itself. Now and then the
folder of a member is lost, which stays down until it is removed. What was removed goes on running,
with the list that it knows, and may be restarted.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from paxosblock.errors import PaxosBlockError
from paxosblock.namenode.raft.raft_node import RaftNode
from paxosblock.namenode.raft.roster import name_of
from paxosblock.namenode.raft.store import ReplicatedStore
from tests.raft.virtual_time import Host

if TYPE_CHECKING:
    from tests.raft.members import Member, Members

SPARE = 4
LEARNS_FOR_S = 1.5
LACKS_MAX = 3


@dataclass(slots=True)
class Operator:
    """Changes the list; `spare` are the names of the servers that were never in it."""

    members: Members
    rng: random.Random
    spare: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.spare = [name_of(f"s{number}:1", f"{number}") for number in range(SPARE)]
        for name in self.spare:
            self.members.add(name)

    async def run(self, until_s: float) -> None:
        while self.members.loop.now < until_s:
            await self.members.loop.pass_time(self.rng.uniform(0.05, 0.5))
            for leader in self.members.leaders()[:1]:
                await self._change(leader)

    async def _change(self, leader: Member) -> None:
        """Lose a folder, remove a member, or add one; as an operator, who sees little, would."""
        host, store, roster = leader.host, leader.store, leader.node.roster
        gone = [name for name in roster.voters if self.members.every[name].lost]
        others = [name for name in roster.others(leader.address) if name not in gone]
        counts, few = self.members.checker.counts, len(roster.voters) <= 2
        try:
            if not (gone or few) and self.rng.random() < 0.2:
                self.lose(self.rng.choice(others))
            elif gone or len(roster.voters) > 4 or (not few and self.rng.random() < 0.4):
                wanted = roster.without(self.rng.choice(gone or others))
                await host.ask(store.change_list(wanted), 3.0)
                counts["members removed"] += 1
            elif self.spare:
                name = self.spare[0]
                await self._teach(host, store, name)
                self.spare.remove(name)
                await host.ask(store.change_list(roster.with_one(name)), 3.0)
                counts["members added"] += 1
        except (PaxosBlockError, TimeoutError):
            counts["changes failed"] += 1

    def lose(self, name: str) -> None:
        """Lose a member's folder for good."""
        victim = self.members.every[name]
        victim.lost = True
        self.members.kill(victim)
        self.members.checker.counts["folders lost"] += 1

    async def _teach(self, host: Host, store: ReplicatedStore, name: str) -> None:
        """Return once the server has caught up.

        Raises:
            TimeoutError: it has not.
        """

        async def teach() -> int | None:
            return store.teach(name)

        self.members.start(self.members.every[name])
        until_s = self.members.loop.now + LEARNS_FOR_S
        while (lacks := await host.ask(teach(), 1.0)) is None or lacks > LACKS_MAX:
            await self.members.loop.pass_time(0.05)
            if self.members.loop.now > until_s:
                raise TimeoutError


def newest_list(nodes: list[RaftNode]) -> tuple[str, ...]:
    """The list that the member with the longest log goes by."""
    last = max(nodes, key=lambda node: (node.log.last_log_term, node.log.last_log_index))
    return last.roster.voters
