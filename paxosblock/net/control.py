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

from paxosblock.api.methods import Method, encode
from paxosblock.errors import (
    DeadlineError,
    NotLeaderError,
    OutcomeUnknownError,
    PaxosBlockError,
    ProtocolError,
    StorageError,
    UnavailableError,
)

Q = TypeVar("Q")
A = TypeVar("A")

PROBE_FIRST_S: Final = 0.25
PROBE_LONGEST_S: Final = 2.0
"""How long one of several NameNodes may take to say that it is alive: at first, and in the end."""
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

    Only one that does not answer, does not lead or cannot store makes us ask another: any other
    failure may have done something. Nothing is asked of one that hangs: the others come first, and
    when none of them serves it gets more time to say that it is alive. We wait for a leader
    `election_s` at most, and not at all where nobody is there.

    Raises:
        NotLeaderError: they did not agree on a leader in time; nothing was done.
        PaxosBlockError: as `call`.
    """
    deadline_s = time.monotonic() + election_s
    search = _Search(addresses)
    while True:
        try:
            return search.ask_each(method, request, timeout_s)
        except (UnavailableError, NotLeaderError, StorageError) as error:
            if time.monotonic() >= deadline_s or not search.may_succeed_after(error):
                raise
        time.sleep(_ELECTION_POLL_S)


class _Search:
    """The search of one call for the NameNode that leads."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = addresses
        self._silent: dict[str, float] = {}
        """Those that did not say that they are alive, and how long they get the next time."""

    def ask_each(self, method: Method[Q, A], request: Q, timeout_s: float) -> A:
        """Ask one after the other, the one that is named as leader next, those that hang last."""
        refusals: list[PaxosBlockError] = [UnavailableError("no NameNode is given")]
        waiting, asked = sorted(self._addresses, key=self._silent.__contains__), set[str]()
        while waiting:
            address = waiting.pop(0)
            if address in asked:
                continue
            asked.add(address)
            try:
                if len(self._addresses) > 1:
                    self._check_alive(address)
                return call(address, method, request, timeout_s)
            except NotLeaderError as error:
                refusals.append(error)
                leader = str(error.details.get("leader", ""))
                if leader:
                    waiting.insert(len(waiting) if leader in self._silent else 0, leader)
            except (UnavailableError, StorageError) as error:
                refusals.append(error)
        raise max(reversed(refusals), key=_tells)

    def may_succeed_after(self, error: PaxosBlockError) -> bool:
        """True if another one may lead soon, or one that was silent may only have been busy."""
        if isinstance(error, UnavailableError):
            return any(patience_s <= PROBE_LONGEST_S for patience_s in self._silent.values())
        return isinstance(error, NotLeaderError) or len(self._addresses) > 1

    def _check_alive(self, address: str) -> None:
        """Raise UnavailableError if it hangs: its call would take the whole time-out, and its
        outcome would be unknown.
        """
        patience_s = self._silent.pop(address, PROBE_FIRST_S)
        try:
            _exchange(address, "GET", "/healthz", None, min(patience_s, PROBE_LONGEST_S))
        except (DeadlineError, OutcomeUnknownError, UnavailableError) as error:
            if isinstance(error, UnavailableError) and not isinstance(
                error.__cause__, TimeoutError
            ):
                raise  # nobody is there
            self._silent[address] = 2 * patience_s
            raise UnavailableError(str(error), address=address) from error


def _tells(error: PaxosBlockError) -> int:
    """How much a refusal says about why nobody serves: what is broken, who leads, who is gone."""
    return (UnavailableError, NotLeaderError, StorageError).index(type(error))


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
            raise DeadlineError(f"{address} did not answer in {timeout_s:g} s") from error
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
