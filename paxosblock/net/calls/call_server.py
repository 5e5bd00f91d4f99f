"""The node's end of control calls (`message_frames.py`): its table of them, and their connections.

`POST /rpc/<method>` answers the same calls for people.

The cost of a connection is bounded: the calls under way on it, the bytes of an incomplete request,
and the answers that its caller does not read. At a bound the node stops reading until there is
room. A caller with many calls at once takes turns with others.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

import msgspec
from aiohttp import web

from paxosblock.base.encoding import MALFORMED, msgpack_decoder
from paxosblock.base.units import KIB, MIB
from paxosblock.errors import (
    InvalidRequestError,
    Outcome,
    OutcomeUnknownError,
    PaxosBlockError,
    ProtocolError,
    UnavailableError,
)
from paxosblock.net import spans
from paxosblock.net.message_frames import (
    MessageFrame,
    MessageFrameKind,
    MessageFrames,
    new_name,
    pack,
)
from paxosblock.net.port import upgrade_server
from paxosblock.net.port.access import OPEN, Access
from paxosblock.net.port.access_server import add_without_token
from paxosblock.net.port.admission import Rank, Slot
from paxosblock.net.port.caller import CALLER, REQUEST_ID, REQUEST_NAME, Caller
from paxosblock.net.port.doorkeeper import Doorkeeper
from paxosblock.net.port.refusals import Refusal
from paxosblock.net.port.request_bodies import PROGRESS_BYTES, RequestBodies
from paxosblock.net.port.unread import UnreadWatch
from paxosblock.net.port.upgrade import CALLS, ERROR_TYPE
from paxosblock.net.wire import encode_error

UNDER_WAY_MAX: Final = 1024
"""Calls of one connection that are answered at a time."""
CALLS_TOGETHER: Final = 24
"""Calls of one connection that are begun in one turn of the event loop. While the node goes on with
the next ones, the disk has the changes of these, and the caller their answers: with 64, a caller
that has as many under way, and the node, wait for each other. With fewer, a change shares its entry
in the log with too few others."""
FLUSH_BYTES: Final = 64 * KIB
"""Answers of one turn leave together, in pieces of this many bytes."""
SHUTDOWN_S: Final = 2.0
"""Seconds that calls under way may take to end when the node closes."""

Q = TypeVar("Q")

_CALL: Final = MessageFrameKind.CALL
_ENCODER = msgspec.msgpack.Encoder()
_NOT_ASKED: Final[Mapping[str, object]] = {}
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
        (`InlineCoroutine` says what it must not do then).
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


def asked() -> Mapping[str, object]:
    """Return, for the log, whose call is being answered: the user, the address, and the name of
    the call, which calls made for it keep.
    """
    name = REQUEST_ID.get("")
    if not name:
        return _NOT_ASKED
    caller = CALLER.get()
    who = {"user": caller.user or caller.role.value, "address": caller.address}
    return {key: value for key, value in who.items() if value} | {"request": name}


async def answer(call: ServedMethod, name: str, body: bytes | bytearray, caller: Caller) -> bytes:
    """Return the msgpack of the answer to a call of `caller`, which is called `name` in the logs.

    Raises:
        PaxosBlockError: the error that the caller gets instead.
    """
    REQUEST_ID.set(name)
    CALLER.set(caller)
    if len(body) > call.request_bytes_max:
        raise InvalidRequestError(
            f"a request of {call.method} with {len(body)} bytes: at most {call.request_bytes_max}"
        )
    try:
        request = call.decoder.decode(body)
    except MALFORMED as error:
        raise InvalidRequestError(f"malformed request of {call.method}: {error}") from error
    span = spans.answered(call.method, name) if spans.API in sys.modules else None
    try:
        return _ENCODER.encode(await call.handler(request))
    except PaxosBlockError:
        raise
    except Exception as error:
        _log.exception("%s: %s failed", name, call.method)
        reason = f"internal error in {call.method}; the node's log tells more"
        raise OutcomeUnknownError(reason, request=name) from error
    finally:
        if span is not None:
            spans.ended(span, sys.exception())


def add_calls(
    app: web.Application,
    router: RpcRouter,
    request_bodies: RequestBodies | None = None,
    access: Access = OPEN,
) -> None:
    """Let `app` answer `GET /calls`: the calls of `router`, as frames.

    `request_bodies` bounds incomplete requests; None: the default. `access` has the secret that
    both ends prove. When `app` shuts down, it tells callers, and the calls under way have
    `SHUTDOWN_S` to end.
    """
    bounds = request_bodies or RequestBodies()
    served: set[ServedCalls] = set()

    async def upgrade(request: web.Request) -> web.StreamResponse:
        if not upgrade_server.asks_for(CALLS, request):
            return upgrade_server.unknown_protocol(CALLS)
        try:
            caller = await upgrade_server.connected_caller_of(request, access, bounds.refusals)
            has_token = caller.token is not None
            doorkeeper = Doorkeeper.of(access, request, bounds.refusals, has_token=has_token)
        except PaxosBlockError as error:
            return upgrade_server.refusal(error)
        transport = request.transport
        if transport is not None:
            calls = ServedCalls(router, bounds, served.discard, caller)
            served.add(calls)
            calls.hold(upgrade_server.take_over(request, transport, CALLS, calls, doorkeeper))
        return web.Response(status=101)  # only the access log sees it: the connection is gone

    async def close_all(_app: web.Application) -> None:
        closing = [asyncio.ensure_future(calls.close()) for calls in served]
        if closing:
            await asyncio.wait(closing)

    add_without_token(app, CALLS.path, upgrade)
    app.on_shutdown.append(close_all)


def add_http_calls(
    app: web.Application,
    router: RpcRouter,
    request_bodies: RequestBodies | None = None,
    access: Access = OPEN,
) -> None:
    """Let `app` answer the calls of `router` for people: `POST /rpc/<method>` with msgpack in both
    directions. `request_bodies` reads what they send. `Access-User` names the user who asks, unless
    a token or certificate does that `access` believes.

    A request has the `Content-Type` of msgpack, with which a browser sends nothing for a page of
    another site without asking the node before. A 200 carries the answer; every other status
    carries the msgpack of a `PaxosBlockError`. The header `X-Request-Id` names a call in the logs.
    """
    bounds = request_bodies or RequestBodies()

    async def handle(request: web.Request) -> web.StreamResponse:
        name = request.headers.get(REQUEST_NAME) or new_name()
        try:
            if request.content_type != ERROR_TYPE:
                raise InvalidRequestError(f"a request here has Content-Type: {ERROR_TYPE}")
            call = router.find(request.match_info["method"])
            caller = await upgrade_server.caller_of(request, access, bounds.refusals)
            body, status = await answer(call, name, await bounds.read(request), caller), 200
        except PaxosBlockError as error:
            body, status = encode_error(error), error.http_status
        return web.Response(status=status, body=body, content_type=ERROR_TYPE)

    app.router.add_post("/rpc/{method}", handle)


class ServedCalls(asyncio.Protocol):
    """One connection of a caller; the holder of its slot."""

    def __init__(
        self,
        router: RpcRouter,
        request_bodies: RequestBodies,
        on_lost: Callable[[ServedCalls], None],
        caller: Caller,
    ) -> None:
        """Answer `caller`; `on_lost` is called when the connection is gone."""
        self._router = router
        self._caller = caller
        self._request_bodies = request_bodies
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._slot = Slot(None, "")
        self._frames = MessageFrames()
        self._received_bytes = 0
        self._counted_bytes = 0
        self._last = 0
        """The number of the last call that was taken."""
        self._used_s = self._loop.time()
        self._under_way: set[asyncio.Task[None] | InlineCoroutine] = set()
        self._answers: list[bytes] = []
        self._answers_bytes = 0
        self._flush_waits = False
        self._writable = True
        self._leaving = False
        self._resting = False
        """Takes calls again, after others had their turn."""
        self._reading = True
        self._stall: asyncio.TimerHandle | None = None
        self._unread = UnreadWatch(request_bodies.limits.stall_s, self._give_up_unread)
        self._closed = asyncio.Event()

    # -- for the admission ------------------------------------------------------------------------

    def hold(self, slot: Slot) -> None:
        """Hold this slot; a spare one is good for one call."""
        self._slot = slot
        if self._transport is None:
            slot.release()
        else:
            slot.holder = self

    @property
    def idle(self) -> bool:
        """True while it waits for its next call, or the rest of one."""
        busy = self._under_way or self._answers or self._resting or not self._writable
        return not (busy or self._leaving)

    @property
    def idle_rank(self) -> tuple[Rank, float]:
        """Ranks connections that never had a call first, then those that wait longest."""
        if not self._last:
            return Rank.UNUSED, self._used_s
        return Rank.HALF if self._frames.held_bytes else Rank.USED, self._used_s

    def dismiss(self) -> None:
        """Close it; it is idle, or has proven nothing."""
        self._say_goodbye(UnavailableError("the node needs the connection for others; try again"))

    async def close(self) -> None:
        """Take no more calls; wait for those under way, and end those that take too long."""
        self._say_goodbye(UnavailableError("the node is closing"))
        try:
            async with asyncio.timeout(SHUTDOWN_S):
                await self._closed.wait()
        except TimeoutError:
            calls = tuple(self._under_way)
            for call in calls:
                call.cancel()
            tasks = [call for call in calls if isinstance(call, asyncio.Task)]
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._transport is not None:
                self._transport.abort()
            await self._closed.wait()

    # -- the connection ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self._watch_stall()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release everything; calls under way go on to their end, though their caller gets no
        answer."""
        self._transport = None
        self._leaving = True
        self._watch_no_stall()
        self._unread.end()
        self._counted_bytes = self._request_bodies.count(0, self._counted_bytes, "")
        self._slot.release()
        self._closed.set()
        self._on_lost(self)

    def pause_writing(self) -> None:
        self._writable = False
        self._unread.begin(self._transport)

    def resume_writing(self) -> None:
        self._writable = True
        self._unread.end()
        self._take()

    def data_received(self, data: bytes) -> None:
        self._received_bytes += len(data)
        self._used_s = self._loop.time()
        self._frames.feed(data)
        self._take()

    # -- calls ------------------------------------------------------------------------------------

    @property
    def _takes_calls(self) -> bool:
        return (
            self._writable
            and not self._leaving
            and not self._resting
            and len(self._under_way) < UNDER_WAY_MAX
        )

    def _take(self) -> None:
        """Begin the calls that have come; then go on reading, unless a bound is reached."""
        begun, frames = 0, self._frames
        self._flush_waits = True  # until the end of this
        try:
            waits = self._takes_calls
            while waits and frames.held_bytes and (frame := frames.next()) is not None:
                self._begin(frame)
                begun += 1
                if begun == CALLS_TOGETHER:
                    self._resting = True
                    self._loop.call_soon(self._go_on)
                waits = self._takes_calls
            rest_bytes = frames.held_bytes if waits else 0
            if rest_bytes or self._counted_bytes:
                self._counted_bytes = self._request_bodies.count(
                    rest_bytes, self._counted_bytes, self._slot.address
                )
        except UnavailableError as error:
            self._say_goodbye(error)
            waits, rest_bytes = False, 0
        except PaxosBlockError as error:
            self._request_bodies.refusals.count(Refusal.MALFORMED, self._slot.address)
            self._say_goodbye(error)
            waits, rest_bytes = False, 0
        if rest_bytes:
            self._watch_stall()
        elif self._stall is not None:
            self._watch_no_stall()
        if waits is not self._reading:
            self._read(waits)
        self._flush_waits = False
        if self._answers or self._leaving:
            self._flush()

    def _go_on(self) -> None:
        self._resting = False
        self._take()

    def _read(self, wanted: bool) -> None:
        if self._transport is not None:
            self._reading = wanted
            if wanted:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _begin(self, frame: MessageFrame) -> None:
        number = frame.number
        if frame.kind is not _CALL or number <= self._last:
            raise ProtocolError(f"{frame.kind.name} frame {number} came after call {self._last}")
        self._last = number
        try:
            call = self._router.find(frame.method)
        except ProtocolError as error:
            self._send(MessageFrameKind.ERROR, number, encode_error(error))
            return
        answering = self._answer(number, answer(call, frame.name, frame.payload, self._caller))
        if call.at_once:
            context = contextvars.copy_context()
            try:
                waits_for = context.run(answering.send, None)
            except StopIteration:
                return
            self._under_way.add(InlineCoroutine(answering, waits_for, context, self._ended))
        else:
            task = self._loop.create_task(answering)
            self._under_way.add(task)
            task.add_done_callback(self._ended)
        if self._slot.spare:
            self._say_goodbye(UnavailableError("the node has as many connections as it takes"))

    def _ended(self, call: asyncio.Task[None] | InlineCoroutine) -> None:
        was_full = len(self._under_way) == UNDER_WAY_MAX
        self._under_way.discard(call)
        if was_full:
            self._take()
        elif self._leaving and not self._under_way:
            self._flush()

    async def _answer(self, number: int, answering: Coroutine[Any, Any, bytes]) -> None:
        try:
            self._send(MessageFrameKind.ANSWER, number, await answering)
        except PaxosBlockError as error:
            self._send(MessageFrameKind.ERROR, number, encode_error(error))

    # -- answers ----------------------------------------------------------------------------------

    def _send(self, kind: MessageFrameKind, number: int, payload: bytes) -> None:
        """Send a frame, together with the others of this turn of the loop."""
        frame = pack(kind, number, payload)
        self._answers.append(frame)
        self._answers_bytes += len(frame)
        if self._answers_bytes >= FLUSH_BYTES:
            self._flush()
        elif not self._flush_waits:
            self._flush_waits = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_waits = False
        answers, self._answers, self._answers_bytes = self._answers, [], 0
        if self._transport is None:
            return
        if answers:
            self._transport.write(b"".join(answers))
        if self._leaving and not self._under_way:
            self._transport.close()

    def _say_goodbye(self, error: PaxosBlockError) -> None:
        """Take no more calls; close when those that were taken are answered."""
        if not self._leaving:
            self._leaving = True
            self._read(wanted=False)
            self._send(MessageFrameKind.GOODBYE, self._last, encode_error(error))

    # -- a caller that begins something and does not go on ----------------------------------------

    def _watch_stall(self) -> None:
        if self._stall is None and self._transport is not None:
            stall_s = self._request_bodies.limits.stall_s
            self._stall = self._loop.call_later(stall_s, self._check_progress, self._received_bytes)

    def _watch_no_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _give_up_unread(self) -> None:
        if self._transport is not None:
            self._request_bodies.refusals.count(Refusal.ANSWER_UNREAD, self._slot.address)
            self._transport.abort()

    def _check_progress(self, before_bytes: int) -> None:
        self._stall = None
        if self._received_bytes - before_bytes >= PROGRESS_BYTES:
            self._watch_stall()
        elif self._transport is not None:
            why = Refusal.BODY_STALLED if self._received_bytes else Refusal.NO_HEAD
            self._request_bodies.refusals.count(why, self._slot.address)
            self._transport.abort()


