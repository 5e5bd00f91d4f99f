"""Simulated processes: a `ReplicatedStore` on simulated disk and network, to be killed at will."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from paxosblock.errors import ConfigError, NoSpaceError, PaxosBlockError
from paxosblock.host.disk import Disk
from paxosblock.namenode.kv.interface import Committed, Conflict, Edit
from paxosblock.namenode.kv.table import Changes, Tables
from paxosblock.namenode.raft.entry import Entry
from paxosblock.namenode.raft.machine import Slices
from paxosblock.namenode.raft.member_folder import write_name
from paxosblock.namenode.raft.options import Options
from paxosblock.namenode.raft.raft_messages import (
    Confirm,
    Message,
    ReadIndex,
    RequestVoteResponse,
)
from paxosblock.namenode.raft.raft_node import RaftNode
from paxosblock.namenode.raft.roster import address_of
from paxosblock.namenode.raft.store import ReplicatedStore
from tests.disks.simulated import Burns, SimulatedDisk
from tests.memory_table import MemoryReceiver, MemoryTable, open_memory
from tests.raft.checks import Checker
from tests.raft.lost_folders import FOLDER, Doors
from tests.raft.simulated_network import Network, SimulatedTransport
from tests.raft.virtual_time import Host, VirtualTimeLoop

STALL_S = 1.5
FLUSHES = 0.03
"""The probability that a table flushes by itself after an entry."""


def node_of(store: ReplicatedStore) -> RaftNode:
    """The node inside an open store: simulations look where products must not."""
    node = store._node
    assert node is not None
    return node


class RestlessTable(MemoryTable):
    """Flushes now and then without being asked, as RocksDB does: what is on the disk may be ahead
    of the member's own log."""

    def __init__(self, opened: MemoryTable, rng: random.Random) -> None:
        super().__init__(opened.snapshot(), opened.place)
        self._rng = rng

    def write(self, index: int, changes: Changes, term: int = 0) -> None:
        super().write(index, changes, term)
        if self._rng.random() < FLUSHES:
            with suppress(NoSpaceError):
                self.flush().write()


@dataclass(slots=True)
class Process:
    """One life of a member."""

    store: ReplicatedStore
    transport: SimulatedTransport
    host: Host
    starting: asyncio.Task[None]


@dataclass(slots=True)
class Member:
    """A member over its lives; `process` is None while it is down. Its clock goes `rate` times as
    fast as the world's."""

    address: str
    disk: SimulatedDisk
    process: Process | None = None
    rate: float = 1.0
    lost: bool = False
    """Its folder is gone for good."""

    @property
    def up(self) -> bool:
        return self.process is not None and self.process.store._node is not None

    @property
    def node(self) -> RaftNode:
        assert self.process is not None
        return node_of(self.process.store)

    @property
    def store(self) -> ReplicatedStore:
        assert self.process is not None
        return self.process.store

    @property
    def host(self) -> Host:
        assert self.process is not None
        return self.process.host


