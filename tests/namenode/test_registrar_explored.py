"""D10 explored: two NameNodes, a DataNode, its restarts and a copy of its volume, in every order.

`Registrar`, `DataNodes` and the decision about the record are the real ones. A registration stops
where it waits for another process: as it asks the one before, and before and after its entry. In
between NameNodes begin and end to lead, lag behind or restart, and processes end. Only in a
NameNode that leads and has begun do answers of a storage count. So whoever counts there must be the
one that counted before, or that one has ended: else what it promised would be forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterator
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, Final, cast

import pytest

from paxosblock.api.reports import Register, StorageReport
from paxosblock.errors import (
    PaxosBlockError,
    UnavailableError,
)
from paxosblock.namenode.blocks.datanodes import DataNodes
from paxosblock.namenode.blocks.registrar import Registrar
from paxosblock.namenode.catalog import keys, processes
from paxosblock.namenode.catalog.draft import Draft
from paxosblock.namenode.catalog.processes import Entering
from paxosblock.namenode.catalog.records import ProcessRecord, encode
from paxosblock.namenode.kv.interface import Committed
from paxosblock.namenode.kv.state_machine import StateMachine
from paxosblock.protocol.types import StorageId
from tests.memory_table import MemoryTable

NODE, STORAGE = "dn", StorageId("s1")
HOME, ELSEWHERE = "home:1", "elsewhere:1"
ADDRESSES: Final = MappingProxyType({"own": HOME, "copy": ELSEWHERE, "again": HOME})
"""A process by its incarnation; `again` is a restart, and begins when `own` has ended."""


class Gate:
    """Awaited where a registration waits for another process."""

    def __await__(self) -> Generator[None, None, None]:
        yield


@dataclass
class Seat:
    """One NameNode: what it has applied, and whether it leads and has begun."""

    name: str
    world: World
    machine: StateMachine = field(default_factory=lambda: StateMachine(MemoryTable()))
    applied: int = 0
    begun: bool = False

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """A process that has what was applied, and knows no DataNode."""
        self.begun = False
        self.datanodes = DataNodes(3, 15)
        catalog, acceptors = cast("Any", self), cast("Any", self.world)
        self.registrar = Registrar(catalog, self.datanodes, acceptors, lambda: 0.0)

    def catch_up(self) -> None:
        """Apply all that was committed."""
        for edit in self.world.log[self.applied :]:
            self.machine.apply(self.machine.revision + 1, edit)
        self.applied = len(self.world.log)

    # -- as a catalog ---------------------------------------------------------------------------

    cluster_id = ""

    def process_of(self, node: str) -> ProcessRecord | None:
        return processes.find(self.machine, node)

    async def view(self) -> None:
        await Gate()
        self._check()
        self.catch_up()

    async def enter_process(self, entering: Entering) -> None:
        await Gate()
        self._commit(lambda draft: processes.enter(draft, entering))
        await Gate()

    async def enter_processes(self, each_entering: list[Entering]) -> None:
        await Gate()
        self._commit(lambda draft: processes.enter_where_possible(draft, each_entering))
        await Gate()

    def _check(self) -> None:
        if self.world.leader != self.name:
            raise UnavailableError(f"{self.name} does not lead")

    def _commit(self, decide: Callable[[Draft], None]) -> None:
        """Decide and apply as one step, which the preconditions of an edit make it."""
        self._check()
        self.catch_up()
        draft = Draft(self.machine)
        decide(draft)
        if draft.changes:
            edit = draft.to_edit()
            self.world.log.append(edit)
            self.applied += 1
            assert isinstance(self.machine.apply(self.machine.revision + 1, edit), Committed)


@dataclass
class World:
    """All of them, and the calls under way."""

    leader: str = ""
    log: list[Any] = field(default_factory=list[Any])
    lives: set[str] = field(default_factory=lambda: {"own", "copy"})
    begins: int = 0
    restarts: int = 1
    counted: set[str] = field(default_factory=set[str])
    calls: dict[str, Coroutine[Any, Any, None]] = field(
        default_factory=dict[str, Coroutine[Any, Any, None]]
    )

    def __post_init__(self) -> None:
        self.seats = {name: Seat(name, self) for name in ("a", "b")}
        self.elect("a")
        while "begin a" in self.calls:
            self.go_on("begin a")
        self.call("own to a")
        while "own to a" in self.calls:
            self.go_on("own to a")
        assert self.counted == {"own"}

    async def process_at(self, address: str) -> str:
        """Return the process that listens there, as the acceptors find out."""
        await Gate()
        found = [each for each in sorted(self.lives) if ADDRESSES[each] == address]
        return found[0] if found else ""

    def moves(self) -> Iterator[tuple[str, Callable[[], None]]]:
        for name in sorted(self.calls):
            yield f"{name} goes on", partial(self.go_on, name)
        if len(self.calls) < 2:
            for process in sorted(self.lives):
                for seat in self.seats:
                    if (name := f"{process} to {seat}") not in self.calls:
                        yield name, partial(self.call, name)
        if "own" in self.lives:
            yield "own restarts", partial(self.end, "own", "again")
        elif "again" in self.lives:
            yield "again ends", partial(self.end, "again")
        if "copy" in self.lives:
            yield "copy ends", partial(self.end, "copy")
        for each in self.seats.values():
            if each.name != self.leader and self.begins < 3:
                yield f"{each.name} is elected", partial(self.elect, each.name)
            if each.applied < len(self.log):
                yield f"{each.name} catches up", each.catch_up
            if self.restarts:
                yield f"{each.name} restarts", partial(self.restart, each)

    def call(self, name: str) -> None:
        process, seat = name.split(" to ")
        room = (StorageReport(STORAGE, 1, 1, 0),)
        request = Register(NODE, ADDRESSES[process], process, room)
        self.calls[name] = self.seats[seat].registrar.register(request)
        self.go_on(name)

    def go_on(self, name: str) -> None:
        """Let a call run until it waits again; what it refuses is no matter."""
        try:
            self.calls[name].send(None)
        except (StopIteration, PaxosBlockError) as end:
            del self.calls[name]
            if name.startswith("begin ") and isinstance(end, StopIteration):
                seat = self.seats[name.removeprefix("begin ")]
                seat.begun = self.leader == seat.name
        self.look()

    def end(self, process: str, *others: str) -> None:
        """A process ends; the NameNode that it called goes on all the same."""
        self.lives = {*self.lives, *others} - {process}

    def elect(self, name: str) -> None:
        """Another begins; the one before is told later, or at once: it can commit nothing."""
        self.begins += 1
        before = self.seats.get(self.leader)
        if before is not None:
            before.begun = False
            before.registrar.end()
            self._drop(f"begin {before.name}")
        self.leader = name
        self.calls[f"begin {name}"] = self.seats[name].registrar.begin()

    def restart(self, seat: Seat) -> None:
        self.restarts -= 1
        for name in [each for each in self.calls if each.endswith(f" {seat.name}")]:
            self._drop(name)
        seat.start()
        if self.leader == seat.name:
            self.leader = ""

    def _drop(self, name: str) -> None:
        if (call := self.calls.pop(name, None)) is not None:
            call.close()

    def look(self) -> None:
        """Whoever counts in the NameNode that leads follows one that has ended."""
        seat = self.seats.get(self.leader)
        if seat is None or not seat.begun:
            return
        for process in ADDRESSES:
            if process in self.lives and seat.datanodes.is_current(NODE, process):
                before = [each for each in self.counted if each in self.lives and each != process]
                assert not before, f"{process} counts, and {before[0]} lives"
                self.counted.add(process)

    def state(self) -> str:
        """All that what comes depends on."""
        seats = [
            (
                each.applied,
                each.begun,
                each.registrar._leads,
                [(node.incarnation, node.follows) for node in each.datanodes],
            )
            for each in self.seats.values()
        ]
        calls = [(name, _waits_in(call)) for name, call in sorted(self.calls.items())]
        kept = (self.leader, len(self.log), sorted(self.lives), self.begins, self.restarts)
        record = processes.find(_newest(self).machine, NODE)
        return repr((seats, calls, kept, sorted(self.counted), record))

    def close(self) -> None:
        for call in self.calls.values():
            call.close()


def _newest(world: World) -> Seat:
    return max(world.seats.values(), key=lambda seat: seat.applied)


def _waits_in(call: Any) -> str:
    """Return the places where a call waits, with what it knows there."""
    places: list[object] = []
    while hasattr(call, "cr_frame") and call.cr_frame is not None:
        known = {
            name: value
            for name, value in call.cr_frame.f_locals.items()
            if name in {"request", "recorded", "before", "ended", "each", "follows", "entering"}
        }
        places.append((call.cr_code.co_name, call.cr_frame.f_lasti, sorted(known.items())))
        call = call.cr_await
    return repr(places)


def explored(depth: int) -> int:
    """Visit every state within `depth` moves; return how many there are."""
    seen = set[str]()
    paths: list[tuple[tuple[str, ...], list[str]]] = [((), _names(World()))]
    for _ in range(depth):
        after: list[tuple[tuple[str, ...], list[str]]] = []
        for path, names in paths:
            for name in names:
                world = _after((*path, name))
                if (state := world.state()) not in seen:
                    seen.add(state)
                    after.append(((*path, name), _names(world)))
                world.close()
        paths = after
    return len(seen)


def _names(world: World) -> list[str]:
    return [name for name, _ in world.moves()]


def _after(path: tuple[str, ...]) -> World:
    world = World()
    for name in path:
        try:
            dict(world.moves())[name]()
        except AssertionError as error:
            world.close()
            raise AssertionError(f"{error}, after: {', '.join(path)}") from error
    return world


def test_no_two_that_live_count_for_one_datanode_whatever_comes_when() -> None:
    assert explored(4) == 723


@pytest.mark.slow
def test_nor_do_they_after_three_more_moves() -> None:
    assert explored(7) == 11244


async def begin_with_whoever_is_there(registrar: Registrar) -> None:
    """A leader goes on with those that it took in as it followed."""
    registrar._leads = True
    await registrar._catalog.view()


def record_in_anyones_place(draft: Draft, entering: Entering) -> None:
    """The entry is no compare-and-set."""
    draft.put(keys.process(entering.node), encode(entering.process))


async def believe_without_asking(registrar: Registrar, node: str, before: ProcessRecord) -> bool:
    """Whoever is before has ended."""
    return True


@pytest.mark.parametrize(
    ("where", "what", "fault"),
    [
        pytest.param(Registrar, "begin", begin_with_whoever_is_there, marks=pytest.mark.slow),
        (processes, "enter", record_in_anyones_place),
        (Registrar, "_has_ended", believe_without_asking),
    ],
)
def test_a_planted_fault_is_found(
    monkeypatch: pytest.MonkeyPatch, where: Any, what: str, fault: Any
) -> None:
    monkeypatch.setattr(where, what, fault)
    with pytest.raises(AssertionError, match="counts, and"):
        explored(6)
