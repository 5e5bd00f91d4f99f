"""Real nodes whose disk fails: who cannot go on ends and says why, and the others go on."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from urllib.request import urlopen

import pytest

from paxosblock import Client
from paxosblock.api.datanode import LIST_REPLICAS, ListReplicas
from paxosblock.base.units import MIB
from paxosblock.cli.main import run
from paxosblock.config import ClientConfig
from paxosblock.errors import NoSpaceError, Outcome, PaxosBlockError, UnavailableError
from paxosblock.local.node_process import Node
from paxosblock.net.calls import control
from paxosblock.net.serving import DISK_FAILED
from paxosblock.protocol.types import BlockId
from tests.disks.faults import CALLS, HELD, SYNCS, WRITES, Fault
from tests.files import read, write
from tests.secure import url_of
from tests.services.faulty_node import FaultyCluster
from tests.waiting import PATIENCE_S, wait_until

SETTINGS = {
    "namenode": {"heartbeat_interval": "100ms"},
    "datanode": {"heartbeat_interval": "100ms"},
}
PATIENT = ClientConfig(block_size=2 * MIB, rpc_timeout_s=2.0, retry_for_s=20.0)
BROKEN = "Input/output error"
SOON_S = PATIENCE_S / 10
"""Two seconds are enough where nothing else runs."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyCluster]:
    path = tmp_path_factory.mktemp("three") / "cluster"
    with FaultyCluster(3, 3, path, settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def three(running: FaultyCluster) -> FaultyCluster:
    """Three NameNodes, three DataNodes, all of them well, and no name."""
    for node in running.nodes:
        running.mend_disk(node)
    running.start_missing()
    wait_until(lambda: troubles(running) == ["", "", ""], what="all NameNodes to be well")
    with Client(running.url, PATIENT) as fs:
        for entry in fs.ls("/"):
            fs.delete(entry.path, recursive=True)
    return running


def follower(cluster: FaultyCluster) -> Node:
    leader = cluster.wait_leader()
    return next(node for node in cluster.namenodes if node is not leader)


def wait_ended(node: Node) -> str:
    """Wait until the node's process has ended as one whose disk failed does; its last line."""
    # Its threads may outlive the one that leads them for a moment: it is no more, and has no code.
    code = wait_until(lambda: node.exit_code, what=f"the exit code of {node.name}")
    assert code == DISK_FAILED
    assert "Traceback" not in node.log.read_text()
    return node.log_tail().splitlines()[-1]


def make_names(fs: Client, names: range) -> None:
    for number in names:
        fs.mkdirs(f"/{number}")


@pytest.mark.parametrize("calls", [SYNCS, WRITES])
def test_a_leader_whose_disk_fails_ends_with_one_line_and_the_others_go_on(
    three: FaultyCluster, calls: tuple[str, ...]
) -> None:
    leader = three.wait_leader()
    with Client(three.url, PATIENT) as fs:
        make_names(fs, range(3))
        three.break_disk(leader, Fault(calls, path="/journal-", error="EIO", times=1))
        make_names(fs, range(3, 20))
        line = wait_ended(leader)
        assert line.startswith("namenode: ")
        assert "raft" in line
        assert BROKEN in line
        three.mend_disk(leader)
        leader.start()
        three.wait_registered()
        assert len(fs.ls("/")) == 20


def test_a_follower_whose_sync_fails_ends_and_never_tries_it_again(three: FaultyCluster) -> None:
    broken = follower(three)
    with Client(three.url, PATIENT) as fs:
        three.break_disk(broken, Fault(SYNCS, path="/journal-", error="EIO"))
        make_names(fs, range(10))
        assert BROKEN in wait_ended(broken)
        assert len(three.met(broken)) == 1
        three.mend_disk(broken)
        broken.start()
        three.wait_registered()
        assert len(fs.ls("/")) == 10


def test_a_namenode_alone_ends_when_its_sync_fails_and_has_all_it_answered_after_a_start(
    tmp_path: Path,
) -> None:
    with (
        FaultyCluster(1, 1, tmp_path / "cluster", settings=SETTINGS) as cluster,
        Client(cluster.url, PATIENT) as fs,
        ExitStack() as stack,
    ):
        make_names(fs, range(5))
        cluster.break_disk(cluster.namenode, Fault(SYNCS, path="/journal-", error="EIO"))
        impatient = stack.enter_context(Client(cluster.url, ClientConfig(retry_for_s=1.0)))
        with pytest.raises(PaxosBlockError) as caught:
            impatient.mkdirs("/unknown")
        assert caught.value.outcome is Outcome.UNKNOWN
        line = wait_ended(cluster.namenode)
        assert str(cluster.namenode.volumes[0]) in line
        assert BROKEN in line
        assert len(cluster.met(cluster.namenode)) == 1
        with pytest.raises(UnavailableError, match=BROKEN):
            cluster.wait_leader()
        cluster.mend_disk(cluster.namenode)
        cluster.namenode.start()
        cluster.wait_registered()
        assert {f"/{number}" for number in range(5)} <= {entry.path for entry in fs.ls("/")}


def test_a_datanode_goes_on_with_the_volume_that_is_left_and_the_report_names_the_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = os.urandom(5 * MIB)
    path = tmp_path / "cluster"
    with (
        FaultyCluster(3, 1, path, volumes=2, settings=SETTINGS) as cluster,
        Client(cluster.url, PATIENT) as fs,
    ):
        node = cluster.datanodes[0]
        broken, sound = node.volumes
        cluster.break_disk(node, Fault(SYNCS, path=f"{broken}/", error="EIO", times=1))
        for number in range(8):
            write(fs, f"/{number}", data)
            if cluster.met(node):
                break
        assert cluster.met(node)
        (failed,) = wait_until(lambda: failed_volumes(cluster), what="the report")
        assert str(broken) in failed
        assert BROKEN in failed
        assert run(["admin", "report", "--namenodes", ",".join(cluster.addresses)]) == 0
        assert failed in capsys.readouterr().out
        write(fs, "/after", data)
        assert read(fs, "/after") == data
        assert node.alive
        assert any((sound / "current").iterdir())


def test_a_datanode_starts_without_a_volume_whose_identity_is_damaged(tmp_path: Path) -> None:
    data = os.urandom(MIB)
    with (
        FaultyCluster(2, 1, tmp_path / "cluster", volumes=2, settings=SETTINGS) as cluster,
        Client(cluster.url, PATIENT) as fs,
    ):
        for number in range(4):
            write(fs, f"/{number}", data)
        node = cluster.datanodes[0]
        node.kill()
        damaged = node.volumes[0]
        (damaged / "VERSION").write_bytes((damaged / "VERSION").read_bytes()[:-3])
        node.start()
        (failed,) = wait_until(lambda: failed_volumes(cluster), what="the report")
        assert f"{damaged}/VERSION is damaged" in failed
        write(fs, "/after", data)
        assert [read(fs, f"/{number}") for number in (0, 1, 2, 3, "after")] == [data] * 5
        assert node.alive


def test_a_volume_that_hangs_silences_nobody_is_named_and_comes_back_when_it_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = os.urandom(3 * MIB)
    settings = SETTINGS | {
        "namenode": {"heartbeat_interval": "100ms", "datanode_stale_after": "5s"},
        "datanode": {"heartbeat_interval": "100ms", "volume_hung_after": "1s"},
    }
    with (
        FaultyCluster(1, 1, tmp_path / "cluster", volumes=2, settings=settings) as cluster,
        Client(cluster.url, PATIENT) as fs,
    ):
        (node,) = cluster.datanodes
        for number in range(4):
            write(fs, f"/{number}", data)
        hung, other = node.volumes
        cluster.break_disk(node, Fault(CALLS, path=f"{hung}/", delay_s=HELD))
        (failed,) = wait_until(lambda: failed_volumes(cluster), what="the report")
        assert str(hung) in failed
        assert "hangs since" in failed
        (seen,) = cluster.status().datanodes
        assert seen.state == "live", "its heartbeats go on"
        code = run(["admin", "report", "--namenodes", cluster.namenode.address])
        told = capsys.readouterr().out
        assert failed in told
        # The only replicas of blocks are there, which may have been missed by now.
        assert code == (" missing" in told)
        before = len(list((other / "current").iterdir()))
        write(fs, "/meanwhile", data)
        wait_until(
            lambda: len(list((other / "current").iterdir())) > before,
            what="the new block at the volume that answers",
        )
        assert node.alive
        cluster.mend_disk(node)
        wait_until(lambda: not failed_volumes(cluster), what="the volume to be back")
        for path in ("/0", "/1", "/2", "/3", "/meanwhile"):
            assert read(fs, path) == data
        cluster.break_disk(node, Fault(CALLS, path=f"{hung}/", delay_s=HELD))
        wait_until(lambda: cluster.met(node), what="the node to meet the fault")
        node.ask_to_stop()
        assert wait_ended(node).endswith(f"{hung}: it hangs: ended without it after 1 s")


@pytest.mark.parametrize("how", ["removed", "unreadable"])
def test_a_volume_that_is_gone_is_named_although_nobody_used_it(tmp_path: Path, how: str) -> None:
    with (
        FaultyCluster(1, 1, tmp_path / "cluster", volumes=2, settings=SETTINGS) as cluster,
        Client(cluster.url, PATIENT) as fs,
    ):
        (node,) = cluster.datanodes
        broken = node.volumes[1]
        if how == "removed":
            broken.rename(tmp_path / "elsewhere")
        else:
            cluster.break_disk(node, Fault(("read",), path=f"{broken}/", error="EIO"))
        (failed,) = wait_until(lambda: failed_volumes(cluster), what="the report")
        assert str(broken) in failed
        assert ("No such file" if how == "removed" else BROKEN) in failed
        write(fs, "/file", b"all")
        assert read(fs, "/file") == b"all"


def test_blocks_of_a_failed_volume_come_back_on_another_one_also_of_the_same_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, paths = os.urandom(MIB), [f"/{number}" for number in range(4)]
    with (
        FaultyCluster(3, 1, tmp_path / "cluster", volumes=2, settings=SETTINGS) as cluster,
        Client(cluster.url, PATIENT) as fs,
    ):
        for path in paths:
            write(fs, path, data)
        node = cluster.datanodes[0]
        with_blocks = [volume for volume in node.volumes if any((volume / "current").iterdir())]
        broken = with_blocks[0]
        held = storage_in(broken)
        cluster.break_disk(node, Fault(("read",), path=f"{broken}/", error="EIO"))

        def whole() -> bool:
            members = [fs.blocks.get(block).members for path in paths for block in blocks(fs, path)]
            return all(
                sum(member.live for member in each) == 3
                and held not in [member.storage for member in each]
                for each in members
            )

        wait_until(whole, what="three live members of each block, none of them the failed one")
        assert run(["admin", "report", "--namenodes", cluster.namenode.address]) == 0
        (failed,) = failed_volumes(cluster)
        assert str(broken) in failed
        assert failed in capsys.readouterr().out
        for path in paths:
            assert read(fs, path) == data


def storage_in(volume: Path) -> str:
    """The id of the storage in a folder."""
    return (volume / "VERSION").read_text().partition("storage=")[2].split()[0]


def blocks(fs: Client, path: str) -> list[BlockId]:
    return [location.block for location in fs.locations(path)]


def failed_volumes(cluster: FaultyCluster) -> list[str]:
    """Return why volumes are not used any more."""
    return [at.failed for node in cluster.status().datanodes for at in node.storages if at.failed]


def test_a_datanode_without_a_volume_left_ends_and_serves_again_after_a_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = os.urandom(3 * MIB)
    with (
        FaultyCluster(3, 1, tmp_path / "cluster", settings=SETTINGS) as cluster,
        Client(cluster.url, PATIENT) as fs,
    ):
        node = cluster.datanodes[0]
        cluster.break_disk(node, Fault(SYNCS, path="/rbw/", error="EIO", times=1))
        with fs.create("/file") as out:
            out.write(data)
        line = wait_ended(node)
        assert line.startswith("datanode: no volume is left: ")
        assert BROKEN in line
        assert run(["cluster", "status", "--path", str(cluster.path)]) == 1
        assert line in capsys.readouterr().out
        assert read(fs, "/file") == data
        cluster.mend_disk(node)
        node.start()
        cluster.wait_registered()


def test_a_datanode_starts_with_the_volumes_it_can_open_and_reports_the_other(
    tmp_path: Path,
) -> None:
    data = os.urandom(3 * MIB)
    with (
        FaultyCluster(1, 1, tmp_path / "cluster", volumes=2, settings=SETTINGS) as cluster,
        Client(cluster.url, PATIENT) as fs,
    ):
        (node,) = cluster.datanodes
        node.stop()
        cluster.break_disk(node, Fault(("open",), path=f"{node.volumes[0]}/", error="EIO"))
        node.start()
        cluster.wait_registered()
        (failed,) = wait_until(lambda: failed_volumes(cluster), what="the report")
        assert str(node.volumes[0]) in failed
        assert BROKEN in failed
        with urlopen(url_of(node.address, "healthz")) as answer:
            storages = json.load(answer)["storages"]
        assert sorted(storages.values()) == sorted([failed, "ok"])
        write(fs, "/file", data)
        assert read(fs, "/file") == data
        node.stop()
        cluster.mend_disk(node)
        node.start()
        cluster.wait_registered()
        wait_until(lambda: not failed_volumes(cluster), what="the volume to be back")


def test_a_datanode_starts_beside_a_disk_that_hangs_and_reports_it(tmp_path: Path) -> None:
    settings = SETTINGS | {"datanode": SETTINGS["datanode"] | {"volume_hung_after": "1s"}}
    with (
        FaultyCluster(1, 1, tmp_path / "cluster", volumes=2, settings=settings) as cluster,
        Client(cluster.url, PATIENT) as fs,
    ):
        (node,) = cluster.datanodes
        node.stop()
        cluster.break_disk(node, Fault(CALLS, path=f"{node.volumes[0]}/", delay_s=HELD))
        node.start()
        cluster.wait_registered()
        (failed,) = wait_until(lambda: failed_volumes(cluster), what="the report")
        assert failed == f"{node.volumes[0]}: it hangs: no answer in 1 s"
        write(fs, "/file", b"all")
        assert read(fs, "/file") == b"all"
        cluster.mend_disk(node)


def test_a_node_whose_disk_fails_at_its_start_ends_with_the_same_code(tmp_path: Path) -> None:
    with FaultyCluster(1, 1, tmp_path / "cluster", settings=SETTINGS) as cluster:
        for node in cluster.nodes:
            node.kill()
            cluster.break_disk(node, Fault(("open",), path="/lock", error="EIO"))
            node.launch()
            assert BROKEN in wait_ended(node)


NO_ROOM = Fault(WRITES, path="/raft/", error="ENOSPC", partly=True)


def troubles(cluster: FaultyCluster) -> list[str]:
    """Return what the NameNodes say of their disks, in the order of their numbers."""
    standings = [cluster.namenode_status(node) for node in cluster.namenodes]
    return [standing.trouble if standing else "silent" for standing in standings]


def test_when_the_leader_s_disk_is_full_another_one_leads_and_it_comes_back_with_room(
    three: FaultyCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    leader = three.wait_leader()
    with Client(three.url, PATIENT) as fs:
        make_names(fs, range(5))
        three.break_disk(leader, NO_ROOM)
        longest_s = 0.0
        for number in range(5, 30):
            begun_s = time.monotonic()
            make_names(fs, range(number, number + 1))
            longest_s = max(longest_s, time.monotonic() - begun_s)
        assert three.met(leader)
        assert longest_s < SOON_S
        assert three.wait_leader() is not leader
        assert leader.alive
        (trouble,) = [each for each in troubles(three) if each]
        assert "No space left on device" in trouble
        assert str(leader.volumes[0]) in trouble
        assert run(["admin", "report", "--namenodes", ",".join(three.addresses)]) == 1
        assert run(["cluster", "status", "--path", str(three.path)]) == 1
        assert trouble in capsys.readouterr().out
        three.mend_disk(leader)
        wait_until(lambda: troubles(three) == ["", "", ""], what="the full disk to have room")
        successor = three.wait_leader()
        wait_until(lambda: caught_up(three, successor), what="the others to have caught up")
        successor.kill()
        make_names(fs, range(30, 40))
        assert len(fs.ls("/")) == 40


def caught_up(cluster: FaultyCluster, leader: Node) -> bool:
    standing = cluster.namenode_status(leader)
    return standing is not None and not any(standing.lag.values())


def test_a_leader_whose_followers_disks_are_full_says_so_at_once_and_goes_on_with_room_of_one(
    three: FaultyCluster,
) -> None:
    leader = three.wait_leader()
    full = [node for node in three.namenodes if node is not leader]
    impatient = replace(PATIENT, retry_for_s=0.0)
    with Client(three.url, PATIENT) as fs, Client(three.url, impatient) as once:
        make_names(fs, range(5))
        for node in full:
            three.break_disk(node, NO_ROOM)
        begun_s = time.monotonic()
        for outcome in (Outcome.UNKNOWN, Outcome.NEVER):
            with pytest.raises(PaxosBlockError) as caught:
                once.mkdirs("/refused")
            assert caught.value.outcome is outcome
            assert all(node.address in str(caught.value) for node in full)
            assert " are full" in str(caught.value)
        assert time.monotonic() - begun_s < SOON_S
        assert len(fs.ls("/")) == 5
        three.mend_disk(full[0])
        fs.mkdirs("/made")
        names = {entry.path for entry in fs.ls("/")}
        assert names == {"/made", "/refused", *(f"/{number}" for number in range(5))}, (
            "what was unknown was in the leader's log, and is made now"
        )


def test_when_all_disks_are_full_changes_are_refused_reads_go_on_and_room_ends_it(
    three: FaultyCluster,
) -> None:
    with (
        Client(three.url, PATIENT) as fs,
        Client(three.url, ClientConfig(rpc_timeout_s=1.0, retry_for_s=1.0)) as impatient,
    ):
        make_names(fs, range(5))
        for node in three.namenodes:
            three.break_disk(node, NO_ROOM)

        def refusal() -> NoSpaceError | None:
            try:
                impatient.mkdirs("/refused")
            except NoSpaceError as error:
                return error
            except PaxosBlockError:
                return None
            raise AssertionError("there is no room for it")

        refused = wait_until(refusal, what="a NameNode to say that its disk is full")
        assert refused is not None
        assert sum(each in str(refused) for each in three.addresses) >= 2
        assert "full" in str(refused)
        assert "\n" not in str(refused)
        assert len(fs.ls("/")) == 5
        for node in three.namenodes:
            three.mend_disk(node)
        wait_until(lambda: troubles(three) == ["", "", ""], what="the disks to have room")
        make_names(fs, range(5, 10))
        assert {f"/{number}" for number in range(10)} <= {entry.path for entry in fs.ls("/")}


@pytest.mark.parametrize("folder", ["current", "rbw", "small"])
def test_a_start_answers_nothing_before_the_names_that_it_found_are_durable(
    tmp_path: Path, folder: str
) -> None:
    """The process before may have been killed between a change of a name and its sync."""
    with FaultyCluster(1, path=tmp_path / "cluster", settings=SETTINGS) as cluster:
        (node,) = cluster.datanodes
        with Client(cluster.url, PATIENT) as fs:
            write(fs, "/kept", b"kept")
        node.kill()
        found = str(node.volumes[0] / folder)
        cluster.break_disk(node, Fault(SYNCS, path=found, delay_s=HELD))
        node.launch()
        wait_until(lambda: cluster.met(node), what="the sync")
        assert cluster.met(node)[0] == f"fsync {found}"
        with pytest.raises(UnavailableError):
            control.call(node.address, LIST_REPLICAS, ListReplicas())
        cluster.mend_disk(node)
        node.wait_ready()
        assert control.call(node.address, LIST_REPLICAS, ListReplicas()).replicas
