"""The search for the NameNode that leads: which to ask, which one next, for how long.

It does no I/O. It awaits only the methods of a `Shell` and nothing of an event loop, so that a
command can run the same search without one, where no await suspends it (`control.py`).
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar

from paxosblock.api.methods import Method, Once
from paxosblock.api.status import NAMENODE_STATUS, NameNodeStatus, NameNodeStatusRequest
from paxosblock.base.jitter import JITTER
from paxosblock.errors import (
    DeadlineError,
    InvalidRequestError,
    NoSpaceError,
    NotLeaderError,
    Outcome,
    PaxosBlockError,
    SafeModeError,
    StorageError,
    UnavailableError,
)

if TYPE_CHECKING:
    import asyncio
    from concurrent import futures

Q = TypeVar("Q")
A = TypeVar("A")

Call: TypeAlias = "asyncio.Future[A] | futures.Future[A]"

FIRST_PAUSE_S: Final = 0.01

LONGEST_PAUSE_S: Final = 0.2
"""An election takes about half a second; the first call after it should not sleep through it."""

SILENT_AFTER_S: Final = 0.25
"""Silence after which the search asks all NameNodes which of them leads; an answer may well take
longer. One that does not report its state for this long again is given up as soon as another one
leads.
"""

LOOKS_EVERY_S: Final = 0.15
"""Seconds until the others are asked again while none of them leads."""

LIST_EVERY_S: Final = 10.0
"""Seconds between two questions for the list of NameNodes, of a client that makes calls."""

ALIVE_FOR_S: Final = 1.0
"""Seconds that a NameNode that reported its state may take, and that the others may take to report
theirs."""

LEAST_S: Final = 0.5
"""The least seconds for a try: with less, its failure would only say that the time was up."""

_log = logging.getLogger(__name__)

_DISK = (StorageError, NoSpaceError)
"""Errors that name a disk."""


class Shell(Protocol):
    """The shell that asks and waits for a search. A call is a future of asyncio or of a thread."""

    def now_s(self) -> float:
        """Return the time of a clock that runs evenly."""

    def ask(self, address: str, method: Method[Q, A], request: Q, timeout_s: float) -> Call[A]:
        """Send a request to this NameNode; its answer may take `timeout_s`."""

    async def wait(
        self, calls: Sequence[Call[Any]], within_s: float | None = None, *, every: bool = False
    ) -> None:
        """Return once one of the calls is done, or every one; at the latest after `within_s`."""

    async def pause(self, seconds: float) -> None:
        """Return after this long."""


class LeaderSearch:
    """The NameNodes of a cluster. The search asks first the one that answered last, and next the
    one that a NameNode that does not lead names.

    A call that any of them can answer goes to one that is chosen at random, so that clients spread,
    and to others if that one does not answer.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        shell: Shell,
        timeout_s: float,
        retry_for_s: float,
    ) -> None:
        """Know at least one of them by its address.

        A single call may take `timeout_s`, all tries of a request together `retry_for_s`, also
        where no process listens: a NameNode may be starting.
        """
        self._addresses = self._given = tuple(addresses)
        self._shell = shell
        self._timeout_s = timeout_s
        self.retry_for_s = retry_for_s
        self._leads = self._addresses[0]
        self._shows = JITTER.choice(self._addresses)
        self._look: Call[NameNodeStatus] | None = None
        """A question for the list of NameNodes that is under way."""
        self._look_next_s = 0.0
        self.closed = False
        """Set to True to refuse every further try."""

    async def run(
        self, method: Method[Q, A], make: Callable[[], Q], retry_for_s: float | None = None
    ) -> A:
        """Ask until a NameNode answers; `make` makes the request for each try.

        The request is sent again even when the outcome of the last try is unknown, so it must be
        able to arrive twice without harm: by itself, or by its name (`Sessions`).

        Raises:
            PaxosBlockError: what the NameNode answered, if asking again cannot help. Its outcome
                is unknown if that of an earlier try is: it may be on its way still.
            InvalidRequestError: the search is closed.
            UnavailableError, NotLeaderError, NotReadyError: no NameNode could serve it in time;
                nothing was done.
            NoSpaceError: the NameNodes' disks are full; nothing was done.
            OutcomeUnknownError, DeadlineError: one of the tries may or may not have done it.
        """
        shell = self._shell
        patience_s = self.retry_for_s if retry_for_s is None else retry_for_s
        # A request that is never repeated may still take as long as any call.
        now_s = shell.now_s()
        until_s = now_s + (patience_s or self._timeout_s)
        if not self._look_next_s:
            self._look_next_s = now_s + LIST_EVERY_S
        elif now_s >= self._look_next_s:
            self._learn_list(now_s)
        pauses = pauses_s(LONGEST_PAUSE_S)
        gravest: PaxosBlockError | None = None
        while not self.closed:
            try:
                return await self._ask_each(method, make, until_s)
            except PaxosBlockError as error:
                if not _may_succeed_later(error):
                    _share_doubt(gravest, error)
                    raise
                gravest = _graver(gravest, error)
            left_s = until_s - shell.now_s()
            if patience_s:
                _log.debug("%s: %s; trying again", method.name, gravest)
                await shell.pause(max(0.0, min(next(pauses), left_s)))
            if not patience_s or until_s - shell.now_s() < LEAST_S:
                raise gravest from gravest.__cause__
        if gravest is not None and gravest.outcome is Outcome.UNKNOWN:
            raise gravest from gravest.__cause__
        raise InvalidRequestError("the client is closed")

    def _learn_list(self, now_s: float) -> None:
        """Ask the one that leads for the list of NameNodes, which may change while they run, and
        take over what it answered the last time."""
        look, self._look_next_s = self._look, now_s + LIST_EVERY_S
        if look is not None and (status := _heard(look)) is not None and status.members:
            # Those that we were given come last: they may have gone, or be other names of the same.
            self._addresses = tuple(dict.fromkeys((*status.members, *self._given)))
        request = NameNodeStatusRequest()
        self._look = self._shell.ask(self._leads, NAMENODE_STATUS, request, self._timeout_s)
        self._look.add_done_callback(_heard)  # else its failure would be called lost

    async def _ask_each(self, method: Method[Q, A], make: Callable[[], Q], until_s: float) -> A:
        """Ask every NameNode once, beginning with the one that answered last.

        The one that leads need not be among those we were given.
        """
        gravest: PaxosBlockError | None = None
        asked: list[str] = []
        waiting: tuple[str, ...] = (self._shows if method.any_namenode else self._leads,)
        while waiting:
            address = waiting[0]
            if method.any_namenode:
                self._shows = address
            else:
                self._leads = address
            asked.append(address)
            timeout_s = min(self._timeout_s, max(LEAST_S, until_s - self._shell.now_s()))
            try:
                return await self._ask(address, method, make(), timeout_s)
            except PaxosBlockError as error:
                if not _may_succeed_later(error):
                    _share_doubt(gravest, error)
                    raise
                gravest = _graver(gravest, error)
                waiting = tuple(each for each in self._after(address, error) if each not in asked)
                if self._shows == address and waiting and not isinstance(error, NotLeaderError):
                    self._shows = waiting[0]  # even if it only shows things: it may hang or be gone
        assert gravest is not None, "a NameNode was asked"
        raise gravest

    async def _ask(self, address: str, method: Method[Q, A], request: Q, timeout_s: float) -> A:
        """Ask one of them. Expect nothing more of one that hangs while another one leads.

        Raises what the call does; giving up leaves the outcome unknown.
        """
        shell = self._shell
        others = [each for each in self._addresses if each != address]
        call = shell.ask(address, method, request, timeout_s)
        try:
            await shell.wait((call,), SILENT_AFTER_S + method.waits_s if others else None)
            while not call.done():
                if leader := await _leader_instead_of(shell, address, others, call, timeout_s):
                    hangs = f"{method.name} of {address}: it hangs, and {leader} leads now"
                    raise DeadlineError(hangs, address=address, leader=leader)
                await shell.wait((call,), ALIVE_FOR_S)
            return call.result()
        finally:
            call.cancel()

    def _after(self, address: str, error: PaxosBlockError) -> tuple[str, ...]:
        """Return whom to ask after this answer: the leader that it names, then the next ones.

        Only the leader reports safe mode; the others' answers that they do not lead would hide it.
        """
        if isinstance(error, SafeModeError):
            return ()
        known = self._addresses
        place = known.index(address) + 1 if address in known else 0
        leader = str(error.details.get("leader", ""))
        return (*([leader] if leader else []), *known[place:], *known[:place])


