"""The machines of a simulated cluster, and the processes that run on them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from paxosblock.api.datanode import (
    ACCEPT,
    ACCEPT_ALL,
    FIND_CHUNK,
    FIND_REPLICA,
    LIST_REPLICAS,
    PROCESS,
)
from paxosblock.client.async_client import AsyncClient
from paxosblock.config import ClientConfig, DataNodeConfig, NameNodeConfig
from paxosblock.datanode.data_node import DataNode, open_volumes
from paxosblock.datanode.store.disk_format import SmallLimits
from paxosblock.errors import PaxosBlockError
from paxosblock.namenode.name_node import NameNode
from paxosblock.net.calls.call_server import RpcRouter
from tests.disks.faults import CALLS, Fault
from tests.disks.simulated import SimulatedDisk
from tests.lives.namenodes import NameNodes
from tests.lives.network import Listener, SimulatedRpc
from tests.lives.world import World
from tests.raft.virtual_time import Host

VOLUMES: Final = 2
CHUNK_BYTES: Final = 64
BLOCK_BYTES: Final = 512
LIMITS: Final = SmallLimits(segment_bytes=1 << 12)
"""Blocks are small here: the log of small replicas has several segments."""

GROUPS: Final = (("ann", ("dev",)), ("bob", ("dev", "ops")), ("cy", ()))
"""Users beside the one who runs the nodes, and their groups."""
NAMENODE_CONFIG: Final = NameNodeConfig(
    groups=GROUPS,
    datanode_stale_after_s=2.5,
    datanode_dead_after_s=5.0,
    replicate_after_s=2.0,
    safe_mode_extension_s=2.0,
    lease_soft_limit_s=10.0,
    lease_hard_limit_s=20.0,
    recovery_timeout_s=3.0,
    chunk_size=CHUNK_BYTES,
    block_size=BLOCK_BYTES,
)
BLOCK_KEY_INTERVAL_S: Final = 1.0
"""Seconds after which the key for capabilities is another one, in clusters that sign."""
DATANODE_CONFIG: Final = DataNodeConfig(
    reserved_space_bytes=0,
    block_report_interval_s=20.0,
    block_report_page=7,
    scrub_period_s=20.0,
)
CLIENT_CONFIG: Final = ClientConfig(
    chunk_size=CHUNK_BYTES,
    block_size=BLOCK_BYTES,
    retry_for_s=20.0,
    prefetch_size=4 * CHUNK_BYTES,
)


@dataclass(slots=True, eq=False)
class Machine:
    """A DataNode's machine: its disk stays when a process ends. `node` is None while it is down."""

    name: str
    rack: str
    disk: SimulatedDisk = field(default_factory=SimulatedDisk)
    boots: int = 0
    lives: int = 0
    host: Host | None = None
    node: DataNode | None = None
    """Its replicas are loaded."""
    scrub_period_s: float = DATANODE_CONFIG.scrub_period_s
    """Another one on each machine: passes of one period would all begin at one time."""
    leaving: bool = False
    """An operator wants it to leave, and shall be obeyed in the end."""
    maintained_until_s: float = 0.0
    """The time at which the last maintenance that an operator asked for is over."""
    broken: set[Path] = field(default_factory=set)
    """Volumes that have failed for good."""
    of: str = ""
    """The machine of which this one has copies of the volumes, and whose name it goes by."""
    strange: bool = False
    """Its volumes were rolled back, and nothing that they hold counts."""
    may_refuse: bool = False
    """An operator put volumes there that are not its own, or started it wrongly."""
    refusal: str = ""
    """The reason for which its process did not start; "" if it did."""

    @property
    def address(self) -> str:
        """The address of its process; each has a port of its own."""
        return f"{self.name}:{9864 + self.lives}"

    @property
    def folders(self) -> tuple[Path, ...]:
        """Its volumes."""
        return tuple(
            Path(f"/simulated/{self.of or self.name}/v{number}") for number in range(VOLUMES)
        )

    def break_volume(self, folder: Path) -> None:
        """Every call for it fails from now on."""
        self.broken.add(folder)
        self.disk.breaks(*(Fault(CALLS, str(one), "EIO") for one in sorted(self.broken)))


