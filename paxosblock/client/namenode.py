"""Calls on the NameNode: which node to ask, what may be asked again, when to give up."""

from __future__ import annotations

import asyncio
import logging
import uuid
from asyncio import FIRST_COMPLETED
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from paxosblock.api.methods import Method, Once
from paxosblock.api.status import NAMENODE_STATUS, NameNodeStatus, NameNodeStatusRequest
from paxosblock.client.backoff import Backoff
from paxosblock.errors import (
    DeadlineError,
    InvalidRequestError,
    NoSpaceError,
    NotLeaderError,
    NotReadyError,
    Outcome,
    OutcomeUnknownError,
    PaxosBlockError,
    StorageError,
    UnavailableError,
)
from paxosblock.net.rpc import RpcClient

Q = TypeVar("Q")
A = TypeVar("A")

LONGEST_PAUSE_S: Final = 0.2
"""An election takes about half a second; the first call after it should not sleep through it."""

SILENT_AFTER_S: Final = 0.25
"""Silence after which the NameNodes are asked who leads; an answer may well take longer. One that
does not say how it is for so long again is given up as soon as another one leads.
"""

LOOKS_EVERY_S: Final = 0.15
"""Pause before the others are asked again while none of them leads."""

ALIVE_FOR_S: Final = 1.0
"""For so long a NameNode that said how it is may take its time, as may the others to say so."""

LEAST_S: Final = 0.5
"""What every try gets: with less its failure would tell nothing but that the time was up."""

_log = logging.getLogger(__name__)

_TRY_AGAIN = (
    UnavailableError,
    NotLeaderError,
    NotReadyError,
    OutcomeUnknownError,
    DeadlineError,
    StorageError,
)
"""Errors that say nothing about the request itself."""

_DISK = (StorageError, NoSpaceError)
"""Errors that name a disk."""


