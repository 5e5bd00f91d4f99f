"""Calls on the NameNode: where they go, when they are repeated, and what is told in the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from aiohttp import web

from paxosblock.api.namenode import (
    APPLICATION,
    DELETE,
    ApplicationAnswer,
    ApplicationRequest,
    DeletePath,
    Deletion,
)
from paxosblock.api.status import NAMENODE_STATUS, NameNodeStatus, NameNodeStatusRequest
from paxosblock.client.session.namenodes import NameNodes
from paxosblock.errors import (
    DeadlineError,
    InvalidRequestError,
    NoSpaceError,
    NotFoundError,
    NotLeaderError,
    NotReadyError,
    Outcome,
    OutcomeUnknownError,
    PaxosBlockError,
    StorageError,
    UnavailableError,
)
from paxosblock.net.calls.call_server import RpcRouter, add_calls
from paxosblock.net.calls.leader_search import ALIVE_FOR_S
from paxosblock.net.calls.rpc import RpcClient
from paxosblock.net.port.upgrade import CALLS
from tests.waiting import wait_until_async


class Server:
    """Answers every `delete`; the errors in `trouble` come first, one for each call."""

    def __init__(self, *trouble: PaxosBlockError) -> None:
        self.trouble = list(trouble)
        self.silent = asyncio.Event()
        self.silent.set()
        self.term = 0
        self.healthy = True
        self.calls = 0
        self.requests: list[DeletePath] = []
        self.looks = 0
        self.address = ""

    async def delete(self, request: DeletePath) -> Deletion:
        self.calls += 1
        self.requests.append(request)
        await self.silent.wait()
        if self.trouble:
            raise self.trouble.pop(0)
        return Deletion(existed=True)

    async def show(self, request: ApplicationRequest) -> ApplicationAnswer:
        self.looks += 1
        if self.trouble:
            raise self.trouble.pop(0)
        return ApplicationAnswer(None)

    async def status(self, _: NameNodeStatusRequest) -> NameNodeStatus:
        if not self.healthy:
            await self.silent.wait()
        return NameNodeStatus(
            "nn", "", self.term > 0, "", self.term, 0, 0, lag={}, members=(), datanodes=()
        )

    async def hang_up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Agree to take calls, and be gone when one comes."""
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 101 x\r\nUpgrade: %b\r\n\r\n" % CALLS.protocol.encode())
        if await reader.read(1):
            self.calls += 1
        writer.close()


@asynccontextmanager
async def hanging_up(server: Server) -> AsyncIterator[Server]:
    listening = await asyncio.start_server(server.hang_up, "127.0.0.1", 0)
    async with listening:
        server.address = "{}:{}".format(*listening.sockets[0].getsockname()[:2])
        yield server


@asynccontextmanager
async def serving(server: Server) -> AsyncIterator[Server]:
    app, router = web.Application(), RpcRouter()
    router.register(DELETE.name, DELETE.request, server.delete)
    router.register(APPLICATION.name, APPLICATION.request, server.show)
    router.register(NAMENODE_STATUS.name, NAMENODE_STATUS.request, server.status)
    add_calls(app, router)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.address = "{}:{}".format(*runner.addresses[0][:2])
    try:
        yield server
    finally:
        server.silent.set()
        await runner.cleanup()


async def delete(*servers: Server, retry_for_s: float = 5.0) -> Deletion:
    async with RpcClient() as rpc:
        addresses = [server.address for server in servers]
        namenodes = NameNodes(addresses, rpc, timeout_s=2.0, retry_for_s=retry_for_s)
        return await namenodes.call(DELETE, DeletePath("/a"))


async def test_a_namenode_that_is_not_ready_is_asked_again() -> None:
    async with serving(Server(NotReadyError("safe mode"), NotReadyError("safe mode"))) as server:
        assert await delete(server) == Deletion(existed=True)
        assert server.calls == 3


async def test_an_answer_that_repeating_cannot_change_is_final() -> None:
    async with serving(Server(NotFoundError("no such file"))) as server:
        with pytest.raises(NotFoundError, match="no such file"):
            await delete(server)
        assert server.calls == 1


