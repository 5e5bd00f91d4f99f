"""Every order of our commands, used wrongly, with crashes, lost and copied folders of the members.

What decides is the shipped code (`folder_admission.py`); around it stand folders, processes and the
least of Raft: a leader needs the votes of a majority of running members of its lineage, none of
whom has a longer log; what it acknowledges is in the folders of a majority. All that is durable is
a folder; a process has only what it heard in its round of questions, or who asked it. A lost folder
never comes back, unless `saved` is put back.

The commands that make or change a folder:

    namenode --peers --new-cluster, --join     any of them at any folder, with a wrong list, too
    namenode (without --peers), admin grow     an empty folder gets a new catalog, and then members
    admin grow                                 of a cluster's only NameNode
    admin restore --peers, or without          at an empty folder; an older state than the others'
    rm, cp                                     a folder is lost, or replaced by another member's

Checked: the one elected has all that was acknowledged in every folder that is left. (Alone with
a new catalog a NameNode is one of another cluster, as DataNodes know by the id; with that of a
backup it is not.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Final, TypeVar

from paxosblock.namenode.raft.folder_admission import (
    AdmissionRefused,
    Admissions,
    Born,
    FolderStatus,
    Lineage,
    Newborn,
    Waits,
    may_join,
    next_step,
)

MEMBERS: Final = ("a", "b", "c")

T = TypeVar("T")


@dataclass(frozen=True)
class Folder:
    """The durable part of a NameNode. `log` has an entry's term for each entry. The folder of a
    cluster's only NameNode is `alone`.

    `owner` is the address of the member, written at its first start, and `members` its --peers.
    """

    newborn: Newborn | None = None
    lineage: Lineage | None = None
    first: str = ""
    admitted: tuple[tuple[str, str], ...] = ()
    log: tuple[int, ...] = ()
    owner: str = ""
    members: tuple[str, ...] = MEMBERS
    alone: bool = False

    @property
    def admissions(self) -> Admissions:
        return Admissions(self.first, dict(self.admitted))


EMPTY: Final = Folder()
UNNAMED: Final = "-"
"""As in admissions_file.py: the first start writes the name."""


@dataclass(frozen=True)
class Process:
    """A running NameNode: a newborn's answers in this round, or what one that joins was given; and
    who `asked` a member to be let in."""

    joins: bool = False
    heard: tuple[tuple[str, FolderStatus], ...] = ()
    given: Folder | None = None
    asked: tuple[tuple[str, FolderStatus], ...] = ()


@dataclass(frozen=True)
class World:
    """Folders and processes by member (None: down), and how often something happened so far."""

    folders: tuple[Folder, ...]
    processes: tuple[Process | None, ...] = (None, None, None)
    losses: tuple[int, ...] = (0, 0, 0)
    terms: int = 0
    made: int = 0
    copies: int = 0
    saved: tuple[int, Folder] | None = None


@dataclass(frozen=True)
class Rules:
    """The decisions; a planted fault replaces one."""

    next_step: Callable[..., object] = next_step
    may_join: Callable[..., object] = may_join
    admits_durably: bool = True
    knows_its_owner: bool = True
    restores_alone: bool = False
    """`admin restore` makes a cluster's only NameNode without being told to lose data."""


@dataclass(frozen=True)
class Bounds:
    """The most that may happen: folders lost, terms with a leader that acknowledges an entry,
    folders made by commands that are not those of the NameNodes at hand, folders copied."""

    losses: int = 2
    terms: int = 2
    flags: tuple[bool, ...] = (False, True)
    """Starts without --join, and with it."""
    made: int = 0
    copies: int = 0
    saves: bool = False
    """An older copy of a folder is put back."""
    backup: tuple[int, ...] = ()
    """The log of the state that `admin restore` brings back."""
    peers: tuple[tuple[str, ...], ...] = (MEMBERS,)
    """The lists of members that starts name."""


@dataclass
class Found:
    """The result of an exploration."""

    states: int = 0
    elected: int = 0
    born: int = 0
    joined: int = 0
    refused: int = 0
    lost: list[World] = field(default_factory=list)


def with_item(items: tuple[T, ...], index: int, item: T) -> tuple[T, ...]:
    return (*items[:index], item, *items[index + 1 :])


def with_folder(world: World, index: int, folder: Folder) -> World:
    return replace(world, folders=with_item(world.folders, index, folder))


def with_process(world: World, index: int, process: Process | None) -> World:
    return replace(world, processes=with_item(world.processes, index, process))


def standing_of(folder: Folder) -> FolderStatus:
    if folder.lineage is not None:
        return FolderStatus(folder.members, lineage=folder.lineage.name)
    assert folder.newborn is not None
    return FolderStatus(folder.members, token=folder.newborn.token, chosen=folder.newborn.chosen)


