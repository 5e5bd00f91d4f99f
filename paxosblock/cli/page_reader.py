"""The reader of clients in a NameNode, whose own calls answer it.

They answer it as they answer the one who looks at the page: who may not read a file gets no
capability for its blocks.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final, TypeVar

from paxosblock.api.methods import Method
from paxosblock.client.reading.file_reader import AsyncFileReader
from paxosblock.client.reading.length import Consistency, readable_file
from paxosblock.client.session.namenodes import NameNodes
from paxosblock.client.session.shared_session import SharedSession
from paxosblock.client.session.transport import DataConnections
from paxosblock.config import ClientConfig
from paxosblock.net.calls.own_calls import OwnCalls
from paxosblock.net.port.access import Access

Q = TypeVar("Q")
A = TypeVar("A")

PATIENCE_S: Final = 5.0
"""Seconds until a reader gives up: who looks at a page does not wait for longer."""
HERE: Final = "127.0.0.1:0"
"""An address that is never connected to."""


class _OwnNameNode(NameNodes):
    """The NameNode of this process, as a client knows several."""

    def __init__(self, session: SharedSession, calls: OwnCalls) -> None:
        super().__init__((HERE,), session.rpc, timeout_s=PATIENCE_S, retry_for_s=PATIENCE_S)
        self._calls = calls

    async def call(
        self, method: Method[Q, A], request: Q, *, retry_for_s: float | None = None
    ) -> A:
        """Ask once. Raises the error that a client would get."""
        del retry_for_s  # it answers, or leads no more
        return await self._calls.call(method, request)


@asynccontextmanager
async def opened(calls: OwnCalls, access: Access, path: str) -> AsyncIterator[AsyncFileReader]:
    """Open a file for a block. Raises as `AsyncClient.open`."""
    config = ClientConfig(retry_for_s=PATIENCE_S)
    of_client = SharedSession.to((HERE,), config)
    session = replace(
        of_client,
        namenodes=_OwnNameNode(of_client, calls),
        reading=DataConnections(config.connect_timeout_s, access),
    )
    try:
        how = Consistency.QUORUM
        found = await readable_file(session, path, how, PATIENCE_S)
        async with AsyncFileReader(session, path, found, how) as file:
            yield file
    finally:
        await session.close()
