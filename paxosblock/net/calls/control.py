"""Control calls without an event loop, for commands that must start fast.

The same calls as `rpc.py` makes, over blocking sockets: `paxosblock fs ls` does not pay for
importing an event loop that it would use once.
"""

from __future__ import annotations

import select
import socket
import sys
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from concurrent import futures
from typing import Any, Final, Self, TypeVar

from paxosblock.api.methods import Method, Once
from paxosblock.base.encoding import MALFORMED, encode, msgpack_decoder
from paxosblock.errors import (
    DeadlineError,
    Outcome,
    OutcomeUnknownError,
    PaxosBlockError,
    ProtocolError,
    UnavailableError,
)
from paxosblock.net import spans
from paxosblock.net.calls.leader_search import LeaderSearch, Sessions
from paxosblock.net.message_frames import (
    MessageFrame,
    MessageFrameKind,
    MessageFrames,
    pack,
)
from paxosblock.net.port.access import OPEN, Access, dialled
from paxosblock.net.port.upgrade import (
    CALLS,
    Answer,
    answer,
    dial,
    head,
    is_hidden,
    split_address,
    unreachable,
)
from paxosblock.net.wire import decode_error

Q = TypeVar("Q")
A = TypeVar("A")

READ_BYTES: Final = 1 << 16


def call(
    address: str,
    method: Method[Q, A],
    request: Q,
    timeout_s: float = 60.0,
    access: Access = OPEN,
) -> A:
    """Ask the node at `address` (host:port) and return its answer.

    Raises:
        PaxosBlockError: what the node reported.
        InvalidRequestError: the request cannot be encoded.
        AccessDeniedError: the node does not know our secret, or wants one that we lack.
        UnavailableError: nothing takes calls there; nothing was done.
        OutcomeUnknownError, DeadlineError: the request was sent and no answer came.
        ProtocolError: something else than a paxosblock node answers there.
    """
    with Line(address, timeout_s, access) as line:
        return line.ask(method, request, timeout_s)


class Line:
    """A connection to a node for control calls, one after the other."""

    def __init__(self, address: str, timeout_s: float, access: Access = OPEN) -> None:
        """Connect. Raises what `call` raises before it sends the request."""
        self._address = address
        self._frames = MessageFrames()
        self._asked = 0
        self._socket = dial(address, timeout_s, access.tls)
        # Not `__del__`: of a line that is part of a circle the socket may be the first to go.
        self._hang_up = weakref.finalize(self, self._socket.close)
        try:
            self._begin(timeout_s, access)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._hang_up()

    @property
    def usable(self) -> bool:
        """True if the node has not sent anything by itself, such as that it closes."""
        looking = select.poll()  # select() takes no descriptor above 1,023
        looking.register(self._socket, select.POLLIN)
        return not looking.poll(0)

    def ask(self, method: Method[Q, A], request: Q, timeout_s: float) -> A:
        """Ask, and return the answer. Raises as `call`; after that the line is not used again."""
        body = encode(request)
        name, span = spans.asked(method.name, self._address)
        try:
            return self._ask(method, body, name, timeout_s)
        finally:
            if span is not None:
                spans.ended(span, sys.exception())

    def _ask(self, method: Method[Q, A], body: bytes, name: str, timeout_s: float) -> A:
        self._asked, address = self._asked + 1, self._address
        call, named = method.name.encode(), name.encode()
        frame = pack(MessageFrameKind.CALL, self._asked, body, call, named)
        try:
            self._socket.settimeout(timeout_s)
            self._socket.sendall(frame)
            answer = self._receive(time.monotonic() + timeout_s)
        except PaxosBlockError:
            raise
        except TimeoutError as error:
            raise DeadlineError(f"{address} did not answer in {timeout_s:.3g} s") from error
        except OSError as error:
            raise OutcomeUnknownError(f"{address} hung up before it answered") from error
        if answer.kind is not MessageFrameKind.ANSWER:
            raise self._reported(answer)
        try:
            return msgpack_decoder(method.answer).decode(answer.payload)
        except MALFORMED as error:
            raise _strange(address, error) from error

    def _begin(self, timeout_s: float, access: Access) -> None:
        """Agree with the node on the protocol from now on."""
        address, until_s = self._address, time.monotonic() + timeout_s
        try:
            to = dialled(*split_address(address), self._socket.getpeername())
            hidden = is_hidden(self._socket)
            introduction = access.introduction(CALLS.path, to, hidden=hidden)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.sendall(head(address, CALLS, introduction.headers))
            headers = self._read_answer(answer(address, CALLS), until_s)
            self._socket.sendall(introduction.proof(address, headers))
        except PaxosBlockError as error:
            error.with_outcome(Outcome.NEVER)  # whatever it says
            raise
        except TimeoutError as error:
            late = f"{address} did not answer in {timeout_s:.3g} s"
            raise UnavailableError(late, address=address) from error
        except OSError as error:
            raise unreachable(address, error, access.tls) from error

    def _read_answer(self, reading: Answer, until_s: float) -> dict[str, str]:
        next(reading)
        while True:
            try:
                reading.send(self._read(until_s, READ_BYTES))
            except StopIteration as whole:
                headers: dict[str, str] = whole.value
                return headers

    def _read(self, until_s: float, most: int) -> bytes:
        self._socket.settimeout(max(0.001, until_s - time.monotonic()))
        return self._socket.recv(most)

    def _receive(self, until_s: float) -> MessageFrame:
        """Return the answer to the call. Raises TimeoutError and other OSErrors."""
        while True:
            try:
                frame = self._frames.next()
            except PaxosBlockError as error:
                raise _strange(self._address, error) from error
            if frame is not None:
                goodbye = frame.kind is MessageFrameKind.GOODBYE
                if not goodbye or frame.number < self._asked:
                    return frame
                continue
            if not (data := self._read(until_s, READ_BYTES)):
                raise ConnectionResetError
            self._frames.feed(data)

    def _reported(self, answer: MessageFrame) -> PaxosBlockError:
        address = self._address
        try:
            error = decode_error(answer.payload)
        except ProtocolError as malformed:
            return _strange(address, malformed)
        if answer.kind is MessageFrameKind.GOODBYE:
            return UnavailableError(f"{address}: {error}", address=address)
        # A node that objects to our protocol is most likely on another port than we meant.
        return error.reworded(f"{address}: {error}") if isinstance(error, ProtocolError) else error


