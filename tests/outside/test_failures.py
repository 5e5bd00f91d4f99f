"""DataNodes and NameNodes that are killed while fsspec's users work."""

from __future__ import annotations

import os
import threading

from paxosblock.base.units import MIB
from paxosblock.client.fsspec import PaxosBlockFileSystem
from paxosblock.local.cluster import LocalCluster
from tests.waiting import wait_until


def test_a_datanode_killed_in_the_middle_of_a_write_costs_nothing(
    fs: PaxosBlockFileSystem, cluster: LocalCluster, home: str
) -> None:
    data = os.urandom(8 * MIB)
    with fs.open(f"{home}/a", "wb") as out:
        out.write(data[: 4 * MIB])
        hidden = out.staged.writer.status.path
        blocks = wait_until(lambda: fs.locations(hidden), what="the first block")
        victim = next(node for node in cluster.datanodes if node.address in blocks[0].hosts)
        victim.kill()
        out.write(data[4 * MIB :])
    assert fs.cat_file(f"{home}/a") == data
    victim.start()
    cluster.wait_registered()


def test_a_namenode_that_is_gone_for_a_while_only_delays_a_publication(
    fs: PaxosBlockFileSystem, cluster: LocalCluster, home: str
) -> None:
    with fs.transaction:
        fs.pipe({f"{home}/{name}": b"x" for name in "ab"})
        cluster.namenode.kill()
        again = threading.Timer(0.5, cluster.namenode.start)
        again.start()
    again.join()
    assert fs.find(home) == [f"{home}/a", f"{home}/b"]
    wait_until(lambda: len(cluster.status().datanodes) == 4, 30, "all DataNodes are back")
    cluster.wait_registered()
