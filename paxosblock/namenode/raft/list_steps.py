"""The steps of a change of the list of NameNodes, as the leader takes them when it is asked.

Each call does what can be done now, and says how far the change is; the caller repeats it, at
another leader, too. Nothing but the list itself is kept of a change: until an entry has the new
list, nothing was changed, and a new member only listens.
"""

from __future__ import annotations

from dataclasses import dataclass

from paxosblock.api.namenode_list import ChangeNameNodes, ChangeStep, NameNodesChange
from paxosblock.errors import InvalidRequestError, UnavailableError
from paxosblock.namenode.raft.folder_admission import Admitted
from paxosblock.namenode.raft.http_transport import HttpTransport
from paxosblock.namenode.raft.leader import CAUGHT_UP_ENTRIES
from paxosblock.namenode.raft.roster import address_of, name_of
from paxosblock.namenode.raft.seed import Seeds
from paxosblock.namenode.raft.store import ReplicatedStore

MEMBERS_MIN = 2
RESIGN_S = 2.0
"""Seconds that another member may take to lead, before the leader is removed."""


@dataclass(frozen=True, slots=True)
class ListChanges:
    """Changes the list of this member's cluster."""

    store: ReplicatedStore
    seeds: Seeds
    transport: HttpTransport

    async def change(self, asked: ChangeNameNodes) -> NameNodesChange:
        """Take the next step.

        Raises:
            InvalidRequestError: the change makes no sense, or would leave too few that answer.
            UnavailableError: this member does not lead, or the list cannot be changed right now.
            OutcomeUnknownError: it may have been changed.
            NoSpaceError: disks are full.
        """
        await self.store.barrier()  # so that the list is that of the leader, not of one deposed
        if asked.add and asked.remove:
            raise InvalidRequestError("a change adds a NameNode, or removes one")
        if asked.add:
            return await self._add(asked.add)
        if asked.remove:
            return await self._remove(asked.remove)
        return self._answer(ChangeStep.DONE)

    async def _add(self, address: str) -> NameNodesChange:
        if self.store.roster.at(address) is not None:
            return await self._settled()
        name = self._newcomer(address)
        if name is None:
            return self._answer(ChangeStep.ABSENT)
        lacks = self.store.teach(name)
        if lacks is None or lacks > CAUGHT_UP_ENTRIES:
            return self._answer(ChangeStep.LEARNING, lacks)
        await self.store.change_list(self.store.roster.with_one(name))
        return self._answer(ChangeStep.DONE)

    def _newcomer(self, address: str) -> str | None:
        """Return the name of the new member: one that has the catalog, and is
        connected, or an empty folder that waits, which may fetch it now."""
        learning = self._learning().get(address)
        if learning is not None:
            return learning
        token = self.seeds.waits(address)
        if not token:
            return None
        name, (term, leader) = name_of(address, token), self.store.term_led()
        members = self.store.roster.voters
        born = self.seeds.lineage.born
        self.seeds.admit(address, Admitted(name, members, born, term, leader))
        return name

    def _learning(self) -> dict[str, str]:
        """Return the names, by address, of those that have the catalog and are not in the list.

        The first members have no token in their names: of these it is one that was removed.
        """
        listed = self.store.roster.voters
        return {
            address_of(name): name
            for name in self.transport.callers
            if name not in listed and name != address_of(name)
        }

    async def _remove(self, address: str) -> NameNodesChange:
        roster = self.store.roster
        name = roster.at(address)
        if name is None:
            return await self._settled()
        if len(roster.voters) <= MEMBERS_MIN:
            raise InvalidRequestError(
                f"nothing was changed: {','.join(self.store.members)} are all NameNodes, and"
                f" {MEMBERS_MIN} have to stay: add another one first"
            )
        if name == self.store.term_led()[1]:
            await self.store.resign(RESIGN_S)
            raise UnavailableError(
                f"{address} resigns before it is removed: ask the NameNode that leads next"
            )
        await self.store.change_list(roster.without(name))
        return self._answer(ChangeStep.DONE)

    async def _settled(self) -> NameNodesChange:
        """Answer that the list is as it was asked for, once that is committed."""
        await self.store.wait_list()
        return self._answer(ChangeStep.DONE)

    def _answer(self, step: ChangeStep, lacks: int | None = None) -> NameNodesChange:
        members = self.store.members
        waiting = {*self.seeds.waiting(), *self._learning()} - {*members}
        return NameNodesChange(
            members,
            self.store.leader() or "",
            self.store.silent(),
            step,
            lacks,
            tuple(sorted(waiting)),
        )
