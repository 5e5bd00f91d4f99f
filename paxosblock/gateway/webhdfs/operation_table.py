"""The operations of WebHDFS: those that a gateway has, and those that it refuses by name."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from paxosblock.client.async_client import AsyncClient
from paxosblock.gateway.budget import Budget, reader_bytes, writer_bytes
from paxosblock.gateway.exchange import ARRIVED_BYTES, Answer, Exchange
from paxosblock.gateway.user_clients import UserClient
from paxosblock.gateway.webhdfs.parameters import Parameters
from paxosblock.gateway.webhdfs.remote_exceptions import HadoopError, JavaError


@dataclass(frozen=True, slots=True)
class HadoopCall:
    """One operation as it was asked for."""

    exchange: Exchange
    path: str
    query: str
    """The parameters as they came."""
    parameters: Parameters
    user: str
    proven: bool
    """The user brought a token."""
    client: UserClient
    budget: Budget
    stack: contextlib.AsyncExitStack
    """The resources that it holds until its answer was sent."""

    @property
    def fs(self) -> AsyncClient:
        """The cluster, as the user sees it."""
        return self.client.fs

    async def hold_to_read(self, size_bytes: int = sys.maxsize) -> None:
        """Hold room to read so many bytes until the answer was sent. Raises as `Budget.hold`."""
        held_bytes = reader_bytes(self.fs.config, size_bytes)
        await self.stack.enter_async_context(self.budget.hold(held_bytes))

    async def hold_to_write(self) -> None:
        """Hold room to write the body until the answer was sent. Raises as `Budget.hold`."""
        length = self.exchange.headers.get("Content-Length")
        held_bytes = writer_bytes(self.fs.config, sys.maxsize if length is None else int(length))
        await self.stack.enter_async_context(self.budget.hold(held_bytes, ARRIVED_BYTES))


Run = Callable[[HadoopCall], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class HadoopOperation:
    """An operation that a gateway has; the docstring of `run` says what it does."""

    name: str
    verb: str
    run: Run
    success: Callable[[HadoopCall], Answer] | None = None
    """The answer to one that was done; None if one that is sent again hears the same as before."""


OPERATIONS: Final[dict[str, HadoopOperation]] = {}
"""The operations by name."""

LACKING: Final[dict[str, str]] = {
    "CREATESYMLINK": "PUT",
    "DISABLEECPOLICY": "PUT",
    "DISALLOWSNAPSHOT": "PUT",
    "ENABLEECPOLICY": "PUT",
    "GETALLSTORAGEPOLICY": "GET",
    "GETECCODECS": "GET",
    "GETECPOLICIES": "GET",
    "GETECPOLICY": "GET",
    "GETLINKTARGET": "GET",
    "GETSNAPSHOTDIFFLISTING": "GET",
    "GETSNAPSHOTLIST": "GET",
    "GETSNAPSHOTTABLEDIRECTORYLIST": "GET",
    "GETSTORAGEPOLICY": "GET",
    "GET_BLOCK_LOCATIONS": "GET",
    "SATISFYSTORAGEPOLICY": "PUT",
    "SETECPOLICY": "PUT",
    "SETQUOTABYSTORAGETYPE": "PUT",
    "SETSTORAGEPOLICY": "PUT",
    "UNSETECPOLICY": "POST",
    "UNSETSTORAGEPOLICY": "POST",
}
"""Hadoop's operations that a gateway lacks: they are refused by name, and nothing is done."""


def operation(
    name: str, verb: str, success: Callable[[HadoopCall], Answer] | None = None
) -> Callable[[Run], Run]:
    """Let a function be the operation of this name and method of HTTP."""

    def note(run: Run) -> Run:
        OPERATIONS[name] = HadoopOperation(name, verb, run, success)
        return run

    return note


def operation_of(name: str, verb: str) -> HadoopOperation:
    """Return the operation that a request names.

    Raises:
        HadoopError: there is none, or it is asked for by another method, or it is lacking.
    """
    wanted = name.upper()
    found = OPERATIONS.get(wanted)
    if found is not None and found.verb == verb:
        return found
    if LACKING.get(wanted) == verb:
        raise HadoopError(JavaError.UNSUPPORTED, f"{wanted} is not supported by this gateway")
    shown = name[:40].encode("unicode_escape").decode()
    words = f'Invalid value for webhdfs parameter "op": {verb} has no operation {shown!r}'
    raise HadoopError(JavaError.ILLEGAL_ARGUMENT, words)
