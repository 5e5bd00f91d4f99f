"""The known DataNodes, their places, liveness and fullness: soft state from their own reports.

Time is an argument: seconds on a clock that does not go back.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from paxosblock.api.care import AdminState
from paxosblock.api.namenode import NO_BLOCK, BlockMember, Excluded
from paxosblock.api.reports import LAST_BLOCK, BlockRange, Heartbeat, Register, StorageReport
from paxosblock.base.rack import FAR_AWAY, Location, distance
from paxosblock.errors import InvalidRequestError, NotReadyError
from paxosblock.host.logs import facts
from paxosblock.namenode.blocks.admin_states import AdminStates
from paxosblock.namenode.blocks.placement import Blame, Candidate
from paxosblock.namenode.blocks.signer import Signer
from paxosblock.namenode.catalog.records import ProcessRecord
from paxosblock.protocol.types import FIRST_GENERATION, BlockId, Generation, StorageId

_log = logging.getLogger(__name__)


class Liveness(enum.Enum):
    """The time since a DataNode was last heard from, in three classes."""

    LIVE = "live"
    STALE = "stale"
    """Chosen last for new replicas and reads."""
    DEAD = "dead"
    """Its replicas count as unreachable until it is heard from again."""


@dataclass(slots=True)
class Reported:
    """The block up to which a storage has reported its replicas without a gap, in order of ids."""

    up_to: BlockId = NO_BLOCK

    @property
    def complete(self) -> bool:
        """True if all replicas were reported."""
        return self.up_to == LAST_BLOCK

    def add(self, page: BlockRange) -> None:
        """Note a page; a page after a gap does not count."""
        if page.after <= self.up_to:
            self.up_to = max(self.up_to, page.last)


@dataclass(slots=True)
class PlacedBlocks:
    """The blocks that a storage was given since it last told how much room it has."""

    open: dict[BlockId, int] = field(default_factory=dict)
    """Those that are not ended, and how many bytes each may take."""
    pending_bytes: int = 0
    """All of them may take so much. One that is ended takes what it has: writers of small files end
    more of them between two heartbeats than there would be room for."""

    def note(self, block: BlockId, size_bytes: int) -> None:
        """Count a block that may take so much, once."""
        self.end(block, 0)
        self.open[block] = size_bytes
        self.pending_bytes += size_bytes

    def end(self, block: BlockId, size_bytes: int) -> None:
        """Note that a block has so many bytes and gets no more, if it is one of these."""
        promised_bytes = self.open.pop(block, None)
        if promised_bytes is not None:
            self.pending_bytes += size_bytes - promised_bytes


@dataclass(slots=True)
class DataNodeDescriptor:
    """One DataNode as it last described itself.

    `placed` is what each storage was given since then; `suspected` is True if it could not be
    reached since then. `follows` is the incarnation that was on record as this process came, and
    had ended; "" if there was none, or it fell silent.
    """

    node: str
    address: str
    incarnation: str
    storages: dict[StorageId, StorageReport]
    heard_s: float
    location: Location
    cluster: str = ""
    open_blocks: int = 0
    placed: dict[StorageId, PlacedBlocks] = field(default_factory=dict)
    reported: dict[StorageId, Reported] = field(default_factory=dict)
    registered_s: float = 0.0
    asked: bool = False
    """True if a report was asked for that it may have sent already: it sends none by itself."""
    suspected: bool = False
    last_seen_as: Liveness = Liveness.LIVE
    follows: str = ""


_NONE: Final = PlacedBlocks()


class DataNodes:
    """The registry of one NameNode."""

    def __init__(
        self, stale_after_s: float, dead_after_s: float, racks: Mapping[str, str] | None = None
    ) -> None:
        """Start without any DataNode. `racks`, by DataNode or machine, win over their own words."""
        self._racks = racks or {}
        self._rack_of_host: dict[str, str] = {}
        self._stale_after_s = stale_after_s
        self._dead_after_s = dead_after_s
        self._nodes: dict[str, DataNodeDescriptor] = {}
        self._homes: dict[StorageId, str] = {}
        self.listens_since_s = 0.0
        """A process that has not registered here since then fell silent at that time."""
        self.admin = AdminStates()
        self.signer: Signer | None = None
        """Signs what they admit; None: they admit everything."""

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[DataNodeDescriptor]:
        return iter(self._nodes.values())

    def register(
        self,
        request: Register,
        now_s: float,
        cluster: str = "",
        *,
        ended: Collection[str] = frozenset(),
        recorded: ProcessRecord | None = None,
    ) -> None:
        """Learn a DataNode, or that it came back under a new incarnation or address.

        Args:
            cluster: the id of this cluster; "" while it is not known.
            ended: the incarnations of the processes before it that are known to have ended.
            recorded: the process that the catalog has for this DataNode.

        Raises:
            InvalidRequestError: the DataNode is of another cluster; or one of its storages belongs
                to another live DataNode: a volume that was copied must come back under a new id
                (PROTOCOL.md 1).
            NotReadyError: as `check_place`.
        """
        self.check_cluster(request, cluster)
        self.check_place(request, now_s, ended, recorded)
        for report in request.storages:
            self._check_home(request.node, report.storage, now_s)
        for report in request.storages:
            if (home := self.home(report.storage)) is not None:
                del home.storages[report.storage]
        if (before := self._nodes.get(request.node)) is not None:
            for storage in before.storages:
                del self._homes[storage]
        node = DataNodeDescriptor(
            node=request.node,
            address=request.address,
            incarnation=request.incarnation,
            storages=_by_id(request.storages),
            heard_s=now_s,
            location=self._location(request),
            cluster=cluster,
            registered_s=now_s,
            follows=recorded.incarnation if recorded and recorded.incarnation in ended else "",
        )
        self._nodes[request.node] = node
        self._homes |= dict.fromkeys(node.storages, request.node)
        self._rack_of_host[node.location.host] = node.location.rack
        _log.info(
            "DataNode registered",
            extra=facts(
                datanode=node.node,
                address=node.address,
                incarnation=node.incarnation,
                rack=node.location.rack,
                storages=",".join(node.storages),
            ),
        )

    def heartbeat(self, request: Heartbeat, now_s: float, cluster: str = "") -> bool:
        """Note that a DataNode lives; False if it has to register first.

        It has to register again, too, if `cluster`, the id of this cluster, was not known then.
        """
        node = self._nodes.get(request.node)
        if node is None or node.incarnation != request.incarnation or node.cluster != cluster:
            return False
        node.heard_s = now_s
        node.suspected = False
        node.open_blocks = request.open_blocks
        known = _by_id(request.storages)
        if known.keys() != node.storages.keys():
            return False
        node.storages = known
        node.placed.clear()
        return True

    def is_current(self, node: str, incarnation: str) -> bool:
        """True if this is the process that registered last under that name."""
        known = self._nodes.get(node)
        return known is not None and known.incarnation == incarnation

    def suspect(self, storage: StorageId) -> None:
        """Note that the storage's DataNode could not be reached: it is chosen last until it is
        heard from again.
        """
        if (home := self.home(storage)) is not None:
            home.suspected = True

    def reported(self, storage: StorageId) -> Reported:
        """Return the point that a storage's reports have reached since its DataNode registered.

        It is another object after `ask_for_reports`, and when the DataNode registers again, so that
        a page that was begun before does not count.
        """
        home = self.home(storage)
        return Reported() if home is None else home.reported.setdefault(storage, Reported())

    def ask_for_report(self, storage: StorageId) -> None:
        """Ask for a full report of one storage again."""
        if (home := self.home(storage)) is not None:
            home.reported.pop(storage, None)
            home.asked = True

    def ask_for_reports(self) -> None:
        """Ask for full reports again: earlier reports do not count."""
        for node in self._nodes.values():
            node.reported.clear()
            node.asked = True

    def has_reported(self, storage: StorageId) -> bool:
        """True if this storage has reported all it holds since its DataNode registered."""
        return self.reported(storage).complete

    def must_report(self, name: str, now_s: float) -> bool:
        """True if a DataNode should send full reports, as those of its start did not all come, or
        they are asked for again.

        A DataNode that is sending them already goes on.
        """
        node = self._nodes[name]
        late = node.asked or now_s - node.registered_s >= self._stale_after_s
        # A failed storage reports nothing any more.
        due = (each.storage for each in node.storages.values() if not each.failed)
        return late and not all(self.has_reported(storage) for storage in due)

    def watch(self, now_s: float) -> None:
        """Log the DataNodes that fell silent, or came back, since the last look."""
        for node in self._nodes.values():
            seen_as = self.liveness(node, now_s)
            if seen_as is not node.last_seen_as:
                node.last_seen_as = seen_as
                level = logging.WARNING if seen_as is Liveness.DEAD else logging.INFO
                _log.log(level, "DataNode is %s", seen_as.value, extra=facts(datanode=node.node))

    def liveness(self, node: DataNodeDescriptor, now_s: float) -> Liveness:
        """Return the liveness of `node`, by the time since it was heard from."""
        silence_s = now_s - node.heard_s
        if silence_s >= self._dead_after_s:
            return Liveness.DEAD
        stale = node.suspected or silence_s >= self._stale_after_s
        return Liveness.STALE if stale else Liveness.LIVE

    def dead_for_s(self, node: DataNodeDescriptor, now_s: float) -> float:
        """Return the seconds for which `node` has counted as dead; below 0 if it does not."""
        return now_s - node.heard_s - self._dead_after_s

    def home(self, storage: StorageId) -> DataNodeDescriptor | None:
        """Return the DataNode in which a storage was last seen."""
        name = self._homes.get(storage)
        return None if name is None else self._nodes[name]

    def signed(self, storage: StorageId, block: BlockId, rights: int) -> bytes:
        """Return a capability for a block at a storage; b"" if there are none, or the storage is
        not known."""
        home = None if self.signer is None else self.home(storage)
        if self.signer is None or home is None:
            return b""
        (signed,) = self.signer.sign((home.node,), block, rights, FIRST_GENERATION)
        return signed

    def all_signed(
        self, storages: Sequence[StorageId], block: BlockId, rights: int, generation: Generation
    ) -> Sequence[bytes]:
        """Return a capability for a block at each of its storages; b"" if there are none."""
        if self.signer is None:
            return (b"",) * len(storages)
        homes = map(self._homes.get, storages)
        return self.signer.sign([home or "" for home in homes], block, rights, generation)

    def address(self, storage: StorageId) -> str:
        """Return the address of a storage; "" while unknown."""
        home = self.home(storage)
        return home.address if home else ""

    def fullness(self, storage: StorageId) -> float:
        """Return the share of a storage's own room that is taken; 1 for an unknown storage."""
        home = self.home(storage)
        if home is None:
            return 1.0
        report = home.storages[storage]
        return report.used_bytes / max(1, report.used_bytes + report.free_bytes)

    def is_reachable(self, storage: StorageId, now_s: float) -> bool:
        """True if there is hope that a message to this storage is answered: its volume works, as
        far as its DataNode said, which is not dead."""
        home = self.home(storage)
        if home is None or home.storages[storage].failed:
            return False
        return self.liveness(home, now_s) is not Liveness.DEAD

    def lives(self, storage: StorageId, now_s: float) -> bool:
        """True if this storage's DataNode was heard just now, and its volume works."""
        home = self.home(storage)
        if home is None or home.storages[storage].failed:
            return False
        return self.liveness(home, now_s) is Liveness.LIVE

    def locate(self, host: str) -> Location | None:
        """Return the place of a machine, as the table of racks or a DataNode on it says; None if
        neither knows it.
        """
        rack = self._racks.get(host) or self._rack_of_host.get(host)
        return None if rack is None or not host else Location(host, rack)

    def member(
        self,
        storage: StorageId,
        now_s: float,
        asker: Location | None = None,
        capability: bytes = b"",
    ) -> BlockMember:
        """Return a storage as clients see it; only a live one (not stale) is `live`.

        Args:
            asker: the machine from which the distance is measured.
            capability: what lets the client read or write there.
        """
        home = self.home(storage)
        if home is None:
            return BlockMember(storage, node="", address="", live=False)
        live = self.liveness(home, now_s) is Liveness.LIVE
        failed = home.storages[storage].failed
        return BlockMember(
            storage,
            home.node,
            home.address,
            live and not failed,
            home.location.rack,
            FAR_AWAY if asker is None else distance(asker, home.location),
            capability,
        )

    def admin_state(self, storage: StorageId, now_s: float) -> AdminState:
        """Return the state of a storage's DataNode, even of one that has not registered here."""
        home = self.home(storage)
        name = self.admin.node_of(storage) if home is None else home.node
        return AdminState.IN_SERVICE if name is None else self.admin.state(name, now_s)

    def named(self, written: str) -> tuple[DataNodeDescriptor, ...]:
        """Return the DataNode of this id, otherwise those at this host:port."""
        if (node := self._nodes.get(written)) is not None:
            return (node,)
        return tuple(node for node in self if node.address == written)

    def candidates(
        self, now_s: float, excluded: tuple[Excluded, ...] = ()
    ) -> tuple[Candidate, ...]:
        """Return all storages for `placement.place`; `excluded` comes from the writer."""
        blames = self._blames(excluded, now_s)
        found: list[Candidate] = []
        for node in self._nodes.values():
            liveness = self.liveness(node, now_s)
            load = node.open_blocks
            for placed in node.placed.values():
                load += len(placed.open)
            for report in node.storages.values():
                candidate = Candidate(
                    storage=report.storage,
                    node=node.node,
                    free_bytes=report.free_bytes,
                    load=load,
                    pending_bytes=node.placed.get(report.storage, _NONE).pending_bytes,
                    live=liveness is not Liveness.DEAD,
                    stale=liveness is Liveness.STALE,
                    failed=bool(report.failed),
                    blame=blames.get(node.node, Blame.NONE),
                    rack=node.location.rack,
                    host=node.location.host,
                    admin=self.admin.state(node.node, now_s),
                )
                found.append(candidate)
        return tuple(found)

    def _blames(self, excluded: tuple[Excluded, ...], now_s: float) -> dict[str, Blame]:
        """Judge nodes by what was heard from them since one of their storages failed a writer.

        Only a sign of life after the failure counts, because a node that was killed a moment ago
        looks alive by everything that was heard before.
        """
        blames: dict[str, Blame] = {}
        for each in excluded:
            home, failed_s = self.home(each.storage), now_s - each.ago_s
            if home is None or home.registered_s > failed_s:
                continue
            heard_again = home.heard_s > failed_s and not each.resting
            blame = Blame.PAST if heard_again else Blame.FRESH
            blames[home.node] = max(blame, blames.get(home.node, Blame.NONE))
        return blames

    def note_placed(self, block: BlockId, storages: tuple[StorageId, ...], size_bytes: int) -> None:
        """Count a block that these storages will hear of, and that may take so many bytes."""
        for storage in storages:
            if (home := self.home(storage)) is not None:
                home.placed.setdefault(storage, PlacedBlocks()).note(block, size_bytes)

    def note_ended(self, block: BlockId, storages: tuple[StorageId, ...], size_bytes: int) -> None:
        """Note that a block that these storages were given has so many bytes, and gets no more."""
        for storage in storages:
            home = self.home(storage)
            if home is not None and (placed := home.placed.get(storage)) is not None:
                placed.end(block, size_bytes)

    def _location(self, request: Register) -> Location:
        host = request.host or request.address.rpartition(":")[0]
        known = self._racks.get(request.node) or self._racks.get(host)
        return Location(host, known or request.rack)

    def check_cluster(self, request: Register, cluster: str) -> None:
        """Raise InvalidRequestError for a DataNode of another cluster than this one."""
        if request.cluster in {"", cluster} or not cluster:
            return
        if self.is_current(request.node, request.incarnation):
            self.forget(request.node)  # it had registered before this cluster's id was known
        raise InvalidRequestError(
            f"DataNode {request.node}: it is of cluster {request.cluster}, this is {cluster}",
            node=request.node,
        )

    def before(
        self, request: Register, recorded: ProcessRecord | None = None
    ) -> tuple[ProcessRecord, ...]:
        """Return the other processes whose place `request` wants: the last one of its name here,
        and the one on record. None are before the one on record: it was taken in as they had ended.
        """
        if recorded is not None and recorded.incarnation == request.incarnation:
            return ()
        here = self._nodes.get(request.node)
        known = () if here is None else (ProcessRecord(here.address, here.incarnation),)
        found = dict.fromkeys((*known, *(() if recorded is None else (recorded,))))
        return tuple(each for each in found if each.incarnation != request.incarnation)

    def check_place(
        self,
        request: Register,
        now_s: float,
        ended: Collection[str],
        recorded: ProcessRecord | None = None,
    ) -> None:
        """Raise NotReadyError while a process before it may live (D10 of PROTOCOL.md).

        The two may work on a volume and a copy of it, which has forgotten what was promised since.
        A process that `ended` is replaced at once, however alive it looks.
        """
        for before in self.before(request, recorded):
            heard_s = self.listens_since_s
            if self.is_current(request.node, before.incarnation):
                heard_s = self._nodes[request.node].heard_s
            if before.incarnation not in ended and now_s - heard_s < self._dead_after_s:
                raise NotReadyError(
                    f"DataNode {request.node}: the process before this one, at {before.address}, "
                    f"was heard {now_s - heard_s:.1f} s ago and does not answer; it may live",
                    node=request.node,
                )

    def forget(self, name: str) -> None:
        """Let a DataNode register as if it never had."""
        for storage in self._nodes.pop(name).storages:
            del self._homes[storage]

    def _check_home(self, node: str, storage: StorageId, now_s: float) -> None:
        home = self.home(storage)
        if home is None or home.node == node:
            return
        if self.liveness(home, now_s) is not Liveness.DEAD:
            raise InvalidRequestError(
                f"storage {storage} of DataNode {node} is in use by DataNode {home.node}",
                storage=storage,
                node=home.node,
            )


def _by_id(reports: tuple[StorageReport, ...]) -> dict[StorageId, StorageReport]:
    return {report.storage: report for report in reports}