class NameNodes:
    """The NameNodes of a cluster; the one that answered last is asked first, and whom one that does
    not lead names is asked next.
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
        self._addresses = tuple(addresses)
        self._rpc = rpc
        self._timeout_s = timeout_s
        self._retry_for_s = retry_for_s
        self._current = self._addresses[0]
        self._closed = False
        self._name = uuid.uuid4().hex
        self._sessions = 0
        self._idle: list[Once] = []

    @property
    def closed(self) -> bool:
        """True once `close` was called."""
        return self._closed

    def close(self) -> None:
        """Refuse every further call, also those that are being tried again."""
        self._closed = True

    async def call(
        self,
        method: Method[Q, A],
        request: Q,
        *,
        retry_for_s: float | None = None,
    ) -> A:
        """Ask until a NameNode answers.

        The request is sent again also when the outcome of the last try is unknown, so it must be
        one that may arrive twice without harm: by itself, or by its name (`call_once`).

        Raises:
            PaxosBlockError: what the NameNode answered, if asking again cannot help.
            InvalidRequestError: the client is closed.
            UnavailableError, NotLeaderError, NotReadyError: nobody could serve it in time; nothing
                was done.
            NoSpaceError: the NameNodes' disks are full; nothing was done.
            OutcomeUnknownError, DeadlineError: one of the tries may or may not have done it.
        """
        return await self.call_anew(method, lambda: request, retry_for_s=retry_for_s)

    async def call_anew(
        self,
        method: Method[Q, A],
        make: Callable[[], Q],
        *,
        retry_for_s: float | None = None,
    ) -> A:
        """Like `call`, with a request that is made anew for each try, as it tells how long ago
        something was.
        """
        patience_s = self._retry_for_s if retry_for_s is None else retry_for_s
        # What is never repeated may still take as long as any call.
        backoff = Backoff(patience_s or self._timeout_s, LONGEST_PAUSE_S)
        gravest: PaxosBlockError | None = None
        while True:
            try:
                return await self._ask_each(method, make, backoff)
            except NoSpaceError as error:
                if gravest is None or not _leaves_doubt(gravest, error):
                    raise
                raise _graver(gravest, error) from error
            except _TRY_AGAIN as error:
                gravest = _graver(gravest, error)
            if patience_s:
                _log.debug("%s: %s; trying again", method.name, gravest)
                await backoff.pause()
            if not patience_s or backoff.left_s < LEAST_S:
                raise gravest from gravest.__cause__

    async def call_once(self, method: Method[Q, A], make: Callable[[Once], Q]) -> A:
        """Ask for a change until a NameNode answers; it is made once however often that takes.

        `make` makes the request with the name it gets. Raises what `call` does; the outcome is
        unknown only when nobody answered in time.
        """
        # A session has one request under way: as many sessions as calls side by side.
        latest = self._idle.pop() if self._idle else self._new_session()
        once = Once(latest.session, latest.sequence + 1)
        try:
            return await self.call(method, make(once))
        finally:
            # What was given up may still be under way. Once a later one is done, it is refused.
            self._idle.append(once)

    def _new_session(self) -> Once:
        self._sessions += 1
        return Once(f"{self._name}-{self._sessions}", 0)

    async def _ask_each(self, method: Method[Q, A], make: Callable[[], Q], backoff: Backoff) -> A:
        """Ask every NameNode once, beginning with the one that answered last.

        The one that leads need not be among those we were given.
        """
        if self._closed:
            raise InvalidRequestError("the client is closed")
        gravest: PaxosBlockError | None = None
        asked: list[str] = []
        waiting: tuple[str, ...] = (self._current,)
        while waiting:
            self._current = waiting[0]
            asked.append(self._current)
            timeout_s = min(self._timeout_s, max(LEAST_S, backoff.left_s))
            try:
                return await self._ask(self._current, method, make(), timeout_s)
            except NoSpaceError as error:
                if gravest is None or not _leaves_doubt(gravest, error):
                    raise
                raise _graver(gravest, error) from error
            except _TRY_AGAIN as error:
                gravest = _graver(gravest, error)
                waiting = tuple(each for each in self._after(error) if each not in asked)
        assert gravest is not None, "somebody was asked"
        raise gravest

    async def _ask(self, address: str, method: Method[Q, A], request: Q, timeout_s: float) -> A:
        """Ask one of them. Of one that hangs while another one leads nothing is expected any more.

        Raises what `RpcClient.call` does; to give up waiting leaves the outcome unknown.
        """
        call = asyncio.ensure_future(
            self._rpc.call(address, method.name, request, method.answer, timeout_s)
        )
        try:
            await asyncio.wait((call,), timeout=SILENT_AFTER_S)
            while not call.done():
                if leader := await self._leader_instead_of(address, call):
                    hangs = f"{method.name} of {address}: it hangs, and {leader} leads now"
                    raise DeadlineError(hangs, address=address, leader=leader)
                await asyncio.wait((call,), timeout=ALIVE_FOR_S)
            return call.result()
        finally:
            call.cancel()

    async def _leader_instead_of(self, address: str, call: asyncio.Future[A]) -> str:
        """Return who serves while the NameNode at `address` does not even say how it is.

        "" once it does, or once its `call` is over, if nobody did until then.
        """
        others = [each for each in self._addresses if each != address]
        sign = asyncio.ensure_future(self._status(address, self._timeout_s))
        try:
            await asyncio.wait((call, sign), timeout=SILENT_AFTER_S, return_when=FIRST_COMPLETED)
            patience_s = SILENT_AFTER_S
            while not call.done() and not (sign.done() and sign.result()):
                if (leader := await self._serving(others, patience_s)) and not call.done():
                    return leader
                await asyncio.wait((call,), timeout=LOOKS_EVERY_S)
                patience_s = min(2 * patience_s, ALIVE_FOR_S)
            return ""
        finally:
            sign.cancel()

    async def _serving(self, addresses: Sequence[str], timeout_s: float) -> str:
        """Ask these in parallel; return the one that leads, of several the latest, or ""."""
        seen = await asyncio.gather(*(self._status(each, timeout_s) for each in addresses))
        found = zip(seen, addresses, strict=True)
        leading = [(status.term, each) for status, each in found if status and status.serves]
        return max(leading, default=(0, ""))[1]

    async def _status(self, address: str, timeout_s: float) -> NameNodeStatus | None:
        """Return what a NameNode says of itself; None of one that does not answer."""
        question = NAMENODE_STATUS.name, NameNodeStatusRequest(), NAMENODE_STATUS.answer
        try:
            return await self._rpc.call(address, *question, timeout_s)
        except PaxosBlockError:
            return None

    def _after(self, error: PaxosBlockError) -> tuple[str, ...]:
        """Return whom to ask after this answer: the leader it names, then those next in line."""
        known = self._addresses
        place = known.index(self._current) + 1 if self._current in known else 0
        leader = str(error.details.get("leader", ""))
        return (*([leader] if leader else []), *known[place:], *known[:place])


def _graver(before: PaxosBlockError | None, now: PaxosBlockError) -> PaxosBlockError:
    """Return what to report of tries that failed: what tells most about the cause.

    A later refusal does not undo what an earlier try may have done, but it may tell why there is
    no answer; a later silence tells nothing new.
    """
    if before is None:
        return now
    if before.outcome is now.outcome:
        news = _tells(now) - _tells(before)
        return now if news > 0 or (news == 0 and not isinstance(now, DeadlineError)) else before
    unknown, refused = (before, now) if before.outcome is Outcome.UNKNOWN else (now, before)
    told = isinstance(unknown.__cause__, _DISK) or str(refused) in str(unknown)
    if told or not isinstance(refused, _DISK):
        return unknown
    explained = type(unknown)(f"{unknown}; {refused}", **unknown.details)
    explained.__cause__ = refused
    return explained


def _leaves_doubt(before: PaxosBlockError, now: NoSpaceError) -> bool:
    """True if an earlier try may have been done: a NameNode that names its own full disk says
    nothing about that.
    """
    return before.outcome is Outcome.UNKNOWN and "address" in now.details


def _tells(error: PaxosBlockError) -> int:
    """Return how much an error says about why it came to this."""
    if isinstance(error, _DISK) or isinstance(error.__cause__, _DISK):
        return 2
    return 0 if isinstance(error, DeadlineError) else 1
