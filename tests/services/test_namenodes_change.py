"""NameNodes are added, removed and replaced while the cluster runs, with real processes."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.cli.main import run
from paxosblock.local.cluster import HeldPorts
from paxosblock.local.cluster_folder import ClusterFolder, NodeEntry, NodeKind
from paxosblock.local.node_process import Node
from tests.secure import ours
from tests.services.conftest import QUICK
from tests.services.content import content
from tests.waiting import wait_until


class Editor:
    """Makes directories, one after the other, and remembers those that were acknowledged."""

    def __init__(self, fs: Client) -> None:
        self._fs = fs
        self.made: list[str] = []
        self.failure: BaseException | None = None
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            while not self._ends.is_set():
                name = f"/d{len(self.made):05}"
                self._fs.mkdirs(name)
                self.made.append(name)
        except BaseException as error:
            self.failure = error

    @contextmanager
    def at_work(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._ends.set()
            self._thread.join()

    def goes_on(self) -> None:
        """Wait until ten more were made."""
        many = len(self.made) + 10
        wait_until(lambda: self.failure is not None or len(self.made) >= many)
        assert self.failure is None


class Newcomer(Node):
    """A NameNode with an empty folder, which joins those that are named."""

    def __init__(self, cluster: LocalCluster, number: int, address: str) -> None:
        self.peers: Sequence[str] = cluster.addresses
        self.joins = True

        def command(member: NodeEntry) -> list[str]:
            words = cluster.command(member)
            words[words.index("--peers") + 1] = ",".join(self.peers)
            if (certificates := ours()) is not None:
                words[words.index("--tls-cert") + 1] = certificates.node()
            words = [word for word in words if word != "--new-cluster"]
            return [*words, "--join"] if self.joins else words

        entry = NodeEntry(NodeKind.NAMENODE, f"namenode-{number}", address)
        super().__init__(ClusterFolder(cluster.path), entry, command)


def read(fs: Client, path: str) -> bytes:
    with fs.open(path) as found:
        return found.read()


def namenodes(peers: Sequence[str], *verb: str, timeout: str = "20s") -> int:
    named = ["--namenodes", ",".join(peers), "--timeout", timeout]
    return run([*named, "admin", "namenodes", *verb])


def told(peers: Sequence[str], capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert namenodes(peers, "--json") == 0  # without a verb it lists
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def listed(peers: Sequence[str], capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [each["namenode"] for each in told(peers, capsys) if not each["waits"]]


def waiting(peers: Sequence[str], capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [each["namenode"] for each in told(peers, capsys) if each["waits"]]


def silent(peers: Sequence[str], capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [each["namenode"] for each in told(peers, capsys) if each["silent"]]


def test_a_lost_one_is_replaced_and_then_all_others_while_edits_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ports = HeldPorts()
    with LocalCluster(2, 3, tmp_path) as cluster, Client(cluster.url, QUICK) as fs:
        first = cluster.addresses
        data = content("kept", 0, 100_000)
        with fs.create("/kept", replication=2) as out:
            out.write(data)
        new = [Newcomer(cluster, 3 + n, ports.hold("127.0.0.1:0")) for n in range(3)]
        editor = Editor(fs)
        try:
            with editor.at_work():
                editor.goes_on()
                lost = next(each for each in cluster.namenodes if each is not cluster.leader)
                lost.kill()
                shutil.rmtree(lost.volumes[0])
                ports.release()
                new[0].launch()
                assert namenodes(first, "replace", lost.address, new[0].address) == 0
                now = listed(first, capsys)
                assert sorted(now) == sorted({*first, new[0].address} - {lost.address})
                editor.goes_on()
                old = [each for each in cluster.namenodes if each is not lost]
                for leaver, newcomer in zip(old, new[1:], strict=True):
                    newcomer.peers = now
                    newcomer.launch()
                    assert namenodes(now, "add", newcomer.address) == 0
                    assert namenodes(now, "remove", leaver.address) == 0
                    wait_until(lambda leaver=leaver: not leaver.alive)  # type: ignore[misc]  # typed by its default
                    assert leaver.exit_code == 0
                    assert "was removed from the list of NameNodes" in leaver.log_tail()
                    now = listed([newcomer.address], capsys)
                    editor.goes_on()
                assert sorted(now) == sorted(each.address for each in new)
            assert editor.failure is None
            with Client(f"paxosblock://{now[0]}", QUICK) as other:
                assert read(other, "/kept") == data
                there = {Path(each.path).name for each in other.ls("/")}
                assert [name for name in editor.made if name[1:] not in there] == []
                with other.create("/more", replication=2) as out:
                    out.write(data)
                assert read(other, "/more") == data
            refused = Node(ClusterFolder(cluster.path), old[0].member, cluster.command)
            refused.launch()
            wait_until(lambda: not refused.alive)
            assert "was removed from the list: if it is to come back" in refused.log_tail()
        finally:
            for each in new:
                each.kill()


def test_what_would_be_a_mistake_is_refused_in_one_line_and_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with LocalCluster(1, 3, tmp_path) as cluster:
        all_of = cluster.addresses
        lost = next(each for each in cluster.namenodes if each is not cluster.leader)

        def refused(*verb: str) -> str:
            capsys.readouterr()
            assert namenodes(all_of, *verb, timeout="2s") == 1
            (line,) = capsys.readouterr().err.splitlines()[-1:]
            return line

        strangers = "127.0.0.1:1", "127.0.0.1:2"
        assert "is no NameNode of this cluster" in refused("remove", strangers[0])
        assert "neither 127.0.0.1:1 nor 127.0.0.1:2" in refused("replace", *strangers)
        assert "no NameNode waits at 127.0.0.1:1" in refused("add", strangers[0])
        lost.kill()
        wait_until(lambda: lost.address in silent(all_of, capsys))
        # It is not removed for one that does not come.
        assert "no NameNode waits at 127.0.0.1:1" in refused("replace", lost.address, strangers[0])
        other = next(each for each in cluster.namenodes if each not in (lost, cluster.leader))
        assert "would be left to go on" in refused("remove", other.address)
        assert sorted(listed(all_of, capsys)) == sorted(all_of)
        assert namenodes(all_of, "add", all_of[0]) == 0
        assert "is a NameNode of this cluster already" in capsys.readouterr().err


def test_a_replacement_that_ended_between_its_two_changes_is_finished_by_the_same_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ports = HeldPorts()
    with LocalCluster(1, 3, tmp_path) as cluster:
        new = Newcomer(cluster, 3, ports.hold("127.0.0.1:0"))
        lost = next(each for each in cluster.namenodes if each is not cluster.leader)
        lost.kill()
        ports.release()
        new.launch()
        try:
            assert namenodes(cluster.addresses, "remove", lost.address) == 0
            wait_until(lambda: new.address in waiting(cluster.addresses, capsys))
            assert namenodes(cluster.addresses, "replace", lost.address, new.address) == 0
            wanted = {*cluster.addresses, new.address} - {lost.address}
            assert sorted(listed(cluster.addresses, capsys)) == sorted(wanted)
        finally:
            new.kill()


def test_two_namenodes_have_to_stay_and_a_single_one_is_told_how_it_grows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with LocalCluster(1, 3, tmp_path / "three") as cluster:
        leaver, other = [each for each in cluster.namenodes if each is not cluster.leader]
        assert namenodes(cluster.addresses, "remove", leaver.address) == 0
        assert namenodes(cluster.addresses, "remove", other.address) == 1
        assert "2 have to stay" in capsys.readouterr().err
    with LocalCluster(1, 1, tmp_path / "one") as cluster:
        assert namenodes(cluster.addresses, "add", "127.0.0.1:1") == 1
        assert "paxosblock admin grow" in capsys.readouterr().err
