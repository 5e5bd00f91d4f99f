"""The caller's end of control calls: many under way on one connection, each with its time-out.

Calls are sent as frames (`message_frames.py`). A call has a name, by which the logs of both sides
refer to it; calls made while a call is answered keep its name (`REQUEST_ID`). `call_server.py` is
the node's end.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Self, TypeVar, cast

import msgspec

from paxosblock.base.encoding import MALFORMED, encode, msgpack_decoder
from paxosblock.errors import (
    DeadlineError,
    OutcomeUnknownError,
    PaxosBlockError,
    ProtocolError,
    UnavailableError,
)
from paxosblock.net import spans
from paxosblock.net.message_frames import (
    NAME_BYTES_MAX,
    MessageFrame,
    MessageFrameKind,
    MessageFrames,
    new_name,
    pack,
)
from paxosblock.net.pending_calls import NUMBER_MAX, PendingCalls
from paxosblock.net.port.access import OPEN, Access
from paxosblock.net.port.caller import REQUEST_ID
from paxosblock.net.port.upgrade import CALLS, close_ends, connect, split_address
from paxosblock.net.wire import decode_error

A = TypeVar("A")

IDLE_S: Final = 30.0
"""A connection that was not used for so many seconds is replaced: a router in between may have
forgotten it, and the next call would wait for its time-out."""

_ANSWER: Final = MessageFrameKind.ANSWER


class OutgoingCall(msgspec.Struct, frozen=True, gc=False):
    """A call, and the way to read its answer."""

    method: str
    name: str
    """The name of the call in the logs of both sides."""
    body: bytes
    decoder: msgspec.msgpack.Decoder[Any]
    timeout_s: float

    def read(self, address: str, payload: bytes | bytearray) -> Any:
        """Return the answer. Raises ProtocolError if these bytes are no answer."""
        try:
            return self.decoder.decode(payload)
        except MALFORMED as error:
            where = f"{self.method} of {address}"
            raise ProtocolError(f"{where}: malformed answer: {error}", address=address) from error

    def refused(self, address: str, payload: bytes | bytearray) -> PaxosBlockError:
        """Return the node's own error, with its origin as a note: the message is for the user."""
        where = f"{self.method} of {address}"
        try:
            error = decode_error(payload)
        except ProtocolError as malformed:
            return ProtocolError(f"{where}: {malformed}")
        if isinstance(error, ProtocolError):  # it is about the node: most likely the port is wrong
            return error.reworded(f"{where}: {error}")
        error.add_note(f"{where}, request {self.name}")
        return error


class _PendingCall(msgspec.Struct):
    question: OutgoingCall
    answer: asyncio.Future[Any]
    sent_s: float
    due_s: float


