"""The clients by which a gateway calls the cluster: one for each user who asks.

So the NameNodes check each call as that of the user, and the gateway decides nothing: it may no
more than those for whom it calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from paxosblock.client.async_client import AsyncClient
from paxosblock.client.publishing import StagingArea
from paxosblock.config import ClientConfig
from paxosblock.errors import PaxosBlockError
from paxosblock.gateway.small_uploads import SmallUploads

STAGED_FOR_S: Final = 3600.0
"""Seconds for which unpublished files of a gateway stay after it died."""

CLOSE_WITHIN_S: Final = 2.0
"""Seconds in which a gateway that ends removes what it did not publish: its cluster may be down."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Principal:
    """The user for whom a request is made: who proves it by a token, or claims a name."""

    user: str
    token: str = field(default="", repr=False)


class UserClient:
    """The client of one user, and the directory for files that are not published yet."""

    def __init__(self, client: AsyncClient) -> None:
        self.fs = client
        self.staging = StagingArea(client, STAGED_FOR_S)
        self.small_uploads = SmallUploads(client)
        self.used_by = 0


class UserClients:
    """The clients of a gateway. Those that no request uses are closed when there are too many."""

    def __init__(self, addresses: Sequence[str], config: ClientConfig, kept: int) -> None:
        """`config` is what all of them share; at most `kept` are kept that no request uses."""
        self._addresses = tuple(addresses)
        self._config = config
        self._kept = kept
        self._clients: dict[Principal, UserClient] = {}  # the one that was used last is the last

    def __len__(self) -> int:
        return len(self._clients)

    @contextlib.asynccontextmanager
    async def lent(self, principal: Principal) -> AsyncIterator[UserClient]:
        """Lend the client of a user for the length of a `with`.

        Raises:
            ConfigError: the token is none.
        """
        one = self._clients.pop(principal, None) or UserClient(self._made(principal))
        self._clients[principal] = one
        one.used_by += 1
        try:
            yield one
        finally:
            one.used_by -= 1
            await self._close_idle()

    async def close(self) -> None:
        """Close all of them."""
        while self._clients:
            _, one = self._clients.popitem()
            await _close(one)

    def _made(self, principal: Principal) -> AsyncClient:
        config = self._config
        if principal.token:
            # A token says all of who calls: the gateway adds nothing of its own to it.
            config = replace(config, token=principal.token, token_file="", tls_cert="", tls_key="")
        else:
            # Nothing proves the user, or the access secret does, by which each name is believed: a
            # certificate or token of the gateway's would say another one.
            config = replace(
                config, user=principal.user, token="", token_file="", tls_cert="", tls_key=""
            )
        return AsyncClient(self._addresses, config)

    async def _close_idle(self) -> None:
        idle = [who for who, one in self._clients.items() if not one.used_by]
        for who in idle[: max(0, len(idle) - self._kept)]:
            if (one := self._clients.get(who)) is not None and not one.used_by:
                del self._clients[who]
                await _close(one)


async def _close(one: UserClient) -> None:
    try:
        async with asyncio.timeout(CLOSE_WITHIN_S):
            await one.small_uploads.close()
            await one.staging.close()
    except TimeoutError:
        directory = one.staging.directory
        _log.warning("'%s' is left to its time to live: no NameNode answers", directory)
    try:
        await one.fs.close()
    except PaxosBlockError as error:
        _log.warning("a client could not be closed: %s", error)
