"""Counts how often two services were at work on one block at once, and two faults in a cluster.

A service is at work from the call of its function to its return, in a process that has not ended;
one that works in steps (a writer between two chunks, a message that decides something) for a while
after each, and a fault until what it took away is back. A pair that no life of a long run shows is
a seam that nothing looks at.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations
from types import ModuleType
from typing import Any, Final

from paxosblock.datanode.scrubber import Scrubber
from paxosblock.namenode.blocks.cutter import Cutter
from paxosblock.namenode.blocks.learner import Learner
from paxosblock.namenode.blocks.rebuilder import Rebuilder
from paxosblock.namenode.blocks.recoverer import Recoverer
from paxosblock.namenode.blocks.replication.balancer import Balancer
from paxosblock.namenode.blocks.replication.copies import Copies
from paxosblock.namenode.blocks.replication.reducer import Reducer
from paxosblock.namenode.catalog import concat, tree
from paxosblock.namenode.catalog.draft import Draft, Slices
from paxosblock.namenode.catalog.records import FileInode
from paxosblock.protocol import finalize
from paxosblock.protocol.finalize import BlockRecord, Refused
from paxosblock.protocol.messages import Delete, Finalize
from paxosblock.protocol.types import BlockId
from tests.raft.virtual_time import Host, VirtualTimeLoop, running_host

SERVICES: Final = (
    "write", "append", "truncate", "rebuild", "recovery", "copy", "reduce", "balance", "scrub",
    "finalize", "delete", "concat", "restore",
)  # fmt: skip
FAULTS: Final = (
    "NameNode cut off", "NameNode killed", "NameNode stopped", "bad weather", "byte damaged",
    "clock jumped",
    "cut off", "disk full", "machine lost", "power cut", "process killed", "process stopped",
    "streams slow", "volume failed",
)  # fmt: skip
OTHER_DAMAGE: Final = ("byte of the log damaged", "metadata damaged")
LINGERS_S: Final = 0.5
"""Seconds of virtual time for which something that has no end of its own counts as under way."""
MOVE_S: Final = 3.0
"""Seconds that a move to balance storages takes: a copy, and the source leaves."""
MOVED_MAX: Final = 8
"""The most blocks of a file that is joined to another one."""

Pair = tuple[str, str]
Changes = tuple[tuple[ModuleType | type, str, object], ...]


def pair(one: str, other: str) -> Pair:
    """Return the two in the order in which pairs are counted."""
    return (one, other) if one < other else (other, one)


@dataclass(slots=True, eq=False)
class _Work:
    service: str
    host: Host | None
    until_s: float = math.inf


@dataclass(slots=True)
class Pairs:
    """The pairs of one life."""

    loop: VirtualTimeLoop
    of_services: Counter[Pair] = field(default_factory=Counter)
    of_faults: Counter[Pair] = field(default_factory=Counter)
    watches: list[Callable[[str, BlockId], None]] = field(default_factory=list)
    """Called when a service begins to work on a block."""
    _at_work: dict[BlockId, list[_Work]] = field(default_factory=dict)
    _faults: dict[str, float] = field(default_factory=dict)
    _last_fault: str = ""

    # -- services ---------------------------------------------------------------------------------

    def begin(self, service: str, block: BlockId, host: Host | None) -> _Work:
        """Note that a service is at work on a block from now on."""
        now = self.loop.now
        others = [each for each in self._at_work.get(block, ()) if each.until_s >= now]
        for other in {each.service for each in others} - {service}:
            self.of_services[pair(service, other)] += 1
        work = _Work(service, host)
        self._at_work[block] = [*others, work]
        for watch in self.watches:
            watch(service, block)
        return work

    def touch(
        self, service: str, block: BlockId, host: Host | None, for_s: float = LINGERS_S
    ) -> None:
        """Note a step of a service that has no end of its own."""
        self.begin(service, block, host).until_s = self.loop.now + for_s

    @contextmanager
    def at_work(self, service: str, block: BlockId) -> Iterator[None]:
        """Note that a service is at work on a block within a `with`."""
        work = self.begin(service, block, running_host())
        try:
            yield
        finally:
            work.until_s = self.loop.now

    def ended(self, host: Host) -> None:
        """The process is no more, and nothing in it is at work."""
        for block, works in tuple(self._at_work.items()):
            self._at_work[block] = [each for each in works if each.host is not host]

    # -- faults -----------------------------------------------------------------------------------

    def fault(self, what: str) -> None:
        """Something happened: a fault, if it is one of `FAULTS`."""
        what = "byte damaged" if what in OTHER_DAMAGE else what
        if what in FAULTS:
            now = self.loop.now
            for other, until_s in self._faults.items():
                if until_s >= now and other != what:
                    self.of_faults[pair(what, other)] += 1
            self._faults[what] = now + LINGERS_S
            self._last_fault = what

    def lasts(self, seconds: float) -> None:
        """The fault that happened last is over after this time."""
        if self._last_fault:
            until_s = self.loop.now + seconds
            self._faults[self._last_fault] = max(self._faults[self._last_fault], until_s)
            self._last_fault = ""

    # -- the shipped code -------------------------------------------------------------------------

    def changes(self) -> Changes:
        """Return what to change in the shipped code, so that each service tells when it works."""
        return (
            self._spans("rebuild", Rebuilder, "_try_until", lambda request, _: request.block),
            self._spans("recovery", Recoverer, "_recover", lambda block, _: block),
            self._spans("truncate", Cutter, "_ask", lambda record, _: record.block),
            self._decides("copy", Copies, "_make", lambda copy: copy.record.block),
            self._decides("reduce", Reducer, "_part", lambda record, *_: record.block),
            self._decides("restore", Learner, "_learn", lambda record: record.block),
            self._spans("scrub", Scrubber, "_scrub", lambda block: block.id),
            self._moves(),
            self._cuts(),
            self._joins(),
        )

    def _spans(
        self, service: str, owner: type, name: str, block_of: Callable[..., BlockId]
    ) -> tuple[type, str, object]:
        inner: Callable[..., Awaitable[Any]] = getattr(owner, name)

        async def spanned(it: Any, *args: Any, **named: Any) -> Any:
            with self.at_work(service, block_of(*args)):
                return await inner(it, *args, **named)

        return owner, name, spanned

    def _decides(
        self, service: str, owner: type, name: str, block_of: Callable[..., BlockId]
    ) -> tuple[type, str, object]:
        """As `_spans`; what was decided is told to the members for a while afterwards (P5, D7)."""
        inner: Callable[..., Awaitable[Any]] = getattr(owner, name)

        async def spanned(it: Any, *args: Any, **named: Any) -> Any:
            with self.at_work(service, block_of(*args)):
                done = await inner(it, *args, **named)
            self.touch(service, block_of(*args), running_host())
            return done

        return owner, name, spanned

    def heard(self, host: Host | None, message: object) -> None:
        """A DataNode is asked for something by this message."""
        if isinstance(message, Finalize | Delete):
            service = "finalize" if isinstance(message, Finalize) else "delete"
            self.touch(service, message.block, host)

    def _moves(self) -> tuple[type, str, object]:
        begin = Balancer._begin

        def begun(balancer: Balancer, run: Any, record: BlockRecord, *rest: Any) -> None:
            self.touch("balance", record.block, running_host(), MOVE_S)
            begin(balancer, run, record, *rest)

        return Balancer, "_begin", begun

    def _cuts(self) -> tuple[ModuleType, str, object]:
        truncate = finalize.truncate

        def cut(record: BlockRecord, length: int, size_bytes: int) -> BlockRecord | Refused:
            if length < record.length:
                self.touch("truncate", record.block, running_host())
            return truncate(record, length, size_bytes)

        return finalize, "truncate", cut

    def _joins(self) -> tuple[ModuleType, str, object]:
        move = concat._move_blocks

        def moved(draft: Draft, source: FileInode, *rest: Any) -> Slices[int]:
            for place in tree.last_places(draft, source.number, MOVED_MAX):
                self.touch("concat", place.block, running_host())
            return (yield from move(draft, source, *rest))

        return concat, "_move_blocks", moved


def empty(names: Iterable[str], counts: Counter[Pair]) -> list[Pair]:
    """Return the pairs of `names` that were not counted. None is impossible by a rule: a block that
    was cut, joined or left is open again before all of its members were told."""
    return [each for each in (pair(*two) for two in combinations(names, 2)) if not counts[each]]


def table(names: tuple[str, ...], counts: Counter[Pair]) -> list[str]:
    """Return the lines of a table of all pairs."""
    lines = [" " * 18 + "".join(f"{name[:8]:>10}" for name in names[1:])]
    for row, one in enumerate(names[:-1]):
        cells = []
        for other in names[1:]:
            shown = str(counts[pair(one, other)]) if names.index(other) > row else ""
            cells.append(f"{shown:>10}")
        lines.append(f"{one:18}" + "".join(cells))
    return lines
