"""The leader: raftos' heartbeats, rounds and step-down; our replication, commit rule and reads."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from pathlib import Path

import msgspec
from raftos.state import Leader

from paxosblock.errors import (
    NoSpaceError,
    OutcomeUnknownError,
    UnavailableError,
)
from paxosblock.host.disk import is_shortage
from paxosblock.namenode.kv.interface import Committed, Conflict, Edit
from paxosblock.namenode.raft.contract import validate_term
from paxosblock.namenode.raft.entry import Entry, EntryKind
from paxosblock.namenode.raft.raft_messages import (
    AppendEntries,
    AppendEntriesResponse,
    Confirm,
    ConfirmResponse,
    InstallSnapshotResponse,
    PreVote,
    ReadIndex,
    ReadIndexResponse,
    Received,
    Send,
    TimeoutNow,
)
from paxosblock.namenode.raft.reads import LeaderReads, refuse
from paxosblock.namenode.raft.roles import AnyRole, prepare
from paxosblock.namenode.raft.roster import Roster, address_of, encode_list, why_not_now
from paxosblock.namenode.raft.state import RaftState
from paxosblock.namenode.raft.transfers import Outgoing

LEARNS_FOR_S = 30.0
"""Seconds that a new member gets the log before it is added, unless that is asked for again."""

LEAVES_FOR_S = 10.0
"""Seconds that a removed member still gets the log, so that it hears that it was removed."""

CAUGHT_UP_ENTRIES = 1024
"""A new member may be added while it lacks no more: one or two messages bring them."""

ROUNDS_KEPT = 64
"""A heartbeat round without a majority is forgotten after so many later ones (L16)."""


@dataclass(slots=True)
class _Peer:
    """The leader's knowledge of a member beside raftos' next_index and match_index.

    `in_flight` holds, by sequence number, the last entry of each message that is not answered.
    Refusals of messages up to `outdated` are old, as next_index was moved back since. The member
    last answered at `heard_at`.
    """

    in_flight: dict[int, int] = field(default_factory=dict)
    outdated: int = 0
    heard_at: float = float("-inf")
    transfer: Outgoing | None = None


Write = tuple[asyncio.Future[Committed | Conflict], float, Edit]
"""A write that waits for a majority: its answer, its deadline and its edit. It is no class of its
own, because to make an object of one costs as much as the rest of `propose`."""


class RaftLeader(AnyRole, Leader):
    """raftos' leader."""

    def __init__(self, state: RaftState) -> None:
        Leader.__init__(self, state)
        self._options, self.loop = state.options, state.loop
        self._term = state.storage.term  # which stays the same as long as this member leads
        prepare(self.heartbeat_timer, state.guarded(self.heartbeat), self._options.heartbeat_s)
        step_down = state.guarded(self._step_down)
        prepare(self.step_down_timer, step_down, self._options.election_min_s)
        self._peers = {peer: _Peer() for peer in state.cluster}
        self._counted = state.cluster
        """The others that are in the list: only they count."""
        self._learners: dict[str, float] = {}
        """Members that get the log, though they are not in the list yet, or no more, and the time
        until which they do."""
        self._full: set[str] = set()
        """The others whose disks are full, as they last said."""
        self.writes: dict[int, Write] = {}
        """The writes that wait, by the index of their entry: the earliest first."""
        self.reads = LeaderReads(self)
        self._deadline = 0.0
        """The time until which writes that are proposed before the next heartbeat may take."""
        self._sequence = self._transfers = 0
        self._flushing = False
        self._successor: str | None = None
        self.noop_index = 0
        self.ended = asyncio.Event()
        """Set once this role has ended."""

    def __repr__(self) -> str:
        return f"RaftLeader(term={self._term}, pending={len(self.writes)})"

    @property
    def leads(self) -> bool:
        """True until this role has ended, after which tasks that raftos scheduled may still run."""
        return self.state.state is self

    def start(self) -> None:
        """Begin the term with an empty entry, because only entries of this term count (L4)."""
        super().start()
        if not self._counted:  # no other member waits for heartbeats, nor could one step in
            self.heartbeat_timer.stop()
            self.step_down_timer.stop()
        self.noop_index = self._append_nothing()

    def stop(self) -> None:
        """End the role; writes that wait are answered that their outcome is unknown (L6)."""
        super().stop()
        self.ended.set()
        writes, self.writes = self.writes, {}
        failure = self.state.server.failure
        why = (
            "the leader stepped down before a majority"
            if failure is None
            else f"{failure}; whether the edit took effect shows after a restart"
        )
        refuse([answer for answer, _, _ in writes.values()], OutcomeUnknownError(why))
        self.reads.stop()
        for progress in self._peers.values():
            _end_transfer(progress)

    def start_election(self) -> None:
        """Do nothing, as this member was elected."""

    def _step_down(self) -> None:
        """Lead no more, as no majority has answered."""
        self.state.to_follower()

    # -- writes ---------------------------------------------------------------------------------

    def propose(self, payload: bytes, edit: Edit) -> asyncio.Future[Committed | Conflict]:
        """Append an entry; the future gets the result of applying it.

        Args:
            edit: is what `payload` decodes to.

        Raises:
            UnavailableError: too much is pending, or leadership is being handed over.
            NoSpaceError: the disk is full, and no other member took over; or so many members' disks
                are full that no majority could store the entry.
        """
        writes = self.writes
        if (
            self.state.server.full is not None
            or self._successor is not None
            or self._full
            or len(writes) >= self._options.pending_max
        ):
            self._refuse_if_hindered()
        answer: asyncio.Future[Committed | Conflict] = self.loop.create_future()
        index = self.log.append(Entry(self._term, EntryKind.EDIT, payload))
        writes[index] = answer, self._deadline, edit
        if self._peers and not self._flushing:
            self._flush_soon()
        return answer

    def _refuse_if_hindered(self) -> None:
        """Raise as `propose` if no write can be taken now."""
        server = self.state.server
        if (lack := self._lack_of_room() or server.refusal) is not None:
            raise NoSpaceError(lack.message, **lack.details)
        if server.full is not None:
            raise UnavailableError(
                f"the disk of {address_of(self.id)} is full: another member is to lead"
            )
        if self._successor is not None:
            raise UnavailableError(
                f"leadership is being handed over to {address_of(self._successor)}"
            )
        if len(self.writes) >= self._options.pending_max:
            raise UnavailableError(f"{len(self.writes)} edits are pending already")

    def _append_nothing(self) -> int:
        index = self.log.append(Entry(self._term, EntryKind.NOOP, b""))
        self._flush_soon()
        return index

    def _flush_soon(self) -> None:
        """Send what was appended: all that is proposed in this turn of the loop in one message."""
        if not self._flushing:
            self._flushing = True
            self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self.leads:
            for peer in self._peers:
                self._replicate(peer)

    # -- the list of members --------------------------------------------------------------------

    def teach(self, name: str) -> int | None:
        """Send the log to a member before it is added, for a while, and count it nowhere.

        Returns:
            The entries that it lacks; None while it does not answer.
        """
        if name not in self._counted:
            self._learners[name] = self.loop.time() + LEARNS_FOR_S
            self._follow_list()
        peer = self._peers[name]
        if self.silent_s(name) > self._options.away_after_s / 2:
            return None
        lacks = self.log.last_log_index - self.log.match_index[name]
        return max(1, lacks) if peer.transfer is not None else lacks

    def silent_s(self, name: str) -> float:
        """Return the seconds since another member was heard, infinite if it never was."""
        peer = self._peers.get(name)
        return float("inf") if peer is None else self.loop.time() - peer.heard_at

    def change_list(self, wanted: Roster) -> asyncio.Future[Committed | Conflict]:
        """Append the list that is `wanted`, which counts from now on; the future is done once it is
        committed.

        Raises:
            UnavailableError: it may not be changed at this moment.
            NoSpaceError: as `propose`.
        """
        self._refuse_if_hindered()
        lists = self.state.server.lists
        why = why_not_now(
            lists,
            wanted,
            leader=self.id,
            commit_index=self.log.commit_index,
            first_of_term=self.noop_index,
        )
        if why is not None:
            raise UnavailableError(why)
        answer: asyncio.Future[Committed | Conflict] = self.loop.create_future()
        entry = Entry(self._term, EntryKind.MEMBERS, encode_list(wanted))
        index = self.log.append(entry)
        self.writes[index] = answer, self.loop.time() + self._options.commit_timeout_s, Edit()
        for leaver in set(self._counted) - set(wanted.voters):
            self._learners[leaver] = self.loop.time() + LEAVES_FOR_S
        self.state.server.list_appended(index, entry)
        self._follow_list()
        self._flush_soon()
        return answer

    def _follow_list(self) -> None:
        """Send to the members of the list, and those that learn; count only the former."""
        self._counted = self.state.cluster
        log, now = self.log, self.loop.time()
        self._learners = {
            name: until_s
            for name, until_s in self._learners.items()
            if name not in self._counted and until_s > now
        }
        wanted = {*self._counted, *self._learners}
        for peer in [each for each in self._peers if each not in wanted]:
            _end_transfer(self._peers.pop(peer))
            del log.next_index[peer], log.match_index[peer]
            self._full.discard(peer)
        for peer in (*self._counted, *self._learners):
            if peer not in self._peers:
                self._peers[peer] = _Peer()
                log.next_index[peer], log.match_index[peer] = log.last_log_index + 1, 0

    def take_back(self, lack: NoSpaceError) -> None:
        """Refuse the writes whose entries the log of a member that is alone has taken back."""
        gone = [index for index in self.writes if index > self.log.last_log_index]
        refuse([self.writes.pop(index)[0] for index in gone], lack)

    def _lack_of_room(self) -> NoSpaceError | None:
        """Return why no majority can store anything for now; None if a majority can."""
        own = self.state.server.full
        full = self._full if own is None else {*self._full, self.id}
        roomy = {self.id, *self._counted} - full
        if not full or self.state.roster.is_majority(roomy):
            return None
        return majority_full([address_of(each) for each in full]) if self._full else own

    def _expire(self) -> None:
        if self.writes and (lack := self._lack_of_room()) is not None:
            self._give_up_on(list(self.writes), f"{lack}; this one may still be made then")
        now = self.loop.time()
        late = takewhile(lambda item: item[1][1] <= now, self.writes.items())
        for index, _ in list(late):
            self._give_up_on([index], self._why_late(index))

    def _give_up_on(self, indexes: list[int], why: str) -> None:
        answers = [self.writes.pop(index)[0] for index in indexes]
        refuse(answers, OutcomeUnknownError(why))

    def _why_late(self, index: int) -> str:
        """Return a text that names the members that entry `index` waits for."""
        waited = f"not committed within {self._options.commit_timeout_s} s, and may be later"
        behind = [address_of(peer) for peer in self._counted if self.log.match_index[peer] < index]
        return f"{waited}: not stored by {', '.join(behind)}" if behind else waited

    def prefers(self, peer: str) -> tuple[bool, int]:
        """Return a rank that is lower for a member with room, then for one with a longer log."""
        return peer in self._full, -self.log.match_index.get(peer, 0)

    # -- replication ----------------------------------------------------------------------------

    async def append_entries(self, destination: str | None = None) -> None:
        """Send a heartbeat to all, or to one member what it lacks; raftos calls this."""
        if not self.leads:
            return
        if destination is not None:
            if destination in self._peers:  # it may have left meanwhile
                self._replicate(destination)
            return
        for peer in self._peers:
            self._send_heartbeat(peer)
            self._replicate(peer)

    def heartbeat(self) -> None:
        """Let raftos begin a round; drop old rounds, late writes and transfers to members away."""
        super().heartbeat()
        self._deadline = self.loop.time() + self._options.commit_timeout_s
        self.response_map.pop(self.request_id - ROUNDS_KEPT, None)
        self._expire()
        if self._learners:
            self._follow_list()
        self.reads.ask_again()
        for progress in self._peers.values():
            if self._away(progress):
                _end_transfer(progress)
            elif progress.transfer is not None:
                progress.transfer.send_again()

    def _replicate(self, peer: str) -> None:
        """Send the entries that the member lacks, as far as its window is open."""
        progress, options = self._peers[peer], self._options
        while len(progress.in_flight) < options.append_window:
            first = self.log.next_index[peer]
            if first > self.log.last_log_index:
                return
            if self.log.term_at(first - 1) is None:
                self._begin_transfer(peer, progress)
                return
            limits = options.append_entries_max, options.append_bytes_max
            entries = self.log.slice(first, *limits)
            end = first + len(entries)
            few = end > self.log.last_log_index and len(entries) < options.append_full
            if few and progress.in_flight:
                return  # they go together with the entries that come before the next answer
            self.log.next_index[peer] = end
            progress.in_flight[self._sequence + 1] = end - 1
            self._send(peer, first - 1, entries)

    def _send_heartbeat(self, peer: str) -> None:
        """Send an empty message, which is answered at once. It continues the latest entry sent, so
        the member notices, and asks for, whatever was lost on the way."""
        previous = self.log.next_index[peer] - 1
        if self.log.term_at(previous) is None:
            # The entries in flight were compacted, too; if they were lost, only a snapshot helps.
            self._peers[peer].in_flight.clear()
            previous = 0
        self._send(peer, previous, [])

    def _send(self, peer: str, previous: int, entries: list[Entry]) -> None:
        self._sequence += 1
        message = AppendEntries(
            self._term,
            self.id,
            previous,
            self.log.term_at(previous) or 0,
            self.log.commit_index,
            entries,
            self.request_id,
            self._sequence,
        )
        self.let_go(Send(peer, message))

    @validate_term
    def on_receive_append_entries_response(self, found: Received[AppendEntriesResponse]) -> None:
        """Change the answer so that raftos' bookkeeping of rounds, next_index and match_index comes
        out right, and hand it on."""
        said, peer, log = found.message, found.sender, self.log
        if said.term != self._term or peer not in self._peers:
            return  # of an older term (L8), or of a member that has left
        progress = self._peers[peer]
        if peer in self._learners:  # it counts for no round
            said = msgspec.structs.replace(said, request_id=0)
        progress.heard_at = self.loop.time()
        (self._full.add if said.full else self._full.discard)(peer)
        progress.in_flight.pop(said.sequence, None)
        sent = log.next_index[peer]
        if said.success:
            # Answers may overtake each other; durable entries stay durable (L9).
            match = max(log.match_index[peer], said.last_log_index)
            said = msgspec.structs.replace(said, last_log_index=match)
            done = [seq for seq, last in progress.in_flight.items() if last <= match]
            for sequence in done:
                del progress.in_flight[sequence]
        else:
            # raftos goes back by one entry (L11), so this is one more than the member asks for.
            log.next_index[peer] = self._continue_at(progress, peer, said) + 1
        super().on_receive_append_entries_response(Received(peer, said))
        if said.success:
            log.next_index[peer] = max(sent, log.next_index[peer])
        if said.damaged is not None and said.sequence > progress.outdated:
            self._replace_table(peer, said.damaged)

    def _continue_at(self, progress: _Peer, peer: str, said: AppendEntriesResponse) -> int:
        """Return the next entry to send to a member that refused a message."""
        if said.sequence <= progress.outdated:
            return self.log.next_index[peer]
        progress.outdated = self._sequence
        progress.in_flight.clear()
        hint = min(said.hint, self.log.last_log_index + 1)
        return max(hint, self.log.match_index[peer] + 1)

    def on_durable(self) -> None:
        """Count this member's own durable entries."""
        self.update_commit_index()

    def update_commit_index(self) -> None:
        """Commit the entries that a majority holds durably, if the last is of this term (L4).

        Entries of older terms are committed by the first entry of this term that follows them.
        """
        index = self.log.durable_index
        if self._counted:
            match = self.log.match_index
            durable = sorted([*[match[peer] for peer in self._counted], *self._own(index)])
            index = durable[(len(durable) - 1) // 2]
        if index > self.log.commit_index and index >= self.noop_index > 0:
            self.state.commit(index)
            if self._counted:
                self.reads.begin_soon()

    def _own(self, index: int) -> tuple[int, ...]:
        """Return what this member has, unless the list lacks it, as its removal is under way."""
        return (index,) if self.id in self.state.roster.voters else ()

    # -- reads ----------------------------------------------------------------------------------

    @property
    def may_read(self) -> bool:
        """True once the first entry of the term is committed: until then this member may not know
        the last commits of older leaders."""
        return self.log.commit_index >= self.noop_index > 0

    def ask_to_confirm(self, number: int, confirmed: Collection[str], every: bool) -> None:
        """Ask members whether they are still in this term: a bare majority of those heard last, or
        `every` member that has not confirmed it yet."""
        message = Confirm(self._term, number)
        heard = sorted(self._counted, key=lambda peer: -self._peers[peer].heard_at)
        few = heard[: (len(self._counted) + 1) // 2]  # with this member more than half of all
        for peer in heard if every else few:
            if peer not in confirmed:
                self.let_go(Send(peer, message))

    @validate_term
    def on_receive_confirm_response(self, found: Received[ConfirmResponse]) -> None:
        """Count a member that was in this term when it was asked."""
        if found.message.term == self._term and found.sender in self._peers:
            self._peers[found.sender].heard_at = self.loop.time()
            self.reads.confirmed(found.message.number, found.sender)

    @validate_term
    def on_receive_read_index(self, asked: Received[ReadIndex]) -> None:
        """Tell a follower the entry after which it may look.

        When it asked, its vote was in no later term, and neither is this member's. If the two are a
        majority, no other leader had been elected by then, so all writes that were answered before
        it asked are committed here. If they are not, a round asks other members.
        """
        if asked.message.term == self._term:
            if self.may_read and self.state.roster.is_majority((self.id, asked.sender)):
                self._tell_index(asked, self.log.commit_index)
            else:
                self.reads.read().add_done_callback(lambda read: self._answer_read(asked, read))

    def _answer_read(self, asked: Received[ReadIndex], read: asyncio.Future[int]) -> None:
        if read.exception() is None and self.leads:
            # Entries may have been dropped meanwhile; a later one is far enough, too.
            index = max(read.result(), self.log.base_index)
            self.state.guarded(lambda: self._tell_index(asked, index))()

    def _tell_index(self, asked: Received[ReadIndex], index: int) -> None:
        term = self.log.term_at(index)
        assert term is not None, "entries are dropped up to the base, whose term is kept"
        answer = ReadIndexResponse(self._term, asked.message.number, index, term)
        self.let_go(Send(asked.sender, answer))

    # -- snapshots ------------------------------------------------------------------------------

    def needed_from(self) -> int:
        """Return the first entry that any member will need after the snapshot it is being sent.
        Without that entry the member would never catch up under load."""
        transfers = [each.transfer for each in self._peers.values() if each.transfer is not None]
        return min((each.index + 1 for each in transfers), default=self.log.last_log_index + 1)

    def _away(self, progress: _Peer) -> bool:
        return self.loop.time() - progress.heard_at >= self._options.away_after_s

    def _begin_transfer(self, peer: str, progress: _Peer) -> None:
        if progress.transfer is None and not self._away(progress):
            self._transfers += 1
            failed = partial(_end_transfer, progress)
            progress.transfer = Outgoing(self.state, peer, self._transfers, failed)

    def _replace_table(self, peer: str, revision: int) -> None:
        """Send the table to a member whose own is damaged and stands after entry `revision`.

        Only a later table may take its place, so that a start finds the new one. If nothing was
        changed since, an empty entry makes it later.
        """
        if self.state.state_machine.revision > revision:
            self._begin_transfer(peer, self._peers[peer])
        elif self.log.last_log_index <= revision and self.state.server.full is None:
            self._append_nothing()

    @validate_term
    def on_receive_install_snapshot_response(
        self, found: Received[InstallSnapshotResponse]
    ) -> None:
        """Send the next piece, or go on with entries."""
        said, progress = found.message, self._peers.get(found.sender)
        if progress is None or progress.transfer is None or said.term != self._term:
            return
        transfer = progress.transfer
        progress.heard_at = self.loop.time()
        if said.number != transfer.number:
            return
        if said.match is not None:
            self._transferred(found.sender, said.match)
        else:
            transfer.stored(said.stored)

    def _transferred(self, peer: str, match: int) -> None:
        progress = self._peers[peer]
        _end_transfer(progress)
        progress.in_flight.clear()
        progress.outdated = self._sequence
        match = max(self.log.match_index[peer], match)
        self.log.match_index[peer], self.log.next_index[peer] = match, match + 1
        self.update_commit_index()
        self._replicate(peer)

    # -- handing over ---------------------------------------------------------------------------

    def hand_over(self, successor: str) -> None:
        """Refuse new writes; once `successor` has the whole log, make it stand for election."""
        self._successor = successor
        self._try_hand_over()

    def keep_leading(self) -> None:
        """Stop handing over, and take writes again."""
        self._successor = None

    def _try_hand_over(self) -> None:
        successor = self._successor
        if not self.leads or successor is None:
            return
        # With a shorter log it could lose the election, or win it and drop writes under way.
        if self.log.match_index.get(successor) == self.log.last_log_index:
            self.let_go(Send(successor, TimeoutNow(self._term)))
        self.loop.call_later(self._options.heartbeat_s, self._try_hand_over)

    def on_receive_pre_vote(self, asked: Received[PreVote]) -> None:
        """Refuse, as there is a leader."""
        self.state.answer_pre_vote(asked, False)


def _end_transfer(progress: _Peer) -> None:
    if progress.transfer is not None:
        progress.transfer.end()
        progress.transfer = None


def majority_full(addresses: Collection[str]) -> NoSpaceError:
    """Return the answer to a change while the disks of the members at `addresses` are full."""
    names = ", ".join(sorted(addresses))
    return NoSpaceError(
        f"the disks of the NameNodes {names} are full, so no majority can store a change; nothing"
        " can be changed until one of them has room, reading goes on",
        address=names,
    )


def disk_full(address: str, folder: Path, error: NoSpaceError) -> NoSpaceError:
    """Return `error` in the words for a client that asks the NameNode at `address` for a change."""
    what = (
        "NameNode {} has too many open" if is_shortage(error) else "the disk of NameNode {} is full"
    )
    return NoSpaceError(
        f"{what.format(address)}: {folder}: {error}; nothing can be changed until"
        " it has room, reading goes on",
        address=address,
        folder=str(folder),
    )
