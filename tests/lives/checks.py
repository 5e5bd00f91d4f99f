"""Rules that must hold of every block all the time, and of all of them after a while of quiet.

Looks at the disks and at what the processes know of them, with an arithmetic of its own: a replica
is *whole* when it is finalized with the recorded length on a disk that is not gone; what the
NameNode believes does not count. What the world itself did to a replica (a damaged byte, a broken
volume, a machine that is gone) is told by the world, never found out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from paxosblock.api.reports import BLOCK_REPORT
from paxosblock.datanode.acceptor import Acceptor
from paxosblock.datanode.block import Block
from paxosblock.datanode.store.file_store import FileStore
from paxosblock.datanode.store.layout import ReplicaFiles, meta_name
from paxosblock.datanode.store.small_replicas import SmallPlace
from paxosblock.datanode.volumes.volume import Volume
from paxosblock.journal.record_log import RecordLog, RecordPosition
from paxosblock.journal.segment import RECORD_BYTES
from paxosblock.namenode.catalog import keys
from paxosblock.namenode.catalog.members import owner_of
from paxosblock.namenode.catalog.records import BlockEntry, decode_entry
from paxosblock.namenode.kv.interface import View
from paxosblock.net.wire import record_start
from paxosblock.protocol.chunk_log import ChunkLog
from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.types import BlockId, Durability, Generation, ReplicaState, StorageId
from tests.disks.power_cut import File
from tests.disks.simulated import SimulatedDisk
from tests.lives.cluster import NAMENODE_CONFIG, Cluster, Machine
from tests.lives.world import World
from tests.raft.virtual_time import Host, running_host


@dataclass(frozen=True, slots=True)
class Held:
    """A replica as it is on a disk."""

    machine: Machine
    folder: Path
    storage: StorageId
    state: ReplicaState
    length: int
    kept: int
    """Its chunks that a power cut leaves: fewer, while it is open and the last are not synced."""
    size_bytes: int
    file: File | None
    """The file with its bytes, which others share if it is the log of small replicas."""
    place: range
    """The part of it where they are, if damage there can be told from a torn write."""
    meta: File | None
    """The file with its metadata, unless it is in the log of small replicas."""
    known_dead: bool
    """Its DataNode knows that it is damaged."""
    accepted: Generation
    volatile: bool = False
    """A power cut may take votes away (durability `memory`)."""
    weak: bool = False
    """A power cut may have: what it does not hold may have been voted for."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A block of the catalog, and how many replicas it asks for."""

    record: BlockRecord
    replication: int
    file: int


HEARD_WITHIN_S = 2.0
"""After a DataNode counts as dead, or a replica is said to be: until the NameNode has looked at it
again, and what it decided before is done."""

Where = Callable[[Held], bool]
_Version = tuple[bool, Generation, int]
"""If a block is finalized, in which epoch, and with how many chunks."""


