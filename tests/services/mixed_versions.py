"""A cluster of another revision whose nodes become today's one after the other, while a client of
today writes:  python -m tests.services.mixed_versions [REVISION]

Without a revision it is the last release; while there is none, that of a day ago. NameNodes come
first, the leader last of them, then the DataNodes. What was written is read byte for byte after
each step.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from paxosblock import Client, LocalCluster
from paxosblock.base.units import KIB
from paxosblock.config import ClientConfig
from paxosblock.local.cluster_folder import ClusterFolder
from paxosblock.local.node_process import Node
from tests.revisions import before, checkout
from tests.secure import lend_authority, ours
from tests.services.content import content, first_difference
from tests.waiting import wait_until

CONFIG: Final = ClientConfig(
    chunk_size=32 * KIB, block_size=256 * KIB, rpc_timeout_s=5.0, retry_for_s=60.0
)
FILES_PER_STEP: Final = 4
FILE_BYTES: Final = 300 * KIB
FLUSHED_BYTES: Final = 10 * KIB


def started(code: Path, path: Path) -> LocalCluster:
    """Have that revision start a cluster of three NameNodes and three DataNodes, its own way."""
    command = [sys.executable, "-m", "paxosblock", "cluster", "up", "--path", str(path)]
    command += ["--namenodes", "3", "--datanodes", "3", "--base-port", "0"]
    if made := ours():
        lend_authority(made, ClusterFolder(path).authority.parent)
        command.append("--secure")
    # `-m` looks in the current folder before it looks where the environment has the package.
    subprocess.run(command, cwd=code, check=True, stdout=subprocess.DEVNULL)
    return LocalCluster.at(path)


def runs(node: Node, code: Path) -> bool:
    """True if the node was started in the folder of this code."""
    return Path(os.readlink(f"/proc/{node.pid}/cwd")) == code


def upgrade(other: Path, path: Path) -> Iterator[str]:
    """Upgrade a new cluster in the folder `path` node by node; yield what was done, step by step.

    Raises AssertionError if anything that was acknowledged cannot be read as it was written.
    """
    other = other.resolve()
    cluster = started(other, path)
    with ExitStack() as stack:
        stack.callback(cluster.close)
        assert all(runs(node, other) for node in cluster.nodes)
        fs = stack.enter_context(Client(cluster.url, CONFIG))
        log = stack.enter_context(fs.create("/log"))
        written = list[str]()

        def work(flushed: int) -> None:
            for number in range(FILES_PER_STEP):
                name = f"/{flushed}-{number}"
                with fs.create(name) as out:
                    out.write(content(name, 0, FILE_BYTES))
                written.append(name)
            log.write(content("/log", flushed * FLUSHED_BYTES, (flushed + 1) * FLUSHED_BYTES))
            log.flush()
            for name in written:
                check(fs, name, FILE_BYTES)

        done = 0
        work(done)
        yield f"all nodes run {other}"
        leader = cluster.wait_leader()
        followers = [node for node in cluster.namenodes if node is not leader]
        for done, node in enumerate((*followers, leader, *cluster.datanodes), 1):
            node.stop()
            node.start()
            assert not runs(node, other)
            cluster.wait_registered()
            work(done)
            yield f"{node.name} runs today's code"
        log.close()
        check(fs, "/log", (done + 1) * FLUSHED_BYTES)
        wait_until(lambda: not cluster.status().replication.waiting, 60, "all replicas")


def check(fs: Client, name: str, size_bytes: int) -> None:
    with fs.open(name) as file:
        data = file.read()
    assert len(data) == size_bytes, f"{name} has {len(data)} bytes, not {size_bytes}"
    assert first_difference(name, 0, data) is None, name


def main() -> None:
    """Upgrade a cluster, and say each step."""
    parser = argparse.ArgumentParser(description="nodes of another revision become today's")
    parser.add_argument("revision", nargs="?", help="the other one, as git names it")
    revision = parser.parse_args().revision or before()
    if not revision:
        parser.error("this repository has no other revision")
    with TemporaryDirectory(prefix="paxosblock-") as folder:
        code = checkout(revision, Path(folder) / "before")
        for step in upgrade(code, Path(folder) / "cluster"):
            sys.stdout.write(f"{step}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
