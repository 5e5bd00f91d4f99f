"""The progress of DataNodes that are to leave, and the blocks that still hold them up.

The monitor and the reducer copy and remove replicas of all blocks, by the state of each storage.
This module only looks at all blocks, as long as a node is to leave. The node may go once each of
its blocks has enough replicas on nodes that stay: as many as are asked for if it leaves for good,
min_replication if it leaves for a while (maintenance).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from paxosblock.api.care import AdminState, AdminStatus, HeldUp, HoldUp, LeavingNode
from paxosblock.api.namenode import NO_BLOCK
from paxosblock.namenode.blocks.datanodes import DataNodes
from paxosblock.namenode.blocks.replication.need_assessor import NeedAssessor
from paxosblock.namenode.blocks.replication.needs import StorageState, StorageView
from paxosblock.namenode.catalog.catalog import Catalog
from paxosblock.namenode.catalog.members import Demand
from paxosblock.namenode.catalog.records import BlockEntry, NodeRecord
from paxosblock.protocol.types import StorageId

PAGE: Final = 250
"""Blocks to look at before other tasks get a turn."""
SHOWN_MAX: Final = 100
"""Blocks to report as examples of those that hold a node up."""
REST: Final = 4.0
"""Pause between two looks, as a multiple of the time that the last one took."""
PAUSE_S: Final = 0.5
"""Shortest pause between two looks."""


@dataclass(slots=True)
class _Seen:
    """A node during one walk."""

    name: str
    record: NodeRecord
    blocks: int = 0
    waiting: int = 0
    open_blocks: int = 0
    shown: list[tuple[BlockEntry, HeldUp]] = field(default_factory=list)

    def note(self, entry: BlockEntry, held_up: HeldUp | None) -> None:
        """Note a block with a replica on the node, and the reason if that is still needed."""
        self.blocks += 1
        self.open_blocks += not entry.record.finalized
        if held_up is not None:
            self.waiting += 1
            if len(self.shown) < SHOWN_MAX:
                self.shown.append((entry, held_up))


@dataclass(frozen=True, slots=True)
class _LeavingWalk:
    """The state of the cluster at the start of a walk."""

    view: StorageView
    nodes: dict[str, _Seen]
    others: int
    """DataNodes that are live and stay."""

    def of(self, entry: BlockEntry) -> Iterator[_Seen]:
        """Yield the nodes that are to leave with a replica of this block."""
        for name in {self.view.place(member).node for member in entry.record.members}:
            if name in self.nodes:
                yield self.nodes[name]

    def stays(self, storage: StorageId) -> bool:
        """True if the node of a storage is not to leave."""
        return self.view.place(storage).state is StorageState.IN_SERVICE


class LeavingNodes:
    """Follows the nodes that are to leave, while this NameNode leads."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        datanodes: DataNodes,
        assessor: NeedAssessor,
        min_replication: int,
        clock_s: Callable[[], float],
    ) -> None:
        """`clock_s` is the clock that decides whether DataNodes are alive."""
        self._catalog = catalog
        self._datanodes = datanodes
        self._assessor = assessor
        self._min_replication = min_replication
        self._clock_s = clock_s
        self._seen: dict[str, LeavingNode] = {}
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """Look again, and report nothing older, because another node was asked to leave or to stay,
        or this NameNode begins to lead.
        """
        self._seen.clear()
        self._changed.set()

    def status(self) -> tuple[LeavingNode, ...]:
        """Return all nodes that are to leave, with the results of the last walk."""
        return tuple(
            self._seen.get(name) or LeavingNode(_status(name, record), known=False)
            for name, record in self._datanodes.admin.records(self._clock_s())
        )

    async def turn(self) -> None:
        """Look once, if a node is to leave; then rest."""
        if not self._datanodes.admin:
            await self._changed.wait()
        self._changed.clear()
        began_s = self._clock_s()
        await self.walk()
        rest_s = max(PAUSE_S, REST * (self._clock_s() - began_s))
        with suppress(TimeoutError):
            async with asyncio.timeout(rest_s):
                await self._changed.wait()

    async def walk(self) -> None:
        """Look for the blocks that hold the nodes up."""
        walk = self._begin_walk()
        after = NO_BLOCK
        while page := self._catalog.demand_page(after, PAGE):
            for demand in page:
                for node in walk.of(demand.entry):
                    node.note(demand.entry, self._held_up(walk, node, demand))
            after = page[-1].entry.record.block
            await asyncio.sleep(0)
        found = {name: await self._described(walk, node) for name, node in walk.nodes.items()}
        if not self._changed.is_set():  # else `found` may be from before a change
            self._seen = found

    def _begin_walk(self) -> _LeavingWalk:
        view = self._assessor.view()
        records = self._datanodes.admin.records(self._clock_s())
        nodes = {name: _Seen(name, record) for name, record in records}
        stay = {p.node for p in view.places.values() if p.state is StorageState.IN_SERVICE}
        return _LeavingWalk(view, nodes, len(stay))

    def _held_up(self, walk: _LeavingWalk, node: _Seen, demand: Demand) -> HeldUp | None:
        """Return the reason why a block still needs the node; None if it does not.

        A block that is no longer wanted (0) needs no node.
        """
        record, wanted = demand.entry.record, demand.wanted
        for_good = node.record.admin is AdminState.DECOMMISSIONED
        least = wanted if for_good else min(wanted, self._min_replication)
        if not record.finalized:
            elsewhere = sum(map(walk.stays, record.members))
            why = HoldUp.OPEN
            enough = not for_good and elsewhere >= least
        else:
            need = self._assessor.need(demand, walk.view)
            elsewhere = sum(map(walk.stays, need.sound))
            enough = elsewhere >= least
            why = HoldUp.NO_ROOM if walk.others < least else HoldUp.TOO_FEW
            why = HoldUp.MISSING if need.missing else why
        return None if enough else HeldUp(record.block, "", why, elsewhere, least)

    async def _described(self, walk: _LeavingWalk, node: _Seen) -> LeavingNode:
        paths = await self._catalog.block_paths(tuple(entry for entry, _ in node.shown))
        shown = zip(paths, node.shown, strict=True)
        return LeavingNode(
            _status(node.name, node.record),
            known=True,
            blocks=node.blocks,
            waiting=node.waiting,
            open_blocks=node.open_blocks,
            others=walk.others,
            held_up=tuple(replace(held_up, path=path) for path, (_, held_up) in shown),
        )


def _status(name: str, record: NodeRecord) -> AdminStatus:
    return AdminStatus(name, record.address, record.admin, record.expires_ms)
