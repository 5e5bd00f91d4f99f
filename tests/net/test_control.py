"""Control calls without an event loop: what each way to fail tells the caller."""

from __future__ import annotations

import itertools
import os
import resource
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import msgspec
import pytest
from msgspec.structs import replace

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
from paxosblock.net.calls.control import BlockingNameNodes, call, healthy
from paxosblock.net.message_frames import MessageFrame, MessageFrameKind, MessageFrames, pack
from paxosblock.net.port.upgrade import split_address
from paxosblock.net.wire import encode_error

REQUEST = DeletePath("/a")


LEADS = NameNodeStatus("nn", "", True, "", 2, 0, 0, lag={}, members=(), datanodes=())


Told = tuple[MessageFrameKind, bytes]


def refusing(error: PaxosBlockError) -> Told:
    return MessageFrameKind.ERROR, encode_error(error)


def saying(answer: object) -> Told:
    return MessageFrameKind.ANSWER, msgspec.msgpack.encode(answer)


DELETED = saying(Deletion(existed=True))


@contextmanager
def answering(
    told: Told,
    *,
    hangs_up: bool = False,
    first: int = 0,
    then: Told | None = None,
    slow: bool = False,
    says: NameNodeStatus | None = None,
    asked: list[object] | None = None,
) -> Iterator[str]:
    """A node that answers each call with the frame `told`, or hangs up instead.

    After the `first` answers it gives another one, `then`. What it `says` of itself comes at once,
    None is a refusal; one that is `slow` answers only when it was asked that twice. It puts the
    requests that it gets into `asked`.
    """
    posts, questions = itertools.count(1), itertools.count(1)
    asked_twice = threading.Event()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            begin(self.request)
            frames = MessageFrames()
            while data := self.request.recv(4096):
                frames.feed(data)
                while (frame := frames.next()) is not None:
                    if not self.answer(frame):
                        return

        def answer(self, frame: MessageFrame) -> bool:
            if frame.method == NAMENODE_STATUS.name:
                if next(questions) == 2:
                    asked_twice.set()
                kind = MessageFrameKind.ERROR if says is None else MessageFrameKind.ANSWER
                self.request.sendall(pack(kind, frame.number, msgspec.msgpack.encode(says)))
                return True
            if slow:
                assert asked_twice.wait(60)
            if asked is not None:
                asked.append(msgspec.msgpack.decode(frame.payload, type=DeletePath))
            changed = then is not None and next(posts) > first
            if changed or not hangs_up:
                said = then if changed and then is not None else told
                self.request.sendall(pack(said[0], frame.number, said[1]))
            return changed or not hangs_up

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


class Server(socketserver.ThreadingTCPServer):
    """Its threads end with their connections."""

    block_on_close = False
    daemon_threads = True


