"""A cluster whose blocks moved since the backup gets its catalog back, as docs/operations.md says.

Real processes.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.api.fsck_call import CHECK_FILES, CheckFiles
from paxosblock.api.namenode import BlockView
from paxosblock.cli.text import counted
from paxosblock.local.cluster_folder import ClusterFolder
from paxosblock.net.calls.control import BlockingNameNodes
from tests.cli.conftest import Paxosblock
from tests.services.content import content
from tests.services.test_leaving_nodes import QUICK, blocks
from tests.services.test_lost_replicas import counted as metric
from tests.waiting import wait_until

LOSE = "--yes-lose-data"
WITHIN_S = 90.0
"""On a machine that is busy."""
SIZES = (10, 5_000, 300_000)
"""Some share a log at the DataNodes, some have files there."""
FILES = tuple(f"/data/{size}-{number}" for size in SIZES for number in range(4))


@pytest.fixture(params=[1, 3])
def cluster(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    paxosblock: Paxosblock,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[LocalCluster]:
    """A cluster of four DataNodes; commands find it by the environment."""
    del paxosblock  # it takes the address away, which is set again here
    folder = tmp_path / "cluster"
    with LocalCluster(4, request.param, folder, settings=QUICK) as cluster:
        monkeypatch.setenv("PAXOSBLOCK_NAMENODES", ",".join(cluster.addresses))
        yield cluster


def size_of(path: str) -> int:
    return int(path.rpartition("/")[2].partition("-")[0])


def write(fs: Client) -> None:
    for path in FILES:
        with fs.create(path) as out:
            out.write(content(path, 0, size_of(path)))


def check(fs: Client, appended: dict[str, int] | None = None) -> None:
    """Every byte is there, and what was appended."""
    for path in FILES:
        more = (appended or {}).get(path, 0)
        with fs.open(path) as file:
            assert file.read() == content(path, 0, size_of(path) + more), path


def views(cluster: LocalCluster) -> list[BlockView]:
    return [block for path in FILES for block in blocks(cluster, path)]


def move_blocks(cluster: LocalCluster, fs: Client, paxosblock: Paxosblock) -> None:
    """Every block gets another version: a DataNode leaves for good, and files ask for fewer and
    for more replicas."""
    before = {view.record.block: view.record for view in views(cluster)}
    gone = cluster.datanodes[0].address
    assert paxosblock("admin", "decommission", "--wait", gone).code == 0
    assert paxosblock("fs", "setrep", "-w", "2", "/data").code == 0

    def moved() -> list[str] | None:
        now = views(cluster)
        late = [view for view in now if len(view.record.members) != 2]
        return None if late else [str(view.record.block) for view in now]

    wait_until(moved, WITHIN_S, "two replicas of each block")
    after = {view.record.block: view.record for view in views(cluster)}
    assert all(after[each].generation > before[each].generation for each in before)


def lose_the_catalog_and_restore(
    cluster: LocalCluster, folder: Path, paxosblock: Paxosblock, backup: Path
) -> None:
    """Steps 1 to 3 of the page."""
    for node in cluster.namenodes:
        node.kill()
        shutil.rmtree(node.volumes[0])
    first, *others = cluster.namenodes
    peers = ("--peers", ",".join(cluster.addresses)) if others else ()
    told = paxosblock("admin", "restore", backup, "--path", first.volumes[0], *peers, LOSE)
    assert (told.code, told.err) == (0, "")
    if others:
        ClusterFolder(folder / "cluster").mark_growing()  # so the others start with --join
    for node in cluster.namenodes:
        node.launch()
    for node in cluster.namenodes:
        node.wait_ready()
    cluster.wait_registered()


def wait_learned(cluster: LocalCluster) -> None:
    def learned() -> bool | None:
        return not any(view.record.restored for view in views(cluster)) or None

    wait_until(learned, WITHIN_S, "all blocks are learned")


def alarms(cluster: LocalCluster, paxosblock: Paxosblock) -> str:
    told = paxosblock("admin", "report")
    return "\n".join(line for line in told.out.splitlines() if "larm" in line)


def test_files_whose_blocks_moved_since_the_backup_are_all_there_after_a_restore(
    cluster: LocalCluster,
    tmp_path: Path,
    paxosblock: Paxosblock,
) -> None:
    backup = tmp_path / "backup"
    with Client(cluster.url) as fs:
        write(fs)
        assert paxosblock("admin", "backup", backup).code == 0
        move_blocks(cluster, fs, paxosblock)
        lose_the_catalog_and_restore(cluster, tmp_path, paxosblock, backup)
        check(fs)  # step 4: files can be read
        wait_learned(cluster)
        assert alarms(cluster, paxosblock) == ""
        assert paxosblock("admin", "fsck").out.endswith("is HEALTHY\n")
        assert paxosblock("admin", "safemode", "leave").code == 0  # step 5
        told = paxosblock("fsck", "--delete-corrupt", "--yes", "/")
        assert (told.code, "Deleted" in told.out) == (0, False)
        check(fs)
        whole(cluster)
        assert alarms(cluster, paxosblock) == ""
        with fs.append(FILES[0]) as out:
            out.write(content(FILES[0], 0, size_of(FILES[0]) + 7)[-7:])
        check(fs, {FILES[0]: 7})


def test_the_report_counts_blocks_that_wait_for_a_datanode_after_a_restore(
    cluster: LocalCluster, tmp_path: Path, paxosblock: Paxosblock
) -> None:
    backup = tmp_path / "backup"
    with Client(cluster.url) as fs:
        write(fs)
    assert paxosblock("admin", "backup", backup).code == 0
    absent = cluster.datanodes[0]
    waiting = sum(
        absent.address in (member.address for member in view.members) for view in views(cluster)
    )
    assert waiting > 0
    absent.kill()
    lose_the_catalog_and_restore(cluster, tmp_path, paxosblock, backup)

    def shown() -> tuple[list[str], float]:
        told = paxosblock("admin", "report").out.splitlines()
        most = max(metric(node, "blocks_to_learn") for node in cluster.namenodes)
        return [line for line in told if line.startswith("Restored")], most

    why = "until its DataNodes have told what became of it"
    line = f"Restored  {counted(waiting, 'block')} of the backup wait {why}"
    wait_until(lambda: shown() == ([line], waiting), WITHIN_S, "it says how many wait")
    absent.start()
    wait_until(lambda: shown() == ([], 0), WITHIN_S, "none waits any more")


def whole(cluster: LocalCluster) -> None:
    """Wait until all files have the replicas that the backup asks for."""

    def in_order() -> bool | None:
        page = BlockingNameNodes(cluster.addresses).call(CHECK_FILES, CheckFiles("/"))
        return not page.findings or None

    wait_until(in_order, WITHIN_S, "every block has its replicas")
