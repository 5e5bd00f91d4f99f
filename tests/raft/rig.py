"""One real member in virtual time, whose peers are the test: it reads and writes the messages."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from paxosblock.host.disk import Disk
from paxosblock.namenode.kv.codec import encode_edit
from paxosblock.namenode.kv.interface import Committed, Conflict, Edit
from paxosblock.namenode.kv.state_machine import StateMachine
from paxosblock.namenode.kv.table import Tables
from paxosblock.namenode.raft import raft_messages
from paxosblock.namenode.raft.entry import Entry, EntryKind
from paxosblock.namenode.raft.machine import ReplicatedMachine
from paxosblock.namenode.raft.options import Options
from paxosblock.namenode.raft.raft_messages import (
    AppendEntries,
    AppendEntriesResponse,
    Confirm,
    ConfirmResponse,
    Deliver,
    InstallSnapshot,
    Message,
    PreVote,
    PreVoteResponse,
    ReadIndex,
    ReadIndexResponse,
    RequestVote,
    RequestVoteResponse,
)
from paxosblock.namenode.raft.raft_node import RaftNode
from paxosblock.namenode.raft.store import ReplicatedStore
from tests.disks.simulated import SimulatedDisk
from tests.memory_table import MEMORY, MemoryTable
from tests.raft.members import node_of
from tests.raft.simulation import virtual_loop
from tests.raft.virtual_time import VirtualTimeLoop

T = TypeVar("T")
M = TypeVar("M", bound=Message)

OPTIONS = Options(heartbeat_s=0.1, election_min_s=0.4, election_max_s=0.5)
ELECTION_S = 0.55
"""Long enough for the election timer to end, too short for it to end twice."""


def put(key: bytes, value: bytes = b"v") -> Edit:
    return Edit(puts=((key, value),))


def entry(term: int, value: bytes = b"v") -> Entry:
    return Entry(term, EntryKind.EDIT, encode_edit(put(b"k", value)))


def stream_of(machine: StateMachine) -> bytes:
    """The bytes that another member gets of a machine."""
    checkpoint = machine.checkpoint().make()
    return checkpoint.read(checkpoint.size_bytes, 0)


def stream_after(index: int, term: int = 1) -> bytes:
    """The bytes that another member gets of an empty map after entry `index` of `term`."""
    machine = ReplicatedMachine(MemoryTable())
    for each in range(1, index + 1):
        machine.apply(each, Edit(), term)
    return stream_of(machine)


class Wire:
    """`Transport` that keeps what was sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Message]] = []
        self.deliver: Deliver | None = None

    def know(self, members: Collection[str]) -> None:
        pass

    def start(self, deliver: Deliver) -> None:
        self.deliver = deliver

    def send(self, peer: str, message: Message) -> None:
        self.sent.append((peer, raft_messages.decode(raft_messages.encode(message))))

    async def close(self) -> None:
        self.deliver = None