def begin(connection: socket.socket) -> None:
    """Agree to speak in frames."""
    with connection.makefile("rb") as request:
        assert request.readline() == b"GET /calls HTTP/1.1\r\n"
        while request.readline().strip():
            """Read all of the head."""
    connection.sendall(b"HTTP/1.1 101 x\r\nUpgrade: paxosblock-calls/1\r\n\r\n")


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
    """An address where no process listens, and no other one can."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


def test_an_answer_comes_back_as_its_type() -> None:
    with answering(DELETED) as address:
        assert call(address, DELETE, REQUEST) == Deletion(existed=True)


def test_an_error_of_the_node_comes_back_as_itself() -> None:
    error = NotFoundError("'/a': no such file or directory", path="/a")
    with (
        answering(refusing(error)) as address,
        pytest.raises(NotFoundError, match=r"^'/a': no such") as caught,
    ):
        call(address, DELETE, REQUEST)
    assert caught.value.details == {"path": "/a"}


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"HTTP/1.1 404 Not\r\n\r\n<html>", "does not speak paxosblock-calls/1: HTTP/1.1 404"),
        (b"HTTP/1.1 426 No\r\nUpgrade: paxosblock-calls/9\r\n\r\n", "does not speak .*: .* 426 No"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "does not speak paxosblock-calls/1: HTTP/1.1 200"),
        (b"HTTP/1.1 101 x\r\nUpgrade: h2c\r\n\r\n", "does not speak paxosblock-calls/1$"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "is no paxosblock node: it answered b'SSH-2.0"),
    ],
)
def test_another_server_is_told_apart_before_it_is_asked(said: bytes, reason: str) -> None:
    def answer(connection: socket.socket) -> None:
        connection.sendall(connection.recv(4096) and said)

    with (
        taking_one(answer) as address,
        pytest.raises(ProtocolError, match=rf"^{address} {reason}") as caught,
    ):
        call(address, DELETE, REQUEST)
    assert caught.value.outcome is Outcome.NEVER


@pytest.mark.parametrize(
    "told",
    [
        (MessageFrameKind.ANSWER, b"<html>"),
        (MessageFrameKind.ERROR, b"<html>"),
    ],
)
def test_an_answer_that_is_none_leaves_the_outcome_unknown(told: Told) -> None:
    with (
        answering(told) as address,
        pytest.raises(ProtocolError, match=rf"^{address} does not answer like a") as caught,
    ):
        call(address, DELETE, REQUEST)
    assert caught.value.outcome is Outcome.UNKNOWN, "the request was sent"


def test_bytes_that_are_no_frame_leave_the_outcome_unknown() -> None:
    def babble(connection: socket.socket) -> None:
        begin(connection)
        connection.sendall(connection.recv(4096) and b"x" * 100)

    with (
        taking_one(babble) as address,
        pytest.raises(ProtocolError, match=rf"^{address} does not answer like a") as caught,
    ):
        call(address, DELETE, REQUEST)
    assert caught.value.outcome is Outcome.UNKNOWN


def test_a_node_that_took_no_call_before_it_went_has_done_nothing() -> None:
    def leave(connection: socket.socket) -> None:
        begin(connection)
        why = encode_error(UnavailableError("the node is closing"))
        connection.sendall(connection.recv(4096) and pack(MessageFrameKind.GOODBYE, 0, why))

    with (
        taking_one(leave) as address,
        pytest.raises(UnavailableError, match=rf"^{address}: the node is closing$") as caught,
    ):
        call(address, DELETE, REQUEST)
    assert caught.value.outcome is Outcome.NEVER


def test_the_calls_of_a_command_share_a_connection() -> None:
    asked: list[object] = []
    with taking_one(lambda connection: serve(connection, asked)) as address:
        namenodes = BlockingNameNodes([address])
        for _ in range(3):
            assert namenodes.call(DELETE, REQUEST).existed
        del namenodes
    assert len(asked) == 3


def test_a_program_with_more_open_files_than_select_takes_asks_again() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    asked: list[object] = []
    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        while stack.enter_context(open(os.devnull)).fileno() < 1024:
            pass
        address = stack.enter_context(taking_one(lambda connection: serve(connection, asked)))
        namenodes = BlockingNameNodes([address])
        for _ in range(2):
            assert namenodes.call(DELETE, REQUEST).existed
        del namenodes
    assert len(asked) == 2


def serve(connection: socket.socket, asked: list[object]) -> None:
    """Answer until the other end hangs up."""
    begin(connection)
    frames = MessageFrames()
    while data := connection.recv(4096):
        frames.feed(data)
        while (frame := frames.next()) is not None:
            asked.append(frame.payload)
            connection.sendall(pack(DELETED[0], frame.number, DELETED[1]))


def test_nobody_there_means_that_nothing_was_done(closed: str) -> None:
    with pytest.raises(
        UnavailableError, match=rf"^cannot connect to {closed}: connection refused$"
    ):
        call(closed, DELETE, REQUEST)


@pytest.mark.parametrize("said", [b"", pack(DELETED[0], 1, DELETED[1])[:-1]])
def test_a_peer_that_hangs_up_leaves_the_outcome_unknown(said: bytes) -> None:
    def cut_off(connection: socket.socket) -> None:
        begin(connection)
        connection.sendall(connection.recv(4096) and said)

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
        answering((MessageFrameKind.ERROR, msgspec.msgpack.encode(error))) as address,
        pytest.raises(PaxosBlockError, match=r"^\?$") as caught,
    ):
        call(address, DELETE, REQUEST)
    assert (caught.value.outcome, caught.value.retriable) == (outcome, retriable)


def test_a_node_that_does_not_know_the_call_has_done_nothing() -> None:
    strange = ProtocolError("there is no control call 'delete'").with_outcome(Outcome.NEVER)
    with (
        answering(refusing(strange)) as address,
        pytest.raises(ProtocolError, match=rf"^{address}: there is no control call") as caught,
    ):
        call(address, DELETE, REQUEST)
    assert caught.value.outcome is Outcome.NEVER


def wait_for_the_end(connection: socket.socket) -> None:
    while connection.recv(4096):
        pass


def test_a_peer_that_does_not_answer_is_given_up_in_time() -> None:
    def say_nothing(connection: socket.socket) -> None:
        begin(connection)
        wait_for_the_end(connection)

    with (
        taking_one(say_nothing) as address,
        pytest.raises(DeadlineError, match=f"^{address} did not answer in 0.05 s$"),
    ):
        call(address, DELETE, REQUEST, timeout_s=0.05)


def test_a_peer_that_does_not_even_take_the_call_has_done_nothing() -> None:
    with (
        taking_one(wait_for_the_end) as address,
        pytest.raises(UnavailableError, match=f"^{address} did not answer in 0.05 s$"),
    ):
        call(address, DELETE, REQUEST, timeout_s=0.05)


def test_the_next_address_is_asked_when_nobody_is_at_the_first(closed: str) -> None:
    with answering(saying(Deletion(existed=False))) as address:
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
        answering(DELETED, hangs_up=True, asked=asked) as first,
        answering(DELETED, asked=asked) as second,
    ):
        namenodes = BlockingNameNodes([first, second])
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


def test_one_that_hangs_is_given_up_once_another_one_leads() -> None:
    with hanging() as hung, answering(DELETED, says=LEADS) as other:
        assert ask([hung, other], timeout_s=60.0, retry_for_s=60.0).existed


def test_one_that_is_only_slow_is_waited_for() -> None:
    asked: list[object] = []
    with (
        answering(DELETED, slow=True, says=LEADS) as slow,
        answering(DELETED, says=replace(LEADS, term=1), asked=asked) as old,
    ):
        assert ask([slow, old]).existed
    assert asked == []


def test_when_all_hang_before_they_take_a_call_nothing_was_done() -> None:
    with (
        hanging() as one,
        hanging() as two,
        pytest.raises(UnavailableError, match=r"did not answer in 0\.5 s") as caught,
    ):
        ask([one, two], timeout_s=0.5, retry_for_s=1.0)
    assert caught.value.outcome is Outcome.NEVER


FULL = StorageError("the disk of NameNode nn1 is full").with_outcome(Outcome.NEVER)


def test_one_that_cannot_store_makes_us_ask_the_next() -> None:
    with (
        answering(refusing(FULL)) as full,
        answering(DELETED) as other,
    ):
        assert ask([full, other]).existed


def test_that_a_disk_is_full_is_told_rather_than_that_another_one_does_not_lead() -> None:
    refusal = NotLeaderError("nobody is known to lead", leader="")
    with (
        answering(refusing(FULL)) as full,
        answering(refusing(refusal)) as follower,
    ):
        for addresses in ([full, follower], [follower, full], [full]):
            with pytest.raises(StorageError, match="the disk of NameNode nn1 is full"):
                ask(addresses, retry_for_s=0.6)


def test_safe_mode_is_told_rather_than_that_others_do_not_lead() -> None:
    refused, safe = NotLeaderError("it does not lead"), SafeModeError("safe mode is on")
    with (
        answering(refusing(safe)) as leader,
        answering(refusing(refused)) as follower,
    ):
        for addresses in ([leader, follower], [follower, leader]):
            with pytest.raises(SafeModeError, match="safe mode is on"):
                ask(addresses, retry_for_s=0.6)


def test_the_leader_that_another_one_names_is_asked() -> None:
    with answering(DELETED) as leader:
        refusal = NotLeaderError("it does not lead", leader=leader)
        with answering(refusing(refusal)) as follower:
            assert ask([follower]).existed


def test_while_nobody_leads_it_is_asked_again_until_one_does() -> None:
    refusal = NotLeaderError("nobody is known to lead", leader="")
    with answering(refusing(refusal), first=3, then=DELETED) as follower:
        assert ask([follower]).existed


def test_an_election_that_does_not_end_is_reported() -> None:
    refusal = NotLeaderError("nobody is known to lead", leader="")
    with (
        answering(refusing(refusal)) as follower,
        pytest.raises(NotLeaderError, match="nobody is known to lead"),
    ):
        ask([follower], retry_for_s=0.6)


def ask(addresses: list[str], timeout_s: float = 10.0, retry_for_s: float = 30.0) -> Deletion:
    return BlockingNameNodes(addresses, timeout_s, retry_for_s).call(DELETE, REQUEST)


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
