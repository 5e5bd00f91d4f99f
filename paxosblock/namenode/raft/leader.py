"""The leader: raftos' heartbeats, rounds and step-down; our replication, commit rule and reads."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from typing import Any

from raftos.state import Leader

from paxosblock.errors import (
    NoSpaceError,
    OutcomeUnknownError,
    UnavailableError,
)
from paxosblock.namenode.kv.interface import Committed, Conflict, Edit
from paxosblock.namenode.raft.contract import validate_term
from paxosblock.namenode.raft.entry import Entry, EntryKind
from paxosblock.namenode.raft.messages import (
    AppendEntriesResponse,
    ConfirmResponse,
    InstallSnapshotResponse,
    PreVote,
    ReadIndex,
)
from paxosblock.namenode.raft.reads import LeaderReads, refuse
from paxosblock.namenode.raft.roles import AnyRole, prepare
from paxosblock.namenode.raft.transfers import Outgoing

ROUNDS_KEPT = 64
"""A heartbeat round without a majority is forgotten after so many later ones (L16)."""


@dataclass(slots=True)
class _Peer:
    """The leader's knowledge of a member beside raftos' next_index and match_index.

    `in_flight` holds, by sequence number, the last entry of each message that is not answered.
    Refusals of messages up to `outdated` are old, as next_index was moved back since. The member
    last answered at `heard_at`, and said then that its disk was `full`, or not.
    """

    in_flight: dict[int, int] = field(default_factory=dict)
    outdated: int = 0
    heard_at: float = float("-inf")
    full: bool = False
    transfer: Outgoing | None = None


@dataclass(slots=True)
class _Pending:
    """A write that waits for a majority; not frozen, which would double the time to make it."""

    answer: asyncio.Future[Any]
    deadline: float
    edit: Edit


class RaftLeader(AnyRole, Leader):
    """raftos' leader."""

    def __init__(self, state: Any) -> None:
        Leader.__init__(self, state)
        self._options = state.options
        prepare(self.heartbeat_timer, self._options.heartbeat_s, state.guarded(self.heartbeat))
        # A member alone is its own majority and hears no answers: it never steps down.
        self._alone = state.is_majority(1)
        step_down = (lambda: None) if self._alone else state.to_follower
        prepare(self.step_down_timer, self._options.election_min_s, step_down)
        self._peers = {peer: _Peer() for peer in state.cluster}
        self._pending: dict[int, _Pending] = {}
        self.reads = LeaderReads(self)
        self._sequence = self._transfers = 0
        self._flushing = False
        self._successor: str | None = None
        self.noop_index = 0

    def __repr__(self) -> str:
        return f"RaftLeader(term={self.storage.term}, pending={len(self._pending)})"

    @property
    def pending(self) -> int:
        """Return the number of writes that wait for a majority."""
        return len(self._pending)

    @property
    def leads(self) -> bool:
        """True until this role has ended, after which tasks that raftos scheduled may still run."""
        return self.state.state is self

    def start(self) -> None:
        """Begin the term with an empty entry, because only entries of this term count (L4)."""
        super().start()
        self.noop_index = self._append_nothing()

    def stop(self) -> None:
        """End the role; writes that wait are answered that their outcome is unknown (L6)."""
        super().stop()
        pending, self._pending = self._pending, {}
        lost = OutcomeUnknownError("the leader stepped down before a majority")
        refuse([each.answer for each in pending.values()], lost)
        self.reads.stop()
        for progress in self._peers.values():
            _end_transfer(progress)

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
        server = self.state.server
        if (lack := self._lack_of_room() or server.refusal) is not None:
            raise NoSpaceError(lack.message, **lack.details)
        if server.full is not None:
            raise UnavailableError(f"the disk of {self.id} is full: another member is to lead")
        if self._successor is not None:
            raise UnavailableError(f"leadership is being handed over to {self._successor}")
        if len(self._pending) >= self._options.pending_max:
            raise UnavailableError(f"{len(self._pending)} edits are pending already")
        answer: asyncio.Future[Committed | Conflict] = self.loop.create_future()
        index = self._append(Entry(self.storage.term, EntryKind.EDIT, payload))
        deadline = self.loop.time() + self._options.commit_timeout_s
        self._pending[index] = _Pending(answer, deadline, edit)
        return answer

    def proposed(self, index: int) -> Edit | None:
        """Return the edit of entry `index` if it was proposed here, None otherwise."""
        pending = self._pending.get(index)
        return None if pending is None else pending.edit

    def answer(self, index: int, result: Any) -> None:
        """Answer the write whose entry `index` was applied with this `result`."""
        pending = self._pending.pop(index, None)
        if pending is not None and not pending.answer.done():
            pending.answer.set_result(result)

    def _append_nothing(self) -> int:
        return self._append(Entry(self.storage.term, EntryKind.NOOP, b""))

    def _append(self, entry: Entry) -> int:
        index: int = self.log.append(entry)
        if not self._flushing:
            # All that is proposed in this turn of the loop goes in one message.
            self._flushing = True
            self.loop.call_soon(self._flush)
        return index

    def _flush(self) -> None:
        self._flushing = False
        if self.leads:
            for peer in self._peers:
                self._replicate(peer)

    def _lack_of_room(self) -> NoSpaceError | None:
        """Return why no majority can store anything for now; None if a majority can."""
        own: NoSpaceError | None = self.state.server.full
        full = [peer for peer, progress in self._peers.items() if progress.full]
        if self.state.is_majority(len(self._peers) + (own is None) - len(full)):
            return None
        return majority_full([*full, self.id] if own is not None else full) if full else own

    def _expire(self) -> None:
        if self._pending and (lack := self._lack_of_room()) is not None:
            self._give_up_on(list(self._pending), f"{lack}; this one may still be made then")
        now = self.loop.time()
        late = takewhile(lambda item: item[1].deadline <= now, self._pending.items())
        for index, _ in list(late):
            self._give_up_on([index], self._why_late(index))

    def _give_up_on(self, indexes: list[int], why: str) -> None:
        answers = [self._pending.pop(index).answer for index in indexes]
        refuse(answers, OutcomeUnknownError(why))

    def _why_late(self, index: int) -> str:
        """Return a text that names the members that entry `index` waits for."""
        waited = f"not committed within {self._options.commit_timeout_s} s, and may be later"
        behind = [peer for peer in self._peers if self.log.match_index[peer] < index]
        return f"{waited}: not stored by {', '.join(behind)}" if behind else waited

    def prefers(self, peer: str) -> tuple[bool, int]:
        """Return a rank that is lower for a member with room, then for one with a longer log."""
        return self._peers[peer].full, -self.log.match_index[peer]

    # -- replication ----------------------------------------------------------------------------

    async def append_entries(self, destination: str | None = None) -> None:
        """Send a heartbeat to all, or to one member what it lacks; raftos calls this."""
        if not self.leads:
            return
        if destination is not None:
            self._replicate(destination)
            return
        for peer in self._peers:
            self._send_heartbeat(peer)
            self._replicate(peer)

    def heartbeat(self) -> None:
        """Let raftos begin a round; drop old rounds, late writes and transfers to members away."""
        super().heartbeat()
        self.response_map.pop(self.request_id - ROUNDS_KEPT, None)
        self._expire()
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
        message = {
            "type": "append_entries",
            "term": self.storage.term,
            "leader_id": self.id,
            "prev_log_index": previous,
            "prev_log_term": self.log.term_at(previous) or 0,
            "commit_index": self.log.commit_index,
            "entries": entries,
            "request_id": self.request_id,
            "sequence": self._sequence,
        }
        self.state.post(message, peer)

    @validate_term
    def on_receive_append_entries_response(self, data: AppendEntriesResponse) -> None:
        """Change the answer so that raftos' bookkeeping of rounds, next_index and match_index comes
        out right, and hand it on."""
        if data["term"] != self.storage.term or "sequence" not in data:
            return  # of an older term (L8), or raftos' refusal of one (L10)
        peer = self.state.get_sender_id(data["sender"])
        progress, log = self._peers[peer], self.log
        progress.heard_at = self.loop.time()
        progress.full = data.get("full", False)
        progress.in_flight.pop(data["sequence"], None)
        sent = log.next_index[peer]
        if data["success"]:
            # Answers may overtake each other; durable entries stay durable (L9).
            match = max(log.match_index[peer], data.get("last_log_index", 0))
            data["last_log_index"] = match
            done = [seq for seq, last in progress.in_flight.items() if last <= match]
            for sequence in done:
                del progress.in_flight[sequence]
        else:
            # raftos goes back by one entry (L11), so this is one more than the member asks for.
            log.next_index[peer] = self._continue_at(progress, peer, data) + 1
        super().on_receive_append_entries_response(data)
        if data["success"]:
            log.next_index[peer] = max(sent, log.next_index[peer])
        if "damaged" in data and data["sequence"] > progress.outdated:
            self._replace_table(peer, data["damaged"])

    def _continue_at(self, progress: _Peer, peer: str, data: AppendEntriesResponse) -> int:
        """Return the next entry to send to a member that refused a message."""
        if data.get("sequence", 0) <= progress.outdated:
            return int(self.log.next_index[peer])
        progress.outdated = self._sequence
        progress.in_flight.clear()
        hint = min(data.get("hint", 0), self.log.last_log_index + 1)
        return int(max(hint, self.log.match_index[peer] + 1))

    def on_durable(self) -> None:
        """Count this member's own durable entries."""
        self.update_commit_index()

    def update_commit_index(self) -> None:
        """Commit the entries that a majority holds durably, if the last is of this term (L4).

        Entries of older terms are committed by the first entry of this term that follows them.
        """
        durable = sorted([*self.log.match_index.values(), self.log.durable_index])
        index = durable[(len(durable) - 1) // 2]
        if index > self.log.commit_index and self.log.term_at(index) == self.storage.term:
            self.state.commit(index)
            self.reads.begin_soon()

    # -- reads ----------------------------------------------------------------------------------

    @property
    def may_read(self) -> bool:
        """True once the first entry of the term is committed: until then this member may not know
        the last commits of older leaders."""
        return bool(self.log.commit_index >= self.noop_index > 0)

    def ask_to_confirm(self, number: int, confirmed: set[str], every: bool) -> None:
        """Ask members whether they are still in this term: a bare majority of those heard last, or
        `every` member that has not confirmed it yet."""
        message = {"type": "confirm", "term": self.storage.term, "number": number}
        heard = sorted(self._peers, key=lambda peer: -self._peers[peer].heard_at)
        few = heard[: self.state.server.cluster_count // 2]
        for peer in heard if every else few:
            if peer not in confirmed:
                self.state.post(message, peer)

    @validate_term
    def on_receive_confirm_response(self, data: ConfirmResponse) -> None:
        """Count a member that was in this term when it was asked."""
        if data["term"] == self.storage.term and "number" in data:
            peer = self.state.get_sender_id(data["sender"])
            self._peers[peer].heard_at = self.loop.time()
            self.reads.confirmed(data["number"], peer)

    @validate_term
    def on_receive_read_index(self, data: ReadIndex) -> None:
        """Tell a follower the entry after which it may look.

        When it asked, its vote was in no later term, and neither is this member's. If the two are a
        majority, no other leader had been elected by then, so all writes that were answered before
        it asked are committed here. If they are not, a round asks other members.
        """
        if data["term"] == self.storage.term:
            if self.may_read and self.state.is_majority(2):
                self._tell_index(data, self.log.commit_index)
            else:
                self.reads.read().add_done_callback(lambda read: self._answer_read(data, read))

    def _answer_read(self, data: ReadIndex, read: asyncio.Future[int]) -> None:
        if read.exception() is None and self.leads:
            # Entries may have been dropped meanwhile; a later one is far enough, too.
            index = max(read.result(), self.log.base_index)
            self.state.guarded(lambda: self._tell_index(data, index))()

    def _tell_index(self, data: ReadIndex, index: int) -> None:
        term = self.log.term_at(index)
        assert term is not None, "entries are dropped up to the base, whose term is kept"
        message = {
            "type": "read_index_response",
            "term": self.storage.term,
            "number": data["number"],
            "index": index,
            "index_term": term,
        }
        self.state.post(message, data["sender"])

    # -- snapshots ------------------------------------------------------------------------------

    def needed_from(self) -> int:
        """Return the first entry that any member will need after the snapshot it is being sent.
        Without that entry the member would never catch up under load."""
        transfers = [each.transfer for each in self._peers.values() if each.transfer is not None]
        return min((each.index + 1 for each in transfers), default=self.log.last_log_index + 1)

    def _away(self, progress: _Peer) -> bool:
        away: bool = self.loop.time() - progress.heard_at >= self._options.away_after_s
        return away

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
    def on_receive_install_snapshot_response(self, data: InstallSnapshotResponse) -> None:
        """Send the next piece, or go on with entries."""
        peer = self.state.get_sender_id(data["sender"])
        transfer = self._peers[peer].transfer
        if transfer is None or data["term"] != self.storage.term:
            return
        self._peers[peer].heard_at = self.loop.time()
        if data.get("number") != transfer.number:
            return
        if "match" in data:
            self._transferred(peer, data["match"])
        elif "offset" in data:
            transfer.stored(data["offset"])

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
        if self.log.match_index[successor] == self.log.last_log_index:
            self.state.post({"type": "timeout_now", "term": self.storage.term}, successor)
        self.loop.call_later(self._options.heartbeat_s, self._try_hand_over)

    def on_receive_pre_vote(self, data: PreVote) -> None:
        """Refuse, as there is a leader."""
        self.state.answer_pre_vote(data, False)


def _end_transfer(progress: _Peer) -> None:
    if progress.transfer is not None:
        progress.transfer.end()
        progress.transfer = None


def majority_full(addresses: list[str]) -> NoSpaceError:
    """Return the answer to a change while the disks of the members at `addresses` are full."""
    names = ", ".join(sorted(addresses))
    return NoSpaceError(
        f"the disks of the NameNodes {names} are full, so no majority can store a change; nothing"
        " can be changed until one of them has room, reading goes on",
        address=names,
    )
