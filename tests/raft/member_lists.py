"""Every order of changes of the list of members, with leaders that change in between.

What decides is the shipped code (`roster.py`); around it stands the least of Raft. A server has a
term, a log and, while it leads, what the others have acknowledged to it. An election is one step:
the candidate and a bare majority of its list, each with no longer log. A leader sends one server
its log, which stores and acknowledges it in the same step. So what a message that is late may do is
left to the simulation. A server that is down does not move; a removed one goes on with the list
that it knows, and a lost folder does not come back: what comes to its address has another name.

An entry is the term in which it was appended, and the list that it holds, or None. Checked: one
leader in a term; whatever is committed is in the log of each later leader, and nothing else is
committed in its place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations
from typing import NamedTuple

from paxosblock.namenode.raft.roster import ListEntry, MemberLists, Roster, why_not_now

Entry = tuple[int, tuple[str, ...] | None]
Log = tuple[Entry, ...]


class Server(NamedTuple):
    """One member; `acked` has, while it leads, how much of its log each other one has stored."""

    term: int = 0
    log: Log = ()
    acked: tuple[tuple[str, int], ...] | None = None
    commit: int = 0
    lost: bool = False


class World(NamedTuple):
    """The servers by name, in the order of `Bounds.names`; what was committed; who led when."""

    servers: tuple[Server, ...]
    committed: Log = ()
    leaders: tuple[tuple[int, str], ...] = ()
    losses: int = 0


@cache
def _lists(first: tuple[str, ...], log: Log, commit: int) -> MemberLists:
    lists = MemberLists(ListEntry(0, Roster(first)))
    for index, (_, voters) in enumerate(log, 1):
        if voters is not None:
            lists.append(index, Roster(voters))
    lists.commit(commit)
    return lists


def is_majority(lists: MemberLists, names: Collection[str]) -> bool:
    return lists.newest.roster.is_majority(names)


@dataclass(frozen=True)
class Rules:
    """The decisions; a planted fault replaces one."""

    is_majority: Callable[[MemberLists, Collection[str]], bool] = is_majority
    why_not_now: Callable[..., str | None] = why_not_now
    keeps_names: bool = False
    """A lost folder comes back under its name, with the log of the one that leads."""


@dataclass(frozen=True)
class Bounds:
    """The first list, the servers that may be added, and the most that may happen."""

    first: tuple[str, ...] = ("a", "b", "c")
    spare: tuple[str, ...] = ("d",)
    terms: int = 3
    changes: int = 2
    losses: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.first, *self.spare)


def in_term_1(bounds: Bounds, log: Log, stored: Sequence[str], commit: int) -> World:
    """The first of `bounds`, elected by all, leads in term 1 with this `log`, which these others
    have `stored`."""
    leader, *_ = bounds.first
    acked = tuple((name, len(log)) for name in sorted(stored))
    servers = {name: Server(1) for name in bounds.first} | {name: Server(1, log) for name in stored}
    servers[leader] = Server(1, log, acked, commit)
    every = tuple(servers.get(name, Server()) for name in bounds.names)
    return World(every, log[:commit], ((1, leader),))


@dataclass
class Found:
    """The result of an exploration."""

    states: int = 0
    elected: int = 0
    changed: int = 0
    taken_back: int = 0
    violations: list[str] = field(default_factory=list)


class Explorer:
    """Visits every state that the moves reach."""

    def __init__(self, bounds: Bounds, rules: Rules = Rules()) -> None:
        self.rules, self.bounds, self.names = rules, bounds, bounds.names
        self.found = Found()

    def explore(self, first: World | None = None, *, until_violated: bool = False) -> Found:
        """Visit all that follows from `first`, or from before the first election; or, breadth
        first, `until_violated`."""
        first = first or World(tuple(Server() for _ in self.names))
        seen, waiting = {first}, deque([first])
        while waiting and not (until_violated and self.found.violations):
            for after in self.moves(waiting.popleft()):
                if after not in seen:
                    seen.add(after)
                    waiting.append(after)
        self.found.states = len(seen)
        return self.found

    def moves(self, world: World) -> Iterator[World]:
        for name in self.names:
            server = self.of(world, name)
            if server.lost:
                continue
            yield from self.elects(world, name, server)
            if server.acked is not None:
                yield from self.sends(world, name, server)
                yield from self.changes(world, name, server)
            if world.losses < self.bounds.losses and server.log:
                gone = self.put(world, name, Server(lost=True))
                yield gone._replace(losses=world.losses + 1)

    def of(self, world: World, name: str) -> Server:
        return world.servers[self.names.index(name)]

    def put(self, world: World, name: str, server: Server) -> World:
        place = self.names.index(name)
        servers = (*world.servers[:place], server, *world.servers[place + 1 :])
        return world._replace(servers=servers)

    def lists(self, server: Server) -> MemberLists:
        """The lists of a log, as a member finds them."""
        return _lists(self.bounds.first, server.log, server.commit)

    # -- the least of Raft ----------------------------------------------------------------------

    def elects(self, world: World, name: str, server: Server) -> Iterator[World]:
        lists = self.lists(server)
        known = (*lists.newest.roster.voters, *lists.committed.roster.voters)
        if name not in known or server.acked is not None:
            return
        if not world.leaders and name != self.names[0]:
            return  # the first ones are alike
        voters = [
            each for each in self.names if each != name and self.may_vote(world, each, server)
        ]
        for count in range(len(self.names)):
            for some in combinations(voters, count):
                if not self.rules.is_majority(lists, (name, *some)):
                    continue
                if any(self.rules.is_majority(lists, {name, *some} - {one}) for one in some):
                    continue
                yield from self.elected(world, name, some)

    def may_vote(self, world: World, voter: str, candidate: Server) -> bool:
        own = self.of(world, voter)
        mine, theirs = own.log, candidate.log
        last = [term for term, _ in mine[-1:]], [term for term, _ in theirs[-1:]]
        return not own.lost and (last[0], len(mine)) <= (last[1], len(theirs))

    def elected(self, world: World, name: str, voters: tuple[str, ...]) -> Iterator[World]:
        term = 1 + max(self.of(world, each).term for each in (name, *voters))
        if term > self.bounds.terms:
            return
        self.found.elected += 1
        led = dict(world.leaders)
        if led.setdefault(term, name) != name:
            self.found.violations.append(f"{led[term]} and {name} lead in term {term}: {world}")
            return
        server = self.of(world, name)
        if server.log[: len(world.committed)] != world.committed:
            self.found.violations.append(f"{name} lacks what was committed: {world}")
            return
        for each in voters:
            world = self.put(world, each, Server(term, self.of(world, each).log))
        leads = server._replace(term=term, log=(*server.log, (term, None)), acked=())
        world = self.put(world, name, leads)._replace(leaders=tuple(sorted(led.items())))
        yield from self.counts(world, name)

    def sends(self, world: World, leader: str, server: Server) -> Iterator[World]:
        """Another server stores all of the leader's log, and says so."""
        end, known = len(server.log), dict(server.acked or ())
        for name in self.names:
            other = self.of(world, name)
            refuses = other.term > server.term or (other.lost and not self.rules.keeps_names)
            if name == leader or refuses or known.get(name) == end:
                continue
            self.found.taken_back += other.log != server.log[: len(other.log)]
            acked = tuple(sorted((known | {name: end}).items()))
            after = self.put(world, name, Server(server.term, server.log))
            yield from self.counts(self.put(after, leader, server._replace(acked=acked)), leader)

    def counts(self, world: World, leader: str) -> Iterator[World]:
        """The leader commits what a majority has, if the last of it is of its term."""
        server = self.of(world, leader)
        acked = {**dict(server.acked or ()), leader: len(server.log)}
        lists = self.lists(server)
        for end in range(len(server.log), server.commit, -1):
            have = [name for name, stored in acked.items() if stored >= end]
            if server.log[end - 1][0] == server.term and self.rules.is_majority(lists, have):
                log = server.log[:end]
                shorter, longer = sorted((log, world.committed), key=len)
                if longer[: len(shorter)] != shorter:
                    self.found.violations.append(f"{leader} commits something else: {world}")
                    return
                world = self.put(world, leader, server._replace(commit=end))
                yield world._replace(committed=longer)
                return
        yield world

    # -- changes --------------------------------------------------------------------------------

    def changes(self, world: World, leader: str, server: Server) -> Iterator[World]:
        """The leader appends another list."""
        known = {voters for each in world.servers for _, voters in each.log if voters is not None}
        if len(known) >= self.bounds.changes:
            return
        used = {*self.bounds.first, *(name for voters in known for name in voters)}
        lists, caught_up = self.lists(server), dict(server.acked or ())
        now = lists.newest.roster
        for name in self.names:
            if name in now.voters:
                wanted = now.without(name)
            elif name not in used and name in caught_up:
                wanted = now.with_one(name)
            else:
                continue
            refused = self.rules.why_not_now(
                lists,
                wanted,
                leader=leader,
                commit_index=server.commit,
                first_of_term=self._first_of(server),
            )
            if refused is None and wanted.voters:
                self.found.changed += 1
                log = (*server.log, (server.term, wanted.voters))
                yield from self.counts(self.put(world, leader, server._replace(log=log)), leader)

    @staticmethod
    def _first_of(server: Server) -> int:
        return next(at for at, (term, _) in enumerate(server.log, 1) if term == server.term)
