"""The client's end of a connection for control calls: many under way, each with its time-out."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any, Final, cast

import msgspec

from paxosblock.base.decoders import MALFORMED
from paxosblock.errors import (
    DeadlineError,
    OutcomeUnknownError,
    PaxosBlockError,
    ProtocolError,
    UnavailableError,
)
from paxosblock.host.due_timer import DueTimer
from paxosblock.net.calls.call_frames import (
    CALLS_PATH,
    NAME_BYTES_MAX,
    NUMBER_MAX,
    UPGRADE,
    CallFrame,
    CallFrameKind,
    CallFrames,
    pack,
)
from paxosblock.net.calls.control import split_address
from paxosblock.net.port import upgrade
from paxosblock.net.port.access import OPEN, Access
from paxosblock.net.wire import decode_error

_ANSWER: Final = CallFrameKind.ANSWER


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
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._frames = CallFrames()
        self._numbers = itertools.count(1)
        self._pending: dict[int, _PendingCall] = {}
        self._unsent: list[bytes] = []
        self._timer = DueTimer(self._give_up_due)
        self._heard_s = self._used_s = self._loop.time()
        self._leaving = False
        """True if no further call may be sent."""
        self._ended_by = "the node"
        self._closed = asyncio.Event()

    def takes_calls(self, idle_s: float) -> bool:
        """True if a further call may be sent; False if nothing was sent for `idle_s`."""
        if self._leaving:
            return False
        return bool(self._pending) or self._loop.time() - self._used_s < idle_s

    def send(self, question: OutgoingCall, due_s: float = 0) -> asyncio.Future[Any]:
        """Send a call; return a future that gets the answer, or the error.

        The call is given up at `due_s` by the clock of the loop; 0: after its time-out.

        Calls that are sent in one turn of the loop leave together.
        """
        now_s = self._loop.time()
        answer: asyncio.Future[Any] = self._loop.create_future()
        number = next(self._numbers)
        if self._leaving:  # the connection was lost while this caller waited for it to open
            answer.set_exception(self._error(UnavailableError, question, "connection lost"))
            return answer
        method, name = question.method.encode(), question.name.encode()[:NAME_BYTES_MAX]
        frame = pack(CallFrameKind.CALL, number, question.body, method, name)
        due_s = due_s or now_s + question.timeout_s
        self._pending[number] = _PendingCall(question, answer, now_s, due_s)
        self._used_s = now_s
        # No number comes twice on a connection: the next call takes another one.
        self._leaving = number == NUMBER_MAX
        self._timer.set_by(due_s)
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(frame)
        return answer

    def retire(self) -> None:
        """Send nothing more; close when the calls under way are over."""
        self._leaving = True
        if not self._pending:
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
        self._frames.feed(data)
        try:
            while (frame := self._frames.next()) is not None:
                self._received(frame)
        except PaxosBlockError as error:
            self._fail(ProtocolError, f"it does not answer in frames: {error}")
            self._abort()
        if self._leaving and not self._pending:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leaving = True
        self._transport = None
        # Not UnavailableError: the node may have done what it was asked, and lost only the answer.
        self._fail(OutcomeUnknownError, f"connection lost: {exc or f'closed by {self._ended_by}'}")
        self._timer.cancel()
        self._closed.set()
        self._on_lost(self)

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if unsent and self._transport is not None:
            self._transport.write(b"".join(unsent))

    def _abort(self) -> None:
        self._leaving = True
        if self._transport is not None:
            self._transport.abort()

    # -- answers ----------------------------------------------------------------------------------

    def _received(self, frame: CallFrame) -> None:
        if frame.kind is CallFrameKind.GOODBYE:
            self._goodbye(frame)
            return
        pending = self._pending.pop(frame.number, None)
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

    def _goodbye(self, frame: CallFrame) -> None:
        """Handle the end of a connection: the node takes no calls after the number in `frame`."""
        self._leaving = True
        why = decode_error(frame.payload)
        # The node began none of these, so they may be sent again; the others are still answered.
        for number in [number for number in self._pending if number > frame.number]:
            pending = self._pending.pop(number)
            if not pending.answer.done():
                error = self._error(UnavailableError, pending.question, str(why))
                pending.answer.set_exception(error)

    def _fail(self, kind: type[PaxosBlockError], why: str) -> None:
        pending, self._pending = self._pending, {}
        for each in pending.values():
            if not each.answer.done():
                each.answer.set_exception(self._error(kind, each.question, why))

    def _error(
        self, kind: type[PaxosBlockError], question: OutgoingCall, why: str
    ) -> PaxosBlockError:
        return kind(f"{question.method} of {self.address}: {why}", address=self.address)

    # -- time-outs: one timer for all calls -------------------------------------------------------

    def _give_up_due(self) -> None:
        """Give up the calls that are due. A connection on which nothing came is not used again."""
        now_s = self._loop.time()
        late = [number for number, each in self._pending.items() if each.due_s <= now_s]
        for number in late:
            pending = self._pending.pop(number)
            if self._heard_s <= pending.sent_s:  # the clock of uvloop stands still within a turn
                self._leaving = True
            if not pending.answer.done():
                why = f"no answer in {pending.question.timeout_s:.3g} s"
                pending.answer.set_exception(self._error(DeadlineError, pending.question, why))
        if self._pending:
            self._timer.set_by(min(each.due_s for each in self._pending.values()))
        elif self._leaving:
            self._abort()


async def open_link(
    address: str,
    timeout_s: float,
    on_lost: Callable[[CallLink], None],
    access: Access = OPEN,
) -> CallLink:
    """Connect to the node at `address`. Raises what `split_address` and `upgrade.call` do."""
    host, port = split_address(address)
    sock, _ = await upgrade.call(
        host,
        port,
        CALLS_PATH,
        UPGRADE,
        {},
        timeout_s=timeout_s,
        tune=lambda _: None,
        access=access,
    )
    link = CallLink(address, on_lost)
    await asyncio.get_running_loop().create_connection(lambda: link, sock=sock)
    return link
