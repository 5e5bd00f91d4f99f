"""Blows to the volumes of DataNodes: emptied, swapped between two machines, copied to a second
machine that starts with them, and bits that flip in their logs of small replicas.

What is promised (datanode/FORMAT.md): an emptied volume comes back under a new name; a node refuses
volumes of another one; a process with a copy of the volumes of a node that lives is refused, and
nothing that it holds counts; one flipped bit in what the log says of its records costs nothing.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from paxosblock.datanode.store.file_store import FileStore
from paxosblock.datanode.store.identity import read_identity
from paxosblock.datanode.store.small_index import NOWHERE
from paxosblock.journal.segment import HEADER_BYTES, RECORD_BYTES
from paxosblock.namenode.name_node import NameNode
from tests.disks.simulated import SimulatedDisk
from tests.lives.checks import Held, is_told
from tests.lives.cluster import Machine

if TYPE_CHECKING:
    from tests.lives.life import Life

COPY_LIVES_S: Final = 4.0
COPY_AGE_S: Final = 20.0
WITHIN_S: Final = 30.0
POLL_S: Final = 0.05


class Volumes:
    """The blows in the life of one seed."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self.rng = random.Random(f"{life.seed} volumes")
        self._flipped: set[tuple[Machine, tuple[Path, int, int]]] = set()

    async def run(self, until_s: float) -> None:
        """Let them fall now and then."""
        blows = self._empty, self._swap, self._copy, self._flip
        deck: list[Callable[[Machine], Awaitable[None]]] = []
        while self.life.loop.now < until_s:
            await self.life.loop.pass_time(self.rng.uniform(1, 12))
            machine = self.one_that_rests()
            if machine is not None and self.life.loop.now < until_s:
                deck = deck or self.rng.sample(blows, len(blows))  # so that each has its turn
                await deck.pop()(machine)

    def one_that_rests(self) -> Machine | None:
        """Return one that others can do without, and that nothing else has befallen."""
        machine = None if self.life.truce else self.life._victim()
        if machine is None or machine.host is None or machine.host.paused or machine.broken:
            return None
        return None if self.life.world.network.is_cut(machine.host, None) else machine

    def kill(self, machine: Machine) -> None:
        """End its process."""
        self.life.checker.look()
        self.life.checker.kill(machine, power_cut=False)
        self.life.checker.rebase()

    async def _until(self, done: Callable[[], bool], what: str) -> bool:
        end_s = self.life.loop.now + WITHIN_S
        while not done():
            if self.life.loop.now > end_s:
                self.life.world.mistake(f"{what}: not within {WITHIN_S:g} s")
                return False
            await self.life.loop.pass_time(0.1)
        return True

    def _get(self, machine: Machine, disk: SimulatedDisk) -> None:
        """Give a machine another disk, which has files of its own one."""
        self.life.checker.copied(machine.disk, disk)
        machine.disk = disk

    def start(self, machine: Machine) -> None:
        """Begin its process again, unless another step did."""
        if machine in self.life.cluster.machines and machine.host is None:
            self.life._happens("process started", machine.name)
            self.life.cluster.start(machine)

    # -- the blows --------------------------------------------------------------------------------

    async def _empty(self, machine: Machine) -> None:
        """Empty a volume of a node that is down; it has a new one then."""
        folder = self.rng.choice(machine.folders)

        def lost(held: Held) -> bool:
            return held.machine is machine and held.folder == folder

        if self.life._may_lose(lost):
            self.kill(machine)
            self.life._happens("volume emptied", machine.name, folder.name)
            self.life.checker.loses(lost)
            self._get(machine, SimulatedDisk(dict(_elsewhere(machine.disk, folder))))
            self.life.checker.rebase()
            await self.life.loop.pass_time(self.rng.uniform(0, 3))
            self.start(machine)

    async def _swap(self, machine: Machine) -> None:
        """Start two nodes with a volume of each other: both refuse, and change nothing."""
        self.life.spared.append(machine)
        other = self.one_that_rests()
        self.life.spared.remove(machine)
        if other is None or other is machine:
            return
        pair = machine, other
        number = self.rng.randrange(len(machine.folders))
        if not all(taken(each.disk, each.folders[number]) for each in pair):
            return  # one that no cluster took has promised nothing: another node may have it
        for each in pair:
            self.kill(each)
        own = [each.disk for each in pair]
        before = [each.files() for each in own]
        mine, theirs = (each.folders[number] for each in pair)
        self.life._happens("volumes swapped", machine.name, other.name)
        machine.disk = _with(before[0], mine, before[1], theirs)
        other.disk = _with(before[1], theirs, before[0], mine)
        swapped = [each.disk.files() for each in pair]
        for each in pair:
            each.may_refuse = True
            self.life.cluster.start(each)
        await self._until(lambda: all(each.refusal for each in pair), "both refuse")
        for each, disk, as_swapped in zip(pair, own, swapped, strict=True):
            if each.node is not None or each.disk.files() != as_swapped:
                self.life.world.mistake(f"{each.name} works with a volume of another node")
            each.may_refuse = False
            self.life.cluster.kill(each)
            each.disk = disk
        for each in pair:
            self.start(each)

    async def _copy(self, machine: Machine) -> None:
        """Start a second process with a copy of the volumes of a node that goes on, in its name.

        It lives longer than the copy, and all NameNodes know it by then: one may believe the copy
        of a node that is gone, or of which it has not heard yet, or not for so long that it counts
        as dead.
        """
        files = machine.disk.files()
        await self.life.loop.pass_time(self.rng.choice((0.0, COPY_AGE_S)) * self.rng.random())
        self.life.spared.append(machine)
        known_at = self.where_known(machine.address)
        known = len(known_at) == len(self.life.cluster.namenodes.seats)
        if known and machine.node is not None and machine in self.resting():
            machine.disk.light(0)
            self.life._happens("volumes copied", machine.name)
            copy = Machine(f"{machine.name}-copy", machine.rack, of=machine.name)
            copy.disk, copy.boots, copy.may_refuse = SimulatedDisk(files), machine.boots, True
            self.life.cluster.start(copy)
            end_s = self.life.loop.now + self.rng.uniform(0.5, COPY_LIVES_S)
            while self.life.loop.now < end_s:
                if not all(self._hears(each, machine.address) for each in known_at):
                    break  # the copy would be believed
                await self.life.loop.pass_time(POLL_S)
                if {*known_at} & {*self.where_known(copy.address)}:
                    self.life.world.mistake(f"{copy.name} is taken for {machine.name}, which lives")
                    break
            self.life.cluster.kill(copy)
        self.life.spared.remove(machine)

    def where_known(self, address: str) -> list[NameNode]:
        """Return the NameNodes that know a DataNode at this address."""
        nodes = [seat.node for seat in self.life.cluster.namenodes.seats if seat.node is not None]
        return [each for each in nodes if any(one.address == address for one in each.datanodes)]

    def _hears(self, namenode: NameNode, address: str) -> bool:
        """Return whether the DataNode at this address cannot count as dead before the next look."""
        seats = [each for each in self.life.cluster.namenodes.seats if each.node is namenode]
        here = [each for each in namenode.datanodes if each.address == address]
        return not any(
            seat.host is not None
            and namenode.datanodes.dead_for_s(each, seat.host.clock()) > -2 * POLL_S
            for seat in seats
            for each in here
        )

    def resting(self) -> list[Machine]:
        """Return the machines that are up and reach everybody."""
        return [
            each
            for each in self.life._up()
            if each.host is not None
            and not each.host.paused
            and not self.life.world.network.is_cut(each.host, None)
        ]

    async def _flip(self, machine: Machine) -> None:
        """Flip a bit of the header or of the head of a record of a log while the node is down."""
        heads = [each for each in _heads(machine) if (machine, each) not in self._flipped]
        if not heads:
            return
        path, start, size = head = self.rng.choice(heads)
        self._flipped.add((machine, head))  # a second bit would be a loss of records
        self.kill(machine)
        data = machine.disk.names_now[path].data
        place = start + self.rng.randrange(size)
        if place < len(data):
            self.life._happens("head in a log damaged", machine.name, path.name, str(place))
            data[place] ^= 1 << self.rng.randrange(8)
            machine.disk.names_now[path].settle()
        self.start(machine)


