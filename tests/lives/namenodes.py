"""The NameNodes of a simulated cluster: one, or several that replicate their store with each other.

The stores are the real ones; where there are several, so is the election, on a network of its own
for what NameNodes say to each other (`tests/raft/simulated_network.py`).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from paxosblock.config import NameNodeConfig
from paxosblock.errors import PaxosBlockError
from paxosblock.namenode.backups import Backup, fill
from paxosblock.namenode.calls import Service
from paxosblock.namenode.kv.interface import View
from paxosblock.namenode.kv.table import Receiver
from paxosblock.namenode.name_node import NameNode, over_rpc
from paxosblock.namenode.raft.folder_admission import Lineage
from paxosblock.namenode.raft.member_folder import MEMBER, check_member
from paxosblock.namenode.raft.new_member import make_of_catalog
from paxosblock.namenode.raft.options import Options
from paxosblock.namenode.raft.store import ReplicatedStore
from paxosblock.net.calls.call_server import RpcRouter
from tests.disks.simulated import SimulatedDisk
from tests.lives.first_starts import FirstStart, Flag
from tests.lives.network import Listener, SimulatedRpc
from tests.lives.world import World
from tests.memory_table import MEMORY, MemoryTable, Snapshot, encode_snapshot, load_snapshot
from tests.raft.members import node_of
from tests.raft.simulated_network import Network, SimulatedTransport
from tests.raft.virtual_time import Host

OPTIONS: Final = Options(
    heartbeat_s=0.3, election_min_s=1.0, election_max_s=2.0, commit_timeout_s=5.0
)
FOLDER: Final = Path("/simulated/namenode")
RAFT: Final = FOLDER / MEMBER


@dataclass(slots=True, eq=False)
class Seat:
    """The machine of one NameNode: its disk stays when a process ends."""

    address: str
    disk: SimulatedDisk = field(default_factory=SimulatedDisk)
    host: Host | None = None
    node: NameNode | None = None
    """Its store is open. None while it is not."""
    transport: SimulatedTransport | None = None
    may_refuse: bool = False
    """An operator damaged its folder, put another one into its place, or starts it wrongly."""
    refusal: str = ""
    """The reason for which it did not start; "" if it did, or is about to."""


class NameNodes:
    """All NameNodes of a cluster."""

    def __init__(self, world: World, count: int, config: NameNodeConfig) -> None:
        self.seats = tuple(Seat(f"namenode-{number}:9870") for number in range(count))
        self._world = world
        self._config = config
        self._rng = random.Random(world.rng.random())
        self._networks: dict[str, Network] = {}
        """By lineage: its members know each other by a key of their own."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of all NameNodes."""
        return tuple(seat.address for seat in self.seats)

    def leading(self) -> Seat | None:
        """Return the one that serves, has not stopped, and knows most; None if there is none."""
        found: Seat | None = None
        revision = -1
        for seat in self.seats:
            node, host = seat.node, seat.host
            if node is not None and node.leadership.serves and host is not None and not host.paused:
                known = node.store.view().revision
                if known > revision:
                    found, revision = seat, known
        return found

    def catalog(self) -> View | None:
        """Return what the one that knows most has applied, whether it leads, stands still, or has
        just ceased to lead: that is decided. None if no member's store is open."""
        stores = [seat.node.store for seat in self.seats if seat.node is not None]
        return max((each.view() for each in stores), key=lambda view: view.revision, default=None)

    # -- processes --------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin all of them, in a new cluster."""
        for seat in self.seats:
            self.start(seat, Flag.NEW_CLUSTER)

    def start(self, seat: Seat, flag: Flag = Flag.NONE) -> None:
        """Begin the process of a NameNode that has none; a cluster's only one has no flags."""
        assert seat.host is None
        seat.refusal = ""
        seat.host = self._world.new_host()
        self._world.begin(seat.host, self._run(seat, seat.host, flag))

    async def _run(self, seat: Seat, host: Host, flag: Flag) -> None:
        client = SimulatedRpc(self._world.network)
        reach = over_rpc(client, self._config.recovery_timeout_s)
        store = self._store(seat, host)
        node = NameNode(seat.address, self._config, store, self._world.loop.time, reach)
        router = RpcRouter()
        Service(node).add_to(router)
        self._world.network.listen(seat.address, Listener(host, router))
        try:
            if seat.transport is not None:
                first = FirstStart(seat.disk, RAFT, seat.address, self.addresses)
                lineage = await first.lineage(flag, router, client)
                seat.transport.network = self._network_of(lineage.name)
            else:
                check_member(RAFT, seat.address, (), new_cluster=False, disk=seat.disk)
            await store.start()
        except PaxosBlockError as error:
            if seat.host is host and not seat.disk.dead:  # else it was killed before
                self._refused(seat, error)
            return
        await node.start()
        seat.node = node

    def _refused(self, seat: Seat, error: PaxosBlockError) -> None:
        if not seat.may_refuse:
            self._world.mistake(f"{seat.address} cannot start: {error}")
        self.kill(seat)
        seat.refusal = str(error)

    def _store(self, seat: Seat, host: Host) -> ReplicatedStore:
        if len(self.seats) > 1:
            seat.transport = SimulatedTransport(self._network_of(""), seat.address, host)
        return ReplicatedStore(
            RAFT,
            seat.address,
            self.addresses,
            seat.transport,
            options=OPTIONS,
            disk=seat.disk,
            rng=random.Random(self._rng.random()),
            tables=MEMORY,
        )

    def _network_of(self, lineage: str) -> Network:
        if lineage not in self._networks:
            rng = random.Random(self._rng.random())
            self._networks[lineage] = Network(self._world.loop, rng)
        return self._networks[lineage]

    def kill(self, seat: Seat, *, power_cut: bool = False) -> None:
        """End its process in the middle of whatever it does, and the machine's with a power cut."""
        host, seat.host = seat.host, None
        assert host is not None
        host.pause()  # for ever
        self._world.network.unplug(host)
        if seat.transport is not None:
            seat.transport.unplug()
        seat.node = seat.transport = None
        seat.disk = seat.disk.after_the_end(self._rng, power_cut=power_cut)

    # -- a backup ---------------------------------------------------------------------------------

    def back_up(self) -> Snapshot:
        """Return what `admin backup` fetches from the one that serves."""
        seat = self.leading()
        assert seat is not None
        assert seat.node is not None
        store = seat.node.store
        assert isinstance(store, ReplicatedStore)
        table = node_of(store).machine._table
        assert isinstance(table, MemoryTable)
        return table.snapshot()

    def bring_back(self, backup: Snapshot) -> None:
        """Replace the folders of all, wherever they are, by what `admin restore` makes of a backup,
        and start them: the first has the catalog, and the others join it."""
        for seat in self.seats:
            if seat.host is not None:
                self.kill(seat)
        members = self.addresses if len(self.seats) > 1 else ()
        found, lineage = Backup(backup.revision, ""), "brought back"
        for seat in self.seats:
            seat.disk = SimulatedDisk()
            receiver = self._received(seat.disk, RAFT, backup)
            if seat is self.seats[0]:
                fill(seat.disk, RAFT, receiver, found=found, members=members, lineage=lineage)
                backup = load_snapshot(seat.disk, RAFT)
            else:
                let_in = Lineage(lineage, born=False)
                make_of_catalog(
                    seat.disk, RAFT, receiver, members=members, lineage=let_in, first=False
                )
            self.start(seat)

    @staticmethod
    def _received(disk: SimulatedDisk, folder: Path, snapshot: Snapshot) -> Receiver:
        receiver = MEMORY.receive(disk, folder)
        for piece in encode_snapshot(snapshot):
            receiver.write(piece)
        return receiver

    # -- their network ----------------------------------------------------------------------------

    def cut(self, seat: Seat) -> None:
        """Nothing comes to a NameNode, from the others or any client, nor from it."""
        if seat.host is not None:
            self._world.network.cut(seat.host)
            for network in self._networks.values():
                network.partition({seat.address}, self.addresses)

    def heal(self) -> None:
        """They hear each other again."""
        for network in self._networks.values():
            network.heal()