@dataclass(slots=True)
class Checker:
    """Knows all replicas, as they are and as they were at the last look."""

    world: World
    cluster: Cluster
    blocks: dict[BlockId, Wanted] = field(default_factory=dict)
    held: dict[BlockId, dict[StorageId, Held]] = field(default_factory=dict)
    damaged: dict[tuple[File, BlockId], int] = field(default_factory=dict)
    """Replicas whose bytes the world damaged, each by its file and block, and the place of one."""
    damaged_meta: dict[tuple[File, BlockId], bytes] = field(default_factory=dict)
    """Those whose metadata it damaged, and what that was afterwards: it is replaced as a whole, and
    its file may be written again."""
    counts: Counter[str] = field(default_factory=Counter)
    unclear: bool = False
    """A backup was brought back, and not all blocks are known again: nothing may be lost now."""
    _revision: int = 0
    """That of the catalog that `blocks` comes from."""
    _at: dict[Machine, dict[BlockId, StorageId]] = field(default_factory=dict)
    """The storage where each machine has each of its blocks."""
    _known: dict[tuple[Machine, BlockId], tuple[tuple[object, ...], Held]] = field(
        default_factory=dict
    )
    """Finalized replicas, each beside all that decides what is seen of it."""
    _lost: dict[StorageId, float] = field(default_factory=dict)
    """The times at which the world took storages away."""
    _sound: dict[BlockId, tuple[_Version, frozenset[StorageId]]] = field(default_factory=dict)
    _unnoticed: dict[BlockId, frozenset[StorageId]] = field(default_factory=dict)
    """Damaged replicas of which the NameNode that decides had not heard at the last look."""
    _told: dict[tuple[BlockId, StorageId], dict[Host | None, float]] = field(default_factory=dict)
    """The times at which NameNodes heard of damaged replicas."""
    _wanted: dict[BlockId, Wanted] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.world.network.promises.hears.append(self._hear)

    # -- looking ----------------------------------------------------------------------------------

    def look(self) -> None:
        """See what is there now, and that nothing took a whole replica away but the world."""
        self._see()
        for (file, block), place in tuple(self.damaged.items()):
            if place >= len(file.data):
                del self.damaged[file, block]  # what comes there later is sound
        self.counts["looks"] += 1
        lost_just_now, whole = self._lost_just_now(), self._all_whole()
        hurt = self._hurt_blocks()
        for block, wanted in self.blocks.items():
            version, before = self._sound.get(block, (None, frozenset()))
            now = whole[block]
            if wanted.record.restored or version != _version(wanted.record):
                continue  # it was opened again, or cut: whole is something else by now
            members = frozenset(wanted.record.members)
            kept = min(wanted.replication, self._wanted[block].replication, len(before))
            if wanted.file != self._wanted[block].file:
                kept = 1  # the file that it came from may have asked for fewer just before
            unknown = lost_just_now | self._unnoticed.get(block, frozenset())
            have = len((now | unknown) & members)
            sound = now & members
            if block in hurt:
                sound = frozenset(one for one in sound if not self.is_damaged(block, one))
            if (have < kept and not before <= now & members) or (before and not sound):
                gone = ", ".join(sorted(before - (now & members)))
                self.world.mistake(
                    f"block {block}: {have} whole members of {len(before)} before, {kept} are to"
                    f" stay, {len(sound)} are sound; gone: {gone}; {self.told(block)}"
                )
        self._remember(whole)

    def _all_whole(self) -> dict[BlockId, frozenset[StorageId]]:
        return {block: self.whole(block) for block in self.blocks}

    def _lost_just_now(self) -> frozenset[StorageId]:
        """Return the storages that are lost, which the NameNode cannot know yet."""
        since_s = self.world.loop.now - NAMENODE_CONFIG.datanode_dead_after_s - HEARD_WITHIN_S
        return frozenset(one for one, lost_s in self._lost.items() if lost_s > since_s)

    def rebase(self) -> None:
        """The world did something: what is there now is where the next look begins."""
        self._see()
        self._remember(self._all_whole())

    def whole(self, block: BlockId) -> frozenset[StorageId]:
        """Return the storages with a whole replica, as far as any node there can know."""
        record = self.blocks[block].record
        found = (held for held in self.held.get(block, {}).values() if not held.known_dead)
        return frozenset(
            held.storage for held in found if _is_whole(held, record) or _is_to_be_cut(held, record)
        )

    def _see(self) -> None:
        for machine in self.cluster.machines:
            if machine.node is not None and not machine.strange:
                self._see_machine(machine)
        there = set(self.cluster.machines)
        for replicas in self.held.values():
            for storage, held in tuple(replicas.items()):
                if held.machine not in there or held.folder in held.machine.broken:
                    self._lost.setdefault(storage, self.world.loop.now)
                    del replicas[storage]
        catalog = self.cluster.namenodes.catalog()
        if catalog is not None and catalog.revision > self._revision:
            self.blocks, self._revision = dict(catalog_blocks(catalog)), catalog.revision

    def _see_machine(self, machine: Machine) -> None:
        """See its replicas as they are now; of one that its node has not read nothing is new."""
        assert machine.node is not None
        acceptor = machine.node.acceptor
        before, there = self._at.get(machine, {}), {}
        damaged = {block for _, block in self.damaged_meta}
        for block in tuple(acceptor._blocks):
            if acceptor.is_unread(block):
                if block in before:
                    there[block] = before[block]
                continue
            found = self._seen(machine, acceptor, block, damaged=block in damaged)
            if found is None:
                continue
            storage = there[block] = found.storage
            replicas = self.held.setdefault(block, {})
            if replicas.get(storage) is not found:
                self._follow_copy(block, replicas.get(storage), found)
                replicas[storage] = found
            if storage in self._lost and found.folder not in machine.broken:
                del self._lost[storage]  # a volume that was left out is back
        for block, storage in before.items():
            if there.get(block) != storage:
                self._forget(machine, block, storage)
        self._at[machine] = there

    def _follow_copy(self, block: BlockId, before: Held | None, now: Held) -> None:
        """A file that a snapshot of the volume has, too, is copied before more is written into it:
        with what the world damaged."""
        if before is None or before.file is None or (before.file, block) not in self.damaged:
            return
        if now.file is not None and now.file.data.startswith(before.file.data):
            self.damaged[now.file, block] = self.damaged[before.file, block]

    def _forget(self, machine: Machine, block: BlockId, storage: StorageId) -> None:
        replicas = self.held[block]
        if storage in replicas and replicas[storage].machine is machine:
            del replicas[storage]

    def _seen(
        self, machine: Machine, acceptor: Acceptor, block: BlockId, *, damaged: bool
    ) -> Held | None:
        """Return the replica as it is now; one that is finalized is looked at once, until it
        changes, and one at rest is not woken for that."""
        place, known = acceptor._blocks[block], self._known.get((machine, block))
        awake = place if isinstance(place, Block) else acceptor._awake.get(block)
        volume = place if isinstance(place, Volume) else place.volume
        # What is healed in place has the same registers, and another file with its metadata.
        now = () if damaged else _what_decides(block, volume, awake)
        if now and known is not None and known[0] == now:
            return known[1]
        awake = acceptor._owner(block)
        found = None if awake is None else _held(machine, awake)
        if now and found is not None:
            self._known[machine, block] = now, found
        return found

    def _remember(self, whole: dict[BlockId, frozenset[StorageId]]) -> None:
        """Keep the members with whole replicas that are not damaged: those may not get fewer."""
        self._sound, self._unnoticed, self._wanted = {}, {}, {}
        leading = self.cluster.namenodes.leading()
        decides = None if leading is None else leading.host
        hurt = self._hurt_blocks()
        for block, wanted in self.blocks.items():
            sound = whole[block]
            if block in hurt:
                sound = frozenset(one for one in sound if not self.is_damaged(block, one))
                self._unnoticed[block] = frozenset(self._unheard(block, decides))
            self._wanted[block] = wanted
            record = wanted.record
            if record.finalized and not record.restored:
                self._sound[block] = _version(record), sound & frozenset(record.members)

    def _hear(self, _asking: Host | None, method: str, request: Any) -> None:
        """A NameNode is told of replicas that are dead."""
        if method == BLOCK_REPORT.name:
            for dead in request.dead:
                told = self._told.setdefault((dead.block, request.storage), {})
                told.setdefault(running_host(), self.world.loop.now)

    def _unheard(self, block: BlockId, decides: Host | None) -> Iterator[StorageId]:
        """Yield its damaged replicas of which the NameNode that `decides` has not heard, or only
        just: what it is about to decide counts them. That is K13: its guard counts reports."""
        heard_by_s = self.world.loop.now - HEARD_WITHIN_S
        for storage, held in self.held.get(block, {}).items():
            if not self._is_hurt(held, block):
                self._told.pop((block, storage), None)  # it was healed, and may be hurt again
            elif self._told.get((block, storage), {}).get(decides, math.inf) > heard_by_s:
                yield storage

    # -- what the world may do --------------------------------------------------------------------

    def is_damaged(self, block: BlockId, storage: StorageId) -> bool:
        """True if the world damaged this very replica."""
        return self._is_hurt(self.held[block][storage], block)

    def _hurt_blocks(self) -> set[BlockId]:
        """Return the blocks of which the world ever damaged a replica, or a NameNode heard that one
        is dead: few, and those of no others are."""
        damaged = chain(self.damaged, self.damaged_meta)
        return {block for _, block in damaged} | {block for block, _ in self._told}

    def _is_hurt(self, held: Held, block: BlockId) -> bool:
        meta = held.meta
        spoiled = None if meta is None else self.damaged_meta.get((meta, block))
        if meta is not None and spoiled is not None and spoiled == bytes(meta.data):
            return True
        if held.file is None or (place := self.damaged.get((held.file, block))) is None:
            return False
        # A cut (K8) takes damage away that is behind it.
        return place in (held.place or range(len(held.file.data)))

    def kill(self, machine: Machine, *, power_cut: bool) -> None:
        """End a process: what is damaged on its disk stays so."""
        if machine.node is not None and not machine.strange:
            self._see_machine(machine)
        before = machine.disk
        self.cluster.kill(machine, power_cut=power_cut)
        if power_cut:
            for replicas in self.held.values():
                for storage, held in replicas.items():
                    if held.machine is machine and held.volatile:
                        replicas[storage] = replace(held, weak=True)
                        self.counts["replicas in memory cut short"] += 1
                    elif held.machine is machine:
                        replicas[storage] = replace(held, length=held.kept)
        self.copied(before, machine.disk)

    def copied(self, before: SimulatedDisk, now: SimulatedDisk) -> None:
        """The files of one disk are on another one: what was damaged there is damaged here."""
        paths = {file: path for path, file in before.names_now.items()}
        for (file, block), place in tuple(self.damaged.items()):
            if file in paths and paths[file] in now.names_now:
                self.damaged[now.names_now[paths[file]], block] = place
        for (file, block), spoiled in tuple(self.damaged_meta.items()):
            if file in paths and paths[file] in now.names_now:
                self.damaged_meta[now.names_now[paths[file]], block] = spoiled

    def loses(self, lost: Where) -> None:
        """The world took this away."""
        for replicas in self.held.values():
            for storage, held in tuple(replicas.items()):
                if lost(held):
                    self._lost.setdefault(storage, self.world.loop.now)
                    del replicas[storage]

    def survives(self, lost: Where) -> bool:
        """True if every block would keep a sound replica without what is `lost`.

        Of a block that is not finalized all members but one, and that one only if none is missing.
        A single member stays also before it has a replica: nobody else can tell that it has none.
        """
        if self.unclear:
            return False
        for block, wanted in self.blocks.items():
            record, held = wanted.record, self.held.get(block, {})
            there = {
                one: each for one, each in held.items() if one in record.members and not each.weak
            }
            left = [each for each in there.values() if not lost(each)]
            if record.finalized:
                sound = [
                    each
                    for each in left
                    if _is_whole(each, record) and not self._is_hurt(each, block)
                ]
                losing = frozenset(one for one, each in there.items() if lost(each))
                if not sound or self._may_choose_badly(block, losing):
                    return False
            elif len(left) < max(1, len(record.members) - 1, min(2, len(there))):
                return False
        return True

    def _may_choose_badly(self, block: BlockId, harmed: frozenset[StorageId]) -> bool:
        """True if a block has more members than its file asks for, and as many of them are bad
        without the NameNode's knowledge, with those `harmed` now: it may keep just these."""
        wanted = self.blocks[block]
        members = frozenset(wanted.record.members)
        unknown = harmed | self._lost_just_now() | self._unnoticed.get(block, frozenset())
        return len(members) > wanted.replication <= len(unknown & members)

    def holds_any(self, machine: Machine) -> bool:
        """True if a member of a block is on this machine."""
        return any(
            held.machine is machine and storage in self.blocks[block].record.members
            for block, replicas in self.held.items()
            if block in self.blocks
            for storage, held in replicas.items()
        )

    def may_forget(self, machine: Machine) -> bool:
        """True if the power of a machine may go: nothing that only memory keeps would be missed."""

        def forgotten(held: Held) -> bool:
            return held.machine is machine and held.volatile

        everything = (held for each in self.held.values() for held in each.values())
        return not any(map(forgotten, everything)) or self.survives(forgotten)

    def may_damage(self) -> list[tuple[BlockId, Held]]:
        """Return replicas that the world may damage: blocks with two sound ones besides it, and
        none that is damaged and not known to be."""
        found: list[tuple[BlockId, Held]] = []
        if self.unclear:
            return found
        for block, wanted in self.blocks.items():
            whole = sorted(self.whole(block))
            if wanted.record.finalized and not any(self.is_damaged(block, one) for one in whole):
                members = [one for one in whole if one in wanted.record.members]
                if len(members) >= 2:
                    found += [
                        (block, self.held[block][one])
                        for one in members
                        if not self._may_choose_badly(block, frozenset({one}))
                    ]
        return found

    # -- a backup that was brought back -----------------------------------------------------------

    def brings_back(self) -> None:
        """A backup is brought back: an earlier catalog is believed, and nothing is clear."""
        self.unclear, self._revision = True, 0

    def readable(self, block: BlockId) -> list[StorageId]:
        """Return the storages with a replica of a block that is not known to be damaged."""
        return sorted(one for one, held in self.held.get(block, {}).items() if not held.known_dead)

    def unlearned(self) -> list[str]:
        """Return the blocks of the backup, in words, of which nobody knows yet what became."""
        self._see()
        return [
            f"block {block}: {self.told(block)}"
            for block, wanted in self.blocks.items()
            if wanted.record.restored
        ]

    # -- the end ----------------------------------------------------------------------------------

    def unfinished(self, usable: frozenset[str]) -> list[str]:
        """Return what is not yet as it must be after a while of quiet, in words.

        Each block has its replicas at members on `usable` nodes, in two racks where there are two,
        each whole and sound, and no other storage has one.
        """
        self._see()
        racks = {each.name: each.rack for each in self.cluster.machines if each.name in usable}
        problems = []
        catalog = self.cluster.namenodes.catalog()
        if catalog is None or catalog.revision < self._revision:
            problems.append(f"the catalog knew revision {self._revision} before")
        for block, wanted in self.blocks.items():
            problem = self._problem(block, wanted, racks)
            if problem:
                problems.append(f"block {block} {problem}; {self.told(block)}")
        for block in self.held:
            if block not in self.blocks and self._strays(block, ()):
                problems.append(f"block {block} is not in the catalog; {self.told(block)}")
        return problems

    def _problem(self, block: BlockId, wanted: Wanted, racks: dict[str, str]) -> str:
        record, held = wanted.record, self.held.get(block, {})
        if not record.finalized:
            return "is not finalized"
        goal = min(wanted.replication, len(racks))
        # Too few nodes stay for all that is asked for: those that are to be left are held up.
        held_up = len(racks) < wanted.replication
        most = wanted.replication if held_up else goal
        if not goal <= len(record.members) <= most:
            return f"has {len(record.members)} members, not {goal}"
        strays = self._strays(block, record.members)
        if strays:
            return f"is also at {', '.join(strays)}"
        for member in record.members:
            if member not in held or not _is_whole(held[member], record):
                return f"is not whole at {member}"
            if held[member].state is not ReplicaState.FINALIZED:
                return f"is {held[member].state.value} at {member}"
            if self._is_hurt(held[member], block):
                return f"is damaged at {member}"
            if held[member].machine.name not in racks and not held_up:
                return f"is at {held[member].machine.name}, which is to be left"
        places = [held[member].machine for member in record.members]
        if len({each.name for each in places}) < goal:
            return "is on one node twice"
        spread = {each.rack for each in places}
        if goal > 1 and len(set(racks.values())) > 1 and len(spread) < 2:
            return f"is in one rack, {spread.pop()}"
        return ""

    def _strays(self, block: BlockId, members: tuple[StorageId, ...]) -> list[StorageId]:
        """Return who else has a replica."""
        return sorted(one for one in self.held.get(block, {}) if one not in members)

    def told(self, block: BlockId) -> str:
        wanted = self.blocks.get(block)
        members = "no record" if wanted is None else ", ".join(wanted.record.members)
        there = ", ".join(
            f"{each.machine.name}/{one}: {each.state.value} {each.length}"
            f"{' damaged' if self._is_hurt(each, block) else ''}"
            f"{' dead' if each.known_dead else ''}"
            for one, each in sorted(self.held.get(block, {}).items())
        )
        return f"wanted {wanted.replication if wanted else 0}, members {members}; there: {there}"


