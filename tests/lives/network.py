"""The network between simulated processes: calls that are lost and late, and data streams.

The frames, their handlers and the control calls' bodies are the real ones; what stands here are
the sockets and the HTTP around them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from paxosblock.base.encoding import encode
from paxosblock.errors import (
    DeadlineError,
    OutcomeUnknownError,
    PaxosBlockError,
    UnavailableError,
)
from paxosblock.host.user import claimed_user
from paxosblock.net.calls.call_server import RpcRouter
from paxosblock.net.calls.rpc import RpcClient
from paxosblock.net.port.access import OPEN, Access
from paxosblock.net.port.caller import CALLER, Caller
from paxosblock.net.streams.connection import FrameConnection, FrameHandler
from paxosblock.net.wire import FrameKind, Header, decode_error, encode_error
from tests.lives.pairs import Pairs
from tests.lives.promises import Promises
from tests.lives.strangers import knock
from tests.raft.virtual_time import Host, VirtualTimeLoop, running_host

A = TypeVar("A")

_ENCODER = msgspec.msgpack.Encoder()
_STEP_S = 1e-9
"""Between two pieces of one stream that would arrive at the same time."""


@dataclass(slots=True)
class Weather:
    """Things that may happen to a message: probabilities, and delays in seconds."""

    lost: float = 0.0
    """With its connection, as TCP gives it up: the caller hears of that a while later."""
    late: float = 0.0
    late_s: float = 2.0
    delay_s: tuple[float, float] = (0.0002, 0.002)


@dataclass(slots=True, eq=False)
class Listener:
    """A process at an address."""

    host: Host
    router: RpcRouter
    new_stream: Callable[[], FrameHandler] | None = None
    waiting: dict[asyncio.Future[bytes], None] = field(default_factory=dict)
    """Answers that a caller waits for."""


class Network:
    """Knows where everybody is reached; processes of one `name` (machine) are cut off together."""

    def __init__(self, loop: VirtualTimeLoop, rng: random.Random) -> None:
        self.loop = loop
        self.rng = rng
        self.weather = Weather()
        self.mistake: Callable[[str], None] = lambda what: None
        self.promises = Promises(self._mistaken, Pairs(loop))
        self.strangers: dict[Host, None] = {}
        """Processes that do not know the secret."""
        self.users: dict[Host, str] = {}
        """The users of processes that are not of the one who runs the nodes."""
        self._listeners: dict[str, Listener] = {}
        self._cut: set[Host] = set()
        self._healed = asyncio.Event()
        self._ends: dict[Host, dict[_End, None]] = {}

    # -- processes --------------------------------------------------------------------------------

    def listen(self, address: str, listener: Listener) -> None:
        """Let calls and streams to `address` come to `listener`."""
        self._listeners[address] = listener

    def unplug(self, host: Host) -> None:
        """The process has ended: its connections break, and it listens no more."""
        self.promises.pairs.ended(host)
        for address, listener in tuple(self._listeners.items()):
            if listener.host is host:
                del self._listeners[address]
                for answer in tuple(listener.waiting):
                    if not answer.done():
                        answer.set_exception(OutcomeUnknownError(f"{address}: connection lost"))
        for end in tuple(self._ends.pop(host, ())):
            end.peer.break_off(self._delay_s())
        self._cut.discard(host)
        if not self._cut:
            self._healed.set()

    def cut(self, host: Host) -> None:
        """Nothing comes or goes; what was sent comes when that is over."""
        self._cut.add(host)
        self._healed.clear()

    def heal(self) -> None:
        """All reach each other, in good weather."""
        self._cut.clear()
        self._healed.set()
        self.weather = Weather()
        for ends in tuple(self._ends.values()):
            for end in tuple(ends):
                end.go_on()

    def is_cut(self, one: Host | None, other: Host | None) -> bool:
        return one in self._cut or other in self._cut

    def _delay_s(self) -> float:
        weather, rng = self.weather, self.rng
        if weather.late and rng.random() < weather.late:
            return rng.uniform(0, weather.late_s)
        return rng.uniform(*weather.delay_s)

    def _is_lost(self) -> bool:
        return self.weather.lost > 0 and self.rng.random() < self.weather.lost

    # -- control calls ----------------------------------------------------------------------------

    async def ask(self, address: str, method: str, body: bytes) -> bytes:
        """Bring a request there and its answer back; what is cut off goes on when that is over.

        Raises:
            UnavailableError: no process listens there.
            OutcomeUnknownError: request or answer was lost, with the connection.
            PaxosBlockError: what the node answered, as decoded from its bytes.
        """
        here = running_host()
        await self.loop.pass_time(self._delay_s())
        listener = self._listeners.get(address)
        if listener is None:
            text = f"{method} of {address}: connection refused"
            raise UnavailableError(text, address=address, nobody_listens=True)
        self._check_access(here, address)
        await self._pass(here, listener.host)
        if self._listeners.get(address) is not listener:  # it ended while nothing came through
            raise OutcomeUnknownError(f"{address}: connection lost")
        answer: asyncio.Future[bytes] = self.loop.create_future()
        listener.waiting[answer] = None
        try:
            listener.host.call(answer, self._begin, here, listener, method, body, answer)
            result = await answer
        finally:
            listener.waiting.pop(answer, None)
        await self._pass(here, listener.host)
        await self.loop.pass_time(self._delay_s())
        if result[:1] == b"e":
            raise decode_error(result[1:])
        return result[1:]

    async def _pass(self, one: Host | None, other: Host) -> None:
        """Let a message through, at once or when nothing is cut off any more."""
        while self.is_cut(one, other):
            await self._healed.wait()
        if self._is_lost():
            await self.loop.pass_time(self.rng.uniform(0, self.weather.late_s))
            raise OutcomeUnknownError("connection lost")

    def _mistaken(self, what: str) -> None:
        self.mistake(what)

    def _check_access(self, here: Host | None, address: str) -> None:
        """Nodes and users have the secret: that they reach each other is no question here."""
        if here in self.strangers:
            knock(address, self.rng)

    def _begin(
        self,
        here: Host | None,
        listener: Listener,
        method: str,
        body: bytes,
        answer: asyncio.Future[bytes],
    ) -> None:
        async def serve() -> None:
            result = await self._answered(here, listener.router, method, body)
            if not answer.done():
                answer.set_result(result)

        # What is known of a caller is known to what is done for them, and to nothing else.
        self.loop.create_task(serve(), context=copy_context())

    async def _answered(
        self, here: Host | None, router: RpcRouter, method: str, body: bytes
    ) -> bytes:
        registered = router._methods[method]
        user = claimed_user() if here is None else self.users.get(here, claimed_user())
        CALLER.set(Caller.claiming(user, ""))
        try:
            request = registered.decoder.decode(body)
            fenced = self.promises.asked(here, method, request)
            try:
                done = await registered.handler(request)
            except PaxosBlockError as error:
                self.promises.answered(here, method, request, error, fenced_before=fenced)
                return b"e" + encode_error(error)
            self.promises.answered(here, method, request, done, fenced_before=fenced)
            return b"a" + _ENCODER.encode(done)
        except Exception as error:
            self.mistake(f"{method} failed: {error!r}")
            return b"e" + encode_error(OutcomeUnknownError(f"internal error in {method}"))

    # -- data streams -----------------------------------------------------------------------------

    async def connect(
        self,
        host: str,
        port: int,
        handler: FrameHandler,
        *,
        timeout_s: float = 5.0,
        access: Access = OPEN,
    ) -> FrameConnection:
        """Open a stream, as `net.stream.connect` does; all who are here have access."""
        address = f"{host}:{port}"
        here = running_host()
        assert here is not None, "somebody connects who is no process"
        await self.loop.pass_time(self._delay_s())
        listener = self._listeners.get(address)
        if listener is None or listener.new_stream is None:
            raise UnavailableError(f"{address}: connection refused", address=address)
        if self.is_cut(here, listener.host) or listener.host.paused:
            await self.loop.pass_time(timeout_s)
            raise UnavailableError(f"{address}: no answer in {timeout_s:.3g} s", address=address)
        self._check_access(here, address)
        mine = FrameConnection(handler, address)
        served = listener.host.made(listener.new_stream)
        theirs = FrameConnection(_Overheard(served, here, self.promises), "a client")
        ends = _End(self, here, mine), _End(self, listener.host, theirs)
        ends[0].peer, ends[1].peer = ends[1], ends[0]
        for end in ends:
            self._ends.setdefault(end.host, {})[end] = None
            end.protocol.connection_made(end)
        return mine

    def forget(self, end: _End) -> None:
        """The end of a stream is closed."""
        self._ends.get(end.host, {}).pop(end, None)


@dataclass(slots=True)
class _Overheard:
    """A handler of frames, and who hears the chunks that come to it."""

    handler: FrameHandler
    peer: Host
    promises: Promises

    def payload_buffer(self, header: Header) -> memoryview | None:
        return self.handler.payload_buffer(header)

    def frame_received(
        self, connection: FrameConnection, header: Header, frame: memoryview
    ) -> None:
        if header.kind is FrameKind.CHUNK:
            self.promises.chunk(self.peer, header)
        self.handler.frame_received(connection, header, frame)

    def payload_received(
        self, connection: FrameConnection, header: Header, payload: memoryview
    ) -> None:
        if header.kind is FrameKind.CHUNK:
            self.promises.chunk(self.peer, header)
        self.handler.payload_received(connection, header, payload)

    def connection_lost(self, connection: FrameConnection, error: PaxosBlockError) -> None:
        self.handler.connection_lost(connection, error)


class _Socket:
    """A socket for `tune_socket`, of a connection to another machine."""

    def setsockopt(self, *_: object) -> None:
        """Nothing to tune."""

    def getpeername(self) -> tuple[str, int]:
        return ("there", 0)

    def getsockname(self) -> tuple[str, int]:
        return ("here", 0)


class _End(asyncio.Transport):
    """One end of a stream."""

    peer: _End

    def __init__(self, network: Network, host: Host, protocol: FrameConnection) -> None:
        super().__init__({"socket": _Socket(), "peername": ("simulated", 0)})
        self.host = host
        self.protocol = protocol
        self._network = network
        self._last_s = 0.0
        self._held: list[bytes] = []
        self._inbox = bytearray()
        self._reads = True
        self._closed = False
        self._over = False

    # -- what the protocol does -------------------------------------------------------------------

    def write(self, data: Any) -> None:
        self.writelines((data,))

    def writelines(self, list_of_data: Any) -> None:
        if not self._closed:
            self._send(b"".join(list_of_data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is ever full."""

    def is_closing(self) -> bool:
        return self._closed

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._send(b"")
            self._network.loop.call_soon(self._lose, None)

    def abort(self) -> None:
        if not self._closed:
            self._closed = True
            self.peer.break_off(self._network._delay_s())
        self._network.loop.call_soon(self._lose, None)

    def pause_reading(self) -> None:
        self._reads = False

    def resume_reading(self) -> None:
        self._reads = True
        if self._inbox:
            self._network.loop.call_soon(self._arrive, b"", False)

    # -- what the network does --------------------------------------------------------------------

    def _send(self, data: bytes) -> None:
        if self._held or self._network.is_cut(self.host, self.peer.host):
            self._held.append(data)
            return
        loop = self._network.loop
        due_s = max(loop.now + self._network._delay_s(), self._last_s + _STEP_S)
        self._last_s = due_s
        end = not data
        loop.in_world(due_s - loop.now, self.peer.host.call, self, self.peer._arrive, data, end)

    def go_on(self) -> None:
        """The network is whole again: send what was held up."""
        held, self._held = self._held, []
        for data in held:
            self._send(data)

    def break_off(self, delay_s: float) -> None:
        """The other end is gone."""
        reset = ConnectionResetError("Connection reset by peer")
        loop = self._network.loop
        loop.in_world(delay_s, self.host.call, self, self._lose, reset)

    def _arrive(self, data: bytes, end: bool) -> None:
        if self._over:
            return
        self._inbox += data
        while self._inbox and self._reads and not self._over:
            buffer = self.protocol.get_buffer(-1)
            count = min(len(buffer), len(self._inbox))
            buffer[:count] = self._inbox[:count]
            del self._inbox[:count]
            self.protocol.buffer_updated(count)
        if end and not self._over:
            self._lose(None)

    def _lose(self, error: Exception | None) -> None:
        if not self._over:
            self._over = self._closed = True
            self._network.forget(self)
            self.protocol.connection_lost(error)


class SimulatedRpc(RpcClient):
    """An `RpcClient` on the simulated network."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self._network = network

    def send(
        self, address: str, method: str, request: object, response_type: type[A], timeout_s: float
    ) -> asyncio.Future[A]:
        """As `RpcClient.send`."""
        return asyncio.ensure_future(self._call(address, method, request, response_type, timeout_s))

    async def _call(
        self, address: str, method: str, request: object, response_type: type[A], timeout_s: float
    ) -> A:
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self._network.ask(address, method, encode(request))
        except TimeoutError as error:
            if isinstance(error, PaxosBlockError):
                raise
            late = f"{method} of {address}: no answer in {timeout_s:.3g} s"
            raise DeadlineError(late, address=address) from error
        return msgspec.msgpack.decode(answer, type=response_type)
