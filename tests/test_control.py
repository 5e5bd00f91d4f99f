"""Control calls without an event loop: what each way to fail tells the caller."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
import pytest

from paxosblock.api.namenode import DELETE, DeletePath, Deletion
from paxosblock.errors import (
    DeadlineError,
    NotFoundError,
    NotLeaderError,
    Outcome,
    OutcomeUnknownError,
    PaxosBlockError,
    ProtocolError,
    StorageError,
    UnavailableError,
)
from paxosblock.net.control import (
    PROBE_FIRST_S,
    PROBE_LONGEST_S,
    call,
    call_any,
    healthy,
    split_address,
)
from paxosblock.net.wire import encode_error

REQUEST = DeletePath("/a")


@contextmanager
def answering(
    status: int,
    body: bytes,
    *,
    hangs_up: bool = False,
    first: int = 0,
    then: tuple[int, bytes] | None = None,
    busy: bool = False,
) -> Iterator[str]:
    """An HTTP server that answers each POST with this, or hangs up instead; each GET with 200.

    After the `first` answers it gives another one, `then`. One that is `busy` answers the first
    GET only when it is asked again.
    """
    posts, gets = itertools.count(1), itertools.count(1)
    asked_again = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            if then is not None and next(posts) > first:
                self.respond(*then)
            elif not hangs_up:
                self.respond(status, body)

        def do_GET(self) -> None:
            if next(gets) > 1:
                asked_again.set()
            elif busy:
                asked_again.wait(60)
            with contextlib.suppress(OSError):  # it may have been given up
                self.respond(200, b"")

        def respond(self, code: int, content: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Nobody reads this."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def taking_one(handle: Callable[[socket.socket], object]) -> Iterator[str]:
    """A server that accepts one connection and does this with it."""

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            handle(connection)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            thread.join()


@pytest.fixture
def closed() -> Iterator[str]:
    """An address where nobody listens, and nobody else can."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


def test_an_answer_comes_back_as_its_type() -> None:
    with answering(200, msgspec.msgpack.encode(Deletion(existed=True))) as address:
        assert call(address, DELETE, REQUEST) == Deletion(existed=True)


def test_an_error_of_the_node_comes_back_as_itself() -> None:
    error = NotFoundError("'/a': no such file or directory", path="/a")
    with (
        answering(404, encode_error(error)) as address,
        pytest.raises(NotFoundError, match=r"^'/a': no such") as caught,
    ):
        call(address, DELETE, REQUEST)
    assert caught.value.details == {"path": "/a"}


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (404, b"<html>", "is not a paxosblock node: it answered HTTP 404"),
        (502, b"<html>", "is not a paxosblock node: it answered HTTP 502"),
        (200, b"<html>", "does not answer like a paxosblock node: "),
    ],
)
def test_another_web_server_is_told_apart(status: int, body: bytes, reason: str) -> None:
    with (
        answering(status, body) as address,
        pytest.raises(ProtocolError, match=rf"^{address} {reason}") as caught,
    ):
        call(address, DELETE, REQUEST)
    assert caught.value.outcome is Outcome.UNKNOWN, "the request was sent"


def test_nobody_there_means_that_nothing_was_done(closed: str) -> None:
    with pytest.raises(
        UnavailableError, match=rf"^cannot connect to {closed}: connection refused$"
    ):
        call(closed, DELETE, REQUEST)


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"])
def test_a_peer_that_hangs_up_leaves_the_outcome_unknown(said: bytes) -> None:
    def cut_off(connection: socket.socket) -> None:
        with connection.makefile("rb") as request:
            while request.readline().strip():
                """Read all of the head."""
        connection.sendall(said)

    with (
        taking_one(cut_off) as address,
        pytest.raises(OutcomeUnknownError, match=f"^{address} hung up before it answered$"),
    ):
        call(address, DELETE, REQUEST)


@pytest.mark.parametrize("retriable", [True, False])
@pytest.mark.parametrize("outcome", Outcome)
def test_an_error_of_a_newer_node_keeps_what_may_be_concluded(
    outcome: Outcome, retriable: bool
) -> None:
    error = {"code": "New", "message": "?", "outcome": outcome.value, "retriable": retriable}
    with (
        answering(500, msgspec.msgpack.encode(error)) as address,
        pytest.raises(PaxosBlockError, match=r"^\?$") as caught,
    ):
        call(address, DELETE, REQUEST)
    assert (caught.value.outcome, caught.value.retriable) == (outcome, retriable)


def test_a_node_that_does_not_know_the_call_has_done_nothing() -> None:
    strange = ProtocolError("there is no control call 'delete'").with_outcome(Outcome.NEVER)
    with (
        answering(strange.http_status, encode_error(strange)) as address,
        pytest.raises(ProtocolError, match=rf"^{address}: there is no control call") as caught,
    ):
        call(address, DELETE, REQUEST)
    assert caught.value.outcome is Outcome.NEVER


