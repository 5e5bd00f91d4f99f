"""Calls on the NameNodes by a client with an event loop."""

from __future__ import annotations

import asyncio
from asyncio import ALL_COMPLETED, FIRST_COMPLETED
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from paxosblock.api.methods import Method
from paxosblock.api.user_tokens import ISSUE_TOKEN, IssueToken, TokenRight
from paxosblock.net.calls.leader_search import LeaderSearch, Sessions
from paxosblock.net.calls.rpc import RpcClient
from paxosblock.net.port.bearer import OwnToken

EXCHANGED: Final = "exchanged for one of the issuer"
EXCHANGED_S: Final = 3600.0
"""Seconds for which a token is good at most that is got for one of an issuer."""

Q = TypeVar("Q")
A = TypeVar("A")
S = TypeVar("S", bound=msgspec.Struct)


class NameNodes:
    """The NameNodes of a cluster. `LeaderSearch` decides which of them a call goes to, and when it
    gives up.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        rpc: RpcClient,
        *,
        timeout_s: float,
        retry_for_s: float,
    ) -> None:
        """Know at least one of them by its address.

        A single call may take `timeout_s`, all tries of a request together `retry_for_s`.
        """
        self._search = LeaderSearch(addresses, _AsyncSearch(rpc), timeout_s, retry_for_s)
        self._sessions = Sessions()
        self._retry_for_s = retry_for_s
        self._token, self._exchanging = rpc.access.token, asyncio.Lock()

    def within(self, seconds: float) -> NameNodes:
        """Return the same NameNodes, for requests whose tries take so long together."""
        these = copy(self)
        these._retry_for_s = seconds
        return these

    @property
    def closed(self) -> bool:
        """True once `close` was called."""
        return self._search.closed

    def close(self) -> None:
        """Refuse every further call, including those that are being tried again."""
        self._search.closed = True

    async def call(
        self,
        method: Method[Q, A],
        request: Q,
        *,
        retry_for_s: float | None = None,
    ) -> A:
        """Ask until a NameNode answers. See `LeaderSearch.run` for what may be asked and what is
        raised; `retry_for_s` None takes that of the constructor.
        """
        patience_s = self._retry_for_s if retry_for_s is None else retry_for_s
        if self._token is not None and self._token.wants_ours:
            await self._exchange(self._token, patience_s)
        return await self._search.run(method, lambda: request, patience_s)

    async def _exchange(self, token: OwnToken, patience_s: float) -> None:
        """Get a token for DataNodes, which take none of an issuer. All clients of a user that ask
        for one at about the same time have the same."""
        async with self._exchanging:
            if not token.wants_ours:
                return
            foreign, rights = token.word, TokenRight.READ | TokenRight.WRITE
            request = IssueToken(EXCHANGED_S, int(rights), EXCHANGED, again=True)
            issued = await self._search.run(ISSUE_TOKEN, lambda: request, patience_s)
            token.exchange(foreign, issued.token)

    async def call_anew(
        self,
        method: Method[Q, A],
        make: Callable[[], Q],
        *,
        retry_for_s: float | None = None,
    ) -> A:
        """Like `call`, with a request that is made again for each try, because it says how long ago
        something was.
        """
        patience_s = self._retry_for_s if retry_for_s is None else retry_for_s
        return await self._search.run(method, make, patience_s)

    async def call_once(self, method: Method[S, A], request: S) -> A:
        """Ask for a change until a NameNode answers; it is made once however often that takes: the
        request, which has a field `once`, gets a name there.

        Raises what `call` does; the outcome is unknown only when no answer came to one of the
        tries, and none says that it was done.
        """
        with self._sessions.once() as once:
            return await self.call(method, replace(request, once=once))


class _AsyncSearch:
    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc

    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def ask(
        self, address: str, method: Method[Q, A], request: Q, timeout_s: float
    ) -> asyncio.Future[A]:
        return self._rpc.send(address, method.name, request, method.answer, timeout_s)

    async def wait(
        self, calls: Sequence[Any], within_s: float | None = None, *, every: bool = False
    ) -> None:
        until = ALL_COMPLETED if every else FIRST_COMPLETED
        await asyncio.wait(calls, timeout=within_s, return_when=until)

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