@dataclass(slots=True)
class Members:
    """The whole cluster."""

    loop: VirtualTimeLoop
    rng: random.Random
    options: Options
    addresses: tuple[str, ...]
    checker: Checker = field(default_factory=Checker)
    every: dict[str, Member] = field(init=False)
    network: Network = field(init=False)

    def __post_init__(self) -> None:
        self.network = Network(self.loop, random.Random(self.rng.random()))
        self.network.on_send = self._watch
        self.every = {each: Member(each, SimulatedDisk()) for each in self.addresses}

    def add(self, name: str) -> None:
        """Know another server, which is in no list yet."""
        disk = SimulatedDisk()
        disk.make_folder(FOLDER)
        write_name(disk, FOLDER, name)
        self.every[name] = Member(name, disk)

    def up(self) -> list[Member]:
        return [each for each in self.every.values() if each.up]

    def leaders(self) -> list[Member]:
        return [each for each in self.up() if each.store.is_leader()]

    def start(self, member: Member) -> None:
        """Begin a process; it is up when its folder is read."""
        if member.process is None and not member.lost:
            host = Host(self.loop, random.Random(self.rng.random()), member.rate)
            transport = SimulatedTransport(self.network, member.address, host)
            store = ReplicatedStore(
                FOLDER,
                address_of(member.address),
                self.addresses,
                transport,
                options=self.options,
                disk=member.disk,
                rng=random.Random(self.rng.random()),
                tables=Tables(self._open_table, MemoryReceiver),
            )
            starting = host.run(self._start(member, store))
            member.process = Process(store, transport, host, starting)

    async def _start(self, member: Member, store: ReplicatedStore) -> None:
        try:
            if self.doors is not None:
                await self.doors.enter(member)
            await store.start()
        except ConfigError as error:
            if self.doors is None:
                self.checker.violated("restart", f"{member.address} cannot start: {error!r}")
            self.checker.counts["starts refused"] += 1
            if member.process is not None and member.store is store:
                member.process = None
            return
        except NoSpaceError:
            if member.process is not None and member.store is store:
                member.process = None  # until the test starts it with room
            return
        except (PaxosBlockError, OSError) as error:
            killed = member.process is None or member.store is not store
            if not (killed or member.disk.dead):
                self.checker.violated("restart", f"{member.address} cannot start: {error!r}")
            return
        if member.process is not None and member.store is store:  # else its fuse has burnt
            self._observe(member)

    def _observe(self, member: Member) -> None:
        machine = member.node.machine
        apply = machine.apply_entry

        def observed(
            index: int, entry: Entry, known: Edit | None = None
        ) -> Committed | Conflict | Slices:
            self.checker.check_applied(member.address, index, entry)
            return apply(index, entry, known)

        machine.apply_entry = observed  # type: ignore[method-assign]  # only of this instance

    def _open_table(self, disk: Disk, folder: Path) -> MemoryTable:
        self._tables += 1
        return RestlessTable(open_memory(disk, folder), random.Random(self._tables))

    def kill(self, member: Member) -> None:
        """End the process at once; what it had not synced is lost, in part, and garbled."""
        process = member.process
        if process is None:
            return
        self.checker.counts["crashes"] += 1
        member.process = None
        node = process.store._node
        if node is not None:
            self.count(node, member.disk)
        process.host.resume()  # into its end: no caller waits for it any longer
        self._leave_half_written(member.disk, process)
        before = member.disk.bytes_lost
        member.disk = member.disk.power_cut(self.rng)
        self.checker.counts["bytes lost"] += member.disk.bytes_lost - before
        process.transport.unplug()
        process.starting.cancel()
        if node is not None:
            node.stop()
            for task in (node._working, node._table_work):
                if task is not None:
                    task.cancel()

    def pause(self, member: Member, seconds: float) -> None:
        """Let the process stand still for a while, as SIGSTOP does or a machine out of memory."""
        if member.up and not member.host.paused:
            self.checker.counts["pauses"] += 1
            member.host.pause()
            self.loop.in_world(seconds, member.host.resume)

    def set_rate(self, member: Member, rate: float) -> None:
        """Let its clock go at this rate, in this life and those after it."""
        member.rate = rate
        if member.process is not None:
            member.host.set_rate(rate)

    def count(self, node: RaftNode, disk: SimulatedDisk) -> None:
        """Add what a process did; it may have stopped because of its disk only."""
        if node.failure is not None and not disk.dead:
            self.checker.violated("assertions", f"{node.name}: {node.failure}")
        self.checker.counts["snapshots written"] += node.counters.snapshots_written
        self.checker.counts["snapshots installed"] += node.counters.snapshots_installed

    def _leave_half_written(self, disk: SimulatedDisk, process: Process) -> None:
        """Most crashes find the journal's thread between a write and its sync."""
        if not disk.dead and self.rng.random() < 0.7:
            disk.light(self.rng.randint(1, 3))
            self.loop.run_now(process.store._thread)

    def light_fuse(self, member: Member) -> None:
        """Kill the process right before or after one of its next disk operations."""

        def burn() -> None:
            member.disk.die()
            self.checker.counts["crashes inside"] += 1
            self.kill(member)

        member.disk.light(self.rng.randint(1, 30), self.rng.choice((*Burns,)), burn)

    def _watch(self, sender: str, peer: str, message: Message) -> None:
        member = self.every[sender]
        if member.up:
            self.checker.check_message(member.node, sender, message)
        if isinstance(message, RequestVoteResponse) and message.vote_granted:
            self._blink(member)
        if isinstance(message, Confirm | ReadIndex):
            self._stall(member)

    def _blink(self, member: Member) -> None:
        """A voter that restarts right after voting: forgotten votes are given twice."""
        if self.rng.random() < self.blink:
            self.loop.in_world(self.rng.uniform(0, 0.005), self.kill, member)
            self.loop.in_world(self.rng.uniform(0.005, 0.02), self.start, member)

    def _stall(self, member: Member) -> None:
        """A member that stands still right after it asked for the sake of reads: the answers wait
        for it, with reads that come while others elect a leader and write."""
        if self.rng.random() < self.stall:
            asked_s, stands_s = self.rng.uniform(0, 0.001), self.rng.uniform(0.1, STALL_S)
            self.loop.in_world(asked_s, self.pause, member, stands_s)

    doors: Doors | None = None
    """Folders may be lost: a member that starts is let in, or not."""
    _tables: int = 0
    blink: float = 0.0
    stall: float = 0.0
