"""Control calls without an event loop: what each way to fail tells the caller."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
import pytest

from paxosblock.api.methods import Once
from paxosblock.api.namenode import DELETE, DeletePath, Deletion
from paxosblock.api.status import NAMENODE_STATUS, NameNodeStatus
from paxosblock.errors import (
    DeadlineError,
    NotFoundError,
    NotLeaderError,
    Outcome,
    OutcomeUnknownError,
    PaxosBlockError,
    ProtocolError,
    SafeModeError,
    StorageError,
    UnavailableError,
)
from paxosblock.net.control import NameNodes, call, healthy, split_address
from paxosblock.net.wire import encode_error

REQUEST = DeletePath("/a")


LEADS = NameNodeStatus("nn", "", True, "", 2, 0, 0, lag={}, members=(), datanodes=())


@contextmanager
def answering(
    status: int,
    body: bytes,
    *,
    hangs_up: bool = False,
    first: int = 0,
    then: tuple[int, bytes] | None = None,
    slow: bool = False,
    says: NameNodeStatus | None = None,
    asked: list[object] | None = None,
) -> Iterator[str]:
    """An HTTP server that answers each request with this, or hangs up instead.

    After the `first` answers it gives another one, `then`. What it `says` of itself comes at once,
    None is a refusal; one that is `slow` answers only when it was asked that twice. It puts the
    requests that it gets into `asked`.
    """
    posts, questions = itertools.count(1), itertools.count(1)
    asked_twice = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path.endswith(NAMENODE_STATUS.name):
                if next(questions) == 2:
                    asked_twice.set()
                self.respond(500 if says is None else 200, msgspec.msgpack.encode(says))
                return
            if slow:
                assert asked_twice.wait(60)
            if asked is not None:
                asked.append(msgspec.msgpack.decode(request, type=DeletePath))
            if then is not None and next(posts) > first:
                self.respond(*then)
            elif not hangs_up:
                self.respond(status, body)

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
        assert not ask([closed, address]).existed


def test_where_nobody_listens_it_is_tried_until_the_time_is_up(closed: str) -> None:
    begun = time.monotonic()
    with pytest.raises(
        UnavailableError, match=rf"^cannot connect to {closed}: connection refused$"
    ):
        ask([closed, closed], retry_for_s=1.5)
    assert time.monotonic() - begun >= 1.0


def test_what_may_have_been_done_is_asked_again_under_the_same_name() -> None:
    asked: list[object] = []
    with (
        answering(200, b"", hangs_up=True, asked=asked) as first,
        answering(200, DELETED, asked=asked) as second,
    ):
        namenodes = NameNodes([first, second])
        for _ in range(2):
            assert namenodes.call_once(DELETE, lambda once: DeletePath("/a", once=once)).existed
    names = [request.once for request in asked if isinstance(request, DeletePath)]
    assert len(names) == 3, "the one that answered is asked first the next time"
    assert names[0] is not None
    assert names == [names[0], names[0], Once(names[0].session, 2)]


@contextmanager
def hanging() -> Iterator[str]:
    """Takes connections, as the system does for a process that is stopped, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


DELETED = msgspec.msgpack.encode(Deletion(existed=True))


def test_one_that_hangs_is_given_up_once_another_one_leads() -> None:
    with hanging() as hung, answering(200, DELETED, says=LEADS) as other:
        assert ask([hung, other], timeout_s=60.0, retry_for_s=60.0).existed


def test_one_that_is_only_slow_is_waited_for() -> None:
    asked: list[object] = []
    with (
        answering(200, DELETED, slow=True, says=LEADS) as slow,
        answering(200, DELETED, says=replace(LEADS, term=1), asked=asked) as old,
    ):
        assert ask([slow, old]).existed
    assert asked == []


def test_when_all_hang_the_outcome_is_unknown() -> None:
    with (
        hanging() as one,
        hanging() as two,
        pytest.raises(DeadlineError, match=r"did not answer in 0\.5 s") as caught,
    ):
        ask([one, two], timeout_s=0.5, retry_for_s=1.0)
    assert caught.value.outcome is Outcome.UNKNOWN


FULL = StorageError("the disk of NameNode nn1 is full").with_outcome(Outcome.NEVER)


def test_one_that_cannot_store_makes_us_ask_the_next() -> None:
    with (
        answering(FULL.http_status, encode_error(FULL)) as full,
        answering(200, DELETED) as other,
    ):
        assert ask([full, other]).existed


def test_that_a_disk_is_full_is_told_rather_than_that_another_one_does_not_lead() -> None:
    refusal = NotLeaderError("nobody is known to lead", leader="")
    with (
        answering(FULL.http_status, encode_error(FULL)) as full,
        answering(refusal.http_status, encode_error(refusal)) as follower,
    ):
        for addresses in ([full, follower], [follower, full], [full]):
            with pytest.raises(StorageError, match="the disk of NameNode nn1 is full"):
                ask(addresses, retry_for_s=0.6)


def test_safe_mode_is_told_rather_than_that_others_do_not_lead() -> None:
    refused, safe = NotLeaderError("it does not lead"), SafeModeError("safe mode is on")
    with (
        answering(safe.http_status, encode_error(safe)) as leader,
        answering(refused.http_status, encode_error(refused)) as follower,
    ):
        for addresses in ([leader, follower], [follower, leader]):
            with pytest.raises(SafeModeError, match="safe mode is on"):
                ask(addresses, retry_for_s=0.6)


def test_the_leader_that_another_one_names_is_asked() -> None:
    with answering(200, DELETED) as leader:
        refusal = NotLeaderError("it does not lead", leader=leader)
        with answering(refusal.http_status, encode_error(refusal)) as follower:
            assert ask([follower]).existed


def test_while_nobody_leads_it_is_asked_again_until_one_does() -> None:
    refusal = NotLeaderError("nobody is known to lead", leader="")
    refused = refusal.http_status, encode_error(refusal)
    with answering(*refused, first=3, then=(200, DELETED)) as follower:
        assert ask([follower]).existed


def test_an_election_that_does_not_end_is_reported() -> None:
    refusal = NotLeaderError("nobody is known to lead", leader="")
    with (
        answering(refusal.http_status, encode_error(refusal)) as follower,
        pytest.raises(NotLeaderError, match="nobody is known to lead"),
    ):
        ask([follower], retry_for_s=0.6)


def ask(addresses: list[str], timeout_s: float = 10.0, retry_for_s: float = 30.0) -> Deletion:
    return NameNodes(addresses, timeout_s, retry_for_s).call(DELETE, REQUEST)


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
