"""The replicated `KeyValueStore`: one member's view of the cluster."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from paxosblock.base.durations import Durations
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
from paxosblock.namenode.kv.interface import Committed, Conflict, Edit, Recent, View
from paxosblock.namenode.kv.rocks_table import ROCKS
from paxosblock.namenode.kv.state_machine import UnopenedView
from paxosblock.namenode.kv.table import Checkpoint, Tables
from paxosblock.namenode.raft.leader import RaftLeader
from paxosblock.namenode.raft.machine import ReplicatedMachine
from paxosblock.namenode.raft.member_folder import (
    OpenedFolder,
    first_list,
    name_in,
    open_folder,
    write_removed,
)
from paxosblock.namenode.raft.options import Options
from paxosblock.namenode.raft.raft_messages import Deliver, Message, Transport
from paxosblock.namenode.raft.raft_node import Counters, RaftNode
from paxosblock.namenode.raft.roles import RaftFollower
from paxosblock.namenode.raft.roster import ListEntry, Roster, address_of

_log = logging.getLogger(__name__)

CLOSE_S = 1.0
"""Seconds that closing waits for what is pending."""
GIVE_WAY_S = 2.0
"""Seconds that a leader without room waits for another member to take over."""


class _NoTransport:
    """`Transport` of a member that is alone: nothing comes, and nothing is sent."""

    def know(self, members: Collection[str]) -> None:
        """Do nothing."""

    def start(self, deliver: Deliver) -> None:
        """Do nothing."""

    def send(self, peer: str, message: Message) -> None:
        raise AssertionError(f"a member that is alone sends nothing, not to {peer}: {message}")

    async def close(self) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class Status:
    """The standing of this member, for reports; `lag` counts the entries that others lack. Its
    table was last known to be damaged `damaged_ago_s` seconds before; infinite: never since its
    start.
    """

    role: str
    term: int
    leader: str | None
    commit_index: int
    applied_index: int
    last_index: int
    snapshot_index: int
    lag: dict[str, int]
    damaged_ago_s: float
    counters: Counters


class ReplicatedStore:
    """A durable `KeyValueStore` on several members, which survives the loss of a minority.

    Members are known by their names (roster.py), and to callers by their addresses (host:port).
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

        Args:
            folder: that of this member.
            address: its own.
            members: the list of an empty folder; another one has its own.
            transport: carries messages to the other members; a group of one needs none.
            options: times and sizes.
            disk: has the folder.
            rng: draws time-outs.
            tables: opens the map.

        Raises:
            ConfigError: a member is listed twice.
        """
        if len(set(members)) != len(members):
            raise ConfigError(f"each member is listed once: {list(members)}")
        self._folder, self._address, self._given = folder, address, tuple(members)
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
        try:
            opened, name, first = await loop.run_in_executor(self._thread, self._open_folder)
        except NoSpaceError as error:
            raise NoSpaceError(f"{self._folder}: {error}") from error
        except StorageError as error:
            raise StorageError(blamed(self._folder, error)) from error
        self._machine = opened.machine
        self._node = RaftNode(
            name,
            first,
            opened=opened,
            transport=self._transport,
            executor=self._thread,
            options=self._options,
            rng=self._rng,
        )
        if {*map(address_of, self._given)} != {*self.members}:
            _log.warning(
                "--peers names %s, but the NameNodes are %s: that is what counts",
                ",".join(map(address_of, self._given)),
                ",".join(self.members),
            )
        await self._node.start()
        if not self._node.is_alone:
            self._giving_way = loop.create_task(self._give_way(self._node))

    def _open_folder(self) -> tuple[OpenedFolder, str, ListEntry]:
        """Return the folder, the name of its member, and the list with which it began. Blocks."""
        segment_bytes = self._options.limits.segment_bytes
        alone = len(self._given) == 1
        opened = open_folder(self._disk, self._folder, segment_bytes, self._tables, alone=alone)
        try:
            first = first_list(opened) or ListEntry(0, Roster(self._given))
            return opened, name_in(self._disk, self._folder, self._address), first
        except BaseException:
            opened.close()
            raise

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

    @property
    def recent(self) -> Recent:
        return self._whole().machine.recent

    async def wait_entry(self, index: int) -> None:
        await self._whole().wait_applied(index)

    def is_leader(self) -> bool:
        return self._node is not None and isinstance(self._node.role, RaftLeader)

    def leader(self) -> str | None:
        known = None if self._node is None else self._node.state.known_leader()
        return None if known is None else address_of(known)

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
        name = self.roster.at(successor)
        if name is None or name == node.name:
            raise InvalidRequestError(f"{successor} is no other member of {list(self.members)}")
        leader.hand_over(name)
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
        others = self.roster.others("" if self._node is None else self._node.name)
        for successor in sorted(others, key=role.prefers) if isinstance(role, RaftLeader) else ():
            with contextlib.suppress(PaxosBlockError):
                await self.hand_over(address_of(successor), timeout_s)
                return True
        return not self.is_leader()

    # -- the list of members --------------------------------------------------------------------

    @property
    def listed(self) -> ListEntry:
        """The list that counts here, committed or not."""
        if self._node is None:
            return ListEntry(0, Roster(self._given))
        return self._node.lists.newest

    @property
    def roster(self) -> Roster:
        """The members in that list, by name."""
        return self.listed.roster

    @property
    def members(self) -> tuple[str, ...]:
        """Their addresses."""
        return tuple(map(address_of, self.roster.voters))

    def committed_list(self) -> tuple[tuple[str, ...], int]:
        """Return the addresses in the last list that is known here to be committed, and the index
        of its entry."""
        found = self._open().lists.committed
        return tuple(map(address_of, found.roster.voters)), found.index

    def term_led(self) -> tuple[int, str]:
        """Return the term in which this member leads, and its name.

        Raises:
            UnavailableError: it does not lead.
        """
        leader = self._leader()
        return self._open().hard_state.term, leader.id

    def silent(self) -> tuple[str, ...]:
        """Return the addresses of the members that this leader does not hear; none if it does not
        lead."""
        node = self._open()
        role = node.role
        if not isinstance(role, RaftLeader):
            return ()
        return self._silent_of(self.roster, role)

    def _silent_of(self, roster: Roster, leader: RaftLeader) -> tuple[str, ...]:
        patience_s = self._options.away_after_s / 2
        others = roster.others(leader.id)
        return tuple(address_of(each) for each in others if leader.silent_s(each) >= patience_s)

    async def wait_list(self) -> None:
        """Return once the list that counts here is committed.

        Raises:
            UnavailableError: this member does not lead any more.
        """
        node, leader = self._open(), self._leader()
        await node.wait_until(lambda: node.role is not leader or not node.lists.is_changing)
        self._leader()

    def teach(self, name: str) -> int | None:
        """Send the log to a new member, until that is not asked for again.

        Returns:
            The entries that it lacks; None while it does not answer.

        Raises:
            UnavailableError: this member does not lead.
        """
        return self._leader().teach(name)

    async def change_list(self, wanted: Roster) -> None:
        """Replace the list by one that has one member more, or less; it is committed on return.

        Raises:
            InvalidRequestError: too few of the `wanted` ones are there to commit anything; or this
                member is not among them.
            UnavailableError: it does not lead, or the list cannot be changed at this moment.
            OutcomeUnknownError: whether the list is that one shows when the next leader begins.
            NoSpaceError: as `commit`.
        """
        leader = self._leader()
        silent = self._silent_of(wanted, leader)
        there = {each for each in wanted.voters if address_of(each) not in silent}
        if not wanted.is_majority(there):
            raise InvalidRequestError(
                f"nothing was changed: too few of {','.join(map(address_of, wanted.voters))} would"
                f" be left to go on, as these do not answer: {', '.join(silent)}"
            )
        await leader.change_list(wanted)

    async def wait_removed(self) -> None:
        """Return once this member was removed from the list, and its folder says so."""
        await self._open().left.wait()
        await asyncio.to_thread(write_removed, self._disk, self._folder)

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
            lag = {
                address_of(peer): log.last_log_index - match
                for peer, match in log.match_index.items()
            }
        return Status(
            type(role).__name__.removeprefix("Raft").lower() if role else "stopped",
            node.hard_state.term,
            self.leader(),
            log.commit_index,
            node.machine.revision,
            log.last_log_index,
            node.snapshot_index,
            lag,
            node.damaged_ago_s,
            node.counters,
        )

    @property
    def sync_times(self) -> Durations:
        """The durations of the group commits of this member's log.

        Raises:
            UnavailableError: the store is not open.
        """
        return self._open().log.sync_times

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
