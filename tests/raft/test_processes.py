"""Three members as real processes on real disks: killed, stopped and continued, restarted."""

from __future__ import annotations

import http.client
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from paxosblock.local.cluster import HeldPorts
from tests.fork_server import Program
from tests.raft.linearizability import ABSENT, Operation, is_linearizable
from tests.raft.member_process import addresses
from tests.waiting import wait_until

KEYS = ("a", "b")
REQUEST_S = 0.7


def call(address: str, method: str, path: str, body: bytes = b"") -> dict[str, Any] | None:
    """The member's answer; None when no answer came, so that the outcome is unknown."""
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=REQUEST_S)
    try:
        connection.request(method, path, body)
        return msgspec.json.decode(connection.getresponse().read(), type=dict[str, Any])
    except ConnectionRefusedError:
        return {"outcome": "never"}
    except (OSError, http.client.HTTPException, msgspec.DecodeError):
        return None
    finally:
        connection.close()


class Cluster:
    """Members as processes; `None` stands for one that is down."""

    def __init__(self, folder: Path, ports: list[int]) -> None:
        self.folder = folder
        self.ports = ports
        self.addresses = addresses(ports)
        self.processes: list[subprocess.Popen[bytes] | None] = [None] * len(ports)

    def start(self, member: int) -> None:
        ports = ",".join(map(str, self.ports))
        arguments = ["--folder", str(self.folder / f"member-{member}"), "--member", str(member)]
        arguments += ["--ports", ports, "--flush-bytes", "20000"]
        command = [sys.executable, "-m", "tests.raft.member_process", *arguments]
        log = (self.folder / f"member-{member}.log").open("ab")
        with log:
            self.processes[member] = Program(command, stderr=log)

    def signal(self, member: int, number: signal.Signals) -> None:
        process = self.processes[member]
        if process is not None:
            process.send_signal(number)

    def kill(self, member: int) -> None:
        process = self.processes[member]
        if process is not None:
            process.kill()
            process.wait()
            self.processes[member] = None

    def status(self, member: int) -> dict[str, Any]:
        return call(self.addresses[member], "GET", "/status") or {}

    def are_level(self) -> bool:
        """True if all of them have applied the same entries."""
        applied = {self.status(member).get("applied_index") for member in range(3)}
        return len(applied) == 1 and None not in applied

    def ask(self, method: str, path: str, body: bytes = b"") -> dict[str, Any]:
        """The first answer of any member that is no refusal."""

        def answered() -> list[dict[str, Any]]:
            answers = (call(address, method, path, body) for address in self.addresses)
            return [each for each in answers if each is not None and "outcome" not in each]

        return wait_until(answered, 30, path)[0]

    def leader(self) -> int:
        """The member that a majority follows: it answers a read."""
        return wait_until(self._leader, 30, "a leader") - 1

    def _leader(self) -> int:
        for member, address in enumerate(self.addresses):
            answer = call(address, "GET", "/read/a")
            if answer is not None and "value" in answer:
                return member + 1
        return 0

    def close(self) -> list[int]:
        """End the processes in order; return their exit codes."""
        running = [process for process in self.processes if process is not None]
        for process in running:
            process.terminate()
        return [process.wait(30) for process in running]


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    held = HeldPorts()
    addresses_held = [held.hold("127.0.0.1:0") for _ in range(3)]
    members = Cluster(folder, [int(each.rpartition(":")[2]) for each in addresses_held])
    try:
        for member in range(3):
            members.start(member)
        yield members
    finally:
        for member in range(3):
            members.kill(member)
        held.release()


class Client(threading.Thread):
    """Reads and writes at whichever member answers, and remembers what it saw."""

    def __init__(self, members: Cluster, name: str, ended: threading.Event) -> None:
        super().__init__(name=name)
        self.members, self.ended = members, ended
        self.rng = random.Random(name)
        self.history: list[tuple[str, Operation]] = []
        self.sequence = 0

    def run(self) -> None:
        while not self.ended.is_set():
            key = self.rng.choice(KEYS)
            if self.rng.random() < 0.5:
                self._read(key)
            else:
                self._write(key)

    def _read(self, key: str) -> None:
        called = time.monotonic()
        answer = call(self.rng.choice(self.members.addresses), "GET", f"/read/{key}")
        if answer is not None and "value" in answer:
            found = answer["value"] if answer["revision"] else ABSENT
            self.history.append((key, Operation("read", found, called, time.monotonic())))

    def _write(self, key: str) -> None:
        """Ask until a member says that it is done; the request id makes that safe."""
        self.sequence += 1
        value = f"{self.name}-{self.sequence}"
        path = f"/write/{key}?client={self.name}&sequence={self.sequence}"
        called, happened = time.monotonic(), False
        while not self.ended.is_set():
            address = self.rng.choice(self.members.addresses)
            answer = call(address, "POST", path, value.encode())
            if answer is not None and "outcome" not in answer:
                operation = Operation("write", value, called, time.monotonic())
                self.history.append((key, operation))
                return
            happened = happened or answer is None or answer["outcome"] == "unknown"
        if happened:
            self.history.append((key, Operation("write", value, called, None)))


