"""A DataNode on loopback whose replicas are in memory: the real acceptors behind real HTTP."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

from aiohttp import web

from paxosblock.api.datanode import ACCEPT, ACCEPT_ALL, Answer, Answers, Envelope, Envelopes
from paxosblock.api.reports import (
    ALL_BLOCKS,
    BLOCK_REPORT,
    HEARTBEAT,
    REGISTER,
    BlockReport,
    Heartbeat,
    HeartbeatAnswer,
    Register,
    StorageReport,
)
from paxosblock.net.calls.call_server import RpcRouter, add_calls
from paxosblock.net.calls.rpc import RpcClient
from paxosblock.protocol.messages import Vote
from tests.namenode.cluster import Acceptor

ROOM_BYTES = 1 << 40


@dataclass
class HttpDataNode:
    """One acceptor that NameNodes reach at `address`."""

    acceptor: Acceptor
    address: str
    runner: web.AppRunner
    incarnation: str = "run-1"
    reports: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def node(self) -> str:
        """The name it registers under."""
        return f"dn-{self.acceptor.storage}"

    async def register(self, client: RpcClient, namenode: str) -> None:
        """Register and report all replicas."""
        request = Register(self.node, self.address, self.incarnation, self._storages())
        await client.call(namenode, REGISTER.name, request, REGISTER.answer, 5.0)
        await self.report(client, namenode)

    async def report(self, client: RpcClient, namenode: str) -> None:
        """Send a full block report."""
        replicas = tuple(self.acceptor.summary(block) for block in self.acceptor.replicas)
        report = BlockReport(
            self.node,
            self.incarnation,
            self.acceptor.storage,
            next(self.reports),
            ALL_BLOCKS,
            replicas,
        )
        await client.call(namenode, BLOCK_REPORT.name, report, BLOCK_REPORT.answer, 5.0)

    async def heartbeat(self, client: RpcClient, namenode: str) -> HeartbeatAnswer:
        """Send one heartbeat."""
        request = Heartbeat(self.node, self.incarnation, self._storages(), 0)
        return await client.call(namenode, HEARTBEAT.name, request, HEARTBEAT.answer, 5.0)

    async def stop(self) -> None:
        """Close the port: from now on connections are refused."""
        self.acceptor.alive = False
        await self.runner.cleanup()

    def _storages(self) -> tuple[StorageReport, ...]:
        return (StorageReport(self.acceptor.storage, ROOM_BYTES, ROOM_BYTES, 0),)


@contextlib.asynccontextmanager
async def serving(acceptor: Acceptor) -> AsyncIterator[HttpDataNode]:
    """A DataNode with this acceptor for the length of a `with`."""

    async def accept(envelope: Envelope) -> Answer:
        answer = acceptor.answer(envelope.message)
        assert not isinstance(answer, Vote), "only a Write is voted for"
        return answer

    async def accept_all(envelopes: Envelopes) -> Answers:
        return Answers(tuple([await accept(each) for each in envelopes.each]))

    router = RpcRouter()
    router.register(ACCEPT.name, ACCEPT.request, accept)
    router.register(ACCEPT_ALL.name, ACCEPT_ALL.request, accept_all)
    app = web.Application()
    add_calls(app, router)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield HttpDataNode(acceptor, f"127.0.0.1:{runner.addresses[0][1]}", runner)
    finally:
        await runner.cleanup()
