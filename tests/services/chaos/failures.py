"""A table of failures, how each begins and how it ends."""

from __future__ import annotations

import enum
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paxosblock.errors import PaxosBlockError
from paxosblock.local.node_process import Node
from paxosblock.net.serving import DISK_FAILED
from tests.disks.faults import SYNCS, WRITES, Fault
from tests.services.faulty_node import FaultyCluster
from tests.services.flooding import HALF, Restricted, connections
from tests.services.partitions import PartitionedCluster, Way
from tests.waiting import wait_until

FLOOD: Final = 1100
"""Connections to a node; it has fewer descriptors."""
SLOW_SYNCS: Final = 3
SLOW_SYNC_S: Final = 1.5
FINALIZED: Final = "current/blk_*[0-9]"
"""The block files of finalized replicas, without their `.meta` files."""
MET_WITHIN_S: Final = 60.0
"""For a node to be given work that meets the failure of its disk."""


class ChaosCluster(Restricted, FaultyCluster, PartitionedCluster):
    """Its disks can fail, its network can be cut, and its nodes have few descriptors."""


@dataclass(frozen=True, slots=True)
class Scene:
    """The place of failures; `go_on` waits until writers have something acknowledged that they
    began after the call.
    """

    cluster: ChaosCluster
    go_on: Callable[[], None]

    def restart(self, node: Node) -> None:
        """Start a node that has ended, and wait until it works with the others again."""
        started_s = time.monotonic()
        node.start()
        self.cluster.wait_leader()
        if node in self.cluster.datanodes:
            wait_until(lambda: self._heard_of(node, started_s), what=f"news of {node.name}")

    def _heard_of(self, node: Node, since_s: float) -> bool:
        """True once the leader has heard of a DataNode's process that was started then."""
        with suppress(PaxosBlockError):
            now_s = time.monotonic()
            for each in self.cluster.status().datanodes:
                if each.address == node.address:
                    return each.seconds_since_heartbeat < now_s - since_s
        return False

    def break_disk(self, node: Node, fault: Fault) -> None:
        """Return once the node has met this fault."""
        self.cluster.break_disk(node, fault)
        wait_until(
            lambda: self.cluster.met(node), MET_WITHIN_S, f"{node.name} to meet {fault.error}"
        )


class Target(enum.Enum):
    """The process that a failure meets."""

    DATANODE = "datanode"
    """A member of a block that is being written."""
    NAMENODE = "namenode"
    """The one that leads."""


Happens = Callable[[Scene, Node], AbstractContextManager[None]]
"""The failure begins with the `with`, and has taken effect then; it is over at its end."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A row of the table."""

    name: str
    target: Target
    happens: Happens
    for_good: bool = False
    """Replicas are lost: the cluster must be whole before there may be another one of these."""


@contextmanager
def killed(scene: Scene, node: Node) -> Iterator[None]:
    node.kill()
    yield
    scene.restart(node)


@contextmanager
def lost(scene: Scene, node: Node) -> Iterator[None]:
    """With its disks; an empty one comes in its place."""
    node.kill()
    for volume in node.volumes:
        shutil.rmtree(volume)
        volume.mkdir()
    yield
    scene.restart(node)


@contextmanager
def damaged(_: Scene, node: Node) -> Iterator[None]:
    """A bit of each block that it holds and that is finalized flips, and no node is told."""
    for volume in node.volumes:
        for file in volume.glob(FINALIZED):
            flip_bit(file)
    yield


