"""Every order of starts, wrong flags, crashes and lost folders of three members, exhaustively.

What decides is the shipped code (`admission.py`); around it stand folders, processes and the least
of Raft: a leader needs the votes of a majority of running members of its lineage, none of whom has
a longer log; what it acknowledges is in the folders of a majority. All that is durable is a folder;
a process has only what it heard in its round of questions. A lost folder never comes back.

Checked: whoever is elected has all that was acknowledged in every folder that is left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from paxosblock.namenode.raft.admission import (
    Admissions,
    Born,
    Lineage,
    Newborn,
    Refused,
    Standing,
    Waits,
    may_join,
    next_step,
)

MEMBERS: Final = ("a", "b", "c")

T = TypeVar("T")


@dataclass(frozen=True)
class Folder:
    """The durable part of a member. `log` has an entry's term for each entry."""

    newborn: Newborn | None = None
    lineage: Lineage | None = None
    first: str = ""
    admitted: tuple[tuple[str, str], ...] = ()
    log: tuple[int, ...] = ()

    @property
    def admissions(self) -> Admissions:
        return Admissions(self.first, dict(self.admitted))


EMPTY: Final = Folder()


@dataclass(frozen=True)
class Process:
    """A running member: a newborn's answers in this round, or what one that joins was given."""

    joins: bool = False
    heard: tuple[tuple[str, Standing], ...] = ()
    given: Folder | None = None


@dataclass(frozen=True)
class World:
    """Folders and processes by member (None: down), and how often something happened so far."""

    folders: tuple[Folder, ...]
    processes: tuple[Process | None, ...] = (None, None, None)
    losses: tuple[int, ...] = (0, 0, 0)
    terms: int = 0


@dataclass(frozen=True)
class Rules:
    """The decisions; a planted fault replaces one."""

    next_step: Callable[..., object] = next_step
    may_join: Callable[..., object] = may_join
    admits_durably: bool = True


@dataclass(frozen=True)
class Bounds:
    """The most that may happen: folders lost, terms with a leader that acknowledges an entry."""

    losses: int = 2
    terms: int = 2
    flags: tuple[bool, ...] = (False, True)
    """Starts without --join, and with it."""


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


def standing_of(folder: Folder) -> Standing:
    if folder.lineage is not None:
        return Standing(MEMBERS, lineage=folder.lineage.name)
    assert folder.newborn is not None
    return Standing(MEMBERS, token=folder.newborn.token, chosen=folder.newborn.chosen)


