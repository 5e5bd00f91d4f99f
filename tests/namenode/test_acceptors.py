"""Questions to one storage in one call, over the network."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from paxosblock.api.datanode import (
    ACCEPT_ALL,
    Answer,
    Answers,
    Envelope,
    Envelopes,
    NoAnswer,
)
from paxosblock.api.reports import Register, StorageReport
from paxosblock.errors import ProtocolError, StorageError, UnavailableError
from paxosblock.namenode.blocks.acceptors import RpcAcceptors
from paxosblock.namenode.blocks.datanodes import DataNodes
from paxosblock.net.calls.call_server import RpcRouter, add_calls
from paxosblock.net.calls.rpc import RpcClient
from paxosblock.net.wire import encode_error
from paxosblock.protocol.messages import Delete, Deleted
from paxosblock.protocol.types import BlockId, Generation, StorageId

STORAGE = StorageId("s")
QUESTIONS = tuple(Delete(BlockId(number), Generation(1)) for number in range(3))
DELETED = tuple(Deleted(each.block, STORAGE) for each in QUESTIONS)


class Told:
    """A DataNode that gives the answers of the test."""

    def __init__(self) -> None:
        self.asked: list[Envelopes] = []
        self.answers: tuple[Answer | NoAnswer, ...] = DELETED

    async def accept_all(self, envelopes: Envelopes) -> Answers:
        self.asked.append(envelopes)
        return Answers(self.answers)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
async def acceptors(told: Told) -> AsyncIterator[RpcAcceptors]:
    router, app = RpcRouter(), web.Application()
    router.register(ACCEPT_ALL.name, ACCEPT_ALL.request, told.accept_all)
    add_calls(app, router)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    datanodes = DataNodes(60.0, 60.0)
    address = f"127.0.0.1:{runner.addresses[0][1]}"
    datanodes.register(Register("dn", address, "run-1", (StorageReport(STORAGE, 1, 1, 0),)), 0.0)
    async with RpcClient() as client:
        yield RpcAcceptors(client, datanodes, 5.0)
    await runner.cleanup()


async def test_many_questions_go_in_one_call(acceptors: RpcAcceptors, told: Told) -> None:
    assert await acceptors.ask_all(STORAGE, QUESTIONS) == [*DELETED]
    assert told.asked == [Envelopes(tuple(Envelope(STORAGE, each) for each in QUESTIONS))]


async def test_of_each_question_its_own_answer_is_heard(
    acceptors: RpcAcceptors, told: Told
) -> None:
    told.answers = NoAnswer(encode_error(StorageError("s has failed"))), DELETED[1], NoAnswer()
    failed, deleted, later = await acceptors.ask_all(STORAGE, QUESTIONS)
    assert isinstance(failed, StorageError)
    assert "s has failed" in str(failed)
    assert (deleted, later) == (DELETED[1], None)


@pytest.mark.parametrize(
    "answers", [DELETED[:2], (*DELETED[:2], Deleted(BlockId(2), StorageId("t")))]
)
async def test_answers_to_other_questions_are_refused(
    acceptors: RpcAcceptors, told: Told, answers: tuple[Deleted, ...]
) -> None:
    told.answers = answers
    with pytest.raises(ProtocolError):
        await acceptors.ask_all(STORAGE, QUESTIONS)


async def test_a_storage_that_nobody_knows_cannot_be_reached(acceptors: RpcAcceptors) -> None:
    with pytest.raises(UnavailableError):
        await acceptors.ask_all(StorageId("t"), QUESTIONS)