def taken(disk: SimulatedDisk, folder: Path) -> bool:
    """Return whether a cluster ever took this volume."""
    identity = read_identity(disk, folder)
    return identity is not None and bool(identity.cluster)


def _elsewhere(disk: SimulatedDisk, folder: Path) -> Iterator[tuple[Path, bytes]]:
    for path, data in disk.files().items():
        if not path.is_relative_to(folder):
            yield path, data


def _with(
    own: dict[Path, bytes], folder: Path, others: dict[Path, bytes], their_folder: Path
) -> SimulatedDisk:
    """Return a disk with a machine's own files, but in `folder` those of another one's folder."""
    files = {path: data for path, data in own.items() if not path.is_relative_to(folder)}
    for path, data in others.items():
        if path.is_relative_to(their_folder):
            files[folder / path.relative_to(their_folder)] = data
    return SimulatedDisk(files)


def _heads(machine: Machine) -> Iterator[tuple[Path, int, int]]:
    """Yield the files of logs with the places and sizes of heads in them, of records of which more
    than the records themselves says that no crash has torn them."""
    assert machine.node is not None
    for block in machine.node.blocks():
        store = block.volume.store
        if isinstance(store, FileStore) and not block.volume.failed:
            row = store.small._row(block.id)
            if row is not None and row.finalized and is_told(store.small.log.records, row.said):
                path = store.small.log.records.path(row.said.segment)
                yield path, 0, HEADER_BYTES
                yield path, row.said.offset, RECORD_BYTES
            has_chunk = row is not None and row.finalized and row.chunk != NOWHERE
            if row is not None and has_chunk and is_told(store.small.log.records, row.chunk):
                yield (
                    store.small.log.records.path(row.chunk.segment),
                    row.chunk.offset,
                    RECORD_BYTES,
                )