async def test_a_connection_that_always_breaks_is_reported_as_an_unknown_outcome() -> None:
    async with hanging_up(Server()) as server:
        with pytest.raises(OutcomeUnknownError):
            await delete(server, retry_for_s=1.0)
        assert server.calls > 1


async def test_an_unknown_outcome_is_tried_again() -> None:
    async with serving(Server(DeadlineError("slow disk"), OutcomeUnknownError("gone"))) as server:
        assert await delete(server) == Deletion(existed=True)
        assert server.calls == 3


async def test_giving_up_raises_what_was_in_the_way() -> None:
    async with serving(Server(*[NotReadyError("safe mode")] * 1000)) as server:
        with pytest.raises(NotReadyError, match="safe mode"):
            await delete(server, retry_for_s=1.0)
        assert 1 < server.calls < 20


async def test_a_refusal_does_not_hide_that_an_earlier_try_may_have_done_it() -> None:
    lost, refusals = OutcomeUnknownError("connection lost"), [NotReadyError("safe mode")] * 1000
    async with serving(Server(lost, *refusals)) as first, serving(Server(*refusals)) as second:
        with pytest.raises(OutcomeUnknownError, match="connection lost"):
            await delete(first, second, retry_for_s=1.0)
        assert first.calls > 1


@pytest.mark.parametrize("others", [0, 1])
async def test_a_final_refusal_does_not_hide_that_an_earlier_try_may_do_it_yet(others: int) -> None:
    lost, refused = OutcomeUnknownError("connection lost"), NotFoundError("no such file")
    servers = [Server(lost, *[refused][others:]), Server(refused)][: 1 + others]
    async with AsyncExitStack() as stack:
        for server in servers:
            await stack.enter_async_context(serving(server))
        with pytest.raises(NotFoundError, match="no such file") as caught:
            await delete(*servers)
        assert caught.value.outcome is Outcome.UNKNOWN
        assert [server.calls for server in servers] == ([1, 1] if others else [2])


async def test_the_namenode_that_answered_is_asked_first_the_next_time() -> None:
    async with serving(Server(NotReadyError("standby"))) as first, serving(Server()) as second:
        async with RpcClient() as rpc:
            addresses = [first.address, second.address]
            namenodes = NameNodes(addresses, rpc, timeout_s=2.0, retry_for_s=5.0)
            for _ in range(3):
                await namenodes.call(DELETE, DeletePath("/a"))
        assert (first.calls, second.calls) == (1, 3)


async def test_a_leader_that_is_named_is_asked_next_and_first_from_then_on() -> None:
    async with serving(Server()) as leader, serving(Server()) as bystander:
        refusal = NotLeaderError("it does not lead", leader=leader.address)
        async with serving(Server(refusal)) as follower, RpcClient() as rpc:
            given = [follower.address, bystander.address]  # the leader is none of them
            namenodes = NameNodes(given, rpc, timeout_s=2.0, retry_for_s=5.0)
            for _ in range(2):
                await namenodes.call(DELETE, DeletePath("/a"))
        assert (leader.calls, follower.calls, bystander.calls) == (2, 1, 0)


async def test_while_nobody_leads_everybody_is_asked_again() -> None:
    electing = [NotLeaderError("nobody is known to lead", leader="")] * 3
    async with serving(Server(*electing)) as first, serving(Server(*electing[:2])) as second:
        assert await delete(first, second) == Deletion(existed=True)
        assert (first.calls, second.calls) == (3, 3)


async def test_one_that_hangs_is_given_up_once_another_one_leads() -> None:
    async with serving(Server()) as hung, serving(Server()) as old, serving(Server()) as new:
        hung.silent.clear()
        hung.healthy, hung.term, old.term, new.term = False, 7, 6, 8
        async with RpcClient() as rpc:
            addresses = [hung.address, old.address, new.address]
            namenodes = NameNodes(addresses, rpc, timeout_s=60.0, retry_for_s=60.0)
            assert (await namenodes.call(DELETE, DeletePath("/a"))).existed
        assert (hung.calls, old.calls, new.calls) == (1, 0, 1)


