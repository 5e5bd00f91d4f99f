"""Repeats: a change whose answer did not arrive is sent again, and must not hear that it failed.

Hadoop's client sends a RENAME or DELETE again when the connection broke, at the same or another
gateway, and nothing in the request says so. The first one took effect, so the second finds nothing
to do and would hear `false`. So a gateway that sees an answer not arrive puts a *ticket* into the
cluster: a directory of the user whose name is made of the request. A program that asks the same
from the same host, and would be refused, takes the ticket, which only one can, and hears what was
lost. No ticket is made of an answer that arrived: of two programs that rename one file, one hears
true.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from paxosblock.base.paths import STAGING
from paxosblock.errors import (
    ExistsError,
    InvalidRequestError,
    NotDirectoryError,
    NotFoundError,
    PaxosBlockError,
)
from paxosblock.gateway.exchange import Answer
from paxosblock.gateway.user_clients import Principal, UserClients
from paxosblock.gateway.webhdfs.hadoop_json import truth
from paxosblock.gateway.webhdfs.operation_table import HadoopCall
from paxosblock.gateway.webhdfs.remote_exceptions import HadoopError, JavaError

TICKET_FOR_S: Final = 300.0
"""Seconds for which a lost answer is kept. Hadoop's client gives up after 15 tries, which are at
most 15 seconds apart."""
SETTLED_WITHIN_S: Final = 5.0
"""Seconds for which a repeat waits for what became of the first answer."""

_NOTHING_DONE: Final = truth(False).body
_MAY_BE_DONE: Final = (NotFoundError, ExistsError, NotDirectoryError, InvalidRequestError)
_KINDS: Final = frozenset({JavaError.FILE_NOT_FOUND, JavaError.FILE_EXISTS, JavaError.IO})

_log = logging.getLogger(__name__)


class Repeats:
    """The changes of a gateway whose answers may not have arrived yet."""

    def __init__(self, clients: UserClients) -> None:
        self._clients = clients
        self._unsettled: dict[str, set[asyncio.Future[None]]] = {}

    async def answer(
        self,
        call: HadoopCall,
        principal: Principal,
        run: Callable[[HadoopCall], Awaitable[Answer]],
        success: Answer,
    ) -> Answer:
        """Return what `run` answers, or `success` if that was lost before. Raises as `run`."""
        ticket = _ticket(call)
        settled = asyncio.get_running_loop().create_future()
        before = frozenset(self._unsettled.setdefault(ticket, set()))
        self._unsettled[ticket].add(settled)
        try:
            answer = await self._changed(call, run, success, ticket, before)
        except BaseException:
            self._settle(ticket, settled)
            raise
        if answer.body == _NOTHING_DONE:
            self._settle(ticket, settled)
            return answer

        async def sent(*, came: bool) -> None:
            try:
                if not came:
                    await self._keep(ticket, principal)
            finally:
                self._settle(ticket, settled)

        answer.sent = sent
        return answer

    async def _changed(
        self,
        call: HadoopCall,
        run: Callable[[HadoopCall], Awaitable[Answer]],
        success: Answer,
        ticket: str,
        before: frozenset[asyncio.Future[None]],
    ) -> Answer:
        try:
            answer = await run(call)
        except _MAY_BE_DONE:
            if await self._takes(call, ticket, before):
                return success
            raise
        except HadoopError as error:
            if error.kind in _KINDS and await self._takes(call, ticket, before):
                return success
            raise
        if answer.body == _NOTHING_DONE and await self._takes(call, ticket, before):
            return success
        return answer

    async def _takes(
        self, call: HadoopCall, ticket: str, before: frozenset[asyncio.Future[None]]
    ) -> bool:
        """Take the ticket of a request, and return True if it was there."""
        if before:
            await asyncio.wait(before, timeout=SETTLED_WITHIN_S)
        try:
            return await call.fs.exists(ticket) and await call.fs.delete(ticket)
        except PaxosBlockError as error:  # what was decided is answered then
            _log.warning("a lost answer was not looked for: %s", error)
            return False

    async def _keep(self, ticket: str, principal: Principal) -> None:
        try:
            async with self._clients.lent(principal) as client:
                await client.fs.mkdirs(ticket, permission=0o700, ttl_s=TICKET_FOR_S)
        except PaxosBlockError as error:
            _log.warning("an answer was lost, and a repeat will not hear it: %s", error)

    def _settle(self, ticket: str, settled: asyncio.Future[None]) -> None:
        settled.set_result(None)
        waiting = self._unsettled[ticket]
        waiting.discard(settled)
        if not waiting:
            del self._unsettled[ticket]


def _ticket(call: HadoopCall) -> str:
    """Return the name of the ticket of a request: the same for each that asks the same."""
    exchange = call.exchange
    asked = (call.user, exchange.address, exchange.method, call.path, call.query)
    return f"{STAGING}/lost-{hashlib.sha256(repr(asked).encode()).hexdigest()}"