async def _leader_instead_of(
    shell: Shell, address: str, others: Sequence[str], call: Call[A], timeout_s: float
) -> str:
    """Return the NameNode that serves while the one at `address` does not even report its state.

    Return "" once that one reports it, or once its `call` is over, if no other served until then.
    """
    sign = shell.ask(address, NAMENODE_STATUS, NameNodeStatusRequest(), timeout_s)
    try:
        await shell.wait((call, sign), SILENT_AFTER_S)
        patience_s = SILENT_AFTER_S
        while not call.done() and not _heard(sign):
            if (leader := await _serving(shell, others, patience_s)) and not call.done():
                return leader
            await shell.wait((call,), LOOKS_EVERY_S)
            patience_s = min(2 * patience_s, ALIVE_FOR_S)
        return ""
    finally:
        _heard(sign)
        sign.cancel()


async def _serving(shell: Shell, addresses: Sequence[str], timeout_s: float) -> str:
    """Ask these at once; return the one that leads, the latest if several do, or ""."""
    question = NAMENODE_STATUS, NameNodeStatusRequest()
    asked = [shell.ask(each, *question, timeout_s) for each in addresses]
    try:
        await shell.wait(asked, every=True)
        seen = zip(map(_heard, asked), addresses, strict=True)
        leading = [(status.term, each) for status, each in seen if status and status.serves]
        return max(leading, default=(0, ""))[1]
    finally:
        for each in asked:
            each.cancel()


