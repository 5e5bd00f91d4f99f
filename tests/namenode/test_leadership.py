"""Two NameNodes on one log: what the one that leads does, and the one that does not any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeVar

import pytest

from paxosblock.api.namenode import (
    CLOSE_FILE,
    DELETE,
    FINALIZE_BLOCK,
    GET_BLOCK,
    LIST,
    MKDIRS,
    RENEW_LEASES,
    SEAL_BLOCK,
    STAT,
    TAKE_OVER,
    BlockRequest,
    CloseFile,
    DeletePath,
    ListDirectory,
    MakeDirectories,
    PathRequest,
    RenewLeases,
    TakeOver,
)
from paxosblock.api.reports import HEARTBEAT, REGISTER, Heartbeat, Register, StorageReport
from paxosblock.config import NameNodeConfig
from paxosblock.errors import (
    CorruptionError,
    ExistsError,
    FencedError,
    InvalidRequestError,
    NoSpaceError,
    NotLeaderError,
    NotReadyError,
    Outcome,
    OutcomeUnknownError,
    PaxosBlockError,
    UnavailableError,
)
from paxosblock.namenode.blocks.recoverer import PATIENCE_FIRST_S
from paxosblock.namenode.calls import Service
from paxosblock.namenode.catalog.records import BlockEntry, ProcessRecord
from paxosblock.namenode.kv.interface import Committed, Conflict, Edit, View
from paxosblock.namenode.name_node import NameNode
from paxosblock.namenode.raft.machine import ReplicatedMachine
from paxosblock.protocol.messages import Delete
from paxosblock.protocol.types import BlockId, Generation, StorageId
from tests.memory_table import MemoryTable
from tests.namenode.cluster import Network, acceptors
from tests.namenode.memory_store import MemoryStore
from tests.namenode.scene import (
    ANN,
    MEMBERS,
    ROOM_BYTES,
    Clock,
    Scene,
    create_request,
    finalize_request,
    new_catalog,
)
from tests.waiting import wait_until_async

Q = TypeVar("Q")
A = TypeVar("A")


@dataclass
class Log:
    """The log that all members share, and who leads."""

    machine: ReplicatedMachine = field(default_factory=lambda: ReplicatedMachine(MemoryTable()))
    leader: str = ""
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def elect(self, name: str) -> None:
        async with self.changed:
            self.leader = name
            self.changed.notify_all()

    async def wait(self, condition: Callable[[], bool]) -> None:
        async with self.changed:
            await self.changed.wait_for(condition)


TROUBLE_HERE: ContextVar[list[PaxosBlockError]] = ContextVar("TROUBLE_HERE")
"""Errors of the next reads that the test itself leads to, and no background work."""


class MemberStore(MemoryStore):
    """One member's store. What it submits after the next `passing` ones stays on the way until
    `released` is set.
    """

    def __init__(self, name: str, log: Log) -> None:
        super().__init__()
        self.name = name
        self.log = log
        self.machine = log.machine
        self.passing = 1_000_000
        self.held = asyncio.Event()
        self.released = asyncio.Event()
        self.outcomes: list[Committed | Conflict] = []
        self.trouble: list[Exception] = []
        self.readable = asyncio.Event()
        self.readable.set()
        self.hears_leader = False
        """True if it learns from the leader what was committed, when it follows."""

    async def commit(self, edit: Edit) -> Committed | Conflict:
        self._check()
        return await asyncio.shield(asyncio.create_task(self._submitted(edit)))

    async def _submitted(self, edit: Edit) -> Committed | Conflict:
        """It is in the log: it will be applied, whichever member leads by then."""
        self.passing -= 1
        if self.passing < 0:
            self.held.set()
            await self.released.wait()
        outcome = await super().commit(edit)
        self.outcomes.append(outcome)
        return outcome

    async def barrier(self) -> View:
        self._check()
        for trouble in (self.trouble, TROUBLE_HERE.get(None)):
            if trouble:
                raise trouble.pop(0)
        await self.readable.wait()
        return await super().barrier()

    async def read_barrier(self) -> View:
        return self.machine if self.hears_leader else await self.barrier()

    def is_leader(self) -> bool:
        return self.log.leader == self.name

    def leader(self) -> str | None:
        return self.log.leader or None

    async def wait_leadership(self) -> None:
        await self.log.wait(self.is_leader)

    async def wait_deposed(self) -> None:
        await self.log.wait(lambda: not self.is_leader())

    def _check(self) -> None:
        if not self.is_leader():
            raise UnavailableError(f"{self.name} does not lead")


@dataclass
class Member(Scene):
    """A NameNode that may or may not lead."""

    members: MemberStore


@dataclass
class Pair:
    """Two NameNodes, `a` leads at first; the DataNodes reported to both."""

    log: Log
    a: Member
    b: Member

    async def elect(self, member: Member) -> None:
        """Make it lead, and wait until it serves."""
        await self.log.elect(member.members.name)
        await wait_until_async(lambda: member.node.leadership.serves)


async def new_member(name: str, log: Log, network: Network) -> Member:
    store, clock = MemberStore(name, log), Clock()
    config = NameNodeConfig(recovery_timeout_s=5.0, heartbeat_interval_s=0.05)
    node = NameNode(name, config, store, clock, lambda _: network)
    await node.start()
    member = Member(node, Service(node), network, clock, store, store)
    for storage in network.reach:
        await member.register(storage)
    clock.now += 100  # a NameNode that started long ago knows all DataNodes
    for storage in network.reach:
        await beat(member, storage)
    return member


async def beat(member: Member, storage: StorageId) -> bool:
    """A heartbeat; whether it is answered with the wish for a full report."""
    room = StorageReport(storage, ROOM_BYTES, ROOM_BYTES, 0)
    answer = await member.service.call(HEARTBEAT, Heartbeat(f"dn-{storage}", "run-1", (room,), 0))
    assert not answer.register
    return answer.report


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    log, network = Log(leader="a"), Network(acceptors(*MEMBERS))
    a, b = await new_member("a", log, network), await new_member("b", log, network)
    yield Pair(log, a, b)
    await a.close()
    await b.close()


async def new_block(member: Member, path: str = "/f") -> BlockId:
    """A block of three chunks that every replica voted for."""
    view = await member.add_block(await member.create(path))
    member.write(view, 3, 3, 3)
    return view.record.block


async def test_whoever_does_not_lead_refuses_and_names_the_leader(pair: Pair) -> None:
    with pytest.raises(NotLeaderError, match="NameNode b does not lead; a does") as caught:
        await pair.b.service.call(STAT, PathRequest("/"))
    assert caught.value.details == {"leader": "a"}
    await pair.log.elect("")
    with pytest.raises(NotLeaderError, match="nobody is known to") as caught:
        await pair.b.service.call(STAT, PathRequest("/"))
    assert caught.value.details == {"leader": ""}


async def test_whoever_follows_shows_what_was_committed_and_changes_nothing(pair: Pair) -> None:
    pair.b.members.hears_leader = True
    await pair.a.service.call(MKDIRS, MakeDirectories("/made"))
    assert (await pair.b.service.call(STAT, PathRequest("/made"))).path == "/made"
    listing = await pair.b.service.call(LIST, ListDirectory("/"))
    assert [each.path for each in listing.entries] == ["/made"]
    with pytest.raises(NotLeaderError):
        await pair.b.service.call(MKDIRS, MakeDirectories("/other"))


async def test_who_follows_in_a_cluster_that_is_only_beginning_shows_nothing() -> None:
    """Not even the root is there: that is no answer about a path."""
    log = Log(leader="")
    member = await new_member("b", log, Network(acceptors(*MEMBERS)))
    member.members.hears_leader = True
    with pytest.raises(NotLeaderError):
        await member.service.call(STAT, PathRequest("/"))
    await member.node.close()


async def test_a_new_leader_does_not_serve_before_it_has_begun(pair: Pair) -> None:
    pair.b.members.trouble = [UnavailableError("no majority yet")]
    pair.b.members.readable.clear()
    await pair.log.elect("b")
    await wait_until_async(lambda: not pair.b.members.trouble)
    async with asyncio.timeout(2):
        with pytest.raises(NotLeaderError, match="only beginning to lead"):
            await pair.b.service.call(MKDIRS, MakeDirectories("/made"))
    pair.b.members.readable.set()
    await wait_until_async(lambda: pair.b.node.leadership.serves)
    assert (await pair.b.service.call(STAT, PathRequest("/"))).path == "/"


async def test_what_one_leader_did_the_next_one_sees_and_goes_on_from(pair: Pair) -> None:
    await pair.a.service.call(MKDIRS, MakeDirectories("/made"))
    block = await new_block(pair.a)
    await pair.elect(pair.b)
    assert (await pair.b.service.call(STAT, PathRequest("/made"))).path == "/made"
    sealed = await pair.b.service.call(SEAL_BLOCK, BlockRequest(block, ANN))
    assert sealed.record.length == 3
    second = await new_block(pair.b, "/g")
    assert second > block


async def test_writers_have_fresh_leases_at_a_new_leader(pair: Pair) -> None:
    await pair.a.create("/f")
    pair.b.clock.now += 1_000_000
    await pair.elect(pair.b)
    leases = pair.b.node.leases
    assert leases.is_live(ANN, pair.b.clock.now)
    assert leases.expired(pair.b.clock.now) == ()
    assert leases.renew((ANN,), pair.b.clock.now) == ()


async def test_one_that_does_not_know_yet_that_it_was_deposed_calls_no_lease_lost(
    pair: Pair,
) -> None:
    pair.log.leader = "b"  # a has not looked yet
    assert pair.a.node.leadership.serves
    with pytest.raises(UnavailableError):
        await pair.a.service.call(RENEW_LEASES, RenewLeases((ANN,)))


async def test_a_lease_of_an_earlier_time_in_office_is_forgotten(pair: Pair) -> None:
    await pair.a.create("/f")
    await pair.elect(pair.b)
    assert len(pair.a.node.leases) == 1
    await close_empty(pair.b)
    await pair.elect(pair.a)
    assert len(pair.a.node.leases) == 0


async def close_empty(member: Member) -> None:
    status = await member.service.call(STAT, PathRequest("/f"))
    await member.node.closer.close(CloseFile(status.file_id, ANN))


async def test_k5_a_recovery_of_a_deposed_leader_finalizes_nothing(pair: Pair) -> None:
    block = await new_block(pair.a)
    pair.a.members.passing = 1  # its K2 is; its K5 is under way for a long time
    sealing = asyncio.create_task(pair.a.service.call(SEAL_BLOCK, BlockRequest(block, ANN)))
    await pair.a.members.held.wait()
    await pair.elect(pair.b)
    with pytest.raises(OutcomeUnknownError, match="lost leadership"):
        await sealing
    decided = (await pair.b.service.call(SEAL_BLOCK, BlockRequest(block, ANN))).record
    assert decided.finalized_generation > Generation(2)  # the deposed one recovered in 1
    pair.a.members.released.set()
    await wait_until_async(lambda: isinstance(pair.a.members.outcomes[-1], Conflict))
    assert (await pair.b.service.call(GET_BLOCK, BlockRequest(block))).record == decided


async def test_a_deposed_leader_stops_its_recoveries_and_those_who_wait_for_them_are_told(
    pair: Pair,
) -> None:
    block = await new_block(pair.a)
    pair.a.network.hung.update(MEMBERS)
    sealing = asyncio.create_task(pair.a.service.call(SEAL_BLOCK, BlockRequest(block, ANN)))
    await wait_until_async(lambda: pair.a.node.recoverer.unended == 1)
    await pair.log.elect("b")
    async with asyncio.timeout(PATIENCE_FIRST_S / 2):  # before the recovery itself gives up
        with pytest.raises(OutcomeUnknownError, match="NameNode a lost leadership"):
            await sealing
        await wait_until_async(lambda: pair.a.node.recoverer.unended == 0)


async def test_a_call_that_waits_for_reports_ends_as_unknown_when_leadership_is_lost(
    pair: Pair,
) -> None:
    file = await pair.a.create("/f")
    view = await pair.a.add_block(file)
    pair.a.write(view, 3, 3, 3)
    pair.a.network.hung.update(MEMBERS)
    await pair.a.service.call(FINALIZE_BLOCK, finalize_request(BlockEntry(view.record), 3))
    closing = asyncio.create_task(pair.a.service.call(CLOSE_FILE, CloseFile(file, ANN)))
    for _ in range(20):  # it gets as far as it can
        await asyncio.sleep(0)
    await pair.log.elect("b")
    await asyncio.wait([closing], timeout=2)  # a close waits five seconds for its members
    assert closing.done()
    with pytest.raises(OutcomeUnknownError, match="NameNode a lost leadership"):
        await closing


@pytest.mark.parametrize(
    ("trouble", "told"),
    [
        (UnavailableError("this member does not lead any more"), "NameNode a lost leadership"),
        (NoSpaceError("the disk of a is full"), "disk of a is full; a part of it may have been"),
    ],
    ids=["deposed", "full"],
)
async def test_a_call_whose_later_step_failed_does_not_claim_that_nothing_was_done(
    pair: Pair, trouble: PaxosBlockError, told: str
) -> None:
    file = await pair.a.create("/f")
    TROUBLE_HERE.set([trouble])
    with pytest.raises(OutcomeUnknownError, match=told):
        await pair.a.service.call(TAKE_OVER, TakeOver("/f"))
    with pytest.raises(FencedError):
        await pair.a.service.call(CLOSE_FILE, CloseFile(file, ANN))


async def test_a_call_of_several_steps_that_is_not_ready_may_have_done_some(pair: Pair) -> None:
    file = await pair.a.create("/f")
    TROUBLE_HERE.set([NotReadyError("not yet")])
    with pytest.raises(NotReadyError) as caught:
        await pair.a.service.call(TAKE_OVER, TakeOver("/f"))
    assert caught.value.outcome is Outcome.UNKNOWN
    with pytest.raises(FencedError):
        await pair.a.service.call(CLOSE_FILE, CloseFile(file, ANN))


async def test_a_call_that_failed_before_its_first_change_did_nothing(pair: Pair) -> None:
    TROUBLE_HERE.set([UnavailableError("this member does not lead any more")])
    made = asyncio.create_task(pair.a.service.call(MKDIRS, MakeDirectories("/made")))
    pair.log.leader = "b"
    with pytest.raises((NotLeaderError, UnavailableError)) as caught:
        await made
    assert caught.value.outcome.value == "never"


async def test_reports_to_a_follower_make_blocks_complete_at_once_when_it_leads(
    pair: Pair,
) -> None:
    block = await new_block(pair.a)
    await pair.a.service.call(SEAL_BLOCK, BlockRequest(block, ANN))
    record = (await pair.a.service.call(GET_BLOCK, BlockRequest(block))).record
    await wait_until_async(lambda: len(pair.a.node.replicas.holders(record)) == 3)
    for storage in MEMBERS:
        await pair.b.report(storage, full=False)
    pair.a.network.hung.update(MEMBERS)  # no member can be asked again
    await pair.elect(pair.b)
    view = await pair.b.service.call(GET_BLOCK, BlockRequest(block))
    assert view.complete
    assert [member.live for member in view.members] == [True] * 3


async def test_a_follower_takes_note_and_only_the_leader_acts_on_a_report(pair: Pair) -> None:
    """It follows the log a little behind: what it does not know yet need not be a leftover."""
    storage = MEMBERS[0]
    block = await new_block(pair.a)
    await pair.a.service.call(SEAL_BLOCK, BlockRequest(block, ANN))
    await close_and_delete(pair.a)
    pair.b.network.asked.clear()
    pair.b.acceptor(storage).create(block)
    await pair.b.report(storage)
    assert not await beat(pair.b, storage)
    await pair.elect(pair.b)
    assert pair.b.network.asked == []
    assert await beat(pair.b, storage)  # it wants to judge what it only took note of
    await pair.b.report(storage)
    await wait_until_async(
        lambda: any(isinstance(question, Delete) for _, question in pair.b.network.asked)
    )


async def close_and_delete(member: Member) -> None:
    """Delete /f and wait until its replicas are gone."""
    await member.node.closer.take_over("/f", member.clock.now)
    await member.service.call(DELETE, DeletePath("/f"))
    reach = member.network.reach.values()
    await wait_until_async(lambda: not any(acceptor.replicas for acceptor in reach))


class LaggingStore(MemoryStore):
    """Has applied nothing; the rest of the cluster is further."""

    def view(self) -> View:
        return ReplicatedMachine(MemoryTable())


async def test_neither_an_error_nor_doing_nothing_is_told_from_an_old_view() -> None:
    catalog = await new_catalog(LaggingStore())
    await catalog.make_directories(MakeDirectories("/d"))
    made_again = MakeDirectories("/d", parents=False)
    with pytest.raises(ExistsError):
        await catalog.make_directories(made_again)  # the old view has no root
    file = await catalog.create(create_request("/d/f"))
    assert (await catalog.delete(DeletePath("/d/f"))).existed
    assert not (await catalog.delete(DeletePath("/d/f"))).existed
    assert await catalog.fence_writer(file.number, ANN) is None


async def test_a_namenode_alone_that_cannot_begin_does_not_start() -> None:
    store = MemberStore("a", Log(leader="a"))
    store.trouble = [CorruptionError("the catalog is damaged")]
    network = Network(acceptors(*MEMBERS))
    node = NameNode("a", NameNodeConfig(), store, Clock(), lambda _: network)
    with pytest.raises(CorruptionError, match="the catalog is damaged"):
        await node.start()
    await node.close()


# --- who answers for a DataNode (D10) -------------------------------------------------------------

S1 = MEMBERS[0]
NODE = f"dn-{S1}"


def start(incarnation: str, host: str = NODE) -> Register:
    """A process of the first DataNode, on some machine."""
    room = StorageReport(StorageId(S1), ROOM_BYTES, ROOM_BYTES, 0)
    return Register(NODE, f"{host}:9864", incarnation, (room,))


def current(member: Member, incarnation: str) -> bool:
    return member.node.datanodes.is_current(NODE, incarnation)


async def test_who_begins_to_lead_forgets_whoever_came_after_another_than_the_record_has(
    pair: Pair,
) -> None:
    """While it followed it took in a copy, as the process before it had ended. The volume itself
    came to the leader, which recorded it."""
    await pair.b.service.call(REGISTER, start("copy", "elsewhere"))
    await pair.a.service.call(REGISTER, start("run-2"))
    assert current(pair.b, "copy")
    await pair.elect(pair.b)
    assert not current(pair.b, "copy")
    pair.b.network.processes[f"{NODE}:9864"] = "run-2"
    with pytest.raises(InvalidRequestError, match="another process of this name lives"):
        await pair.b.service.call(REGISTER, start("copy", "elsewhere"))
    await pair.b.service.call(REGISTER, start("run-2"))
    assert current(pair.b, "run-2")


async def test_who_begins_to_lead_records_those_that_came_after_the_one_on_record_had_ended(
    pair: Pair,
) -> None:
    await pair.log.elect("")
    await pair.b.service.call(REGISTER, start("run-2"))
    assert pair.b.node.catalog.process_of(NODE) == ProcessRecord(f"{NODE}:9864", "run-1")
    await pair.elect(pair.b)
    assert current(pair.b, "run-2"), "it need not come again"
    assert pair.b.node.catalog.process_of(NODE) == ProcessRecord(f"{NODE}:9864", "run-2")


async def test_who_came_while_the_one_on_record_was_silent_waits_again_for_who_leads_next(
    pair: Pair,
) -> None:
    """Another NameNode may hear it all the time."""
    pair.b.network.processes[f"{NODE}:9864"] = UnavailableError("no route")
    pair.b.clock.now += 100
    await pair.b.service.call(REGISTER, start("copy", "elsewhere"))
    assert current(pair.b, "copy")
    await pair.elect(pair.b)
    assert not current(pair.b, "copy")
    with pytest.raises(NotReadyError, match="it may live"):
        await pair.b.service.call(REGISTER, start("copy", "elsewhere"))


async def test_those_that_came_before_anybody_led_are_recorded_by_the_first_leader() -> None:
    log = Log(leader="")
    member = await new_member("b", log, Network(acceptors(*MEMBERS)))
    await log.elect("b")
    await wait_until_async(lambda: member.node.leadership.serves)
    assert member.node.catalog.process_of(NODE) == ProcessRecord(f"{NODE}:9864", "run-1")
    assert current(member, "run-1")
    await member.node.close()