def catalog_blocks(view: View) -> Iterator[tuple[BlockId, Wanted]]:
    """Yield the blocks that belong to files, as the NameNodes have decided; also to one that was
    deleted and is kept, as a snapshot shows it."""
    for _, value in view.scan(*keys.BLOCKS):
        entry: BlockEntry = decode_entry(value.value)
        file = owner_of(view, entry.file)
        if file is None:
            continue  # it was deleted, and is being swept
        yield entry.record.block, Wanted(entry.record, file.replication, entry.file)


def _what_decides(block: BlockId, volume: Volume, awake: Block | None) -> tuple[object, ...]:
    """Return all that decides what is seen of a finalized replica; () of any other."""
    store = volume.store
    if volume.failed or not isinstance(store, FileStore):
        return ()
    row, log = store.small._rows.get(block), store.small.log.records
    place = None if row is None else (row, log.last, log._marked)
    if awake is None:
        at_rest = row or store.finalized._known.get(block)
        return (volume, at_rest, place) if isinstance(at_rest, bytes) else ()
    replica = awake.replica
    if awake.corrupt or replica is None or replica.registers.state is not ReplicaState.FINALIZED:
        return ()
    return volume, replica, awake.files, place


def _held(machine: Machine, block: Block) -> Held | None:
    replica = block.replica
    if replica is None or block.volume.failed:
        return None
    is_open = replica.registers.state is not ReplicaState.FINALIZED
    file, place = _bytes_of(machine, block)
    return Held(
        machine,
        block.volume.folder,
        block.volume.storage,
        replica.registers.state,
        replica.length,
        kept_chunks(replica.log, file) if is_open else replica.length,
        replica.log.size_bytes,
        file,
        place,
        _meta_of(machine, block),
        bool(block.corrupt),
        replica.registers.accepted_generation,
        is_open and replica.registers.durability is Durability.MEMORY,
        is_open and replica.registers.weak,
    )