class InlineCoroutine:
    """A coroutine that was begun, and goes on without a task, which costs as much as a tenth of a
    call on the catalog: such a call waits once, for the journal. Each step runs when what it waits
    for is over.

    The coroutine may await futures, locks and pauses; it must not ask for its task
    (`asyncio.current_task`, `asyncio.timeout`).
    """

    __slots__ = ("_context", "_coroutine", "_ended", "_waits_for")

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, None],
        waits_for: Any,
        context: contextvars.Context,
        ended: Callable[[InlineCoroutine], None],
    ) -> None:
        """Go on with it in `context`; its first step yielded `waits_for`.

        `ended` is called after its last step, but not after `cancel`.
        """
        self._coroutine = coroutine
        self._context = context
        self._ended = ended
        self._wait(waits_for)

    def cancel(self) -> None:
        """End it where it waits."""
        if self._waits_for is not None:
            self._waits_for.remove_done_callback(self._advance)
        self._coroutine.close()

    def _wait(self, waits_for: Any) -> None:
        self._waits_for = waits_for
        if waits_for is None:  # a turn for others
            asyncio.get_running_loop().call_soon(self._advance, context=self._context)
        else:
            waits_for._asyncio_future_blocking = False  # as a task does when it takes a future
            waits_for.add_done_callback(self._advance, context=self._context)

    def _advance(self, _: object = None) -> None:
        try:
            waits_for = self._coroutine.send(None)
        except StopIteration:
            self._ended(self)
        except BaseException:
            self._ended(self)
            raise
        else:
            self._wait(waits_for)
