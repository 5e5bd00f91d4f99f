"""`admin balancer` with real processes: a DataNode that was added empty gets its share."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from paxosblock import Client, LocalCluster
from paxosblock.base.units import MIB
from paxosblock.config import ClientConfig
from paxosblock.local.cluster_folder import Settings
from tests.children import killed_at_the_end
from tests.fork_server import Program, ended
from tests.waiting import wait_until

FILES: Final = 24
PATIENCE_S: Final = 90.0
"""For the balancer, on a machine that many others use."""
SETTINGS: Final[Settings] = {
    "namenode": {"safe_mode_extension": "1s", "datanode_stale_after": "5s"}
}
HASTY: Final[Settings] = {
    "namenode": {**SETTINGS["namenode"], "heartbeat_interval": "100ms"},
    "datanode": {"heartbeat_interval": "100ms", "delete_bandwidth": "64KiB/s"},
}
"""Reports come fast, and a source gives back the room of a moved replica after half a minute."""


def content(number: int) -> bytes:
    return bytes([number]) * (2 * MIB)


@contextmanager
def with_an_empty_datanode(
    namenodes: int, settings: Settings = SETTINGS
) -> Iterator[tuple[LocalCluster, Client]]:
    """A cluster of four DataNodes, one of which came when the files were there."""
    with LocalCluster(4, namenodes, settings=settings) as cluster:
        new = cluster.datanodes[3]
        new.stop()
        wait_until(lambda: state_of(cluster, new.name) != "live")
        with Client(cluster.url, ClientConfig(retry_for_s=PATIENCE_S)) as fs:
            for number in range(FILES):
                with fs.create(f"/{number}") as out:
                    out.write(content(number))
            assert on_new(cluster, fs) == 0
            wait_until(lambda: is_reported(cluster), what="the DataNodes to tell what they have")
            new.start()
            cluster.wait_registered()
            yield cluster, fs


def is_reported(cluster: LocalCluster) -> bool:
    """True once the heartbeats count all replicas: by what they say a threshold is made."""
    volumes = [volume for node in cluster.status().datanodes for volume in node.storages]
    return sum(volume.used_bytes for volume in volumes) >= 3 * FILES * 2 * MIB


def state_of(cluster: LocalCluster, name: str) -> str:
    return {node.node: node.state for node in cluster.status().datanodes}[name]


def members(fs: Client, number: int) -> tuple[str, ...]:
    (block,) = fs.locations(f"/{number}")
    return block.hosts


def on_new(cluster: LocalCluster, fs: Client) -> int:
    """Files of which a replica is on the new DataNode."""
    return sum(cluster.datanodes[3].address in members(fs, number) for number in range(FILES))


def all_in_order(fs: Client) -> bool:
    """Each block has its three members, neither more nor fewer."""
    return all(len(set(members(fs, number))) == 3 for number in range(FILES))


def check(fs: Client) -> None:
    """Every byte is there, and each block has its three members, all of which hold it."""
    wait_until(lambda: all_in_order(fs), PATIENCE_S, "three members of each block")
    for number in range(FILES):
        with fs.open(f"/{number}") as file:
            assert file.read() == content(number)


def threshold(cluster: LocalCluster, share: float = 1 / 4) -> str:
    """A share of what the fuller ones have, in percent: they share a disk of unknown size."""
    volumes = [volume for node in cluster.status().datanodes for volume in node.storages]
    use = max(each.used_bytes / (each.used_bytes + each.free_bytes) for each in volumes)
    return f"{use * 100 * share:.9f}"


def balancer(cluster: LocalCluster, *options: str, share: float = 1 / 4) -> list[str]:
    command = [sys.executable, "-m", "paxosblock", "--namenodes", ",".join(cluster.addresses)]
    command += ["admin", "balancer", "--threshold", threshold(cluster, share), "--json"]
    return [*command, "--timeout", f"{PATIENCE_S:.0f}s", *options]


def test_a_datanode_that_was_added_gets_its_share_also_after_a_balancer_was_killed() -> None:
    with with_an_empty_datanode(1) as (cluster, fs):
        command = balancer(cluster, "--bandwidth", "1MiB/s")
        with killed_at_the_end(Program(command, stdout=subprocess.DEVNULL)) as process:
            wait_until(lambda: on_new(cluster, fs) > 0, PATIENCE_S)
            process.kill()
        wait_until(lambda: all_in_order(fs), PATIENCE_S)
        moved_before = on_new(cluster, fs)
        assert moved_before < FILES / 2

        found = list[subprocess.CompletedProcess[str]]()

        def again() -> bool:
            """True once the NameNode does not wait for the one that was killed any more."""
            command = balancer(cluster)
            found[:] = [ended(command)]
            return "another balancer is at work" not in found[0].stderr

        wait_until(again, PATIENCE_S)
        (done,) = found
        assert (done.returncode, done.stderr) == (0, "")
        told = json.loads(done.stdout)
        assert told["phase"] == "balanced"
        assert 0 < told["moved_blocks"] <= on_new(cluster, fs) - moved_before
        assert told["moved_bytes"] == told["moved_blocks"] * 2 * MIB
        assert on_new(cluster, fs) >= FILES * 3 // 4 // 2
        check(fs)


def test_sources_that_give_room_back_slowly_give_a_new_node_its_share_and_no_more() -> None:
    """They look as full as before meanwhile. The next balancer finds that nothing is left to do."""
    one_file = 1.5 / FILES
    with with_an_empty_datanode(1, HASTY) as (cluster, fs):
        moved = []
        for _ in range(2):
            command = balancer(cluster, "--bandwidth", "4MiB/s", share=one_file)
            done = ended(command)
            assert (done.returncode, done.stderr) == (0, "")
            told = json.loads(done.stdout)
            assert told["phase"] == "balanced"
            moved.append(told["moved_blocks"])
        assert FILES * 3 // 4 - 2 <= moved[0] <= FILES * 3 // 4, "its share, and no more"
        assert moved[1] == 0
        assert on_new(cluster, fs) == moved[0]
        check(fs)


def test_a_balancer_goes_on_at_the_next_leader() -> None:
    with with_an_empty_datanode(3) as (cluster, fs):
        command = balancer(cluster, "--bandwidth", "4MiB/s")
        balancing = Program(command, stdout=subprocess.PIPE, text=True)
        with killed_at_the_end(balancing) as process:
            wait_until(lambda: on_new(cluster, fs) > 0, PATIENCE_S)
            leader = cluster.wait_leader()
            leader.kill()
            out, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
        told = json.loads(out)
        assert told["phase"] == "balanced"
        assert 0 < told["moved_blocks"] <= on_new(cluster, fs)
        check(fs)
