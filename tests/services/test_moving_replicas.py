"""Replicas move from a DataNode that is to leave, while processes are killed: none gets lost.

A copy is made, becomes a member (K12), the old member leaves (K13), the others are told (P5), what
was left is deleted (D7). Kills fall in the middle of that, at whatever step the process is.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.api.care import SET_ADMIN_STATE, AdminState, SetAdminState
from paxosblock.base.units import KIB
from paxosblock.local.cluster_folder import Settings
from paxosblock.local.node_process import Node
from paxosblock.net.calls import control
from tests.services.content import first_difference
from tests.services.test_lost_replicas import QUICK, check, put, wait_whole
from tests.waiting import wait_until

PATH = "/moves"
BLOCKS, BLOCK_BYTES = 10, 512 * KIB
ASKED_WITHIN_S = 60.0
SLOW: Settings = {
    "namenode": {**QUICK["namenode"], "copies_per_source": 1, "copies_per_target": 1},
    "datanode": {**QUICK["datanode"], "copy_bandwidth": "4MB/s"},
}


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(datanodes=4, settings=SLOW) as cluster:
        yield cluster


def whole_at(node: Node) -> frozenset[str]:
    """The blocks of which there is a whole block file among the finalized replicas on its disk."""
    names = [path for path in (node.volumes[0] / "current").iterdir() if path.suffix != ".meta"]
    return frozenset(path.name.partition(".")[0] for path in names if is_whole_file(path))


def is_whole_file(path: Path) -> bool:
    try:
        return path.stat().st_size > BLOCK_BYTES
    except FileNotFoundError:
        return False  # deleted since it was listed


class Watcher:
    """Counts the whole replicas of each block again and again, on disks, dead nodes or not."""

    def __init__(self, nodes: tuple[Node, ...]) -> None:
        self._nodes = nodes
        self.fewest: dict[str, int] = dict.fromkeys(self._seen(), 3)
        self.looks = 0
        self._over = threading.Event()

    def look(self) -> None:
        """A replica that moves is on one disk or on two: who came is looked at last."""
        seen = self._seen()
        for block, count in self.fewest.items():
            if seen[block] < count:  # a move may have come between two disks: look once more
                self.fewest[block] = min(count, self._seen()[block])
        self.looks += 1

    def _seen(self) -> Counter[str]:
        return Counter(itertools.chain.from_iterable(whole_at(node) for node in self._nodes))

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Look all the time, in a thread."""

        def run() -> None:
            while not self._over.is_set():
                self.look()

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()


def say(cluster: LocalCluster, node: Node, admin: AdminState) -> None:
    namenodes = control.BlockingNameNodes(cluster.addresses, ASKED_WITHIN_S)
    namenodes.call(SET_ADMIN_STATE, SetAdminState(node.name, admin))


def wait_moved(cluster: LocalCluster, leaving: Node, left: int) -> None:
    """Wait until so few blocks are left at a node."""
    wait_until(lambda: len(whole_at(leaving)) <= left, 120, f"{left} blocks left")


def test_kills_between_the_steps_of_moves_leave_no_block_with_fewer_whole_replicas(
    cluster: LocalCluster,
) -> None:
    with Client(cluster.url) as fs, contextlib.ExitStack() as opened:
        put(fs, PATH, BLOCKS, BLOCK_BYTES)
        wait_whole(cluster, PATH)
        before = opened.enter_context(fs.open(PATH))
        watcher = Watcher(cluster.datanodes)
        assert len(watcher.fewest) == BLOCKS
        victims = itertools.cycle((cluster.namenode, *cluster.datanodes))
        with watcher.watching():
            for leaving in cluster.datanodes[:2]:
                say(cluster, leaving, AdminState.DECOMMISSIONED)
                for left in range(len(whole_at(leaving)) - 1, 0, -2):
                    wait_moved(cluster, leaving, left)
                    victim = next(victims)
                    victim.kill()
                    victim.start()
                wait_moved(cluster, leaving, 0)
                say(cluster, leaving, AdminState.IN_SERVICE)
            wait_whole(cluster, PATH)
        assert set(watcher.fewest.values()) == {3}
        assert watcher.looks > 100
        check(fs, PATH, BLOCKS, BLOCK_BYTES)
        assert first_difference(PATH, 0, before.read()) is None, "opened before all that"
        held = Counter(itertools.chain.from_iterable(map(whole_at, cluster.datanodes)))
        assert set(held.values()) == {3}, "what was left behind is deleted"