async def test_one_that_is_only_slow_is_waited_for() -> None:
    async with serving(Server()) as slow, serving(Server()) as old, RpcClient() as rpc:
        slow.silent.clear()
        slow.term, old.term = 7, 6
        namenodes = NameNodes([slow.address, old.address], rpc, timeout_s=60.0, retry_for_s=60.0)
        call = asyncio.create_task(namenodes.call(DELETE, DeletePath("/a")))
        await asyncio.wait([call], timeout=2.5 * ALIVE_FOR_S)
        slow.silent.set()
        assert (await call).existed
        assert (slow.calls, old.calls) == (1, 0)


async def test_a_namenode_that_cannot_store_makes_the_client_ask_the_next() -> None:
    full = StorageError("the disk of NameNode nn1 is full")
    async with serving(Server(*[full] * 1000)) as first, serving(Server()) as second:
        assert await delete(first, second) == Deletion(existed=True)
        assert (first.calls, second.calls) == (1, 1)


async def test_what_is_reported_in_the_end_is_the_cause_and_not_the_last_silence() -> None:
    full = StorageError("the disk of NameNode nn1 is full")
    standby = NotLeaderError("nobody is known to lead", leader="")
    async with (
        serving(Server(*[full] * 1000)) as first,
        serving(Server(*[standby] * 1000)) as second,
    ):
        with pytest.raises(StorageError, match="the disk of NameNode nn1 is full"):
            await delete(first, second, retry_for_s=1.0)


async def test_a_lost_answer_is_reported_with_what_made_the_others_refuse() -> None:
    full = StorageError("the disk of NameNode nn2 is full").with_outcome(Outcome.NEVER)
    async with serving(Server()) as hung, serving(Server(*[full] * 1000)) as second:
        hung.silent.clear()
        hung.healthy = False
        with pytest.raises(DeadlineError) as caught:
            await delete(hung, second, retry_for_s=3.0)
    said = f"delete of {hung.address}: no answer in 2 s; the disk of NameNode nn2 is full"
    assert str(caught.value) == said


FULL = NoSpaceError("the disks of the NameNodes a, b are full", address="a, b")


async def test_a_full_disk_does_not_hide_that_an_earlier_try_may_have_done_it() -> None:
    lost = OutcomeUnknownError("not committed")
    full = [FULL] * 1000
    async with serving(Server(lost, *full)) as server:
        with pytest.raises(OutcomeUnknownError, match=r"not committed; the disks of .* are full"):
            await delete(server, retry_for_s=1.0)
    async with serving(Server(lost, *full)) as first, serving(Server(*full)) as second:
        with pytest.raises(OutcomeUnknownError, match=r"not committed; the disks of .* are full"):
            await delete(first, second, retry_for_s=1.0)


async def test_a_namenode_alone_whose_disk_is_full_for_a_while_is_asked_again() -> None:
    async with serving(Server(*[FULL] * 5)) as server:
        assert await delete(server) == Deletion(existed=True)
        assert server.calls == 6
    async with serving(Server(NotReadyError("just started"), *[FULL] * 1000)) as server:
        with pytest.raises(NoSpaceError, match="a, b are full") as caught:
            await delete(server, retry_for_s=1.0)
        assert caught.value.outcome is Outcome.NEVER


async def test_that_datanodes_have_no_room_is_for_whoever_asked_for_a_block() -> None:
    no_place = NoSpaceError("no place for a block", found=1, needed=2)
    async with serving(Server(OutcomeUnknownError("lost"), no_place)) as server:
        with pytest.raises(NoSpaceError, match="no place"):
            await delete(server)
        assert server.calls == 2


async def test_an_error_of_a_newer_namenode_is_tried_again_if_it_says_so() -> None:
    busy = PaxosBlockError("of a kind that nobody knows")
    busy.retriable = True
    async with serving(Server(busy)) as server:
        assert await delete(server) == Deletion(existed=True)
        assert server.calls == 2


@pytest.mark.parametrize(
    ("last", "told"),
    [
        (OutcomeUnknownError("lost"), OutcomeUnknownError),
        (NotReadyError("safe mode"), InvalidRequestError),
    ],
)
async def test_a_client_that_is_closed_says_what_its_last_try_left_open(
    last: PaxosBlockError, told: type[PaxosBlockError]
) -> None:
    async with serving(Server(*[last] * 1000)) as server, RpcClient() as rpc:
        namenodes = NameNodes([server.address], rpc, timeout_s=2.0, retry_for_s=60.0)
        call = asyncio.create_task(namenodes.call(DELETE, DeletePath("/a")))
        await wait_until_async(lambda: server.calls > 0)
        namenodes.close()
        with pytest.raises(told):
            await call


