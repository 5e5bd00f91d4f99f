"""Control calls without an event loop, for commands that must start fast.

The same calls as `rpc.py` makes, over the standard library's HTTP client: `paxosblock fs ls` does
not pay for importing a network stack that it would use once.
"""

from __future__ import annotations

import contextlib
import http.client
import time
from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec

from paxosblock.errors import (
    DeadlineError,
    NotLeaderError,
    OutcomeUnknownError,
    ProtocolError,
    UnavailableError,
)
from paxosblock.methods import Method, encode

Q = TypeVar("Q")
A = TypeVar("A")

_PROBE_S: Final = 2.0
_ELECTION_POLL_S: Final = 0.05


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


def call_any(
    addresses: Sequence[str],
    method: Method[Q, A],
    request: Q,
    timeout_s: float = 60.0,
    election_s: float = 10.0,
) -> A:
    """Ask the NameNode that leads, whichever of `addresses` knows it.

    Only one that cannot be reached or does not lead makes us ask another: any other failure may
    have done something. While some answer and none leads we wait, `election_s` at most.

    Raises:
        NotLeaderError: they did not agree on a leader in time; nothing was done.
        PaxosBlockError: as `call`.
    """
    deadline_s = time.monotonic() + election_s
    while True:
        try:
            return _ask_leader(addresses, method, request, timeout_s)
        except NotLeaderError:
            if time.monotonic() >= deadline_s:
                raise
        time.sleep(_ELECTION_POLL_S)


def _ask_leader(addresses: Sequence[str], method: Method[Q, A], request: Q, timeout_s: float) -> A:
    """Ask one after the other, the one that is named as leader next."""
    refused: UnavailableError | NotLeaderError = UnavailableError("no NameNode is given")
    waiting, asked = list(addresses), set[str]()
    while waiting:
        address = waiting.pop(0)
        if address in asked:
            continue
        asked.add(address)
        try:
            if len(addresses) > 1:
                _check_answers(address)
            return call(address, method, request, timeout_s)
        except NotLeaderError as error:
            refused = error
            waiting[:0] = [leader] if (leader := str(error.details.get("leader", ""))) else []
        except UnavailableError as error:
            if not isinstance(refused, NotLeaderError):
                refused = error
    raise refused


def _check_answers(address: str) -> None:
    """Do not begin with one that hangs: it keeps us for the whole time-out, the outcome unknown."""
    try:
        _exchange(address, "GET", "/healthz", None, _PROBE_S)
    except (DeadlineError, OutcomeUnknownError) as error:
        raise UnavailableError(str(error), address=address) from error


def healthy(address: str, timeout_s: float = 5.0) -> bool:
    """Whether a node at `address` answers `GET /healthz` with 200."""
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
            raise DeadlineError(f"{address} did not answer in {timeout_s:g} s") from error
        except OSError as error:
            raise OutcomeUnknownError(f"{address} hung up before it answered") from error
        except http.client.HTTPException as error:
            raise ProtocolError(f"{address} does not speak HTTP: {error!r}") from error


def _reported(address: str, status: int, answer: bytes) -> Exception:
    from paxosblock.wire import decode_error  # noqa: PLC0415 - needed for failures only

    try:
        error = decode_error(answer)
    except ProtocolError:
        return ProtocolError(f"{address} is not a paxosblock node: it answered HTTP {status}")
    # What a node has against our protocol is about the node: most likely the port is a wrong one.
    return ProtocolError(f"{address}: {error}") if isinstance(error, ProtocolError) else error