def _strange(address: str, error: Exception) -> ProtocolError:
    return ProtocolError(f"{address} does not answer like a paxosblock node: {error}")


def run_through(coroutine: Coroutine[Any, Any, A]) -> A:
    """Return the result of a coroutine in which nothing suspends, without an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        result: A = ended.value
        return result
    raise AssertionError("nothing that is awaited here suspends")


def each_through(found: AsyncIterator[A]) -> Iterator[A]:
    """Yield what comes from an iterator in which nothing suspends, without an event loop."""

    async def following() -> A:
        return await anext(found)

    while True:
        try:
            each = run_through(following())
        except StopAsyncIteration:
            return
        yield each


class BlockingNameNodes:
    """The NameNodes of a cluster, for a command. `LeaderSearch` decides which of them a call goes
    to.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        timeout_s: float = 10.0,
        retry_for_s: float = 30.0,
        access: Access = OPEN,
    ) -> None:
        """Know at least one of them by its address.

        A single call may take `timeout_s`, all tries of a request together `retry_for_s`.
        """
        self._search = LeaderSearch(addresses, _BlockingSearch(access), timeout_s, retry_for_s)
        self._sessions = Sessions()

    def retry_for(self, seconds: float) -> None:
        """Let all tries of a request take this long from now on."""
        self._search.retry_for_s = seconds

    def call(self, method: Method[Q, A], request: Q) -> A:
        """Ask until a NameNode answers, as `LeaderSearch.run`, with the same condition."""
        return run_through(self._search.run(method, lambda: request))

    def call_once(self, method: Method[Q, A], make: Callable[[Once], Q]) -> A:
        """Ask for a change; `make` gets the name under which it is made once, however often it is
        sent. Raises as `call`.
        """
        with self._sessions.once() as once:
            return self.call(method, make(once))


class _BlockingSearch:
    """The shell of a search that blocks: its coroutines never suspend."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._idle: dict[str, list[Line]] = {}

    def now_s(self) -> float:
        return time.monotonic()

    def ask(
        self, address: str, method: Method[Q, A], request: Q, timeout_s: float
    ) -> futures.Future[A]:
        """Ask in a thread, for which the end of this process does not wait."""
        future: futures.Future[A] = futures.Future()
        future.set_running_or_notify_cancel()

        def run() -> None:
            try:
                future.set_result(self._ask(address, method, request, timeout_s))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        return future

    def _ask(self, address: str, method: Method[Q, A], request: Q, timeout_s: float) -> A:
        """Ask on an earlier line if there is one; do not keep a line that failed."""
        idle = self._idle.setdefault(address, [])
        line = idle.pop() if idle else None
        if line is None or not line.usable:
            line = Line(address, timeout_s, self._access)
        answer = line.ask(method, request, timeout_s)
        idle.append(line)
        return answer

    async def wait(
        self, calls: Sequence[Any], within_s: float | None = None, *, every: bool = False
    ) -> None:
        futures.wait(calls, within_s, futures.ALL_COMPLETED if every else futures.FIRST_COMPLETED)

    async def pause(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - there is no event loop


def healthy(address: str, timeout_s: float = 5.0, access: Access = OPEN) -> bool:
    """True if a node at `address` answers `GET /healthz` with 200."""
    try:
        with dial(address, timeout_s, access.tls) as asking:
            asking.sendall(f"GET /healthz HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())
            with asking.makefile("rb") as answer:
                return answer.readline(READ_BYTES).split(b" ")[1:2] == [b"200"]
    except (UnavailableError, OSError):
        return False
