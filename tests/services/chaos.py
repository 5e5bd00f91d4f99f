"""Chaos: real node processes, `kill -9` at random points, and nothing acknowledged may be lost.

    python -m tests.services.chaos --seed 7 --seconds 120

Writers run as processes of their own and are killed in mid-write; DataNodes are killed, paused and
restarted, the NameNode that leads is killed and restarted, or paused where there are several
(`--namenodes 3`). A follower reads a file while it is written. Every
byte of every read is checked against what its offset must hold, and every file must be at least as
long as the last flush that returned. The seed decides the faults; the operating system decides how
they fall, so a seed names a campaign, not a replay.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from paxosblock import Client, LocalCluster
from paxosblock.config import ClientConfig
from paxosblock.errors import PaxosBlockError
from paxosblock.node_process import Node
from tests.services.content import first_difference
from tests.waiting import wait_until

FILE_BYTES = 24 << 20
DURABILITIES = ("disk", "memory")
RPC_TIMEOUT_S = 3.0
WRITER_SETTINGS = {
    "PAXOSBLOCK_CLIENT_BLOCK_SIZE": "4MiB",
    "PAXOSBLOCK_CLIENT_CHUNK_SIZE": "64KiB",
    "PAXOSBLOCK_CLIENT_VOTE_TIMEOUT": "1s",
    "PAXOSBLOCK_CLIENT_RPC_TIMEOUT": f"{RPC_TIMEOUT_S:g}s",
}


@dataclass
class WriterProcess:
    """A chaos_writer and what it was promised so far."""

    path: str
    process: subprocess.Popen[str]
    created: bool = False
    acknowledged: int = 0
    closed: bool = False
    reader: threading.Thread | None = None

    def listen(self) -> None:
        """Take down its lines until it ends."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            word, _, number = line.strip().partition(" ")
            self.created = True
            if number:
                self.acknowledged = int(number)
            self.closed = self.closed or word == "closed"

    def kill(self) -> None:
        """SIGKILL, and take down the last lines it wrote."""
        self.process.kill()
        self.finish()

    def finish(self) -> None:
        """Wait until it ended and every line is taken down."""
        self.process.wait(timeout=60)
        if self.reader is not None:
            self.reader.join(timeout=60)
        assert self.process.stdout is not None
        self.process.stdout.close()


@dataclass
class Report:
    """What a campaign did, so that an empty one cannot pass for a success."""

    writers_killed: int = 0
    writers_closed: int = 0
    datanodes_killed: int = 0
    datanodes_paused: int = 0
    namenodes_killed: int = 0
    namenodes_paused: int = 0
    bytes_acknowledged: int = 0
    bytes_verified: int = 0
    bytes_followed: int = 0
    followers_broken: list[str] = field(default_factory=list)


