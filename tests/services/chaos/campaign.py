"""One run of failures against one cluster, round after round."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from paxosblock import Client
from paxosblock.local.node_process import Node
from paxosblock.protocol.types import Durability
from tests.services.chaos import checks
from tests.services.chaos.appenders import Log
from tests.services.chaos.failures import FAILURES, ChaosCluster, Failure, Scene, Target
from tests.services.chaos.report import Report
from tests.services.chaos.writers import PATIENCE_S, Writer
from tests.services.content import first_difference
from tests.waiting import wait_until

DATANODES: Final = 5
HOLD_S: Final = 2.0
"""The only NameNode is away for so long, as no writer may begin a block meanwhile."""
IN_A_ROUND: Final = (1, 2, 3, 5)
LOG: Final = "/chaos/log"
TURN_CHANCE: Final = 0.5
"""That an idle writer writes a little in a quiet period."""
READ_WITHIN_S: Final = 30.0

_log = logging.getLogger(__name__)

Rounds = Iterator[Sequence[Failure]]


class Campaign:
    """Writers at work, and rounds of failures."""

    def __init__(self, cluster: ChaosCluster, fs: Client, seed: int, appenders: int = 2) -> None:
        """`appenders` share a file, all the time but in quiet periods."""
        self.cluster = cluster
        self.fs = fs
        self.report = Report()
        self._random = random.Random(seed)
        self._number = 0
        self._writers: list[Writer] = []
        self._orphaned: list[Writer] = []  # killed, and their files are not closed yet
        self._ended: list[Writer] = []
        self._followers: list[Follower] = []
        self._appenders = appenders
        self._log = Log(cluster.url, LOG, cluster.path, random.Random(seed))
        self._scene = Scene(cluster, self._go_on)

    def run(self, rounds: Rounds) -> Report:
        """One round after the other, then every file to its end."""
        try:
            self.fs.create(LOG).close()
            for idle in (False, True):
                for durability in Durability:
                    self._start_writer(durability, idle=idle)
            for failures in rounds:
                self._round(failures)
            self._finish()
        finally:
            for writer in self._writers:
                writer.kill()
            self._log.end(kill=True)
        return self.report

    # -- a round ----------------------------------------------------------------------------------

    def _round(self, failures: Sequence[Failure]) -> None:
        with ExitStack() as at_datanodes, ExitStack() as at_namenodes:
            lasting = {Target.DATANODE: at_datanodes, Target.NAMENODE: at_namenodes}
            self._log.start(self._appenders)
            for failure in failures:
                lasting[failure.target].close()
                self._strike(failure, lasting[failure.target])
        self._quiet()
        self.report.rounds += 1

    def _strike(self, failure: Failure, lasting: ExitStack) -> None:
        """Let one thing fail, see that all go on that can, and how long that takes."""
        self._go_on()
        _log.info("%s", failure.name)
        begun_s = time.monotonic()
        lasting.enter_context(failure.happens(self._scene, self._victim(failure.target)))
        if failure.target is Target.NAMENODE and len(self.cluster.namenodes) == 1:
            held_until_s = time.monotonic() + HOLD_S
            wait_until(lambda: time.monotonic() > held_until_s)
            lasting.close()
        self._go_on()
        if failure.target is Target.NAMENODE:
            for writer in self._steady:
                writer.wait_next_block()
        outage_s = max(writer.longest_wait_s(begun_s) for writer in self._steady)
        self.report.outages_s[failure.name].append(outage_s)
        _log.info("writers waited for %.2f s", outage_s)
        self._read_idle(failure)
        self._lose_a_writer()

    def _victim(self, target: Target) -> Node:
        """The leader, or a DataNode that writers depend on now."""
        if target is Target.NAMENODE:
            return self.cluster.wait_leader()
        member = self._random.choice(self._random.choice(self._steady).members)
        (address,) = (
            node.address
            for node in self.cluster.status().datanodes
            if any(volume.storage == member for volume in node.storages)
        )
        return next(node for node in self.cluster.datanodes if node.address == address)

    def _go_on(self) -> None:
        """Wait until each steady writer has something acknowledged that it began after now."""
        now_s = time.monotonic()
        for writer in self._steady:
            writer.wait_success(now_s)

    def _read_idle(self, failure: Failure) -> None:
        """Check that all that idle writers flushed is there, whatever lasts at present."""
        for writer in self._idle:
            begun_s = time.monotonic()
            checks.check_bytes(self.fs, writer)
            took_s = time.monotonic() - begun_s
            assert took_s < READ_WITHIN_S, f"{writer.path}: read in {took_s:.1f} s"
            self.report.reads_s[failure.name].append(took_s)

    # -- writers ----------------------------------------------------------------------------------

    @property
    def _steady(self) -> list[Writer]:
        return [writer for writer in self._writers if not writer.idle]

    @property
    def _idle(self) -> list[Writer]:
        return [writer for writer in self._writers if writer.idle]

    def _start_writer(self, durability: Durability, *, idle: bool) -> None:
        self._number += 1
        path = f"/chaos/{self._number}"
        writer = Writer(self.cluster.url, path, durability, self.cluster.path, idle=idle)
        self._writers.append(writer)
        writer.wait_created()
        if idle:
            writer.give_turn()
            return
        writer.wait_success(0)
        self._followers.append(Follower(self.fs, path))

    def _lose_a_writer(self) -> None:
        """Sometimes a writer dies or closes its file now, and another one begins."""
        what = self._random.choice(("killed", "closed", "stays", "stays"))
        writer = self._random.choice(self._writers)
        if what == "stays":
            if self._appenders:
                self._log.kill_one()
            return
        self._writers.remove(writer)
        if what == "killed":
            writer.kill()
            self._orphaned.append(writer)
            self.report.writers_killed += 1
        else:
            self._close(writer)
        self._start_writer(writer.durability, idle=writer.idle)

    def _close(self, writer: Writer) -> None:
        writer.finish()
        self._ended.append(writer)
        self.report.writers_closed += 1

    # -- quiet ------------------------------------------------------------------------------------

    def _quiet(self) -> None:
        """All is well by itself, and every file so far is as it should be."""
        _log.info("quiet")
        checks.wait_whole(self.cluster)
        self._log.end_well(self.fs)
        while self._orphaned:
            writer = self._orphaned.pop()
            self.fs.take_over(writer.path)
            self._ended.append(writer)
        probe = f"/probe/{self.report.rounds}"
        self.report.blocks_checked += checks.check_new_file(self.fs, probe)
        for writer in self._steady:
            self.report.shortages_s.append(checks.wait_full(writer))
            self.report.blocks_checked += checks.check_begun_blocks(self.fs, writer)
        checks.wait_replicas(self.fs)
        for writer in self._idle:
            if self._random.random() < TURN_CHANCE:
                self.report.shortages_s.append(checks.wait_full(writer))
        for writer in (*self._ended, *self._writers):
            self.report.bytes_verified += checks.check_bytes(self.fs, writer)
        checks.wait_whole(self.cluster)

    def _finish(self) -> None:
        """Every writer closes its file, which is whole, and every follower has seen its end."""
        while self._writers:
            self._close(self._writers.pop())
        self.report.records += self._log.counts
        for writer in self._ended:
            self.report.bytes_acknowledged += writer.acknowledged
            self.report.bytes_verified += checks.check_bytes(self.fs, writer)
        self.report.blocks_whole = checks.wait_replicas(self.fs)
        for follower in self._followers:
            self.report.bytes_followed += follower.finish()


class Follower:
    """Reads a file while it is written, on a thread of its own."""

    def __init__(self, fs: Client, path: str) -> None:
        self._fs = fs
        self._path = path
        self._seen = 0
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def finish(self) -> int:
        """Wait until it has seen the end of the file, which is closed; how many bytes it saw."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), f"the follower of {self._path} does not see its end"
        if self._error is not None:
            raise AssertionError(f"the follower of {self._path} failed") from self._error
        length = self._fs.stat(self._path).size
        assert self._seen == length, f"{self._path}: {self._seen} bytes of {length} were followed"
        return length

    def _follow(self) -> None:
        try:
            for piece in self._fs.follow(self._path):
                difference = first_difference(self._path, self._seen, bytes(piece))
                assert difference is None, f"{self._path} differs at byte {difference}"
                self._seen += len(piece)
        except Exception as error:
            self._error = error


def decks(seed: int, seconds: float) -> Rounds:
    """Every failure once, in any order, one to five in a round; then again, for so long."""
    chosen, ends_s = random.Random(seed), time.monotonic() + seconds
    deck: list[Failure] = []
    while time.monotonic() < ends_s:
        if not deck:
            deck = chosen.sample(FAILURES, len(FAILURES))
        failures = _of_a_round(deck[: chosen.choice(IN_A_ROUND)])
        yield failures
        del deck[: len(failures)]


def _of_a_round(deck: Sequence[Failure]) -> Sequence[Failure]:
    """The first of these, with one that is for good at most: there are three replicas."""
    for_good = [place for place, failure in enumerate(deck) if failure.for_good]
    return deck[: for_good[1]] if len(for_good) > 1 else deck


def run(
    seed: int, rounds: Rounds, path: Path | None = None, namenodes: int = 1, appenders: int = 2
) -> Report:
    """Start a cluster and run a campaign; AssertionError tells what it found."""
    with (
        ChaosCluster(DATANODES, namenodes, path=path) as cluster,
        Client(cluster.url) as fs,
    ):
        return Campaign(cluster, fs, seed, appenders).run(rounds)