class Rig:
    """Member `own` of `size`; the others, n1:1 and so on, are the test."""

    def __init__(
        self, loop: VirtualTimeLoop, size: int, options: Options, own: str, tables: Tables
    ) -> None:
        self.loop, self.options, self.tables = loop, options, tables
        self.members = [own, *(f"n{number}:1" for number in range(1, size))]
        self.peers = self.members[1:]
        self.disk = SimulatedDisk()
        self.may_stop = False
        self.start()

    def start(self) -> None:
        self.start_on(self.disk, Path("/member"), self.tables)

    def start_on(self, disk: Disk, folder: Path, tables: Tables) -> None:
        self.wire = Wire()
        self.store = ReplicatedStore(
            folder,
            self.members[0],
            self.members,
            self.wire,
            options=self.options,
            disk=disk,
            rng=random.Random(1),
            tables=tables,
        )
        self.loop.run_until_complete(self.store.start())

    def crash(self) -> None:
        """Cut the power, and start again on what is left."""
        self.disk = self.disk.power_cut(random.Random(1))
        node = self.node
        node.stop()
        for task in (node._working, node._table_work):
            if task is not None:
                task.cancel()
        self.start()

    @property
    def node(self) -> RaftNode:
        return node_of(self.store)

    @property
    def role(self) -> Any:
        return self.node.state.state

    @property
    def term(self) -> int:
        return self.node.hard_state.term

    def run(self, seconds: float = 0.01) -> None:
        self.loop.run_until_complete(self.loop.pass_time(seconds))

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(coroutine)

    def begin(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = self.loop.create_task(coroutine)
        self.run(0)
        return task

    def commit(self, key: bytes = b"k") -> asyncio.Task[Committed | Conflict]:
        return self.begin(self.store.commit(put(key)))

    def tell(self, sender: str, message: Message) -> None:
        """Let `sender` send a message, and the member act on it."""
        assert self.wire.deliver is not None
        self.wire.deliver(sender, message)
        self.run()

    def sent(self, kind: type[M], peer: str | None = None) -> list[M]:
        """The messages of a kind since the last `clear`."""
        return [m for to, m in self.wire.sent if isinstance(m, kind) and peer in (None, to)]

    def last(self, kind: type[M], peer: str | None = None) -> M:
        return self.sent(kind, peer)[-1]

    def clear(self) -> None:
        self.wire.sent.clear()

    # -- what peers usually say -------------------------------------------------------------------

    def append(self, entries: list[Entry], **about: Any) -> AppendEntriesResponse:
        """Send entries as a leader does (`append_only`); return the answer."""
        self.append_only(entries, **about)
        return self.last(AppendEntriesResponse)

    def append_only(
        self,
        entries: list[Entry],
        *,
        term: int = 1,
        previous: tuple[int, int] = (0, 0),
        commit: int = 0,
        leader: str = "n1:1",
        sequence: int = 1,
    ) -> None:
        """Send entries as a leader does; there may be no answer yet."""
        self.clear()
        self.tell(leader, AppendEntries(term, leader, *previous, commit, entries, 1, sequence))

    def send_snapshot(
        self,
        index: int,
        stream: bytes,
        *,
        term: int = 1,
        number: int = 1,
        begin: int = 0,
        end: int | None = None,
    ) -> None:
        """Send the bytes from `begin` to `end` of the map after entry `index`, as a leader does."""
        piece = InstallSnapshot(term, "n1:1", number, index, len(stream), begin, stream[begin:end])
        self.tell("n1:1", piece)

    def ask_for_vote(
        self, candidate: str, term: int, last: tuple[int, int] = (0, 0)
    ) -> RequestVoteResponse | None:
        """Ask as a candidate does; return the answer, None if there was none."""
        self.clear()
        self.tell(candidate, RequestVote(term, candidate, *last))
        answers = self.sent(RequestVoteResponse)
        return answers[-1] if answers else None

    def vote(self, *voters: str, term: int | None = None) -> None:
        for voter in voters:
            self.tell(voter, RequestVoteResponse(self.term if term is None else term, True))

    def support(self, *supporters: str) -> None:
        """Grant the pre-vote that is being asked for."""
        asked = self.last(PreVote)
        for peer in supporters:
            self.tell(peer, PreVoteResponse(self.term, asked.round, True))

    def become_candidate(self) -> None:
        self.run(ELECTION_S)
        self.support(*self.peers[: len(self.members) // 2])

    def become_leader(self) -> None:
        """Be elected, and have the first entry of the term committed."""
        self.become_candidate()
        self.vote(*self.peers[: len(self.members) // 2])
        self.acknowledge()

    def acknowledge(self, *peers: str, **changed: Any) -> None:
        """Let the peers (or all) hold all that the leader has."""
        for peer in peers or self.peers:
            asked = self.last(AppendEntries, peer)
            last = self.node.log.last_log_index
            answer = AppendEntriesResponse(asked.term, True, asked.request_id, asked.sequence, last)
            self.tell(peer, msgspec.structs.replace(answer, **changed))

    def confirm(self, *peers: str, **changed: Any) -> None:
        """Let the peers (or all that were asked) say that they are in the leader's term still."""
        for peer in peers or self.peers:
            for asked in self.sent(Confirm, peer)[-1:]:
                answer = ConfirmResponse(asked.term, asked.number)
                self.tell(peer, msgspec.structs.replace(answer, **changed))

    def answer_question(self, leader: str, index: int, index_term: int, **changed: Any) -> None:
        """Let the leader answer the follower's last question."""
        asked = self.last(ReadIndex, leader)
        answer = ReadIndexResponse(asked.term, asked.number, index, index_term)
        self.tell(leader, msgspec.structs.replace(answer, **changed))


@contextmanager
def rig(
    size: int = 3, options: Options = OPTIONS, own: str = "n0:1", tables: Tables = MEMORY
) -> Iterator[Rig]:
    """A fresh member among `size`; nothing may have been lost in its event loop at the end."""
    with virtual_loop() as loop:
        member = Rig(loop, size, options, own, tables)
        yield member
        assert loop.lost == []
        assert member.node.failure is None or member.disk.dead or member.may_stop
