"""One member: raftos' `Node` with our storage, machine and transport."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TypeVar

import msgspec
from raftos.server import Node
from raftos.state import Candidate, Follower, Leader

from paxosblock.errors import (
    CorruptionError,
    NoSpaceError,
    PaxosBlockError,
    StorageError,
    UnavailableError,
)
from paxosblock.host.disk import blamed
from paxosblock.namenode.kv.interface import Committed, Conflict
from paxosblock.namenode.kv.table import Flush, Receiver
from paxosblock.namenode.raft.contract import HardState, MemberLog, NotNowError, StoppedError
from paxosblock.namenode.raft.entry import Entry, EntryKind
from paxosblock.namenode.raft.leader import RaftLeader, disk_full
from paxosblock.namenode.raft.machine import ReplicatedMachine, Slices
from paxosblock.namenode.raft.member_folder import OpenedFolder
from paxosblock.namenode.raft.options import Options
from paxosblock.namenode.raft.raft_messages import (
    AppendEntriesResponse,
    Message,
    Send,
    Transport,
)
from paxosblock.namenode.raft.roles import RaftCandidate, RaftFollower
from paxosblock.namenode.raft.roster import (
    ListEntry,
    MemberLists,
    Roster,
    address_of,
    decode_list,
    later_of,
)
from paxosblock.namenode.raft.state import RaftState
from paxosblock.namenode.raft.transfers import Incoming

T = TypeVar("T")

_log = logging.getLogger(__name__)

_RESULTS = (Committed, Conflict)
_ROLES = {Follower: RaftFollower, Candidate: RaftCandidate, Leader: RaftLeader}


@dataclass(slots=True)
class Counters:
    """Counts of events in this member since it started."""

    elections_won: int = 0
    strangers_refused: int = 0
    snapshots_written: int = 0
    snapshots_installed: int = 0
    tables_damaged: int = 0


class RaftNode(Node):
    """A member on an injected transport. Build it in the event loop it runs in."""

    whole_again_s = -math.inf
    """The loop's time at which a damaged table was last replaced."""

    def __init__(
        self,
        name: str,
        began_with: ListEntry,
        *,
        opened: OpenedFolder,
        transport: Transport,
        executor: Executor,
        options: Options,
        rng: random.Random,
    ) -> None:
        """Replace raftos' constructor, which fails on every Python since 3.10 (P1).

        `name` is that of this member; its folder, `opened`, `began_with` this list. `executor` has
        one thread, for the journal."""
        self.name = name
        self.loop = asyncio.get_running_loop()
        self.options, self.rng = options, rng
        self.counters = Counters()
        self.failure: StorageError | None = None
        self.failed = asyncio.Event()
        self.full: NoSpaceError | None = None
        """Set while this member's disk is full: it stores nothing new, but answers as before."""
        self.refusal: NoSpaceError | None = None
        """The leader's answer to changes when its disk is full and no other member took over."""
        self.damage: CorruptionError | None = None
        """Set while the table here is damaged: until it has the leader's, this member applies,
        shows and leads nothing. Its log and its vote are sound, and go on counting."""
        self.loss: CorruptionError | None = None
        """Set once damage was found in the table of a member that is alone: no other has what was
        there, so it serves all else."""
        self.machine: ReplicatedMachine = opened.machine
        self.is_alone = began_with.roster.is_majority((name,))
        self.left = asyncio.Event()
        """Set once this member was removed from the list."""
        self.machine.watch(self.found_damage)
        self.lists = self._lists_of(opened, began_with)
        self.hard_state = HardState(opened.votes, self.fail)
        kernel, revision = opened.disk.kernel_syncs(), opened.machine.revision
        found, lend = (opened.tail, opened.journal), opened.votes.lend
        self.log = MemberLog(
            *found, executor, kernel, lend=lend, commit_index=revision, alone=self.is_alone
        )
        self.snapshot_index = revision
        """The last entry that is durable in the table; the log may drop the entries up to it."""
        self.incoming = Incoming(self, opened.receive)
        self._opened, self._transport, self._executor = opened, transport, executor
        self._flush_mark = 0
        self._working: asyncio.Task[None] | None = None
        self._table_work: asyncio.Task[None] | None = None
        self._threads: set[Awaitable[object]] = set()
        self._slices: Slices | None = None
        """The rest of the entry that is being applied."""
        self._applying = self._installing = self._stopped = False
        self._waiters: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self.leading: RaftLeader | None = None
        """The role, while this member leads and may show its table."""
        self._held: list[Send] = []
        """Messages that roles let go, but that wait until entries are durable."""
        self.state: RaftState = type("StateOfOneNode", (RaftState,), {})(self, _ROLES)

    def __repr__(self) -> str:
        role = type(self.state.state).__name__
        return f"RaftNode({self.name}, {role}, term={self.hard_state.term}, {self.log!r})"

    # -- the node's life ------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin as a follower, whose roles are ready before the first message comes (L17)."""
        self._working = self.loop.create_task(self._flush())
        self.state.start()
        self._transport.know(self.roster.voters)
        self._transport.start(self._deliver)
        if self.is_alone:
            self.guarded(self.state.state.start_election)()

    def stop(self) -> None:
        """End the role, and all that waits for it. May be called twice."""
        if not self._stopped:
            self._stopped = True
            self.state.stop()
            self.state.set_leader(None)
            self.role_changed()

    @property
    def role(self) -> object:
        """Return this member's role; None once it has stopped."""
        return None if self._stopped else self.state.state

    async def close(self) -> None:
        """Stop, and release transport and folder."""
        self.stop()
        await self._transport.close()
        for task in (self._working, self._table_work):
            if task is not None:
                await _finish(task, cancel=task is self._working)
        await self.log.settled()
        await asyncio.gather(*self._threads, return_exceptions=True)
        await self.loop.run_in_executor(self._executor, self._opened.close)

    def fail(self, error: Exception) -> None:
        """Stop for good because of an error of the disk, or a mistake of our own."""
        if self.failure is None:
            self.failure = StorageError(blamed(self._opened.folder, error))
            if not isinstance(error, StorageError):
                _log.error("%s stops", self.name, exc_info=error)
            self.failed.set()
            self.stop()

    def guarded(self, action: Callable[[], None]) -> Callable[[], None]:
        """Wrap an action for a timer or the transport, so that its errors stop the member.

        A failing disk has stopped the member already; it must not go on after a mistake of our own
        (an assertion) either.
        """

        def run() -> None:
            try:
                if not self._stopped:
                    action()
            except StoppedError:
                assert self._stopped, "the disk's error came first"
            except NotNowError:
                _log.debug("%s: no room for a term or vote", self.name)
            except Exception as error:
                self.fail(error)

        return run

    async def _flush(self) -> None:
        try:
            await self.log.flush(self._on_durable, self._on_full)
        except Exception as error:  # after any error the member can promise nothing any more
            self.fail(error)

    @property
    def may_lead(self) -> bool:
        """True if a leader may hand over to this member."""
        return self.full is None and self.damage is None

    @property
    def damaged_ago_s(self) -> float:
        """Seconds since the table here was last known to be damaged: 0 while it is, infinite if it
        never was since the start."""
        if self.damage is not None or self.loss is not None:
            return 0.0
        return self.loop.time() - self.whole_again_s

    def found_damage(self, damage: CorruptionError) -> UnavailableError | CorruptionError:
        """Show nothing more of the table and lead no more; the leader sends another one. A member
        that is alone goes on with what is whole.

        Returns:
            The error for the caller that read it.
        """
        if self.is_alone:
            if self.loss is None:
                self.loss = damage
                self.counters.tables_damaged += 1
                _log.error("%s: its map is damaged: %s", self.name, damage)
            return damage
        if self.damage is None:
            self.damage = damage.reworded(
                f"the map of NameNode {address_of(self.name)} is damaged, and is being fetched from"
                f" the leader: {damage}"
            )
            self.counters.tables_damaged += 1
            self.leading = None
            _log.error("%s", self.damage)
            self.loop.call_soon(self.guarded(self._give_up_table))
        return UnavailableError(str(self.damage))

    def _give_up_table(self) -> None:
        if not isinstance(self.role, RaftFollower):
            self.state.to_follower()
        self._wake()

    # -- messages -------------------------------------------------------------------------------

    @property
    def roster(self) -> Roster:
        """Return the list of members that counts."""
        return self.lists.newest.roster

    def _lists_of(self, opened: OpenedFolder, began_with: ListEntry) -> MemberLists:
        """Return the lists in the folder: that of its map, or what it began with, and those in the
        log. A member that is alone never has another."""
        found = began_with
        if not self.is_alone:
            # With a damaged map this member does not stand for election, so that no list is needed.
            with contextlib.suppress(UnavailableError):
                found = self.machine.members or began_with
        lists = MemberLists(later_of(began_with, found))
        for index, entry in enumerate(opened.tail.entries, opened.tail.base_index + 1):
            if entry.kind is EntryKind.MEMBERS and index > lists.newest.index:
                lists.append(index, decode_list(entry.payload))
        return lists

    def list_appended(self, index: int, entry: Entry) -> None:
        """Go by the list of an entry that was appended to the log."""
        self.lists.append(index, decode_list(entry.payload))
        self._transport.know(self.roster.voters)

    def removed(self) -> None:
        """Stop for good, as this member was removed from the list."""
        self.left.set()
        self.stop()

    @property
    def cluster_count(self) -> int:
        """Return the number of voters; raftos forgets to count the node itself (V6)."""
        return len(self.roster.voters)

    def _deliver(self, sender: str, message: Message) -> None:
        self.guarded(lambda: self.state.receive(sender, message))()

    def carry_out(self, send: Send) -> None:
        """Send a message once what it says is durable. Until then a later term may take its place:
        then it was never said (L8)."""
        if send.after > self.log.durable_index:
            self._held.append(send)
        elif not self._stopped:
            self._transport.send(send.peer, send.message)

    def _send_held(self) -> None:
        held, self._held = self._held, []
        term = self.hard_state.term
        for send in held:
            message = send.message
            if isinstance(message, AppendEntriesResponse):
                message = msgspec.structs.replace(message, full=self.full is not None)  # by now
            if message.term == term:
                self.carry_out(Send(send.peer, message, send.after))

    def refuse(self, what: str) -> None:
        """Count a message that no member of this cluster sends."""
        self.counters.strangers_refused += 1
        _log.warning("%s refuses %s", self.name, what)

    # -- applying -------------------------------------------------------------------------------

    def commit(self, index: int) -> None:
        """Apply the entries up to `index`, which are committed now."""
        if index > self.log.commit_index:
            self.log.commit_index = index
            if self.lists.is_changing:
                self._commit_lists(index)
            if not self._applying:
                self._apply()

    def _commit_lists(self, index: int) -> None:
        was_listed = self.name in self.lists.committed.roster.voters
        self.lists.commit(index)
        if was_listed and self.name not in self.lists.committed.roster.voters:
            self.loop.call_soon(self.guarded(self.removed))  # once what is under way is done

    def _apply(self) -> None:
        """Apply the committed entries; if that takes long, let other tasks run in between."""
        self._applying = False
        if self._installing or self.damage is not None:
            return
        machine, role = self.machine, self.state.state
        leader = role if isinstance(role, RaftLeader) else None
        first = machine.revision + 1
        try:
            writes = leader.writes if leader is not None else {}
            apply = machine.apply_entry
            for index, entry in enumerate(self._committed(first), first):
                write = writes.get(index)
                found = self._slices or apply(index, entry, None if write is None else write[2])
                result = found if isinstance(found, _RESULTS) else self._next_slice(found)
                if result is None:
                    break
                if write is not None:
                    del writes[index]
                    if not write[0].done():
                        write[0].set_result(result)
        except Exception as error:  # our own mistake: callers must not wait for it
            if self.damage is None:
                self.fail(error)
            return
        if self.is_alone:
            self.log.forget(machine.revision)
        if machine.revision < self.log.commit_index:
            self._applying = True
            self.loop.call_soon(self._apply)
        self._wake()
        self._flush_if_due()

    def _committed(self, first: int) -> list[Entry]:
        """Return the committed entries from `first` on that are applied in one turn."""
        options = self.options
        most = min(options.apply_entries_max, self.log.commit_index + 1 - first)
        return self.log.slice(first, most, options.apply_bytes_max) if most > 0 else []

    def _next_slice(self, slices: Slices) -> Committed | Conflict | None:
        """Go on with a long entry; None if other tasks are to run before the rest of it."""
        self._slices = slices
        try:
            next(slices)
        except StopIteration as applied:
            self._slices = None
            end: Committed | Conflict = applied.value
            return end
        return None

    async def wait_applied(self, index: int) -> None:
        """Return once the entry at `index` is applied.

        Raises:
            UnavailableError: this member has stopped, or its table is damaged.
        """
        await self.wait_until(lambda: self.damage is not None or self.machine.revision >= index)
        if self.damage is not None:
            raise UnavailableError(str(self.damage))

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Return once `condition` holds; it is asked after each change of role or state.

        Raises:
            UnavailableError: this member has stopped.
        """
        while not condition():
            if self._stopped:
                raise UnavailableError(f"{self.name} has stopped")
            waiter: asyncio.Future[None] = self.loop.create_future()
            self._waiters.append((condition, waiter))
            await waiter

    def elected(self) -> None:
        """Count a term that this member won."""
        self.counters.elections_won += 1

    def role_changed(self) -> None:
        """Wake the tasks that wait for a leader, so that they look again."""
        role = self.role
        whole = self.damage is None
        self.leading = role if isinstance(role, RaftLeader) and whole else None
        self._wake()

    def _wake(self) -> None:
        if not self.is_alone:
            self.state.state.on_applied()
        waiting = []
        for condition, waiter in self._waiters:
            if waiter.done():
                continue
            # Asked here, because to wake a task after each entry would cost more than the entry.
            if self._stopped or condition():
                waiter.set_result(None)
            else:
                waiting.append((condition, waiter))
        self._waiters = waiting

    def _on_durable(self) -> None:
        if not self._stopped:
            if self._held:
                self._send_held()
            self.state.state.on_durable()
            self._flush_if_due()

    def _on_full(self, error: NoSpaceError | None) -> None:
        if error is None:
            _log.info("%s has room again", self.name)
            self.full = self.refusal = None
            self.loop.run_in_executor(self._executor, self._opened.votes.keep_room)
        elif self.full is None:
            self.full = disk_full(address_of(self.name), self._opened.folder, error)
            _log.error("%s takes no changes: %s", self.name, self.full)
        role = self.role
        if self.full is not None and self.is_alone and isinstance(role, RaftLeader):
            self.refusal = self.full
            role.take_back(self.full)
        self._wake()

    # -- the table on the disk ------------------------------------------------------------------

    def run(self, step: Callable[[], T]) -> asyncio.Future[T]:
        """Run a step that blocks in a thread."""
        return self.loop.run_in_executor(None, step)

    def in_thread(self, step: Callable[[], T], then: Callable[[T | None], None]) -> None:
        """Run `step` in a thread, then call `then` with its result, or None if the disk refused."""
        work = self.run(step)
        self._threads.add(work)

        def done(work: asyncio.Future[T]) -> None:
            self._threads.discard(work)
            if work.cancelled():
                return
            error = work.exception()
            if isinstance(error, CorruptionError):
                self.found_damage(error)
            if isinstance(error, PaxosBlockError):
                _log.warning("%s: no copy for another member: %s", self.name, error)
                self.guarded(lambda: then(None))()
            else:
                self.guarded(lambda: then(work.result()))()

        work.add_done_callback(done)

    @property
    def free_for_table(self) -> bool:
        """True if nothing is being done with the table on the disk."""
        return not self._stopped and (self._table_work is None or self._table_work.done())

    def work_on_table(self, work: Coroutine[object, object, None]) -> None:
        """Do this `work` while no other is done with the table."""
        assert self.free_for_table, "two at once could drop records that are not durable elsewhere"
        self._table_work = self.loop.create_task(self._work(work))

    async def _work(self, work: Coroutine[object, object, None]) -> None:
        try:
            await work
        except Exception as error:  # our own mistake: the files can no longer be relied on
            self.fail(error)

    def _flush_if_due(self) -> None:
        if self.log.bytes_written < self._flush_mark + self.options.limits.flush_bytes:
            return
        # All that is flushed must be durable in the log too, as records are removed by position.
        flushable = self.snapshot_index < self.machine.revision <= self.log.durable_index
        if flushable and self.free_for_table and self.damage is None:
            self._flush_mark = self.log.bytes_written
            self.work_on_table(self._flush_table(self.machine.flush()))

    async def _flush_table(self, flush: Flush) -> None:
        """Make durable what is applied; then drop the entries up to there."""
        try:
            await self.run(flush.write)
        except CorruptionError as damage:
            self.found_damage(damage)
        except (NoSpaceError, StorageError) as error:
            # The log still has everything, and the next flush may succeed.
            _log.warning("%s: entry %d is not flushed: %s", self.name, flush.revision, error)
        else:
            self.counters.snapshots_written += 1
            self.snapshot_index = flush.revision
            await self._compact(flush.revision)

    async def _compact(self, index: int) -> None:
        """Drop the entries that the flush of `index` made durable, in memory a slice each turn."""
        most, limits = self.options.forget_entries_max, self.options.limits
        trailing = self.log.first_of_last(index, limits.trailing_entries, limits.trailing_bytes)
        while (end := self.log.base_index + most + 1) < self._keep_from(trailing):
            self.log.compact(index, end)
            await asyncio.sleep(0)
        self.log.compact(index, self._keep_from(trailing))

    def _keep_from(self, trailing: int) -> int:
        """Return the first entry to keep in memory for members that are behind: the first of the
        `trailing` ones, or one before that."""
        role = self.state.state
        return min(trailing, role.needed_from()) if isinstance(role, RaftLeader) else trailing

    async def install(self, receiver: Receiver) -> None:
        """Go on from the table of another member, which was checked and is later than this one's.

        Nothing is applied until it has replaced this member's table, because the table on the disk
        must be the later one.
        """
        self._installing = True
        try:
            table = await self.run(receiver.install)
        except PaxosBlockError as error:
            self.fail(error)  # only a start finds out which table is there
            return
        finally:
            self._installing = False
        if self._stopped:
            await self.run(table.close)
            return
        self.snapshot_index, self._slices = table.revision, None
        before = self.machine.adopt(table)
        if self.damage is not None:
            self.damage, self.whole_again_s = None, self.loop.time()
            _log.warning("%s has a whole map again, that of the leader", self.name)
        self.counters.snapshots_installed += 1
        self._go_on_after(table.revision, table.term)
        await self.run(before.discard)

    def _go_on_after(self, index: int, term: int) -> None:
        """Continue the log and the applying after entry `index`, up to which the table goes."""
        self.log.commit_index = max(self.log.commit_index, index)
        found = self.machine.members or self.lists.committed
        if self.log.term_at(index) == term:
            # The entries after it continue the table, and may have been acknowledged: keep them.
            self.log.compact(index, index + 1)
        elif index > self.log.base_index:
            self.log.reset(index, term)
        self.lists.install(found, self.log.last_log_index)
        self._transport.know(self.roster.voters)
        if not self._applying:
            self._apply()


async def _finish(task: asyncio.Task[None], cancel: bool) -> None:
    if cancel:
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