async def test_without_retries_everybody_is_asked_once_and_may_take_its_time() -> None:
    async with serving(Server()) as slow, serving(Server(NotReadyError("standby"))) as standby:
        slow.silent.clear()
        call = asyncio.create_task(delete(standby, slow, retry_for_s=0))
        await asyncio.wait([call], timeout=0.2)
        slow.silent.set()
        assert (await call).existed
        assert (standby.calls, slow.calls) == (1, 1)
    async with serving(Server(NotReadyError("safe mode"))) as server:
        with pytest.raises(NotReadyError, match="safe mode"):
            await delete(server, retry_for_s=0)
        assert server.calls == 1


async def test_nobody_there_is_unavailable_and_names_the_address() -> None:
    async with serving(Server()) as server:
        pass
    with pytest.raises(UnavailableError, match=server.address):
        await delete(server, retry_for_s=0.05)


async def test_calls_one_after_the_other_have_names_of_their_own_in_one_session() -> None:
    """Under the name of the one before, a call would get that one's answer and not be done."""
    async with serving(Server(NotReadyError("not yet"))) as server, RpcClient() as rpc:
        namenodes = NameNodes([server.address], rpc, timeout_s=2.0, retry_for_s=5.0)
        for _ in range(3):
            await namenodes.call_once(DELETE, DeletePath("/a"))
    named = [request.once for request in server.requests if request.once is not None]
    assert len({once.session for once in named}) == 1
    assert [once.sequence for once in named] == [1, 1, 2, 3], "the first was sent twice"


async def test_what_a_request_tells_of_the_past_is_told_anew_at_each_try() -> None:
    """A second old at the third try, "just now" would be a failure of a second ago no more."""
    ages = iter(range(10))
    told: list[int] = []

    def make() -> DeletePath:
        told.append(next(ages))
        return DeletePath("/a")

    refused = NotReadyError("it only starts")
    async with serving(Server(refused, refused)) as server, RpcClient() as rpc:
        namenodes = NameNodes([server.address], rpc, timeout_s=2.0, retry_for_s=5.0)
        await namenodes.call_anew(DELETE, make)
    assert told == [0, 1, 2]


LOOK = APPLICATION, ApplicationRequest("app")


async def test_clients_spread_what_any_namenode_can_show() -> None:
    async with serving(Server()) as one, serving(Server()) as other, RpcClient() as rpc:
        addresses = [one.address, other.address]
        for _ in range(64):
            namenodes = NameNodes(addresses, rpc, timeout_s=2.0, retry_for_s=5.0)
            await namenodes.call(*LOOK)
            await namenodes.call(*LOOK)
            await namenodes.call(DELETE, DeletePath("/a"))
        assert one.looks + other.looks == 128
        assert min(one.looks, other.looks) > 0
        assert one.looks % 2 == 0, "a client stays with the one that answers it"
        assert (one.calls, other.calls) == (64, 0), "changes go to the one that leads"


@pytest.mark.parametrize(
    "trouble",
    [NotLeaderError("it does not hear the leader", leader=""), UnavailableError("it is closing")],
)
async def test_what_one_namenode_cannot_show_another_one_does(trouble: PaxosBlockError) -> None:
    async with serving(Server()) as one, serving(Server()) as other, RpcClient() as rpc:
        addresses = [one.address, other.address]
        for _ in range(32):
            one.trouble = [trouble]
            namenodes = NameNodes(addresses, rpc, timeout_s=2.0, retry_for_s=5.0)
            before = other.looks
            await namenodes.call(*LOOK)
            await namenodes.call(*LOOK)
            if not one.trouble:  # it was asked, and is not asked again
                assert other.looks == before + 2
        assert one.looks > 0


async def test_a_namenode_that_is_gone_is_not_asked_twice_for_what_others_can_show() -> None:
    async with serving(Server()) as one, RpcClient() as rpc:
        for _ in range(16):
            namenodes = NameNodes([one.address, "127.0.0.1:1"], rpc, timeout_s=2.0, retry_for_s=5.0)
            await namenodes.call(*LOOK)
        assert one.looks == 16
