"""Breadth-first search through every reachable world of a config.

A letter that can change nothing any more, and a proposer whose compare-and-set is refused for
good, are dropped from a world; both are found out by asking the shipped code, so a faulty rule
keeps them alive.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.invariants import InvariantError
from paxosblock.protocol.messages import (
    Created,
    Delete,
    Grant,
    LastVote,
    Nack,
    RecoveryVote,
    Vote,
)
from paxosblock.protocol.recovery import Phase, Proposer
from paxosblock.protocol.write import Writer
from tests.protocol import oracle, progress, report_moves
from tests.protocol.client_moves import (
    answer_moves,
    is_counted,
    reader_moves,
    vote_moves,
    writer_moves,
)
from tests.protocol.datanode_moves import (
    REQUESTS,
    answered,
    copy_moves,
    crash_moves,
    forget_moves,
    is_dead,
    request_moves,
    torn_moves,
)
from tests.protocol.namenode_moves import (
    close_moves,
    gave_way,
    is_futile,
    is_late,
    nack_moves,
    namenode_moves,
    rebuild_moves,
)
from tests.protocol.symmetry import Symmetry
from tests.protocol.world import (
    Answer,
    Cell,
    CloseRequest,
    Config,
    Disk,
    Letter,
    Model,
    Move,
    RebuildRequest,
    Violation,
    World,
)

REPLIES = (LastVote, RecoveryVote)
"""To proposers."""
VOTES = (Created, Vote)
"""To writers."""


@dataclass(slots=True)
class Result:
    """The result of an exploration. `fault` is None when every state is as it must be."""

    states: int = 0
    depth: int = 0
    seconds: float = 0.0
    fired: Counter[str] = field(default_factory=Counter)
    fault: str | None = None
    trace: tuple[str, ...] = ()
    complete: bool = True


def moves(model: Model, world: World) -> Iterator[Move]:
    """Everything that can happen next."""
    yield from writer_moves(model, world)
    yield from vote_moves(model, world)
    yield from namenode_moves(model, world)
    yield from reader_moves(model, world)
    taken = model.bits_of(REPLIES) | model.bits_of(VOTES)  # by `proposer_moves` and `vote_moves`
    for bit, letter in model.letters_of(world.mail & ~taken):
        yield from _arrival(model, world, bit, letter)
    budget = world.budget.value
    if budget.restarts or budget.power_cuts or budget.damages or budget.unreadable:
        yield from crash_moves(model, world)
    if budget.forgets:
        yield from forget_moves(model, world)
    if model.config.budget.volume_copies:
        yield from copy_moves(model, world)
    if budget.deletes:
        yield from report_moves.report_moves(model, world)


def _arrival(model: Model, world: World, bit: int, letter: Letter) -> Iterator[Move]:
    match letter.message:
        case Grant() | Answer():
            yield from answer_moves(model, world, letter)
        case RebuildRequest() as request:
            yield from rebuild_moves(model, world, request)
        case CloseRequest() as close:
            yield from close_moves(model, world, close)
        case _:
            yield from request_moves(model, world, bit)
            yield from torn_moves(model, world, letter)
            if model.config.nacks:
                yield from _refusals(model, world, bit, letter)


def _refusals(model: Model, world: World, bit: int, letter: Letter) -> Iterator[Move]:
    for at in letter.to:
        reply = model.once(answered, model, at, world.disks[at], bit, ()).reply
        if isinstance(reply, Nack):
            yield from nack_moves(model, world, reply)


def settled(model: Model, world: World) -> World:
    """The world without what can have no effect any more."""
    proposers = tuple(
        cell for cell in world.proposers if not model.once(_futile, world.record, cell)
    )
    if len(proposers) != len(world.proposers):
        for cell in world.proposers:
            if cell not in proposers and cell.value.phase is not Phase.ABANDONED:
                gave_way(model, world.record.value, cell.value)
        world = world._replace(proposers=proposers)
    mail = world.mail & ~_inert(model, world)
    return world if mail == world.mail else world._replace(mail=mail)


def _futile(record: Cell[BlockRecord], cell: Cell[Proposer]) -> bool:
    return is_futile(record.value, cell.value)


def _forgetting(model: Model, world: World) -> tuple[int, ...]:
    """Storages that a Delete or damage may make forget what they promised: they refuse nothing for
    good."""
    budget = model.config.budget
    if world.budget.value.deletes or budget.unreadable or budget.forgets:
        return tuple(range(len(world.disks)))
    deletes = model.letters_of(world.mail & model.bits_of((Delete,)))
    return tuple(at for _, letter in deletes for at in letter.to)


def _inert(model: Model, world: World) -> int:
    """The letters that can change nothing any more. Many worlds share the parts that say so of a
    kind of letters: it is found out once for all of them."""
    mail = world.mail
    replies = mail & model.bits_of(REPLIES)
    votes = mail & model.bits_of(VOTES)
    requests = mail & model.bits_of(REQUESTS)
    inert = 0
    for bit, letter in model.letters_of(mail ^ replies ^ votes ^ requests):
        if _came_late(world, letter):
            inert |= bit
    if replies:
        inert |= model.once(_not_awaited, model, replies, world.proposers)
    if votes:
        inert |= model.once(_counted, model, votes, world.writers)
    if requests:
        forgetting = _forgetting(model, world)
        inert |= model.once(_dead, model, requests, world.disks, forgetting)
    return inert


def _came_late(world: World, letter: Letter) -> bool:
    match letter.message:
        case Grant() as grant:
            return grant.generation <= world.writers[letter.to[0]].value.generation
        case RebuildRequest() | CloseRequest() as request:
            return is_late(world, request)
        case _:
            return False


def _not_awaited(model: Model, mail: int, proposers: tuple[Cell[Proposer], ...]) -> int:
    found = 0
    for bit, letter in model.letters_of(mail):
        assert isinstance(letter.message, REPLIES)
        if not any(_awaits(cell.value, letter.message) for cell in proposers):
            found |= bit
    return found


def _counted(model: Model, mail: int, writers: tuple[Cell[Writer], ...]) -> int:
    found = 0
    for bit, _ in model.letters_of(mail):
        if all(model.once(is_counted, model, cell, bit) for cell in writers):
            found |= bit
    return found


def _dead(
    model: Model, mail: int, disks: tuple[Cell[Disk], ...], forgetting: tuple[int, ...]
) -> int:
    found = 0
    for bit, letter in model.letters_of(mail):
        again = () if isinstance(letter.message, Delete) else forgetting
        if is_dead(model, disks, bit, again):
            found |= bit
    return found


def _awaits(proposer: Proposer, reply: LastVote | RecoveryVote) -> bool:
    promising = isinstance(reply, RecoveryVote) or proposer.phase is Phase.PROMISING
    return proposer.generation == reply.generation and promising


def explore(config: Config, *, states_max: int = 3_000_000) -> Result:
    """Visit every reachable state of `config`, or find a shortest way to a fault."""
    began = time.perf_counter()
    search = Search(config)
    result = search.run(states_max)
    result.seconds = time.perf_counter() - began
    return result


class Search:
    """One exploration: which worlds were seen, and from where each was reached first."""

    def __init__(self, config: Config) -> None:
        self.model = Model(config)
        self.symmetry = Symmetry(self.model)
        self.result = Result(fired=self.model.fired)
        self.seen: dict[World, World | None] = {}

    def run(self, states_max: int) -> Result:
        """Level by level, until nothing new is found."""
        first = self.representative(self.model.start())
        self.seen[first] = None
        level = [first]
        while level and self.result.fault is None:
            level = self._next_level(level)
            self.result.depth += bool(level)
            if len(self.seen) > states_max:
                self.result.complete = False
                break
        self.result.states = len(self.seen)
        return self.result

    def representative(self, world: World) -> World:
        """Return what stands for `world`: settled, and renamed if storages may be."""
        return self.symmetry.representative(settled(self.model, world))

    def _next_level(self, level: list[World]) -> list[World]:
        found: list[World] = []
        met: set[World] = set()
        for world in level:
            try:
                for move in moves(self.model, world):
                    self.model.fired[move.rule] += 1
                    if move.world in met:  # by these moves in another order
                        continue
                    met.add(move.world)
                    after = self.representative(move.world)
                    if after not in self.seen:
                        self.seen[after] = world
                        found.append(after)
                        self._check(move, after)
            except (Violation, InvariantError) as fault:
                self.result.fault = f"{type(fault).__name__}: {fault}"
                self.result.trace = self._trace(world)
                return []
        return found

    def _check(self, move: Move, world: World) -> None:
        self.model.doing = (move.rule, *move.words)
        report_moves.check(self.model, world)
        oracle.check(self.model, world)
        progress.check(self.model, world)

    def _trace(self, last: World) -> tuple[str, ...]:
        """The moves to the fault, one per line, with the names that the first world gave."""
        path = [last]
        while (before := self.seen[path[-1]]) is not None:
            path.append(before)
        world, lines = settled(self.model, self.model.start()), []
        for target in reversed(path[:-1]):
            move = next(
                move
                for move in moves(self.model, world)
                if self.representative(move.world) == target
            )
            lines.append(tell((move.rule, *move.words)))
            world = settled(self.model, move.world)
        return (*lines, self._last_line(world))

    def _last_line(self, world: World) -> str:
        try:
            for move in moves(self.model, world):
                self._check(move, settled(self.model, move.world))
        except (Violation, InvariantError):
            return tell(self.model.doing)
        return "(the fault is gone in the replay)"


def tell(words: tuple[object, ...]) -> str:
    """One line of a trace."""
    return " ".join(map(str, words)).replace("block=7, ", "")