def kept_chunks(log: ChunkLog, file: File | None) -> int:
    """Return how many chunks of an open replica are on the disk for sure; one without a file of its
    own is in the log of small ones, which tells nothing here."""
    if file is None:
        return 0
    size = file.durable_size
    return max(each for each in range(len(log) + 1) if record_start(log, each) <= size)


def _bytes_of(machine: Machine, block: Block) -> tuple[File | None, range]:
    """Return the file with the bytes of a replica, and where in it they may be damaged."""
    files, store = block.files, block.volume.store
    if isinstance(files, ReplicaFiles):
        file = machine.disk.names_now.get(files.path)
        return file, range(0 if file is None else len(file.data))
    assert isinstance(store, FileStore)
    row = store.small._row(block.id)
    if not isinstance(files, SmallPlace) or row is None or not row.finalized:
        return None, range(0)
    log, number = store.small.log.records, row.chunk.segment
    file = machine.disk.names_now.get(log.path(number))
    if file is None or number not in log._segments:
        return file, range(0)
    start = row.chunk.offset + RECORD_BYTES
    return file, range(start, start + row.frame_bytes * is_told(log, row.chunk))


def _meta_of(machine: Machine, block: Block) -> File | None:
    if not isinstance(block.files, ReplicaFiles):
        return None
    return machine.disk.names_now.get(block.files.folder / meta_name(block.id))