class Cluster:
    """NameNodes and DataNodes."""

    def __init__(
        self,
        world: World,
        racks: tuple[str, ...],
        namenodes: int = 1,
        *,
        signed: bool = False,
        history_s: float = 0.0,
    ) -> None:
        """One DataNode for each of `racks`, which begins; no NameNode does yet. Those of a `signed`
        cluster serve only what a NameNode signed. `history_s` of history are kept."""
        self.world = world
        self.rng = random.Random(world.rng.random())
        self.machines: list[Machine] = []
        self._datanode_config = replace(DATANODE_CONFIG, block_tokens=signed)
        config = replace(
            NAMENODE_CONFIG,
            block_tokens=signed,
            block_key_interval_s=BLOCK_KEY_INTERVAL_S,
            history_s=history_s,
        )
        self.namenodes = NameNodes(world, namenodes, config)
        self._numbers = iter(range(1 << 30))
        for rack in racks:
            self.add_machine(rack)

    @property
    def namenode(self) -> NameNode | None:
        """The one that serves; None while none does."""
        seat = self.namenodes.leading()
        return None if seat is None else seat.node

    # -- DataNodes --------------------------------------------------------------------------------

    def add_machine(self, rack: str) -> Machine:
        """A new, empty machine, its process begins."""
        number = next(self._numbers)
        machine = Machine(f"dn{number}", rack)
        machine.scrub_period_s -= 1.3 * (number % 9)
        self.machines.append(machine)
        self.start(machine)
        return machine

    def start(
        self,
        machine: Machine,
        *,
        called: str = "",
        folders: tuple[Path, ...] = (),
        upgrade: bool = False,
    ) -> None:
        """Begin a process on a machine that has none; `called` and `folders` are those of the
        machine unless a test says something else."""
        assert machine.host is None
        machine.lives += 1
        machine.refusal = ""
        machine.host = host = self.world.new_host()
        name, paths = called or machine.of or machine.name, folders or machine.folders
        self.world.begin(host, self._run_datanode(machine, host, name, paths, upgrade=upgrade))

    async def _run_datanode(
        self, machine: Machine, host: Host, name: str, folders: tuple[Path, ...], *, upgrade: bool
    ) -> None:
        client = SimulatedRpc(self.world.network)
        boot = f"boot-{machine.boots}"
        config = replace(
            self._datanode_config, rack=machine.rack, scrub_period_s=machine.scrub_period_s
        )
        try:
            opened = open_volumes(
                machine.disk, folders, name, config, boot, upgrade=upgrade, limits=LIMITS
            )
            node = DataNode(name, opened, self.namenodes.addresses, client, config)
            node.lender.door = self.world.lent.door_to(machine.disk)
            await node.load()
        except PaxosBlockError as error:
            machine.refusal = str(error)
            killed = machine.host is not host
            if not (killed or machine.broken or machine.may_refuse):
                self.world.mistake(f"{machine.name} cannot start: {error}")
            return
        router = RpcRouter()
        router.register(ACCEPT.name, ACCEPT.request, node.accept)
        router.register(ACCEPT_ALL.name, ACCEPT_ALL.request, node.accept_all)
        router.register(LIST_REPLICAS.name, LIST_REPLICAS.request, node.list_replicas)
        router.register(FIND_CHUNK.name, FIND_CHUNK.request, node.find_chunk)
        router.register(PROCESS.name, PROCESS.request, node.process)
        router.register(FIND_REPLICA.name, FIND_REPLICA.request, node.find_replica)
        self.world.network.listen(machine.address, Listener(host, router, node.new_stream))
        machine.node = node
        node.start(machine.address)

    def kill(self, machine: Machine, *, power_cut: bool = False) -> None:
        """End its process in the middle of whatever it does; of the machine, too, if the power is
        cut: what was not synced is lost in part."""
        if machine.host is not None:
            machine.host.pause()  # for ever
            self.world.network.unplug(machine.host)
        machine.host = machine.node = None
        machine.boots += power_cut
        machine.disk = machine.disk.after_the_end(self.rng, power_cut=power_cut)
        for folder in sorted(machine.broken):
            machine.break_volume(folder)

    def destroy(self, machine: Machine) -> None:
        """It never comes back, nor does its disk."""
        self.kill(machine)
        machine.disk.die()
        self.machines.remove(machine)

    # -- users ------------------------------------------------------------------------------------

    def new_client(self) -> AsyncClient:
        """A client; to be made and used inside one host."""
        return AsyncClient([*self.namenodes.addresses], CLIENT_CONFIG)