def run_load(members: Cluster, faults: Iterator[None]) -> list[tuple[str, Operation]]:
    """Let clients work while `faults` happen; each time go on when writes are answered again."""
    ended = threading.Event()
    clients = [Client(members, f"client{number}", ended) for number in range(4)]
    for client in clients:
        client.start()
    try:
        for _ in faults:
            done = sum(len(client.history) for client in clients)
            wait_until(partial(_more_than, done + 30, clients), 60, "30 more answers")
    finally:
        ended.set()
        for client in clients:
            client.join()
    return [each for client in clients for each in client.history]


def _more_than(count: int, clients: list[Client]) -> bool:
    return sum(len(client.history) for client in clients) > count


def kill_leaders(members: Cluster) -> Iterator[None]:
    for _ in range(2):
        victim = members.leader()
        members.kill(victim)
        yield
        members.start(victim)
        yield


def stop_and_continue_leaders(members: Cluster) -> Iterator[None]:
    for _ in range(2):
        victim = members.leader()
        members.signal(victim, signal.SIGSTOP)
        yield
        members.signal(victim, signal.SIGCONT)
        yield


def restart_everybody(members: Cluster) -> Iterator[None]:
    for _ in range(2):
        for member in range(len(members.processes)):
            members.kill(member)
        for member in range(len(members.processes)):
            members.start(member)
        yield


@pytest.mark.parametrize(
    "faults",
    [
        kill_leaders,
        pytest.param(stop_and_continue_leaders, marks=pytest.mark.slow),
        restart_everybody,
    ],
)
def test_the_history_is_linearizable_and_all_members_come_to_the_same_state(
    tmp_path: Path, faults: Any
) -> None:
    with cluster(tmp_path) as members:
        members.leader()
        history = run_load(members, faults(members))
        members.leader()
        for key in KEYS:
            operations = [operation for name, operation in history if name == key]
            assert len(operations) > 5
            assert is_linearizable(operations)
        wait_until(members.are_level, what="all members to have applied the same")
        assert members.close() == [0, 0, 0]


def journal_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("journal-*"))


def test_members_that_restart_often_do_not_let_the_journal_grow_for_ever(tmp_path: Path) -> None:
    """None of their lives writes the 20,000 bytes after which a flush is due."""
    with cluster(tmp_path) as members:
        for life in range(6):
            for number in range(5):
                path = f"/write/k?client=one&sequence={life * 5 + number + 1}"
                assert members.ask("POST", path, bytes(b"x" * 2000)) == {}
            wait_until(members.are_level, what="all members to have applied the same")
            next(restart_everybody(members))
        members.leader()
        folders = [tmp_path / f"member-{member}" for member in range(3)]
        wait_until(lambda: all(journal_bytes(each) < 40_000 for each in folders), 30)


def test_a_member_that_was_away_for_long_gets_the_leaders_database(tmp_path: Path) -> None:
    with cluster(tmp_path) as members:
        leader = members.leader()
        away = (leader + 1) % 3
        members.kill(away)
        for number in range(150):  # more than the others keep in memory, and several flushes
            path = f"/write/{number}?client=one&sequence={number}"
            assert members.ask("POST", path, bytes(b"x" * 1000)) == {}
        members.start(away)
        wait_until(members.are_level, 30, "all members to have applied the same")
        folder = tmp_path / f"member-{away}"
        databases = "the leader's database in place of its own"
        wait_until(lambda: [path.name[:3] for path in folder.glob("db*")] == ["db-"], 30, databases)
        wait_until(lambda: not list(tmp_path.glob("member-*/db.*")), 30, "what is left over to go")
        next(restart_everybody(members))
        members.kill(leader)
        for number in range(150):
            assert members.ask("GET", f"/read/{number}")["value"] == "x" * 1000


def test_the_procedure_for_a_lost_folder_brings_everything_back(tmp_path: Path) -> None:
    """docs/operations.md: stop all, the leader last; copy its folder to every member; start."""
    with cluster(tmp_path) as members:
        for number in range(50):
            path = f"/write/{number}?client=one&sequence={number}"
            assert members.ask("POST", path, b"%d" % number) == {}
        wait_until(members.are_level, what="a folder of every member")
        leader = members.leader()
        followers = [member for member in range(3) if member != leader]
        for member in (*followers, leader):
            members.kill(member)
        for member in followers:
            shutil.rmtree(tmp_path / f"member-{member}")
            shutil.copytree(tmp_path / f"member-{leader}", tmp_path / f"member-{member}")
        for member in followers:  # a majority without the old leader
            members.start(member)
        for number in range(50):
            assert members.ask("GET", f"/read/{number}")["value"] == f"{number}"