def flip_bit(file: Path) -> None:
    """Damage a block file in its middle, unless it is gone by now or empty."""
    with suppress(FileNotFoundError), file.open("r+b") as opened:
        size = opened.seek(0, os.SEEK_END)
        if size:
            opened.seek(size // 2)
            (byte,) = opened.read(1)
            opened.seek(size // 2)
            opened.write(bytes([byte ^ 1]))


@contextmanager
def hung(_: Scene, node: Node) -> Iterator[None]:
    node.pause()
    try:
        yield
    finally:
        node.resume()


def cut_off(scene: Scene, node: Node) -> AbstractContextManager[None]:
    return scene.cluster.cut(node)


def deaf(scene: Scene, node: Node) -> AbstractContextManager[None]:
    return scene.cluster.cut(node, Way.IN)


def mute(scene: Scene, node: Node) -> AbstractContextManager[None]:
    return scene.cluster.cut(node, Way.OUT)


@contextmanager
def rolling_restart(scene: Scene, _: Node) -> Iterator[None]:
    """Of all DataNodes, one after the other, as for an upgrade."""
    for node in scene.cluster.datanodes:
        assert node.stop(), f"{node.name} did not close by itself"
        scene.go_on()
        scene.restart(node)
        scene.go_on()
    yield


@contextmanager
def full(scene: Scene, node: Node) -> Iterator[None]:
    scene.break_disk(node, Fault(WRITES, f"{node.volumes[0]}/", error="ENOSPC", partly=True))
    yield
    scene.cluster.mend_disk(node)


@contextmanager
def broken(scene: Scene, node: Node) -> Iterator[None]:
    """A sync fails once: the node ends, and is started again as by a supervisor."""
    scene.break_disk(node, Fault(SYNCS, f"{node.volumes[0]}/", error="EIO", times=1))
    code = wait_until(lambda: node.exit_code, what=f"{node.name} to end")
    assert code == DISK_FAILED, f"{node.name} ended with {code}: {node.log_tail()}"
    yield
    scene.cluster.mend_disk(node)
    scene.restart(node)


@contextmanager
def slow(scene: Scene, node: Node) -> Iterator[None]:
    """For a few syncs: were all of them slow, writers would begin no block for minutes."""
    scene.break_disk(node, Fault(SYNCS, "/rbw/", delay_s=SLOW_SYNC_S, times=SLOW_SYNCS))
    yield
    scene.cluster.mend_disk(node)


@contextmanager
def flooded(scene: Scene, node: Node, sent: bytes = b"") -> Iterator[None]:
    """Every NameNode has more connections than descriptors, and the leader of several hangs."""
    with ExitStack() as stack:
        for each in scene.cluster.namenodes:
            address = scene.cluster.private_address(each)
            stack.enter_context(connections(address, FLOOD, sent))
        if len(scene.cluster.namenodes) > 1:
            stack.enter_context(hung(scene, node))
        yield


def half_asked(scene: Scene, node: Node) -> AbstractContextManager[None]:
    return flooded(scene, node, HALF)


FAILURES: Final = (
    Failure("DataNode killed", Target.DATANODE, killed),
    Failure("DataNode lost with its disks", Target.DATANODE, lost, for_good=True),
    Failure("DataNode's blocks damaged", Target.DATANODE, damaged, for_good=True),
    Failure("DataNode hangs", Target.DATANODE, hung),
    Failure("DataNode cut off", Target.DATANODE, cut_off),
    Failure("DataNode hears nothing", Target.DATANODE, deaf),
    Failure("DataNode is not heard", Target.DATANODE, mute),
    Failure("DataNodes restarted in turn", Target.DATANODE, rolling_restart),
    Failure("DataNode's disk full", Target.DATANODE, full),
    Failure("DataNode's sync fails", Target.DATANODE, broken),
    Failure("DataNode's syncs slow", Target.DATANODE, slow),
    Failure("NameNode killed", Target.NAMENODE, killed),
    Failure("NameNode hangs", Target.NAMENODE, hung),
    Failure("NameNode cut off", Target.NAMENODE, cut_off),
    Failure("NameNode's disk full", Target.NAMENODE, full),
    Failure("NameNode's sync fails", Target.NAMENODE, broken),
    Failure("NameNodes flooded by idle connections", Target.NAMENODE, flooded),
    Failure("NameNodes flooded by half requests", Target.NAMENODE, half_asked),
)
