"""Control calls: a node's table of them, and the client's end.

Calls are sent as frames (`call_frames.py`), many at once on one connection. A call has a name, by
which the logs of both sides refer to it; calls made while a call is answered keep its name
(`REQUEST_ID`). `POST /rpc/<method>` answers the same calls for people (`call_http.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar

import msgspec

from paxosblock.api.methods import encode
from paxosblock.base.decoders import MALFORMED, msgpack_decoder
from paxosblock.base.units import MIB
from paxosblock.errors import (
    InvalidRequestError,
    Outcome,
    OutcomeUnknownError,
    PaxosBlockError,
    ProtocolError,
    UnavailableError,
)
from paxosblock.net.calls.call_link import CallLink, OutgoingCall, open_link
from paxosblock.net.calls.call_names import new_name
from paxosblock.net.port.access import OPEN, Access

Q = TypeVar("Q")
A = TypeVar("A")

REQUEST_ID: ContextVar[str] = ContextVar("paxosblock_request_id")
"""The name of the call that is being answered."""
IDLE_S: Final = 30.0
"""A connection that was not used for so many seconds is replaced: a router in between may have
forgotten it, and the next call would wait for its time-out."""

_ENCODER = msgspec.msgpack.Encoder()
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServedMethod:
    """One call that a node answers."""

    method: str
    decoder: msgspec.msgpack.Decoder[Any]
    handler: Callable[[Any], Awaitable[object]]
    at_once: bool
    request_bytes_max: int


class RpcRouter:
    """The calls that a node answers, by their names."""

    def __init__(self) -> None:
        """Start without calls; calls may be registered while others are answered already."""
        self._methods: dict[str, ServedMethod] = {}

    def register(
        self,
        method: str,
        request_type: type[Q],
        handler: Callable[[Q], Awaitable[object]],
        *,
        at_once: bool = False,
        request_bytes_max: int = MIB,
    ) -> None:
        """Let `handler` answer the calls of `method`; it gets a `request_type`.

        A request of more than `request_bytes_max` is refused before anything is made of it.
        `at_once`: begin it where its frame is read, and run it without a task
        (`inline_coroutines.py` says what it must not do then).
        """
        assert method not in self._methods
        decoder = msgpack_decoder(request_type)
        self._methods[method] = ServedMethod(method, decoder, handler, at_once, request_bytes_max)

    def find(self, method: str) -> ServedMethod:
        """Return the row of a call.

        Raises:
            ProtocolError: there is no such call.
        """
        found = self._methods.get(method)
        if found is None:
            strange = ProtocolError(f"there is no control call {method!r} on this node")
            raise strange.with_outcome(Outcome.NEVER)
        return found


async def answer(call: ServedMethod, name: str, body: bytes | bytearray) -> bytes:
    """Return the msgpack of the answer to a call, which is called `name` in the logs.

    Raises:
        PaxosBlockError: the error that the caller gets instead.
    """
    REQUEST_ID.set(name)
    if len(body) > call.request_bytes_max:
        raise InvalidRequestError(
            f"a request of {call.method} with {len(body)} bytes: at most {call.request_bytes_max}"
        )
    try:
        request = call.decoder.decode(body)
    except MALFORMED as error:
        raise InvalidRequestError(f"malformed request of {call.method}: {error}") from error
    try:
        return _ENCODER.encode(await call.handler(request))
    except PaxosBlockError:
        raise
    except Exception as error:
        _log.exception("%s: %s failed", name, call.method)
        reason = f"internal error in {call.method}; the node's log tells more"
        raise OutcomeUnknownError(reason, request=name) from error


class RpcClient:
    """The client's end: it keeps connections open and raises every failure as one of our errors."""

    def __init__(self, access: Access = OPEN) -> None:
        """Start without connections; both ends of one prove the secret of `access`."""
        self.access = access
        self._links: dict[str, CallLink] = {}
        self._open: set[CallLink] = set()
        """These, and others on which a call is still under way."""
        self._connecting: dict[str, asyncio.Task[CallLink]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        tries = tuple(self._connecting.values())
        for trying in tries:
            trying.cancel()
        await asyncio.gather(*tries, return_exceptions=True)
        self._links.clear()
        links = tuple(self._open)
        for link in links:
            link.close()
        for link in links:
            await link.wait_closed()

    async def call(
        self, address: str, method: str, request: object, response_type: type[A], timeout_s: float
    ) -> A:
        """Ask the node at `address` (host:port); every error names it and the method.

        Raises:
            InvalidRequestError: the request cannot be encoded.
            UnavailableError: the node cannot be reached; nothing was done.
            OutcomeUnknownError: the connection broke after the request was sent.
            DeadlineError: no answer within `timeout_s`; the request may have happened.
            ProtocolError: something else than a paxosblock node answers there.
            PaxosBlockError: what the node itself reported.
        """
        return await self.send(address, method, request, response_type, timeout_s)

    def send(
        self, address: str, method: str, request: object, response_type: type[A], timeout_s: float
    ) -> asyncio.Future[A]:
        """Ask as `call`, and return a future that gets the answer, or its error.

        Raises InvalidRequestError at once. Cancelling the future leaves the outcome unknown.
        """
        body = encode(request)
        name = REQUEST_ID.get(None) or new_name()
        question = OutgoingCall(method, name, body, msgpack_decoder(response_type), timeout_s)
        link = self._links.get(address)
        if link is not None and link.takes_calls(IDLE_S):
            return link.send(question)
        return asyncio.ensure_future(self._connect_and_send(address, question))

    async def _connect_and_send(self, address: str, question: OutgoingCall) -> Any:
        due_s = asyncio.get_running_loop().time() + question.timeout_s
        link = await self._connected(address, question)
        return await link.send(question, due_s)

    async def _connected(self, address: str, question: OutgoingCall) -> CallLink:
        """Return a connection; all callers meanwhile share one try, and its failure."""
        trying = self._connecting.get(address)
        if trying is None:
            trying = asyncio.create_task(self._connect(address, question.timeout_s / 2))
            self._connecting[address] = trying
            trying.add_done_callback(lambda tried: self._tried(address, tried))
        try:
            async with asyncio.timeout(question.timeout_s / 2):
                return await asyncio.shield(trying)
        except PaxosBlockError as error:
            reason = str(error).removeprefix(f"{address} ")
            raise error.reworded(f"{question.method} of {address}: {reason}") from error
        except TimeoutError as error:
            late = f"{question.method} of {address}: cannot be reached in time"
            raise UnavailableError(late, address=address) from error
        except asyncio.CancelledError:
            if trying.cancelled():  # by `close`: the caller itself was not cancelled
                raise UnavailableError("the client is closed") from None
            raise

    def _tried(self, address: str, tried: asyncio.Task[CallLink]) -> None:
        del self._connecting[address]
        if not tried.cancelled() and tried.exception() is None:
            before, self._links[address] = self._links.get(address), tried.result()
            if before is not None:
                before.retire()

    async def _connect(self, address: str, timeout_s: float) -> CallLink:
        link = await open_link(address, timeout_s, self._open.discard, self.access)
        self._open.add(link)
        return link