class Explorer:
    """Visits every state that the moves reach."""

    def __init__(self, rules: Rules, bounds: Bounds) -> None:
        self.rules, self.bounds = rules, bounds
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
        for index in range(len(MEMBERS)):
            folder, process = world.folders[index], world.processes[index]
            if process is None:
                yield from self.starts(world, index)
                if folder != EMPTY and sum(world.losses) < self.bounds.losses:
                    losses = with_item(world.losses, index, world.losses[index] + 1)
                    lost = with_item(world.folders, index, EMPTY)
                    yield replace(world, folders=lost, losses=losses)
                continue
            yield replace(world, processes=with_item(world.processes, index, None))  # killed
            if folder.lineage is not None:
                continue
            if process.joins:
                yield from self.joins(world, index, process)
            else:
                yield from self.is_born(world, index, process)
        yield from self.leads(world)

    # -- starts ---------------------------------------------------------------------------------

    def starts(self, world: World, index: int) -> Iterator[World]:
        """With each flag; a start that is refused at once changes nothing."""
        folder = world.folders[index]
        for joins in self.bounds.flags if folder.lineage is None else (False,):
            if folder.lineage is None and folder.newborn is None:
                token = f"{MEMBERS[index]}{world.losses[index]}"
                folder = replace(folder, newborn=Newborn(token))
            if joins and folder.newborn is not None and folder.newborn.chosen:
                self.found.refused += 1
                continue
            yield replace(
                world,
                folders=with_item(world.folders, index, folder),
                processes=with_item(world.processes, index, Process(joins)),
            )

    # -- birth ----------------------------------------------------------------------------------

    def is_born(self, world: World, index: int, process: Process) -> Iterator[World]:
        """It hears one other member, or ends its round with what it heard."""
        heard = dict(process.heard)
        for other, peer in enumerate(MEMBERS):
            answers = world.processes[other] is not None and other != index
            if answers and peer not in heard:
                said = (*process.heard, (peer, standing_of(world.folders[other])))
                after = replace(process, heard=tuple(sorted(said, key=lambda each: each[0])))
                yield replace(world, processes=with_item(world.processes, index, after))
        if heard:
            yield from self.decides(world, index, heard)

    def decides(self, world: World, index: int, heard: Mapping[str, Standing]) -> Iterator[World]:
        """A round that ends with nothing, or with the process, is a killed process' start anew."""
        folder = world.folders[index]
        assert folder.newborn is not None
        step = self.rules.next_step(MEMBERS[index], folder.newborn, MEMBERS, heard)
        match step:
            case Newborn():
                folder = replace(folder, newborn=step)
            case Born(lineage):
                self.found.born += 1
                folder = replace(folder, newborn=None, lineage=lineage)
            case Refused():
                self.found.refused += 1
                return
            case Waits():
                return
        yield replace(
            world,
            folders=with_item(world.folders, index, folder),
            processes=with_item(world.processes, index, Process()),
        )

    # -- being let in ---------------------------------------------------------------------------

    def joins(self, world: World, index: int, process: Process) -> Iterator[World]:
        """It is given the catalog of a member; later that is durable here."""
        folder, caller = world.folders[index], MEMBERS[index]
        assert folder.newborn is not None
        if process.given is not None:
            self.found.joined += 1
            planted = Folder(lineage=process.given.lineage, log=process.given.log)
            yield replace(
                world,
                folders=with_item(world.folders, index, planted),
                processes=with_item(world.processes, index, Process()),
            )
            return
        for other, giver in enumerate(world.folders):
            if other == index or world.processes[other] is None or giver.lineage is None:
                continue
            token = folder.newborn.token
            answer = self.rules.may_join(
                giver.lineage, MEMBERS[other], giver.admissions, caller, token
            )
            if answer is not None:
                self.found.refused += 1
                continue
            folders = world.folders
            if self.rules.admits_durably:
                admitted = tuple(sorted({*giver.admitted, (caller, token)}))
                folders = with_item(folders, other, replace(giver, admitted=admitted))
            given = replace(process, given=giver)
            yield replace(
                world,
                folders=folders,
                processes=with_item(world.processes, index, given),
            )

    # -- the least of Raft ----------------------------------------------------------------------

    def leads(self, world: World) -> Iterator[World]:
        """Any two running members of one lineage elect the one with the longer log, which then
        acknowledges an entry that both have."""
        running = [
            index
            for index in range(len(MEMBERS))
            if world.processes[index] is not None and world.folders[index].lineage is not None
        ]
        for one in running:
            for two in running:
                if one < two and world.folders[one].lineage == world.folders[two].lineage:
                    yield from self.elects(world, one, two)

    def elects(self, world: World, one: int, two: int) -> Iterator[World]:
        self.found.elected += 1
        log = max((world.folders[one].log, world.folders[two].log), key=lambda log: (log[-1:], log))
        kept = {entry for folder in world.folders for entry in folder.log}
        if not kept <= set(log):
            self.found.lost.append(world)
        if world.terms == self.bounds.terms:
            return
        term = world.terms + 1
        folders = world.folders
        for index in (one, two):
            folders = with_item(folders, index, replace(folders[index], log=(*log, term)))
        yield replace(world, folders=folders, terms=term)


NEW: Final = World((EMPTY, EMPTY, EMPTY))
"""Before the first start of a new cluster."""

GROWN: Final = World(
    (Folder(lineage=Lineage("grown", born=False), first="a", log=(0,)), EMPTY, EMPTY)
)
"""After `admin grow` or `admin restore` made the folder of the first."""
