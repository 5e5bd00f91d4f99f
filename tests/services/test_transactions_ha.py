"""Transactions on three NameNodes as real processes, killed while they answer: applied once."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.api.namenode import TRANSACT, ApplicationVersion, Transact
from paxosblock.api.transaction import (
    OPERATIONS_MAX,
    AssertAbsent,
    AssertFile,
    Concat,
    Marker,
    Rename,
    TransactionOutcome,
)
from paxosblock.errors import DeadlineError, NotLeaderError, OutcomeUnknownError
from paxosblock.net.calls import control
from paxosblock.protocol.types import Durability
from tests.services.conftest import QUICK, wait_other_leader
from tests.waiting import wait_until


@dataclass
class Appender:
    """Adds numbered lines to one file, a transaction each, as a sink of micro-batches does."""

    url: str
    lines: list[bytes] = field(default_factory=list)

    def run(self, stop: threading.Event) -> None:
        with Client(self.url, QUICK) as fs:
            while not stop.is_set():
                self.append(fs, len(self.lines))

    def wait_progress(self, running: Future[None]) -> None:
        """Wait until a few more lines are there, or it failed."""
        goal = len(self.lines) + 5
        wait_until(lambda: len(self.lines) >= goal or running.done(), 30.0, "more lines")

    def append(self, fs: Client, number: int) -> None:
        line = b"line %d\n" % number
        with fs.create(f"/stream/_staged/{number}", overwrite=True) as out:
            out.write(line)
        outcome = fs.transact(
            [
                AssertFile("/stream/all", size=sum(map(len, self.lines))),
                Concat("/stream/all", (f"/stream/_staged/{number}",)),
                AssertAbsent(f"/stream/log/{number}"),
                Marker(f"/stream/log/{number}"),
            ],
            once=("stream", number),
        )
        assert outcome == TransactionOutcome(True, number)
        self.lines.append(line)


def test_each_transaction_is_applied_once_while_leaders_are_killed(
    cluster: LocalCluster, fs: Client
) -> None:
    fs.create("/stream/all").close()
    appender = Appender(cluster.url)
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(appender.run, stop)
        try:
            for _ in range(3):
                appender.wait_progress(running)
                victim = cluster.wait_leader()
                victim.kill()
                wait_other_leader(cluster, victim)
                victim.start()
            appender.wait_progress(running)
        finally:
            stop.set()
        running.result(timeout=60)
    with fs.open("/stream/all") as file:
        assert file.read() == b"".join(appender.lines)
    assert len(fs.ls("/stream/log")) == len(appender.lines)
    assert fs.transaction_status("stream") == len(appender.lines) - 1
    assert fs.ls("/stream/_staged") == []


def test_the_largest_transaction_is_applied_whole(fs: Client) -> None:
    makes = [Marker(f"/many/{number}") for number in range(OPERATIONS_MAX)]
    assert fs.transact(makes, once=("many", 0)) == TransactionOutcome(True, 0)
    assert len(fs.ls("/many")) == OPERATIONS_MAX


def test_a_transaction_whose_answer_was_lost_is_told_as_applied_by_the_next_leader(
    cluster: LocalCluster, fs: Client
) -> None:
    """The leader is killed once its entry is there; the copy of the request goes to another."""
    fs.create("/lost/staged").close()
    application = ApplicationVersion("lost", 0, "the one attempt")
    request = Transact(
        (Rename("/lost/staged", "/lost/done"),), 3, 1 << 20, Durability.DISK, "", application
    )
    old = cluster.wait_leader()
    assert control.call(old.address, TRANSACT, request, 10.0).applied
    old.kill()
    try:
        wait_other_leader(cluster, old)
        again = control.BlockingNameNodes(cluster.addresses).call(TRANSACT, request)
    finally:
        old.start()
    assert again == TransactionOutcome(True, 0)
    assert fs.exists("/lost/done")


def test_a_stopped_leader_that_continues_does_not_apply_what_another_applied(
    cluster: LocalCluster, fs: Client
) -> None:
    """It finds the request waiting and believes for a moment that it leads."""
    fs.create("/twice/staged").close()
    old = cluster.wait_leader()
    ghost = Transact(
        (Rename("/twice/staged", "/twice/ghost"),),
        3,
        1 << 20,
        Durability.DISK,
        application=ApplicationVersion("twice", 0, "ghost"),
    )
    with ThreadPoolExecutor(1) as pool:
        old.pause()
        try:
            waiting = pool.submit(control.call, old.address, TRANSACT, ghost, 20.0)
            wait_other_leader(cluster, old)
            move = [Rename("/twice/staged", "/twice/done")]
            assert fs.transact(move, once=("twice", 0)).applied
        finally:
            old.resume()
        with pytest.raises((NotLeaderError, OutcomeUnknownError)):
            waiting.result()
    assert [entry.path for entry in fs.ls("/twice")] == ["/twice/done"]


@pytest.mark.slow
def test_without_a_version_a_lost_answer_is_told_as_unknown(cluster: LocalCluster) -> None:
    leader = cluster.wait_leader()
    with Client(f"paxosblock://{leader.address}", QUICK) as alone, ThreadPoolExecutor(1) as pool:
        alone.stat("/")
        leader.pause()
        try:
            running = pool.submit(alone.transact, [Marker("/maybe")])
            wait_other_leader(cluster, leader)
        finally:
            leader.kill()
        try:
            with pytest.raises((OutcomeUnknownError, DeadlineError)):
                running.result(timeout=30)
        finally:
            leader.start()
