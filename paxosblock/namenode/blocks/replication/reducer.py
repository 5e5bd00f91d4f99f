"""Members that leave (K13): damaged, gone for good, asked to leave, too many, in a crowded place.

`leaver`, which is pure, makes the choice. `Reducer` carries it out, one member of a block at a
time: the guard of K13 counts members that reported the present version, and after one has left none
have, until those that stay have answered (P5). So the guard makes the next member wait for that.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from paxosblock.errors import NotFoundError
from paxosblock.namenode.background import Background
from paxosblock.namenode.blocks.finalizer import Finalizer
from paxosblock.namenode.blocks.history import History
from paxosblock.namenode.blocks.replicas import Replicas
from paxosblock.namenode.blocks.replication.needs import Need, StorageState, StorageView
from paxosblock.namenode.catalog.catalog import Catalog
from paxosblock.namenode.catalog.records import BlockEntry
from paxosblock.protocol.finalize import BlockRecord, Refused
from paxosblock.protocol.types import BlockId, StorageId

FULLNESS_STEPS: Final = 20
"""Storages count as equally full if they differ by less than a twentieth of their room."""
UNDER_WAY_MAX: Final = 64
"""Members that leave at a time: they share entries of the log, for which writers wait."""

Fullness = Callable[[StorageId], float]
"""The share of a storage's room that is taken, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class Leaver:
    """A member that is to leave, the reason, and the members that stay with this version."""

    storage: StorageId
    why: str
    staying: tuple[StorageId, ...]


def leaver(
    record: BlockRecord,
    need: Need,
    view: StorageView,
    reported: Collection[StorageId],
    fullness: Fullness,
    *,
    preferred: StorageId | None = None,
) -> Leaver | None:
    """Return the member that leaves a finalized block next; None if none does, or none may yet.

    Damaged and lagging members leave first, then those that are lost or asked to leave, and of too
    many members the one in the most crowded place, in the fullest storage. As many members as are
    wanted stay that are sound, in service, and have reported this version; and a block that is in
    two racks stays in two, unless the member that leaves is of no use there.

    Args:
        need: the result of `needs.assess` with the same `view`.
        reported: members that reported the present version, under its own generation.
        preferred: the member that leaves first if there are too many.
    """
    if not need.wanted:
        return None
    stays = tuple(
        member
        for member in need.sound
        if member in reported and view.place(member).state is not StorageState.LEAVING
    )
    useless = [(each, "is damaged") for each in need.damaged]
    useless += [(each, "does not hold it") for each in need.lagging]
    lost = [each for each in need.gone if view.place(each).state is StorageState.LOST]
    useless += [(each, "is lost") for each in lost]
    if len(stays) >= need.wanted and useless:
        return Leaver(*useless[0], stays)
    asked = [each for each in need.gone if each not in lost]
    found = [(each, "was asked to leave") for each in asked]
    if not found and need.surplus:
        worth = _worth(record, stays, view, fullness)
        ordered = sorted(stays, key=lambda each: (each != preferred, worth(each)))
        found = [(each, "is one too many") for each in ordered]
    for storage, why in found:
        staying = tuple(each for each in stays if each != storage)
        if len(staying) >= need.wanted and _keeps_racks(
            storage, staying, min(2, need.wanted), view
        ):
            return Leaver(storage, why, staying)
    return None


def _worth(
    record: BlockRecord, members: tuple[StorageId, ...], view: StorageView, fullness: Fullness
) -> Callable[[StorageId], tuple[int, int, int, int]]:
    """Return a key that sorts members on crowded nodes, in crowded racks and full storages first.

    Storages that are about as full take turns, block by block.
    """
    nodes = Counter(view.place(each).node for each in members)
    racks = Counter(view.place(each).rack for each in members)

    def worth(storage: StorageId) -> tuple[int, int, int, int]:
        place, full = view.place(storage), int(fullness(storage) * FULLNESS_STEPS)
        tie = zlib.crc32(f"{record.block}/{storage}".encode())
        return -nodes[place.node], -racks[place.rack], -full, tie

    return worth


def _keeps_racks(
    storage: StorageId, staying: tuple[StorageId, ...], wanted: int, view: StorageView
) -> bool:
    """True if the block stays in as many racks as are wanted, of those it is in or could be in."""
    left = {view.place(each).rack for each in staying}
    had = left | {view.place(storage).rack}
    return len(left) >= min(wanted, len(had), view.racks)


class Reducer:
    """Lets members leave, on the leader only, and never in safe mode."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        replicas: Replicas,
        finalizer: Finalizer,
        history: History,
        background: Background,
        fullness: Fullness,
        holds: Callable[[], bool],
    ) -> None:
        """Use these parts of the node; no member leaves while `holds()`."""
        self._catalog = catalog
        self._replicas = replicas
        self._finalizer = finalizer
        self._history = history
        self._background = background
        self._fullness = fullness
        self._holds = holds
        self._leaving: set[BlockId] = set()
        self._preferred: dict[BlockId, StorageId] = {}

    @property
    def busy(self) -> bool:
        """True while a member is leaving."""
        return bool(self._leaving)

    def prefer(self, block: BlockId, storage: StorageId | None) -> None:
        """Let this member leave first if the block has too many; None for the best choice."""
        self._preferred.pop(block, None)
        if storage is not None:
            self._preferred[block] = storage

    def reduce(self, entry: BlockEntry, need: Need, view: StorageView) -> bool:
        """Let the next member of a finalized block leave, if one is to and may; True if it does.

        `need` is the result of `needs.assess` with the same `view`. If a member has not answered
        yet, or enough is under way, the block waits for another look.
        """
        record = entry.record
        apart = record.generation == record.finalized_generation  # else K4 prepares an APPEND
        busy = record.block in self._leaving or len(self._leaving) >= UNDER_WAY_MAX
        if busy or not apart or self._holds():
            return False
        holders, preferred = self._replicas.holders(record), self._preferred.get(record.block)
        found = leaver(record, need, view, holders, self._fullness, preferred=preferred)
        if found is None:
            return False
        self._leaving.add(record.block)
        work = self._part(record, found, live=view.place(found.storage).live)
        self._background.start(work, f"{found.storage} leaves block {record.block}")
        return True

    async def _part(self, record: BlockRecord, found: Leaver, *, live: bool) -> None:
        """K13, then P5 to the members that stay and D7 to the one that left.

        If this is interrupted, the walk over all blocks tells those that stay, and the one that
        left is told when it reports.
        """
        block, storage, generation = record.block, found.storage, record.finalized_generation
        try:
            entry = await self._catalog.remove_replica(block, storage, generation, found.staying)
        except NotFoundError:
            return  # the whole block was deleted
        finally:
            self._leaving.discard(block)
        if isinstance(entry, Refused):
            return
        decided = entry.record
        self._history.add(block, decided.finalized_generation, "left", storage, found.why)
        self._finalizer.dismiss(block, storage, generation, live=live)
        self._finalizer.spread(decided)
