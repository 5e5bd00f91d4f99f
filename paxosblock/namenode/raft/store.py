"""The replicated `KeyValueStore`: one member's view of the cluster."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from paxosblock.errors import (
    ConfigError,
    DeadlineError,
    InvalidRequestError,
    NoSpaceError,
    Outcome,
    PaxosBlockError,
    StorageError,
    UnavailableError,
)
from paxosblock.host.disk import Disk, OsDisk, blamed
from paxosblock.namenode.kv.codec import LONG_BYTES, prepare
from paxosblock.namenode.kv.interface import Committed, Conflict, Edit, View
from paxosblock.namenode.kv.rocks_table import ROCKS
from paxosblock.namenode.kv.state_machine import UnopenedView
from paxosblock.namenode.kv.table import Checkpoint, Tables
from paxosblock.namenode.raft.leader import RaftLeader
from paxosblock.namenode.raft.machine import ReplicatedMachine
from paxosblock.namenode.raft.member_folder import OpenedFolder, open_folder
from paxosblock.namenode.raft.options import Options
from paxosblock.namenode.raft.raft_messages import Deliver, Message, Transport
from paxosblock.namenode.raft.raft_node import Counters, RaftNode
from paxosblock.namenode.raft.roles import RaftFollower
from paxosblock.namenode.raft.roster import Roster

CLOSE_S = 1.0
"""Seconds that closing waits for what is pending."""
GIVE_WAY_S = 2.0
"""Seconds that a leader without room waits for another member to take over."""


class _NoTransport:
    """`Transport` of a member that is alone: nothing comes, and nothing is sent."""

    def start(self, deliver: Deliver) -> None:
        """Do nothing."""

    def send(self, peer: str, message: Message) -> None:
        raise AssertionError(f"a member that is alone sends nothing, not to {peer}: {message}")

    async def close(self) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class Status:
    """The standing of this member, for reports; `lag` counts the entries that others lack."""

    role: str
    term: int
    leader: str | None
    commit_index: int
    applied_index: int
    last_index: int
    snapshot_index: int
    lag: dict[str, int]
    counters: Counters


class ReplicatedStore:
    """A durable `KeyValueStore` on an odd number of members, which survives the loss of a minority.

    Members are known by their addresses (host:port); the list is the same on all of them.
    """

    def __init__(
        self,
        folder: Path,
        address: str,
        members: Sequence[str],
        transport: Transport | None = None,
        *,
        options: Options | None = None,
        disk: Disk | None = None,
        rng: random.Random | None = None,
        tables: Tables = ROCKS,
    ) -> None:
        """Name the folder; nothing happens before `start`.

        `transport` carries messages to the other members; a group of one needs none. `tables` opens
        the map.

        Raises:
            ConfigError: `address` is not one of `members`, or a member is listed twice.
        """
        if address not in members or len(set(members)) != len(members):
            raise ConfigError(f"{address} must be one of the members, each once: {list(members)}")
        self._folder, self._address, self._members = folder, address, tuple(members)
        self._transport = transport or _NoTransport()
        self._options = options or Options()
        self._disk = disk or OsDisk()
        self._rng = rng or random.Random()
        self._tables = tables
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="raft-journal")
        self._node: RaftNode | None = None
        self._machine: ReplicatedMachine | UnopenedView = UnopenedView()
        self._giving_way: asyncio.Task[None] | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"ReplicatedStore({str(self._folder)!r}, {self._node!r})"

    async def start(self) -> None:
        assert self._node is None, "a store is started once"
        loop = asyncio.get_running_loop()
        segment_bytes = self._options.limits.segment_bytes
        opening = loop.run_in_executor(
            self._thread,
            partial(
                open_folder,
                self._disk,
                self._folder,
                segment_bytes,
                self._tables,
                alone=len(self._members) == 1,
            ),
        )
        try:
            opened: OpenedFolder = await opening
        except NoSpaceError as error:
            raise NoSpaceError(f"{self._folder}: {error}") from error
        except StorageError as error:
            raise StorageError(blamed(self._folder, error)) from error
        self._machine = opened.machine
        self._node = RaftNode(
            self._address,
            Roster(self._members),
            opened=opened,
            transport=self._transport,
            executor=self._thread,
            options=self._options,
            rng=self._rng,
        )
        await self._node.start()
        if not self._node.is_alone:
            self._giving_way = loop.create_task(self._give_way(self._node))

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            if self._giving_way is not None:
                self._giving_way.cancel()
            if self._node is not None:
                await self._finish_pending(self._node)
                await self._node.close()
            self._thread.shutdown()

    async def _finish_pending(self, node: RaftNode) -> None:
        """Wait a moment for the majority; the outcome of unconfirmed writes is then unknown."""
        role = node.role
        if isinstance(role, RaftLeader):
            with contextlib.suppress(TimeoutError, UnavailableError):
                async with asyncio.timeout(CLOSE_S):
                    await node.wait_until(lambda: not role.writes)

    async def commit(self, edit: Edit) -> Committed | Conflict:
        payload = prepare(edit)
        if len(payload) > LONG_BYTES:
            await asyncio.sleep(0)
        leader = (self._node and self._node.leading) or self._leader()
        return await leader.propose(payload, edit)

    async def barrier(self) -> View:
        if self._leads_alone:
            return self._machine  # what was answered is applied here, and no other can commit
        node = self._open()
        index = await self._leader().reads.read()
        await node.wait_applied(index)
        return self._machine

    async def read_barrier(self) -> View:
        if self._leads_alone:
            return self._machine
        role = self._whole().role
        if not isinstance(role, RaftFollower):
            return await self.barrier()
        await role.reads.read()
        return self._machine

    def view(self) -> View:
        return self._machine

    def is_leader(self) -> bool:
        return self._node is not None and isinstance(self._node.role, RaftLeader)

    def leader(self) -> str | None:
        return None if self._node is None else self._node.state.known_leader()

    async def wait_leadership(self) -> None:
        node = self._open()

        def leads() -> bool:
            role = node.role
            return isinstance(role, RaftLeader) and self._machine.revision >= role.noop_index

        await node.wait_until(leads)

    async def wait_deposed(self) -> None:
        role = self._open().role
        if isinstance(role, RaftLeader):
            await role.ended.wait()

    def failure(self) -> StorageError | None:
        return None if self._node is None else self._node.failure

    def impaired(self) -> PaxosBlockError | None:
        return (
            None
            if self._node is None
            else (self._node.damage or self._node.full or self._node.loss)
        )

    async def wait_failure(self) -> StorageError:
        node = self._node
        assert node is not None, "the caller has started the store"
        await node.failed.wait()
        assert node.failure is not None, "it is set before the event"
        return node.failure

    async def hand_over(self, successor: str, timeout_s: float = 5.0) -> None:
        """Make another member lead, without an election time-out in between.

        Raises:
            InvalidRequestError: `successor` is not another member.
            UnavailableError: this member does not lead.
            DeadlineError: `successor` did not take over within `timeout_s`, so this member goes on.
        """
        node, leader = self._open(), self._leader()
        if successor == self._address or successor not in self._members:
            raise InvalidRequestError(f"{successor} is no other member of {list(self._members)}")
        leader.hand_over(successor)
        try:
            async with asyncio.timeout(timeout_s):
                await node.wait_until(lambda: node.role is not leader)
        except TimeoutError as error:
            raise DeadlineError(f"{successor} did not take over in {timeout_s} s") from error
        finally:
            leader.keep_leading()

    async def resign(self, timeout_s: float) -> bool:
        """Let another member lead; True if this member no longer leads.

        The members are tried in turn, those with room and least behind first, and each has
        `timeout_s` to take over.
        """
        role = self._node.role if self._node is not None else None
        others = [each for each in self._members if each != self._address]
        for successor in sorted(others, key=role.prefers) if isinstance(role, RaftLeader) else ():
            with contextlib.suppress(PaxosBlockError):
                await self.hand_over(successor, timeout_s)
                return True
        return not self.is_leader()

    async def _give_way(self, node: RaftNode) -> None:
        """Let another member lead whenever this one leads with a full disk; while no other can,
        refuse changes and go on with reads."""
        with contextlib.suppress(UnavailableError):
            while True:
                await node.wait_until(lambda: node.full is not None and self.is_leader())
                if not await self.resign(GIVE_WAY_S):
                    node.refusal = node.full
                    await asyncio.sleep(GIVE_WAY_S)

    async def checkpoint(self) -> Checkpoint:
        """Return a copy of the map as applied here.

        Raises:
            NoSpaceError, StorageError: the disk refuses.
            UnavailableError: the store is not open, or its map is damaged.
        """
        node = self._whole()
        return await node.run(node.machine.checkpoint().make)

    def status(self) -> Status:
        """Return this member's standing.

        Raises:
            UnavailableError: the store is not open.
        """
        node = self._open()
        role, log = node.role, node.log
        lag = {}
        if isinstance(role, RaftLeader):
            lag = {peer: log.last_log_index - match for peer, match in log.match_index.items()}
        return Status(
            type(role).__name__.removeprefix("Raft").lower() if role else "stopped",
            node.hard_state.term,
            self.leader(),
            log.commit_index,
            node.machine.revision,
            log.last_log_index,
            node.snapshot_index,
            lag,
            node.counters,
        )

    @property
    def _leads_alone(self) -> bool:
        node = self._node
        return node is not None and node.is_alone and node.leading is not None

    def _open(self) -> RaftNode:
        if self._node is None or self._closed:
            raise UnavailableError(f"the store {self._folder} is not open")
        if self._node.failure is not None:
            raise StorageError(self._node.failure.message).with_outcome(Outcome.NEVER)
        return self._node

    def _whole(self) -> RaftNode:
        node = self._open()
        if node.damage is not None:
            raise UnavailableError(str(node.damage))
        return node

    def _leader(self) -> RaftLeader:
        role = self._whole().role
        if not isinstance(role, RaftLeader):
            known = f"{self.leader()} leads" if self.leader() else "no leader is known"
            raise UnavailableError(f"{self._address} does not lead; {known}")
        return role
