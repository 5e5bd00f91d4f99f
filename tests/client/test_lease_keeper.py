"""The user is told while the leases of writers cannot be renewed."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise

import pytest
from aiohttp import web

from paxosblock.api.namenode import RENEW_LEASES, Renewed, RenewLeases
from paxosblock.client.session import lease_keeper
from paxosblock.client.session.lease_keeper import LeaseKeeper
from paxosblock.client.session.namenodes import NameNodes
from paxosblock.errors import NotReadyError
from paxosblock.net.calls.call_server import RpcRouter
from paxosblock.net.calls.rpc import RpcClient
from paxosblock.net.serving import listen
from paxosblock.protocol.types import BlockId, WriterId
from tests.waiting import wait_until_async

INTERVAL_S = 0.005


class NameNode:
    """Renews leases when it is ready."""

    def __init__(self) -> None:
        self.ready = False
        self.calls = 0

    async def renew(self, request: RenewLeases) -> Renewed:
        self.calls += 1
        if not self.ready:
            raise NotReadyError("it only starts")
        return Renewed(lost=())

    async def wait_calls(self, more: int) -> None:
        wanted = self.calls + more
        await wait_until_async(lambda: self.calls >= wanted)


class Writer:
    def lost(self) -> None:
        raise AssertionError("no lease is lost here")

    def open_block(self) -> None:
        """It has no block."""

    def roll(self, block: BlockId) -> None:
        raise AssertionError("there is nothing to roll")


@asynccontextmanager
async def keeping(namenode: NameNode) -> AsyncIterator[None]:
    """A client with one writer."""
    router = RpcRouter()
    router.register(RENEW_LEASES.name, RENEW_LEASES.request, namenode.renew)
    async with AsyncExitStack() as stack:
        address = await listen(stack, web.Application(), router, "127.0.0.1:0")
        rpc = await stack.enter_async_context(RpcClient())
        keeper = LeaseKeeper(NameNodes([address], rpc, timeout_s=10, retry_for_s=10), INTERVAL_S)
        stack.push_async_callback(keeper.close)
        writer = Writer()
        keeper.keep(WriterId("writer"), writer.lost, writer.open_block, writer.roll)
        yield


def told(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.message for record in caplog.records if record.levelno == level]


async def test_leases_that_cannot_be_renewed_are_told_once_and_so_is_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, lease_keeper.__name__)
    namenode = NameNode()
    async with keeping(namenode):
        for trouble in (1, 2):
            namenode.ready = False
            await namenode.wait_calls(30)
            assert len(told(caplog, logging.WARNING)) == trouble, caplog.text
            namenode.ready = True
            await namenode.wait_calls(3)
            assert len(told(caplog, logging.INFO)) == trouble, caplog.text
    first, second = told(caplog, logging.WARNING)
    assert first == second
    assert "cannot renew leases (open: 1): " in first
    assert "it only starts" in first


async def test_what_lasts_is_told_again_after_ever_longer_times(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_keeper, "WARN_AGAIN_S", 2 * INTERVAL_S)
    async with keeping(NameNode()):
        await wait_until_async(lambda: len(told(caplog, logging.WARNING)) == 5)
    began_s, *times = [record.created for record in caplog.records]
    lasted = [each_s - began_s for each_s in times]
    assert all(later > 1.9 * before for before, later in pairwise(lasted))
