"""One member: raftos' `Node` with our storage, machine and transport, and raftos' `State` with our
roles."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, TypeVar

from raftos.server import Node
from raftos.state import Candidate, Follower, Leader, State

from paxosblock.errors import (
    CorruptionError,
    NoSpaceError,
    PaxosBlockError,
    StorageError,
    UnavailableError,
)
from paxosblock.host.disk import blamed
from paxosblock.namenode.kv.engine import disk_full
from paxosblock.namenode.kv.table import Flush, Receiver
from paxosblock.namenode.raft.contract import HardState, MemberLog, NotNowError, StoppedError
from paxosblock.namenode.raft.leader import RaftLeader
from paxosblock.namenode.raft.machine import ReplicatedMachine
from paxosblock.namenode.raft.member_folder import OpenedFolder
from paxosblock.namenode.raft.messages import FIELDS, Message, PreVote, Transport
from paxosblock.namenode.raft.options import Options
from paxosblock.namenode.raft.roles import RaftCandidate, RaftFollower
from paxosblock.namenode.raft.transfers import Incoming

T = TypeVar("T")

_log = logging.getLogger(__name__)

_ROLES = {Follower: RaftFollower, Candidate: RaftCandidate, Leader: RaftLeader}
_OF_A_LEADER = ("append_entries", "install_snapshot", "confirm")
_WITHOUT_A_TERM = ("pre_vote",)
"""Messages whose term is no reason to follow, as nobody has elected their sender."""


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

    def __init__(
        self,
        address: str,
        members: tuple[str, ...],
        *,
        opened: OpenedFolder,
        transport: Transport,
        executor: Executor,
        options: Options,
        rng: random.Random,
    ) -> None:
        """Replace raftos' constructor, which fails on every Python since 3.10 (P1).

        `members` are the addresses of the whole cluster, `address` is one of them; `opened` is
        this member's folder; `executor` has one thread, for the journal.
        """
        self.host, self.port = _split(address)
        self.address = address
        self.cluster = [_split(member) for member in members if member != address]
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
        self.machine: ReplicatedMachine = opened.machine
        self.machine.watch(self.found_damage)
        self.hard_state = HardState(opened.votes, self.fail)
        kernel, revision = opened.disk.kernel_syncs(), opened.machine.revision
        found, lend = (opened.tail, opened.journal), opened.votes.lend
        self.log = MemberLog(*found, executor, kernel, lend=lend, commit_index=revision)
        self.snapshot_index = revision
        """The last entry that is durable in the table; the log may drop the entries up to it."""
        self.incoming = Incoming(self, opened.receive)
        self._opened, self._transport, self._executor = opened, transport, executor
        self._flush_mark = 0
        self._working: asyncio.Task[None] | None = None
        self._table_work: asyncio.Task[None] | None = None
        self._threads: set[asyncio.Future[Any]] = set()
        self._slices: Generator[None, None, object] | None = None
        """The rest of the entry that is being applied."""
        self._applying = self._installing = self._stopped = False
        self._waiters: list[asyncio.Future[None]] = []
        self.state: Any = type(f"RaftState_{self.host}_{self.port}", (RaftState,), {})(self)

    def __repr__(self) -> str:
        role = type(self.state.state).__name__
        return f"RaftNode({self.address}, {role}, term={self.hard_state.term}, {self.log!r})"

    # -- the node's life ------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin as a follower, whose roles are ready before the first message comes (L17)."""
        self._working = self.loop.create_task(self._flush())
        self.state.start()
        self._transport.start(self._deliver)
        if self.state.is_majority(1):
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
                _log.error("%s stops", self.address, exc_info=error)
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
                _log.debug("%s: no room for a term or vote", self.address)
            except Exception as error:
                self.fail(error)

        return run

    async def _flush(self) -> None:
        try:
            await self.log.flush(self.guarded(self._on_durable), self._on_full)
        except Exception as error:  # after any error the member can promise nothing any more
            self.fail(error)

    @property
    def may_lead(self) -> bool:
        """True if a leader may hand over to this member."""
        return self.full is None and self.damage is None

    def found_damage(self, damage: CorruptionError) -> UnavailableError:
        """Show nothing more of the table and lead no more; the leader sends another one.

        Returns:
            The error for whoever read it: another member has what was there.
        """
        if self.damage is None:
            self.damage = damage.reworded(
                f"the map of NameNode {self.address} is damaged, and is being fetched from the"
                f" leader: {damage}"
            )
            self.counters.tables_damaged += 1
            _log.error("%s", self.damage)
            self.loop.call_soon(self.guarded(self._give_up_table))
        return UnavailableError(str(self.damage))

    def _give_up_table(self) -> None:
        if self.state.is_majority(1) and self.damage is not None:
            self.fail(self.damage)  # nobody else has it
            return
        if not isinstance(self.role, RaftFollower):
            self.state.to_follower()
        self._wake()

    # -- messages -------------------------------------------------------------------------------

    @property
    def cluster_count(self) -> int:
        """Return the number of members; raftos forgets to count the node itself (V6)."""
        return len(self.cluster) + 1

    def _deliver(self, sender: str, data: Message) -> None:
        data["sender"] = _split(sender)
        self.guarded(lambda: self.request_handler(data))()

    async def send(self, data: Message, destination: str | tuple[str, int]) -> None:
        """Do `post`, which raftos awaits."""
        self.post(data, destination)

    def post(self, data: Message, destination: str | tuple[str, int]) -> None:
        """Send a message to a member, unless this one has stopped."""
        if not self._stopped:
            peer = destination if isinstance(destination, str) else _join(*destination)
            self._transport.send(peer, data)

    def refuse(self, what: str) -> None:
        """Count a message that no member of this cluster sends."""
        self.counters.strangers_refused += 1
        _log.warning("%s refuses %s", self.address, what)

    # -- applying -------------------------------------------------------------------------------

    def commit(self, index: int) -> None:
        """Apply the entries up to `index`, which are committed now."""
        if index > self.log.commit_index:
            self.log.commit_index = index
            if not self._applying:
                self._apply()

    def _apply(self) -> None:
        """Apply the committed entries; if that takes long, let other tasks run in between."""
        self._applying = False
        if self._installing or self.damage is not None:
            return
        machine = self.machine
        end = machine.revision + len(self.log.committed(machine.revision + 1, self.options))
        try:
            while machine.revision < end and self._apply_next():
                pass
        except Exception as error:  # our own mistake: callers must not wait for it
            if self.damage is None:
                self.fail(error)
            return
        if machine.revision < self.log.commit_index:
            self._applying = True
            self.loop.call_soon(self._apply)
        self._wake()
        self._flush_if_due()

    def _apply_next(self) -> bool:
        """Apply the next entry, or a slice of a long one; False if other tasks are to run next."""
        index, role = self.machine.revision + 1, self.state.state
        if self._slices is None:
            known = role.proposed(index) if isinstance(role, RaftLeader) else None
            self._slices = self.machine.apply_entry(index, self.log.entry(index), known)
        try:
            next(self._slices)
            return False
        except StopIteration as applied:
            self._slices = None
            if isinstance(role, RaftLeader):
                role.answer(index, applied.value)
            return True

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
                raise UnavailableError(f"{self.address} has stopped")
            waiter: asyncio.Future[None] = self.loop.create_future()
            self._waiters.append(waiter)
            await waiter

    def role_changed(self) -> None:
        """Wake the tasks that wait for a leader, so that they look again."""
        self._wake()

    def _wake(self) -> None:
        self.state.state.on_applied()
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _on_durable(self) -> None:
        self.state.state.on_durable()
        self._flush_if_due()

    def _on_full(self, error: NoSpaceError | None) -> None:
        if error is None:
            _log.info("%s has room again", self.address)
            self.full = self.refusal = None
            self.loop.run_in_executor(self._executor, self._opened.votes.keep_room)
        elif self.full is None:
            self.full = disk_full(self.address, self._opened.folder, error)
            _log.error("%s takes no changes: %s", self.address, self.full)
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
                _log.warning("%s: no copy for another member: %s", self.address, error)
                self.guarded(lambda: then(None))()
            else:
                self.guarded(lambda: then(work.result()))()

        work.add_done_callback(done)

    @property
    def free_for_table(self) -> bool:
        """True if nothing is being done with the table on the disk."""
        return not self._stopped and (self._table_work is None or self._table_work.done())

    def work_on_table(self, work: Coroutine[Any, Any, None]) -> None:
        """Do this `work` while no other is done with the table."""
        assert self.free_for_table, "two at once could drop records that are not durable elsewhere"
        self._table_work = self.loop.create_task(self._work(work))

    async def _work(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:  # our own mistake: nobody may rely on the files any more
            self.fail(error)

    def _flush_if_due(self) -> None:
        due = self.log.bytes_written - self._flush_mark >= self.options.limits.flush_bytes
        # All that is flushed must be durable in the log too, as records are removed by position.
        flushable = self.snapshot_index < self.machine.revision <= self.log.durable_index
        if due and flushable and self.free_for_table and self.damage is None:
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
            _log.warning("%s: entry %d is not flushed: %s", self.address, flush.revision, error)
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
            self.damage = None
            _log.warning("%s has a whole map again, that of the leader", self.address)
        self.counters.snapshots_installed += 1
        self._go_on_after(table.revision, table.term)
        await self.run(before.discard)

    def _go_on_after(self, index: int, term: int) -> None:
        """Continue the log and the applying after entry `index`, up to which the table goes."""
        self.log.commit_index = max(self.log.commit_index, index)
        if self.log.term_at(index) == term:
            self.log.compact(index, index + 1)
        elif index > self.log.base_index:
            self.log.reset(index, term)
        if not self._applying:
            self._apply()


async def _finish(task: asyncio.Task[None], cancel: bool) -> None:
    if cancel:
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


class RaftState(State):
    """Switches roles and dispatches messages, as raftos' `State` does.

    Every node has a subclass of its own, because raftos keeps leader and futures on the class
    (L15).
    """

    def __init__(self, node: RaftNode) -> None:
        """Set what raftos' constructor would, with our storage."""
        self.server = node
        self.id = self._get_id(node.host, node.port)
        type(self).loop = node.loop
        self.storage, self.log, self.state_machine = node.hard_state, node.log, node.machine
        self.options, self.rng, self.guarded = node.options, node.rng, node.guarded
        self.post, self.commit, self.refuse = node.post, node.commit, node.refuse
        self.incoming, self.in_thread = node.incoming, node.in_thread
        self._members = frozenset(self.cluster)
        self._heard_at = float("-inf")
        self._rounds = 0
        self.state = RaftFollower(self)

    # -- dispatch -------------------------------------------------------------------------------

    def request_handler(self, data: Message) -> None:
        """Drop messages that no member sends; change the role *before* raftos dispatches (L18)."""
        sender = self.get_sender_id(data["sender"])
        if sender not in self._members or data["type"] not in FIELDS:
            self.refuse(f"a message from {sender}, which is no other member")
            return
        kind, term = data["type"], data["term"]
        if term > self.storage.term and kind not in _WITHOUT_A_TERM:
            self.storage.update({"term": term})
            self._follow()
        elif term == self.storage.term and kind in _OF_A_LEADER:
            self._yield_to_leader(sender)
        super().request_handler(data)

    def _follow(self) -> None:
        if isinstance(self.state, RaftFollower):
            self.set_leader(None)
        else:
            self.to_follower()

    def _yield_to_leader(self, sender: str) -> None:
        assert not isinstance(self.state, RaftLeader), f"{sender} leads in the same term"
        if isinstance(self.state, RaftCandidate):
            self.to_follower()

    def _change_state(self, new_state: type) -> None:
        super()._change_state(_ROLES[new_state])
        self.server.role_changed()

    def to_candidate(self) -> None:
        """Stand for election, unless the disk has no room for the vote.

        A member alone is elected by its own vote, which nobody answers (V7).
        """
        try:
            super().to_candidate()
        except NotNowError:
            self.to_follower()
            return
        if self.is_majority(1):
            self.to_leader()

    def to_leader(self) -> None:
        self.server.counters.elections_won += 1
        super().to_leader()

    # -- for the roles --------------------------------------------------------------------------

    def heard_leader(self) -> None:
        """Remember the time; this member supports no election soon after it."""
        self._heard_at = self.loop.time()

    def hears_leader(self) -> bool:
        """True if a leader was heard within the shortest election time-out."""
        heard: float = self.loop.time() - self._heard_at
        return heard < self.options.election_min_s

    def next_round(self) -> int:
        """Number a round of pre-votes, so that late answers to an older one do not count."""
        self._rounds += 1
        return self._rounds

    def answer_pre_vote(self, data: PreVote, granted: bool) -> None:
        answer = {"type": "pre_vote_response", "term": self.storage.term}
        self.post({**answer, "round": data["round"], "vote_granted": granted}, data["sender"])


def _split(address: str) -> tuple[str, int]:
    """Return `(host, port)`, by which raftos knows a member, as it does by the two joined."""
    host, _, port = address.rpartition(":")
    return host, int(port)


def _join(host: str, port: int) -> str:
    return f"{host}:{port}"