def test_a_peer_that_says_nothing_is_given_up_in_time() -> None:
    def wait_for_the_end(connection: socket.socket) -> None:
        while connection.recv(4096):
            pass

    with (
        taking_one(wait_for_the_end) as address,
        pytest.raises(DeadlineError, match=f"^{address} did not answer in 0.05 s$"),
    ):
        call(address, DELETE, REQUEST, timeout_s=0.05)


def test_the_next_address_is_asked_when_nobody_is_at_the_first(closed: str) -> None:
    with answering(200, msgspec.msgpack.encode(Deletion(existed=False))) as address:
        assert not call_any([closed, address], DELETE, REQUEST).existed
    with pytest.raises(UnavailableError, match="no NameNode is given"):
        call_any([], DELETE, REQUEST)


def test_no_other_address_is_asked_when_something_may_have_been_done() -> None:
    with (
        answering(200, b"", hangs_up=True) as first,
        answering(200, msgspec.msgpack.encode(Deletion(existed=True))) as second,
        pytest.raises(OutcomeUnknownError),
    ):
        call_any([first, second], DELETE, REQUEST)


@contextmanager
def hanging() -> Iterator[str]:
    """Takes connections, as the system does for a process that is stopped, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


DELETED = msgspec.msgpack.encode(Deletion(existed=True))


def test_one_that_hangs_is_passed_over_before_anything_is_asked_of_it() -> None:
    with hanging() as hung, answering(200, DELETED) as other:
        begun = time.monotonic()
        assert call_any([hung, other], DELETE, REQUEST).existed
        assert time.monotonic() - begun < PROBE_LONGEST_S


def test_while_the_leader_hangs_the_others_are_asked_again_until_one_of_them_leads() -> None:
    with hanging() as hung:
        refusal = NotLeaderError("it does not lead", leader=hung)
        refused = refusal.http_status, encode_error(refusal)
        with answering(*refused, first=2, then=(200, DELETED)) as other:
            assert call_any([hung, other], DELETE, REQUEST).existed


def test_a_leader_that_is_only_busy_gets_more_time_to_say_that_it_is_alive() -> None:
    with answering(200, DELETED, busy=True) as busy:
        refusal = NotLeaderError("it does not lead", leader=busy)
        with answering(refusal.http_status, encode_error(refusal)) as follower:
            assert call_any([busy, follower], DELETE, REQUEST).existed


def test_when_all_hang_it_is_said_how_long_they_were_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("paxosblock.net.control.PROBE_LONGEST_S", 2 * PROBE_FIRST_S)
    with (
        hanging() as one,
        hanging() as two,
        pytest.raises(UnavailableError, match=r"did not answer in 0\.5 s"),
    ):
        call_any([one, two], DELETE, REQUEST)


FULL = StorageError("the disk of NameNode nn1 is full")


def test_one_that_cannot_store_makes_us_ask_the_next() -> None:
    with (
        answering(FULL.http_status, encode_error(FULL)) as full,
        answering(200, DELETED) as other,
    ):
        assert call_any([full, other], DELETE, REQUEST).existed


def test_that_a_disk_is_full_is_told_rather_than_that_another_one_does_not_lead() -> None:
    refusal = NotLeaderError("nobody is known to lead", leader="")
    with (
        answering(FULL.http_status, encode_error(FULL)) as full,
        answering(refusal.http_status, encode_error(refusal)) as follower,
    ):
        for addresses in ([full, follower], [follower, full], [full]):
            with pytest.raises(StorageError, match="the disk of NameNode nn1 is full"):
                call_any(addresses, DELETE, REQUEST, election_s=0.1)


def test_the_leader_that_another_one_names_is_asked() -> None:
    with answering(200, msgspec.msgpack.encode(Deletion(existed=True))) as leader:
        refusal = NotLeaderError("it does not lead", leader=leader)
        with answering(refusal.http_status, encode_error(refusal)) as follower:
            assert call_any([follower], DELETE, REQUEST).existed


def test_an_election_that_does_not_end_is_reported() -> None:
    refusal = NotLeaderError("nobody is known to lead", leader="")
    with (
        answering(refusal.http_status, encode_error(refusal)) as follower,
        pytest.raises(NotLeaderError, match="nobody is known to lead"),
    ):
        call_any([follower], DELETE, REQUEST, election_s=0.1)


@pytest.mark.parametrize(("status", "healthy_then"), [(200, True), (503, False)])
def test_a_node_is_healthy_when_it_says_so(status: int, healthy_then: bool) -> None:
    def answer(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 %d x\r\nContent-Length: 0\r\n\r\n" % status)

    with taking_one(answer) as address:
        assert healthy(address) is healthy_then


def test_nobody_there_is_not_healthy(closed: str) -> None:
    assert not healthy(closed)


@pytest.mark.parametrize("text", ["host", ":1", "host:", "host:x", "host:65536", "host:-1", ""])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UnavailableError, match=r"is not an address: write host:port$"):
        split_address(text)


def test_addresses_may_be_ipv6() -> None:
    assert split_address("[::1]:9870") == ("::1", 9870)