class CallLink(asyncio.Protocol):
    """One connection to a node."""

    def __init__(self, address: str, on_lost: Callable[[CallLink], None]) -> None:
        """To the node at `address` (host:port); `on_lost` is called when the connection is gone."""
        self.address = address
        self.word = ""
        """The token with which it was opened."""
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._frames = MessageFrames()
        self._pending = PendingCalls(self._give_up)
        self._unsent: list[bytes] = []
        self._heard_s = self._used_s = self._loop.time()
        self._leaving = False
        """True if no further call may be sent."""
        self._ended_by = "the node"
        self._closed = asyncio.Event()

    def takes_calls(self, idle_s: float) -> bool:
        """True if a further call may be sent; False if nothing was sent for `idle_s`."""
        if self._leaving:
            return False
        return bool(self._pending.by_number) or self._loop.time() - self._used_s < idle_s

    def send(self, question: OutgoingCall, due_s: float = 0) -> asyncio.Future[Any]:
        """Send a call; return a future that gets the answer, or the error.

        The call is given up at `due_s` by the clock of the loop; 0: after its time-out.

        Calls that are sent in one turn of the loop leave together.
        """
        now_s = self._loop.time()
        answer: asyncio.Future[Any] = self._loop.create_future()
        if self._leaving:  # the connection was lost while this caller waited for it to open
            answer.set_exception(self._error(UnavailableError, question, "connection lost"))
            return answer
        method, name = question.method.encode(), question.name.encode()[:NAME_BYTES_MAX]
        due_s = due_s or now_s + question.timeout_s
        number = self._pending.add(_PendingCall(question, answer, now_s, due_s))
        try:
            frame = pack(MessageFrameKind.CALL, number, question.body, method, name)
        except ProtocolError:
            del self._pending.by_number[number]
            raise
        self._used_s = now_s
        # No number comes twice on a connection: the next call takes another one.
        self._leaving = number == NUMBER_MAX
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(frame)
        return answer

    def retire(self) -> None:
        """Send nothing more; close when the calls under way are over."""
        self._leaving = True
        if not self._pending.by_number:
            self.close()

    def close(self) -> None:
        """Close; the outcome of calls under way is unknown."""
        self._leaving, self._ended_by = True, "this client"
        self._flush()
        if self._transport is not None:
            self._transport.close()

    async def wait_closed(self) -> None:
        """Wait until the connection is gone, and no call is under way."""
        await self._closed.wait()

    # -- the connection ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        self._heard_s = self._loop.time()
        frames = self._frames
        frames.feed(data)
        try:
            while frames.held_bytes and (frame := frames.next()) is not None:
                self._received(frame)
        except PaxosBlockError as error:
            self._fail(ProtocolError, f"it does not answer in frames: {error}")
            self.abort()
        if self._leaving and not self._pending.by_number:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leaving = True
        self._transport = None
        # Not UnavailableError: the node may have done what it was asked, and lost only the answer.
        self._fail(OutcomeUnknownError, f"connection lost: {exc or f'closed by {self._ended_by}'}")
        self._closed.set()
        self._on_lost(self)

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if unsent and self._transport is not None:
            self._transport.write(b"".join(unsent))

    def abort(self) -> None:
        """Close at once; the outcome of calls under way is unknown."""
        self._leaving = True
        if self._transport is not None:
            self._transport.abort()

    # -- answers ----------------------------------------------------------------------------------

    def _received(self, frame: MessageFrame) -> None:
        if frame.kind is MessageFrameKind.GOODBYE:
            self._goodbye(frame)
            return
        pending = self._pending.by_number.pop(frame.number, None)
        if pending is None:  # no caller waits for this answer any more
            return
        question, answer = pending.question, pending.answer
        if answer.done():
            return
        if frame.kind is not _ANSWER:
            answer.set_exception(question.refused(self.address, frame.payload))
            return
        try:
            answer.set_result(question.read(self.address, frame.payload))
        except ProtocolError as error:
            answer.set_exception(error)

    def _goodbye(self, frame: MessageFrame) -> None:
        """Handle the end of a connection: the node takes no calls after the number in `frame`."""
        self._leaving = True
        why = decode_error(frame.payload)
        # The node began none of these, so they may be sent again; the others are still answered.
        calls = self._pending.by_number
        for number in [number for number in calls if number > frame.number]:
            pending = calls.pop(number)
            if not pending.answer.done():
                error = self._error(UnavailableError, pending.question, str(why))
                pending.answer.set_exception(error)

    def _fail(self, kind: type[PaxosBlockError], why: str) -> None:
        for each in self._pending.end():
            if not each.answer.done():
                each.answer.set_exception(self._error(kind, each.question, why))

    def _error(
        self, kind: type[PaxosBlockError], question: OutgoingCall, why: str
    ) -> PaxosBlockError:
        return kind(f"{question.method} of {self.address}: {why}", address=self.address)

    def _give_up(self, pending: _PendingCall) -> None:
        """Give up a call that is due. A connection on which nothing came is not used again."""
        if self._heard_s <= pending.sent_s:  # the clock of uvloop stands still within a turn
            self._leaving = True
        if not pending.answer.done():
            why = f"no answer in {pending.question.timeout_s:.3g} s"
            pending.answer.set_exception(self._error(DeadlineError, pending.question, why))
        if self._leaving and not self._pending.by_number:
            self.abort()


async def open_link(
    address: str,
    timeout_s: float,
    on_lost: Callable[[CallLink], None],
    access: Access = OPEN,
) -> CallLink:
    """Connect to the node at `address`. Raises what `split_address` and `upgrade.connect` do."""
    return await connect(
        *split_address(address),
        CALLS,
        lambda _: CallLink(address, on_lost),
        timeout_s=timeout_s,
        access=access,
    )


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
        """Close the connections, a second later if a node hangs; a later call opens new ones."""
        tries = tuple(self._connecting.values())
        for trying in tries:
            trying.cancel()
        await asyncio.gather(*tries, return_exceptions=True)
        self._links.clear()
        await close_ends(tuple(self._open))

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
        name, span = REQUEST_ID.get(None), None
        if name is None and spans.API in sys.modules:
            name, span = spans.asked(method, address)
        decoder = msgpack_decoder(response_type)
        question = OutgoingCall(method, name or new_name(), body, decoder, timeout_s)
        link = self._links.get(address)
        # A link that was opened with a token is replaced once the token is.
        if (
            link is not None
            and link.takes_calls(IDLE_S)
            and ((own := self.access.token) is None or link.word == own.word)
        ):
            sent = link.send(question)
        else:
            sent = asyncio.ensure_future(self._connect_and_send(address, question))
        if span is not None:
            sent.add_done_callback(partial(_end, span))
        return sent

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
        word = self.access.word
        link = await open_link(address, timeout_s, self._open.discard, self.access)
        link.word = word
        self._open.add(link)
        return link


def _end(span: spans.Span, call: asyncio.Future[Any]) -> None:
    """End the span of a call that was answered, or was not."""
    spans.ended(span, asyncio.CancelledError() if call.cancelled() else call.exception())
