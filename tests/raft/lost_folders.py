"""Members of the simulation whose folders are lost, and that are started with every flag.

A process is let in as the shipped one is: `check_member` looks at its folder, a newborn is born by
`next_step`, and one that joins asks each member (`may_join`). Questions are answered where the
simulated network is not cut; the files are on the simulated disks, so a crash may come at any of
them. An emptied folder has no way back but the operator's: all folders are replaced by that of
the member that leads, which is stopped last (docs/operations.md).
"""

from __future__ import annotations

import enum
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from paxosblock.errors import ConfigError
from paxosblock.namenode.raft.admissions_file import read_admissions
from paxosblock.namenode.raft.folder_admission import (
    AdmissionRefused,
    Born,
    FolderStatus,
    Lineage,
    Newborn,
    may_join,
    next_step,
)
from paxosblock.namenode.raft.member_folder import (
    OWNER,
    begin_newborn,
    check_member,
    make_member,
    read_lineage,
    write_newborn,
)
from paxosblock.namenode.raft.vote_file import NAME, ElectionVote
from tests.disks.simulated import SimulatedDisk

if TYPE_CHECKING:
    from tests.raft.members import Member, Members

FOLDER: Final = Path("/member")
ASK_AGAIN_S: Final = 0.1


class Flag(enum.Enum):
    """The flag that a member is started with."""

    PLAIN = ""
    NEW = "--new-cluster"
    JOIN = "--join"


@dataclass(slots=True)
class Doors:
    """Lets processes become members, or not."""

    members: Members
    rng: random.Random
    asking: dict[str, dict[str, FolderStatus]] = field(default_factory=dict)
    """The empty folders that asked each member to be let in."""
    _copies: set[str] = field(default_factory=set)
    """Members in whose folders that of another one was put."""

    def _flag(self, member: Member) -> Flag:
        """Return a flag: the right one for a cluster that begins, mostly that of a member that has
        been one; any for an empty folder."""
        names = member.disk.names(FOLDER)
        if not self.members.checker.leaders:
            return Flag.PLAIN if names else Flag.NEW
        if NAME in names and self.rng.random() < 0.9:
            return Flag.PLAIN
        return self.rng.choice(tuple(Flag))

    async def enter(self, member: Member) -> None:
        """Return when the process may take part.

        Raises:
            ConfigError: it may not.
        """
        flag, names = self._flag(member), member.disk.names(FOLDER)
        if flag is Flag.JOIN:
            await self._join(member)
            return
        own = check_member(
            FOLDER,
            member.address,
            self.members.addresses,
            new_cluster=flag is Flag.NEW,
            disk=member.disk,
        )
        if own is not None:
            await self._be_born(member, own)
        elif NAME in names and flag is Flag.NEW:
            self.members.checker.violated("admission", f"{member.address} is new once more")

    async def _be_born(self, member: Member, own: Newborn) -> None:
        everybody = tuple(sorted(self.members.addresses))
        while True:
            heard = {other.address: said for other, said in self._heard(member)}
            step = next_step(member.address, own, everybody, heard)
            match step:
                case Newborn():
                    write_newborn(member.disk, FOLDER, own := step)
                case Born(lineage):
                    make_member(member.disk, FOLDER, everybody, lineage, ElectionVote(0, None))
                    self.members.checker.counts["members born"] += 1
                    return
                case AdmissionRefused(why):
                    raise ConfigError(why)
            await self.members.loop.pass_time(ASK_AGAIN_S)

    async def _join(self, member: Member) -> None:
        """Ask all: only members of a cluster that grew let anybody in, and here is none."""
        if NAME in member.disk.names(FOLDER):
            raise ConfigError("--join: holds a member already")
        own = begin_newborn(member.disk, FOLDER)
        everybody = tuple(sorted(self.members.addresses))
        said = FolderStatus(everybody, token=own.token, chosen=own.chosen)
        for other in self._reached(member):
            lineage = read_lineage(other.disk, FOLDER)
            asking = self.asking.setdefault(other.address, {})
            asking[member.address] = said
            answer = may_join(
                lineage,
                other.address,
                everybody,
                admissions=read_admissions(other.disk, FOLDER),
                asking=asking,
                caller=member.address,
            )
            if lineage.name and answer is None:
                make_member(member.disk, FOLDER, everybody, lineage, ElectionVote(0, None))
                return
        raise ConfigError("--join: nobody lets it in")

    def _heard(self, member: Member) -> Iterator[tuple[Member, FolderStatus]]:
        everybody = tuple(sorted(self.members.addresses))
        for other in self._reached(member):
            lineage = read_lineage(other.disk, FOLDER)
            if lineage.name and NAME in other.disk.names(FOLDER):
                yield other, FolderStatus(everybody, lineage=lineage.name)
            elif (own := self._newborn(other)) is not None:
                yield other, FolderStatus(everybody, token=own.token, chosen=own.chosen)

    @staticmethod
    def _newborn(member: Member) -> Newborn | None:
        names = member.disk.names(FOLDER)
        return begin_newborn(member.disk, FOLDER) if "newborn" in names else None

    def _reached(self, member: Member) -> Iterator[Member]:
        """Yield the members whose processes are there to answer."""
        cut = self.members.network.cut
        for other in self.members.every.values():
            ways = (member.address, other.address), (other.address, member.address)
            there = other.process is not None and not other.disk.dead
            if other is not member and there and not other.host.paused and not cut & {*ways}:
                yield other

    # -- losing folders, and the operator ---------------------------------------------------------

    def is_lost(self, member: Member) -> bool:
        """Return if a member's folder is not that of a member."""
        return member.address in self._copies or NAME not in member.disk.names(FOLDER)

    def lose_one(self) -> Member | None:
        """Empty a folder, or put that of another member there, as long as a majority has theirs."""
        every = list(self.members.every.values())
        lost = [each for each in every if self.is_lost(each)]
        if not self.members.checker.leaders or 2 * (len(lost) + 1) >= len(every):
            return None
        victim = self.rng.choice([each for each in every if each not in lost])
        self.members.kill(victim)
        victim.disk = SimulatedDisk()
        self.members.checker.counts["folders lost"] += 1
        if self.rng.random() < 0.3:
            other = self.rng.choice([each for each in every if each not in (*lost, victim)])
            victim.disk = SimulatedDisk(other.disk.files())
            self._copies.add(victim.address)
        return victim

    async def replace_all(self) -> bool:
        """Give all members the folder of the one that leads; return if that is done."""
        for leader in self.members.leaders():
            node, term = leader.node, leader.node.hard_state.term
            for other in self.members.every.values():
                if other is not leader:
                    self.members.kill(other)
            await self.members.loop.pass_time(1.0)
            is_whole = node.log.durable_index == node.log.last_log_index
            if not leader.up or leader.node is not node or not is_whole:
                return False
            if node.hard_state.term != term:
                return False
            self.members.kill(leader)
            files = leader.disk.files()
            files.pop(FOLDER / OWNER, None)
            for each in self.members.every.values():
                each.disk = SimulatedDisk(files)
            self._copies.clear()
            self.members.checker.counts["folders replaced"] += 1
            return True
        return False


class OpenDoors(Doors):
    """The planted fault: an emptied folder is started as if it had been a member's."""

    async def enter(self, member: Member) -> None:
        """Make it a member of the lineage that the others have."""
        if self.is_lost(member) and self.members.checker.leaders:
            everybody = tuple(sorted(self.members.addresses))
            make_member(
                member.disk, FOLDER, everybody, Lineage("line", born=True), ElectionVote(0, None)
            )
            return
        await super().enter(member)