class Explorer:
    """Visits every state that the moves reach."""

    def __init__(self, rules: Rules, bounds: Bounds) -> None:
        self.rules, self.bounds = rules, bounds
        self.names = sorted({name for peers in bounds.peers for name in peers})
        self.found = Found()

    def explore(self, first: World, *, until_lost: bool = False) -> Found:
        """Visit all; or, `until_lost`, breadth first until an entry is lost."""
        seen, waiting = {first}, deque([first])
        while waiting and not (until_lost and self.found.lost):
            for after in self.moves(waiting.popleft()):
                if after not in seen:
                    seen.add(after)
                    waiting.append(after)
        self.found.states = len(seen)
        return self.found

    def moves(self, world: World) -> Iterator[World]:
        for index in range(len(self.names)):
            folder, process = world.folders[index], world.processes[index]
            if process is None:
                yield from self.starts(world, index)
                yield from self.makes(world, index)
                yield from self.loses(world, index)
                continue
            yield with_process(world, index, None)  # killed
            if folder.lineage is not None or folder.alone:
                continue
            if process.joins:
                yield from self.joins(world, index, process)
            else:
                yield from self.is_born(world, index, process)
        yield from self.leads(world)

    # -- commands -------------------------------------------------------------------------------

    def starts(self, world: World, index: int) -> Iterator[World]:
        """With each flag; a start that is refused at once changes nothing."""
        folder, name = world.folders[index], self.names[index]
        if folder.alone:
            yield with_process(world, index, Process())
            return
        if folder.owner not in ("", name) and self.rules.knows_its_owner:
            self.found.refused += 1
            return
        if folder.lineage is not None:
            folder = replace(folder, owner=name)
            folder = replace(folder, first=name) if folder.first == UNNAMED else folder
            yield with_process(with_folder(world, index, folder), index, Process())
            return
        for joins in self.bounds.flags:
            for peers in self.bounds.peers if folder.newborn is None else (folder.members,):
                if name in peers:
                    yield from self.begins(world, index, peers, joins=joins)

    def begins(
        self, world: World, index: int, peers: tuple[str, ...], *, joins: bool
    ) -> Iterator[World]:
        folder, name = world.folders[index], self.names[index]
        if folder.newborn is None:
            newborn = Newborn(f"{name}{world.losses[index]}")
            folder = replace(folder, newborn=newborn, owner=name, members=peers)
        assert folder.newborn is not None
        if joins and folder.newborn.chosen:
            self.found.refused += 1
        else:
            yield with_process(with_folder(world, index, folder), index, Process(joins))

    def makes(self, world: World, index: int) -> Iterator[World]:
        """The folder of a NameNode that is down is made, or changed, by another command."""
        folder, bounds = world.folders[index], self.bounds
        for source in range(len(self.names)) if world.copies < bounds.copies else ():
            original = world.folders[source]
            if original.owner and source != index and world.processes[source] is None:
                copied = with_folder(world, index, original)
                yield replace(copied, copies=world.copies + 1)
        if bounds.saves and folder.lineage is not None and world.saved is None:
            yield replace(world, saved=(index, folder))
        if world.saved is not None and world.saved[0] == index:
            yield with_folder(world, index, world.saved[1])
        if world.made == bounds.made:
            return
        world = replace(world, made=world.made + 1)
        planted = Folder(lineage=Lineage(f"made {world.made}", born=False), first=UNNAMED)
        if folder == EMPTY:
            for log in {bounds.backup, ()}:  # of a backup; grown, of a new catalog
                yield with_folder(world, index, replace(planted, log=log))
            if self.rules.restores_alone:
                yield with_folder(world, index, Folder(alone=True, log=bounds.backup))
        if folder.alone:
            yield with_folder(world, index, replace(planted, log=folder.log))

    def loses(self, world: World, index: int) -> Iterator[World]:
        if world.folders[index] != EMPTY and sum(world.losses) < self.bounds.losses:
            losses = with_item(world.losses, index, world.losses[index] + 1)
            yield replace(with_folder(world, index, EMPTY), losses=losses)

    # -- birth ----------------------------------------------------------------------------------

    def is_born(self, world: World, index: int, process: Process) -> Iterator[World]:
        """It hears one other member, or ends its round with what it heard."""
        heard = dict(process.heard)
        for other, peer in enumerate(self.names):
            process_there, folder = world.processes[other], world.folders[other]
            # One that joins is asked by no member before it is a member.
            silent = process_there is None or (process_there.joins and folder.lineage is None)
            if silent or folder.alone or other == index or peer in heard:
                continue
            said = (*process.heard, (peer, standing_of(folder)))
            after = replace(process, heard=tuple(sorted(said, key=lambda each: each[0])))
            yield with_process(world, index, after)
        if heard:
            yield from self.decides(world, index, heard)

    def decides(
        self, world: World, index: int, heard: Mapping[str, FolderStatus]
    ) -> Iterator[World]:
        """A round that ends with nothing, or with the process, is a killed process' start anew."""
        folder = world.folders[index]
        assert folder.newborn is not None
        step = self.rules.next_step(self.names[index], folder.newborn, folder.members, heard)
        match step:
            case Newborn():
                folder = replace(folder, newborn=step)
            case Born(lineage):
                self.found.born += 1
                folder = replace(folder, newborn=None, lineage=lineage)
            case AdmissionRefused():
                self.found.refused += 1
                return
            case Waits():
                return
        yield with_process(with_folder(world, index, folder), index, Process())

    # -- being let in ---------------------------------------------------------------------------

    def joins(self, world: World, index: int, process: Process) -> Iterator[World]:
        """It is given the catalog of a member; later that is durable here."""
        folder, caller = world.folders[index], self.names[index]
        assert folder.newborn is not None
        if process.given is not None:
            self.found.joined += 1
            planted = Folder(
                lineage=process.given.lineage,
                log=process.given.log,
                owner=caller,
                members=folder.members,
            )
            yield with_process(with_folder(world, index, planted), index, Process())
            return
        for other in range(len(self.names)):
            there, giver = world.processes[other], world.folders[other]
            if other == index or there is None or giver.lineage is None:
                continue
            asked = tuple(sorted((dict(there.asked) | {caller: standing_of(folder)}).items()))
            answer = self.rules.may_join(
                giver.lineage,
                self.names[other],
                giver.members,
                admissions=giver.admissions,
                asking=dict(asked),
                caller=caller,
            )
            if answer is None:
                after = world
                if self.rules.admits_durably:
                    admitted = {**dict(giver.admitted), caller: folder.newborn.token}
                    noted = replace(giver, admitted=tuple(sorted(admitted.items())))
                    after = with_folder(after, other, noted)
                else:
                    after = with_process(after, other, replace(there, asked=asked))
                yield with_process(after, index, replace(process, given=giver))
            elif isinstance(answer, Waits):
                yield with_process(world, other, replace(there, asked=asked))
            else:
                self.found.refused += 1

    # -- the least of Raft ----------------------------------------------------------------------

    def leads(self, world: World) -> Iterator[World]:
        """A majority of the running members of one lineage elects the one with the longest log,
        which then acknowledges an entry that all of them have."""
        running = {
            name: index
            for index, name in enumerate(self.names)
            if world.processes[index] is not None
        }
        for name, index in running.items():
            folder = world.folders[index]
            if folder.alone:
                yield from self.elects(world, (index,))
            elif folder.lineage is not None:
                voters = [
                    running[peer] for peer in folder.members if peer != name and peer in running
                ]
                voters = [voter for voter in voters if self.votes(world, voter, index)]
                for some in combinations(voters, len(folder.members) // 2):
                    yield from self.elects(world, (index, *some))

    def votes(self, world: World, voter: int, candidate: int) -> bool:
        own, other = world.folders[voter], world.folders[candidate]
        known = own.lineage == other.lineage and self.names[candidate] in own.members
        return known and (own.log[-1:], own.log) <= (other.log[-1:], other.log)

    def elects(self, world: World, majority: tuple[int, ...]) -> Iterator[World]:
        """The first of the majority is elected."""
        self.found.elected += 1
        log = world.folders[majority[0]].log
        kept = {entry for folder in world.folders for entry in folder.log}
        if not kept <= set(log):
            self.found.lost.append(world)
        if world.terms == self.bounds.terms:
            return
        term = max(kept | {world.terms, 0}) + 1
        for index in majority:
            world = with_folder(world, index, replace(world.folders[index], log=(*log, term)))
        yield replace(world, terms=world.terms + 1)


def member(name: str, lineage: Lineage, *log: int, first: str = "") -> Folder:
    """The folder of one that has been started."""
    return Folder(lineage=lineage, log=log, owner=name, first=first)


NEW: Final = World((EMPTY, EMPTY, EMPTY))
"""Before the first start of a new cluster."""

GROWN: Final = World((member("a", Lineage("grown", born=False), 1, first="a"), EMPTY, EMPTY))
"""After `admin grow` or `admin restore` made the folder of the first, and that was started."""

ALONE: Final = World((Folder(alone=True, log=(1,)), EMPTY, EMPTY))
"""A cluster of one NameNode, and two machines that wait."""

BORN: Final = Lineage("line", born=True)

STALE: Final = World((member("a", BORN, 1, 2), member("b", BORN, 1, 2), member("c", BORN)))
"""A cluster that ran, one member of which was down while the others acknowledged two entries."""

_GROWN: Final = Lineage("grown", born=False)
_FIRST: Final = replace(member("a", _GROWN, 1, first="a"), admitted=(("d", "d0"), ("e", "e0")))
OF_FIVE: Final = World(
    tuple(
        replace(folder, members=("a", "b", "c", "d", "e")) if folder.lineage else folder
        for folder in (_FIRST, EMPTY, EMPTY, member("d", _GROWN, 1), member("e", _GROWN, 1))
    ),
    (None,) * 5,
    (0,) * 5,
)
"""After `admin grow` made the folder of the first of five, which let two others in."""