def _heard(call: Call[A]) -> A | None:
    """Return the answer; None if there is none yet, or it is an error."""
    with suppress(PaxosBlockError):
        return call.result() if call.done() and not call.cancelled() else None
    return None


class Sessions:
    """Names requests, so that each is done once however often it is sent."""

    def __init__(self) -> None:
        """A session has one request under way: there are as many sessions as calls side by side."""
        self._name = os.urandom(16).hex()
        self._numbers = itertools.count(1)
        self._idle: list[Once] = []

    @contextmanager
    def once(self) -> Iterator[Once]:
        """Name the request that the block makes."""
        latest = self._idle.pop() if self._idle else Once(f"{self._name}-{next(self._numbers)}", 0)
        once = Once(latest.session, latest.sequence + 1)
        try:
            yield once
        finally:
            # A request that was given up may still be under way. Once a later one of the session is
            # done, the NameNode refuses it.
            self._idle.append(once)


def pauses_s(longest_s: float) -> Iterator[float]:
    """Yield seconds between tries, doubled from 10 ms up to `longest_s`, and each shortened at
    random by up to a quarter, so that clients do not keep in step.
    """
    pause_s = FIRST_PAUSE_S
    while True:
        yield pause_s * (1 - JITTER.random() / 4)
        pause_s = min(2 * pause_s, longest_s)


def _may_succeed_later(error: PaxosBlockError) -> bool:
    """True if the error is not about the request itself. A full disk of one NameNode is no reason
    to give up; but a caller that asked for a block must hear that DataNodes have no room.
    """
    if isinstance(error, NoSpaceError):
        return error.of_namenode
    return error.retriable or isinstance(error, StorageError)


def _share_doubt(before: PaxosBlockError | None, final: PaxosBlockError) -> None:
    """Make the error that ends the search say UNKNOWN if that of earlier tries does. A refusal does
    not undo what they may have done, or may yet do: a copy can be late.
    """
    if before is not None and before.outcome is Outcome.UNKNOWN:
        final.with_outcome(Outcome.UNKNOWN)


def _graver(before: PaxosBlockError | None, now: PaxosBlockError) -> PaxosBlockError:
    """Return the error to report for tries that failed: the one that says most about the cause.

    A later refusal does not undo what an earlier try may have done, but it may say why there is no
    answer; a later silence says nothing new.
    """
    if before is None:
        return now
    if before.outcome is now.outcome:
        news = _tells(now) - _tells(before)
        return now if news > 0 or (news == 0 and not isinstance(now, DeadlineError)) else before
    unknown, refused = (before, now) if before.outcome is Outcome.UNKNOWN else (now, before)
    included = isinstance(unknown.__cause__, _DISK) or str(refused) in str(unknown)
    if included or not isinstance(refused, _DISK):
        return unknown
    explained = unknown.reworded(f"{unknown}; {refused}")
    explained.__cause__ = refused
    return explained


def _tells(error: PaxosBlockError) -> int:
    """Rank errors by how well they explain why no NameNode serves: broken, not leading, or gone."""
    if isinstance(error, _DISK) or isinstance(error.__cause__, _DISK):
        return 3
    silent = isinstance(error, DeadlineError)
    return 0 if silent else 1 if isinstance(error, UnavailableError) else 2
