"""Control calls without an event loop, for commands that must start fast.

The same calls as `rpc.py` makes, over the standard library's HTTP client: `paxosblock fs ls` does
not pay for importing a network stack that it would use once.
"""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent import futures
from typing import Any, TypeVar

import msgspec

from paxosblock.api.methods import Method, Once, encode
from paxosblock.errors import (
    DeadlineError,
    OutcomeUnknownError,
    ProtocolError,
    UnavailableError,
)
from paxosblock.net.leader_search import LeaderSearch, Sessions

Q = TypeVar("Q")
A = TypeVar("A")


def call(address: str, method: Method[Q, A], request: Q, timeout_s: float = 60.0) -> A:
    """Ask the node at `address` (host:port) and return its answer.

    Raises:
        PaxosBlockError: what the node reported.
        InvalidRequestError: the request cannot even be written down.
        UnavailableError: nobody listens there; nothing was done.
        OutcomeUnknownError, DeadlineError: the request was sent and no answer came.
        ProtocolError: what answers there is not a paxosblock node.
    """
    body = encode(request)
    status, answer = _exchange(address, "POST", f"/rpc/{method.name}", body, timeout_s)
    if status != http.client.OK:
        raise _reported(address, status, answer)
    try:
        return msgspec.msgpack.decode(answer, type=method.answer)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"{address} does not answer like a paxosblock node: {error}") from error


def run_through(coroutine: Coroutine[Any, Any, A]) -> A:
    """Return the result of a coroutine in which nothing suspends, without an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        result: A = ended.value
        return result
    raise AssertionError("nothing that is awaited here suspends")


class NameNodes:
    """The NameNodes of a cluster, for a command. `LeaderSearch` says whom a call goes to."""

    def __init__(
        self, addresses: Sequence[str], timeout_s: float = 10.0, retry_for_s: float = 30.0
    ) -> None:
        """Know at least one of them by its address.

        A single call may take `timeout_s`, all tries of a request together `retry_for_s`.
        """
        self._search = LeaderSearch(addresses, _Shell(), timeout_s, retry_for_s)
        self._sessions = Sessions()

    def retry_for(self, seconds: float) -> None:
        """Let all tries of a request take so long from now on."""
        self._search.retry_for_s = seconds

    def call(self, method: Method[Q, A], request: Q) -> A:
        """Ask until a NameNode answers: as `LeaderSearch.run`, which tells what may be asked."""
        return run_through(self._search.run(method, lambda: request))

    def call_once(self, method: Method[Q, A], make: Callable[[Once], Q]) -> A:
        """Ask for a change; `make` gets the name under which it is made once, however often it is
        sent. Raises as `call`.
        """
        with self._sessions.once() as once:
            return self.call(method, make(once))


class _Shell:
    """The shell of a search that blocks: what is awaited has happened when its call returns."""

    def now_s(self) -> float:
        return time.monotonic()

    def ask(
        self, address: str, method: Method[Q, A], request: Q, timeout_s: float
    ) -> futures.Future[A]:
        """Ask in a thread that the end of this process does not wait for."""
        future: futures.Future[A] = futures.Future()
        future.set_running_or_notify_cancel()

        def run() -> None:
            try:
                future.set_result(call(address, method, request, timeout_s))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        return future

    async def wait(
        self, calls: Sequence[Any], within_s: float | None = None, *, every: bool = False
    ) -> None:
        futures.wait(calls, within_s, futures.ALL_COMPLETED if every else futures.FIRST_COMPLETED)

    async def pause(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - there is no event loop


def healthy(address: str, timeout_s: float = 5.0) -> bool:
    """True if a node at `address` answers `GET /healthz` with 200."""
    try:
        status, _ = _exchange(address, "GET", "/healthz", None, timeout_s)
    except (UnavailableError, OutcomeUnknownError, DeadlineError, ProtocolError):
        return False
    return status == http.client.OK


def split_address(address: str) -> tuple[str, int]:
    """Host and port of "host:port" or "[ipv6]:port".

    Raises:
        UnavailableError: it is not an address.
    """
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise UnavailableError(f"{address!r} is not an address: write host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _exchange(
    address: str, verb: str, path: str, body: bytes | None, timeout_s: float
) -> tuple[int, bytes]:
    """The one place of this module that sees the errors of sockets and HTTP."""
    host, port = split_address(address)
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    with contextlib.closing(connection):
        try:
            connection.connect()
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise UnavailableError(f"cannot connect to {address}: {reason}") from error
        try:
            connection.request(verb, path, body, {"Content-Type": "application/msgpack"})
            response = connection.getresponse()
            return response.status, response.read()
        except TimeoutError as error:
            raise DeadlineError(f"{address} did not answer in {timeout_s:.3g} s") from error
        except (OSError, http.client.IncompleteRead) as error:
            raise OutcomeUnknownError(f"{address} hung up before it answered") from error
        except http.client.HTTPException as error:
            raise ProtocolError(f"{address} does not speak HTTP: {error!r}") from error


def _reported(address: str, status: int, answer: bytes) -> Exception:
    from paxosblock.net.wire import decode_error  # noqa: PLC0415 - needed for failures only

    try:
        error = decode_error(answer)
    except ProtocolError:
        return ProtocolError(f"{address} is not a paxosblock node: it answered HTTP {status}")
    # What a node has against our protocol is about the node: most likely the port is a wrong one.
    return error.reworded(f"{address}: {error}") if isinstance(error, ProtocolError) else error