def is_told(log: RecordLog, record: RecordPosition) -> bool:
    """True if the next segment, or a mark, which gets durable with damage there, says that no crash
    has torn a record."""
    marked = log._marked
    return record.segment < log.last or (
        record.segment == marked.segment and record.offset < marked.offset
    )


def _version(record: BlockRecord) -> _Version:
    return record.finalized, record.writer_generation, record.length


def _is_to_be_cut(held: Held, record: BlockRecord) -> bool:
    """True if a replica has all chunks and more: it has not heard yet of the last cut (K8).

    Such a member is as good as one that has: it was finalized in the present epoch, and within an
    epoch a finalized block only gets shorter (R-fin), so its first chunks are those that are left
    (I3). The NameNode counts it, too: whoever reported Finalized of any generation from the writer
    generation on is whole (PROTOCOL.md, end of R). In the end it must have cut (`_problem`).
    """
    before_the_cut = record.writer_generation <= held.accepted < record.cut_generation
    finalized = held.state is ReplicaState.FINALIZED
    return finalized and before_the_cut and held.length > record.length


def _is_whole(held: Held, record: BlockRecord) -> bool:
    if held.known_dead:
        return False
    if held.state is ReplicaState.RBW:  # an APPEND opened it again, and may have been given up
        there = held.accepted >= record.writer_generation and held.length >= record.length
        up = held.machine.node is not None
        return there and (up or not held.weak)  # it may be shorter when its machine is back
    same = (held.length, held.size_bytes) == (record.length, record.size_bytes)
    return held.state is ReplicaState.FINALIZED and same