class Campaign:
    """One run of faults against one cluster."""

    def __init__(self, cluster: LocalCluster, fs: Client, seed: int) -> None:
        self.cluster = cluster
        self.fs = fs
        self.seed = seed
        self.random = random.Random(seed)
        self.report = Report()

    def run(self, seconds: float) -> Report:
        """Round after round until the time is over."""
        deadline = time.monotonic() + seconds
        round_number = 0
        while time.monotonic() < deadline:
            self.round(round_number)
            round_number += 1
        return self.report

    def round(self, number: int) -> None:
        """One file: written under faults, maybe orphaned, then checked to the last byte."""
        path = f"/chaos/{self.seed}/{number}"
        writer = self.start_writer(path, self.random.choice(DURABILITIES))
        wait_until(lambda: writer.created or writer.process.poll() is not None, timeout_s=30)
        assert writer.created, f"the writer of {path} ended with {writer.process.returncode}"
        follower = threading.Thread(target=self.follow, args=(path,))
        follower.start()
        with self.fault():
            self.wait_for_progress(writer)
            if self.random.random() < 0.5:
                writer.kill()
                self.report.writers_killed += 1
            else:
                wait_until(lambda: writer.process.poll() is not None, timeout_s=90)
                writer.finish()
        self.check(path, writer)
        follower.join(timeout=60)
        assert not follower.is_alive(), f"the follower of {path} does not see its end"

    def start_writer(self, path: str, durability: str) -> WriterProcess:
        """A writer in a process of its own."""
        command = [sys.executable, "-m", "tests.services.chaos_writer", self.cluster.url, path]
        options = ["--seed", path, "--size", str(FILE_BYTES), "--durability", durability]
        process = subprocess.Popen(
            command + options, stdout=subprocess.PIPE, text=True, env=os.environ | WRITER_SETTINGS
        )
        writer = WriterProcess(path, process)
        writer.reader = threading.Thread(target=writer.listen)
        writer.reader.start()
        return writer

    def wait_for_progress(self, writer: WriterProcess) -> None:
        """Let the writer come some random way further, or end."""
        goal = writer.acknowledged + self.random.randrange(1, FILE_BYTES // 2)
        wait_until(
            lambda: writer.acknowledged >= goal or writer.process.poll() is not None, timeout_s=90
        )

    @contextlib.contextmanager
    def fault(self) -> Iterator[None]:
        """Something breaks at the start and is whole again at the end."""
        kind = self.random.choice(("kill", "kill", "kill", "pause", "namenode"))
        if kind == "namenode":
            with self.leader_fault():
                yield
            return
        victim: Node = self.random.choice(self.cluster.datanodes)
        if kind == "kill":
            victim.kill()
            self.report.datanodes_killed += 1
        else:
            victim.pause()
            self.report.datanodes_paused += 1
        try:
            yield
        finally:
            if kind == "kill":
                victim.start()
            else:
                victim.resume()

    @contextlib.contextmanager
    def leader_fault(self) -> Iterator[None]:
        """The only NameNode is back at once; one of several is away until the end."""
        leader = self.cluster.wait_leader()
        alone = len(self.cluster.namenodes) == 1
        if not alone and self.random.random() < 0.5:
            leader.pause()
            self.report.namenodes_paused += 1
            try:
                yield
            finally:
                leader.resume()
            return
        leader.kill()
        self.report.namenodes_killed += 1
        if alone:
            leader.start()
        try:
            yield
        finally:
            if not alone:
                leader.start()

    def check(self, path: str, writer: WriterProcess) -> None:
        """Close the file for its writer if need be; check every byte that was acknowledged."""
        if writer.closed:
            self.report.writers_closed += 1
        else:
            assert writer.process.returncode != 1, f"the writer of {path} failed by itself"
            self.fs.take_over(path)
        with self.fs.open(path) as reader:
            data = reader.read()
        difference = first_difference(path, 0, data)
        assert difference is None, f"{path} differs at byte {difference} of {len(data)}"
        assert len(data) >= writer.acknowledged, (
            f"{path} has {len(data)} bytes, {writer.acknowledged} were acknowledged"
        )
        assert not writer.closed or len(data) == FILE_BYTES, f"{path} was closed but is short"
        self.report.bytes_acknowledged += writer.acknowledged
        self.report.bytes_verified += len(data)

    def follow(self, path: str) -> None:
        """Read the file while it is written, to its end."""
        seen = 0
        try:
            for piece in self.fs.follow(path):
                difference = first_difference(path, seen, bytes(piece))
                if difference is not None:
                    self.report.followers_broken.append(f"{path} differs at {difference}")
                    return
                seen += len(piece)
        except PaxosBlockError as error:
            self.report.followers_broken.append(f"{path}: {error.code}: {error}")
        self.report.bytes_followed += seen


def run(seed: int, seconds: float, path: Path | None = None, namenodes: int = 1) -> Report:
    """Start a cluster, run a campaign, check its report."""
    settings = {
        "namenode": {"datanode_stale_after": "1s", "datanode_dead_after": "3s"},
    }
    with (
        LocalCluster(4, namenodes, path, settings=settings) as cluster,
        Client(cluster.url, ClientConfig(rpc_timeout_s=RPC_TIMEOUT_S)) as fs,
    ):
        report = Campaign(cluster, fs, seed).run(seconds)
    assert not report.followers_broken, report.followers_broken
    return report


def main() -> None:
    """Run one campaign and print what it did."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--namenodes", type=int, default=1)
    options = parser.parse_args()
    report = run(options.seed, options.seconds, namenodes=options.namenodes)
    sys.stdout.write(f"seed {options.seed}: {report}\n")


if __name__ == "__main__":
    main()
