"""Three NameNodes as real processes: killed, stopped and restarted while they are used."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.api.file_pages import GET_FILE, GetFile
from paxosblock.api.namenode import (
    DELETE,
    MKDIRS,
    STAT,
    BlockRequest,
    DeletePath,
    FileStatus,
    MakeDirectories,
    PathRequest,
)
from paxosblock.api.status import EXPLAIN
from paxosblock.config import ClientConfig
from paxosblock.errors import (
    FencedError,
    NotFoundError,
    NotLeaderError,
    OutcomeUnknownError,
    PaxosBlockError,
    UnavailableError,
)
from paxosblock.local.cluster_folder import NodeEntry, NodeKind
from paxosblock.local.node_process import Node
from paxosblock.net.calls import control
from tests.fork_server import ended
from tests.secure import url_of
from tests.services.conftest import QUICK, wait_other_leader
from tests.services.content import content
from tests.waiting import wait_until

WORKERS = 4


def followers(cluster: LocalCluster) -> tuple[Node, ...]:
    leader = cluster.wait_leader()
    return tuple(node for node in cluster.namenodes if node is not leader)


@contextmanager
def paused(node: Node) -> Iterator[None]:
    node.pause()
    try:
        yield
    finally:
        node.resume()


# --- killed under load ---------------------------------------------------------------------------


@dataclass
class Worker:
    """Makes files and moves each of them, one after the other, and remembers what it was told."""

    name: str
    url: str
    closed: list[str] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)

    def run(self, stop: threading.Event) -> None:
        with Client(self.url, QUICK) as fs:
            number = 0
            while not stop.is_set():
                self.work(fs, f"{self.name}-{number}")
                number += 1

    def work(self, fs: Client, name: str) -> None:
        with fs.create(f"/new/{name}") as out:
            out.write(name.encode())
        self.closed.append(name)
        fs.rename(f"/new/{name}", f"/old/{name}")  # no answer is lost for good
        self.moved.append(name)

    def check(self, fs: Client) -> None:
        for name in self.closed:
            places = {folder for folder in ("new", "old") if fs.exists(f"/{folder}/{name}")}
            assert len(places) == 1, f"{name} is in {places or 'no place'}"
            assert name not in self.moved or places == {"old"}
            with fs.open(f"/{places.pop()}/{name}") as file:
                assert file.read() == name.encode()


def wait_progress(workers: list[Worker]) -> None:
    """Wait until each of them has finished something that it began after now."""
    goals = [len(worker.moved) + 2 for worker in workers]
    wait_until(
        lambda: all(len(worker.moved) >= goal for worker, goal in zip(workers, goals, strict=True))
    )


def test_all_that_was_acknowledged_is_there_once_after_leaders_were_killed(
    cluster: LocalCluster, fs: Client
) -> None:
    fs.mkdirs("/old")
    workers = [Worker(f"w{number}", cluster.url) for number in range(WORKERS)]
    stop = threading.Event()
    with ThreadPoolExecutor(WORKERS) as pool:
        running = [pool.submit(worker.run, stop) for worker in workers]
        try:
            for _ in range(2):
                victim = cluster.wait_leader()
                victim.kill()
                wait_other_leader(cluster, victim)
                wait_progress(workers)
                victim.start()
        finally:
            stop.set()
        for each in running:
            each.result(timeout=60)
    for worker in workers:
        worker.check(fs)
    closed = {name for worker in workers for name in worker.closed}
    found = [status.name for folder in ("/new", "/old") for status in fs.ls(folder)]
    assert sorted(found) == sorted(closed)


def test_a_file_is_written_on_while_every_namenode_is_restarted_in_turn(
    cluster: LocalCluster, fs: Client
) -> None:
    written = 0
    with fs.create("/rolling") as out:
        for node in cluster.namenodes:
            assert node.stop()
            written += out.write(content("rolling", written, written + 100_000))
            assert out.hflush().size == written
            fs.mkdirs(f"/restarted/{node.name}")
            node.start()
    with fs.open("/rolling") as file:
        assert file.read() == content("rolling", 0, written)
    assert len(fs.ls("/restarted")) == 3


# --- stopped and continued -----------------------------------------------------------------------


def ask_alone(node: Node, path: str) -> FileStatus:
    """Ask this NameNode and no other."""
    return control.call(node.address, STAT, PathRequest(path), 10.0)


def test_a_leader_that_was_stopped_serves_no_old_state_and_changes_nothing(
    cluster: LocalCluster, fs: Client
) -> None:
    fs.mkdirs("/gone")
    old = cluster.wait_leader()
    with ThreadPoolExecutor(2) as pool:
        with paused(old):
            reading = pool.submit(ask_alone, old, "/gone")
            ghost = MakeDirectories("/ghost")
            writing = pool.submit(control.call, old.address, MKDIRS, ghost, 10.0)
            new = wait_other_leader(cluster, old)
            assert control.call(new.address, DELETE, DeletePath("/gone"), 10.0).existed
        # It finds both requests waiting, and believes for a moment that it leads.
        with pytest.raises((NotLeaderError, NotFoundError)):
            reading.result()
        with pytest.raises((NotLeaderError, OutcomeUnknownError)):
            writing.result()
    assert not fs.exists("/ghost")
    wait_until(
        lambda: (seen := cluster.namenode_status(old)) is not None and seen.role == "follower"
    )
    with pytest.raises(NotFoundError):
        ask_alone(old, "/gone")


def test_a_client_whose_leader_hangs_goes_on_soon_after_the_next_one_serves(
    cluster: LocalCluster,
) -> None:
    patient = ClientConfig(rpc_timeout_s=60.0)
    with Client(cluster.url, patient) as fs, ThreadPoolExecutor(1) as pool:
        fs.mkdirs("/before")
        old = cluster.wait_leader()
        with paused(old):
            changing = pool.submit(fs.mkdirs, "/while-it-hangs")
            wait_other_leader(cluster, old)
            served = time.monotonic()
            changing.result(timeout=60)
            # By a timer of 1 s it was one or two seconds; a busy machine gets half of one.
            assert time.monotonic() - served < 1.0
            begun = time.monotonic()
            assert not fs.exists("/never")
            assert time.monotonic() - begun < 0.5
        assert fs.exists("/while-it-hangs")


def test_a_command_passes_over_a_leader_that_hangs(cluster: LocalCluster) -> None:
    old = cluster.wait_leader()
    others = ",".join(each for each in cluster.addresses if each != old.address)
    given = ("--namenodes", f"{old.address},{others}")
    with paused(old):
        wait_other_leader(cluster, old)
        begun = time.monotonic()
        namenodes = control.BlockingNameNodes([old.address, *others.split(",")])
        assert namenodes.call(STAT, PathRequest("/")).name == ""
        assert time.monotonic() - begun < 1.0
        listing = paxosblock("fs", "ls", *given, "/")
    assert (listing.returncode, listing.stderr) == (0, "")


# --- finding the leader --------------------------------------------------------------------------


def paxosblock(*words: str) -> subprocess.CompletedProcess[str]:
    return ended([sys.executable, "-m", "paxosblock", *words])


def test_a_follower_names_the_leader_and_every_client_follows(cluster: LocalCluster) -> None:
    leader = cluster.wait_leader()
    for follower in followers(cluster):
        with pytest.raises(NotLeaderError) as caught:
            control.call(follower.address, MKDIRS, MakeDirectories("/never"), 10.0)
        assert caught.value.details["leader"] == leader.address
        with Client(f"paxosblock://{follower.address}", QUICK) as client:
            client.mkdirs(f"/through/{follower.name}")
        listing = paxosblock("fs", "ls", "-C", "--namenodes", follower.address, "/through")
        assert (listing.returncode, listing.stderr) == (0, "")
        assert f"/through/{follower.name}" in listing.stdout.splitlines()


def test_a_follower_shows_what_was_changed_a_moment_ago(cluster: LocalCluster, fs: Client) -> None:
    for number in range(20):
        fs.mkdirs(f"/seen/{number}")
        for node in cluster.namenodes:
            assert ask_alone(node, f"/seen/{number}").name == str(number)


def test_a_report_shows_every_namenode_from_the_address_of_any(cluster: LocalCluster) -> None:
    asked, other = followers(cluster)
    report = paxosblock("admin", "report", "--namenodes", asked.address)
    assert (report.returncode, report.stderr) == (0, "")
    lines = [line.split() for line in report.stdout.splitlines()]
    roles = {words[1]: words[2] for words in lines if words[0] == "NameNode"}
    expected = dict.fromkeys((asked.address, other.address), "follower")
    assert roles == expected | {cluster.wait_leader().address: "leader"}
    assert [words[4] for words in lines if words[0] == "DataNode"] == ["live,"] * 3
    other.kill()
    try:
        report = paxosblock("admin", "report", "--namenodes", asked.address)
    finally:
        other.start()
    assert report.returncode == 1
    silent = next(line for line in report.stdout.splitlines() if other.address in line)
    assert "does not answer" in silent


def test_a_new_leader_knows_at_once_where_blocks_are(cluster: LocalCluster, fs: Client) -> None:
    with fs.create("/located") as out:
        out.write(b"somewhere")
    wanted = GetFile("/located")

    def known_everywhere() -> bool:
        standings = [cluster.namenode_status(node) for node in cluster.namenodes]
        reported = [sum(at.blocks for at in seen.datanodes) for seen in standings if seen]
        return len(set(reported)) == 1

    wait_until(known_everywhere, what="the replicas to be reported to every NameNode")
    old = cluster.wait_leader()
    old.kill()
    try:
        view = control.BlockingNameNodes(cluster.addresses).call(
            GET_FILE, wanted
        )  # the first answer there is
    finally:
        old.start()
    assert [member.live for block in view.blocks for member in block.members] == [True] * 3
    assert [block.complete for block in view.blocks] == [True]


def test_the_votes_of_a_recovery_outlive_the_leader_that_counted_them(
    cluster: LocalCluster, fs: Client
) -> None:
    with Client(cluster.url, QUICK) as lost:
        out = lost.create("/recovered")
        out.write(b"flushed")
        out.hflush()
        fs.take_over("/recovered")
        (place,) = fs.locations("/recovered")
        asked = BlockRequest(place.block)
        old = cluster.wait_leader()
        told = control.call(old.address, EXPLAIN, asked, 10.0).history
        votes = tuple(line for line in told if line.event != "finalized")
        assert votes[-1].event == "recovered"
        old.kill()
        try:
            new = wait_other_leader(cluster, old)
            found = control.call(new.address, EXPLAIN, asked, 10.0).history
            with urlopen(url_of(new.address, f"block?id={place.block}"), timeout=10) as page:
                shown = page.read().decode()
            explained = paxosblock("explain", "--namenodes", cluster.url, "/recovered")
        finally:
            old.start()
        with pytest.raises(FencedError):
            out.close()
    assert tuple(line for line in found if line.event != "finalized") == votes
    assert sum(line.event in {"last vote", "recovery vote"} for line in found) >= 4
    assert shown.count("<circle") + shown.count("<rect") >= len(votes)
    assert ">recovered<" in shown
    assert "last vote" in explained.stdout


def metrics(node: Node) -> dict[str, float]:
    """Return what a NameNode counts, by name without the prefix."""
    with urlopen(url_of(node.address, "metrics"), timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    prefix = "paxosblock_namenode_"
    pairs = (line.removeprefix(prefix).split() for line in lines if line.startswith(prefix))
    return {name: float(value) for name, value in pairs}


def test_metrics_tell_where_each_namenode_stands_in_the_log(
    cluster: LocalCluster, fs: Client
) -> None:
    before = metrics(cluster.wait_leader())
    fs.mkdirs("/counted")
    leader = metrics(cluster.wait_leader())
    assert leader["raft_commit_index"] > before["raft_commit_index"]
    assert leader["raft_applied_index"] == leader["raft_commit_index"]
    assert (leader["leads"], leader["raft_elections_won"]) >= (1, 1)

    def level() -> bool:
        others = [metrics(node) for node in followers(cluster)]
        wanted = ("raft_term", "raft_commit_index", "raft_last_index")
        return all(each[name] >= leader[name] for each in others for name in wanted)

    wait_until(level)


def test_metrics_tell_the_longest_delay_of_the_event_loop_since_they_were_read(
    cluster: LocalCluster,
) -> None:
    leader = cluster.wait_leader()
    # A timer takes it, every few milliseconds: read at once again there may be none yet.
    stall = wait_until(lambda: metrics(leader)["loop_stall_seconds"])
    assert 0 < stall < 10


def test_metrics_count_strangers(cluster: LocalCluster) -> None:
    asked = cluster.wait_leader()
    before = metrics(asked)["raft_connections_refused"]
    with pytest.raises(HTTPError, match="403"):
        urlopen(url_of(asked.address, "raft"), timeout=5)
    assert metrics(asked)["raft_connections_refused"] == before + 1


# --- who belongs to the cluster ------------------------------------------------------------------


def test_a_namenode_with_another_secret_is_refused(cluster: LocalCluster, fs: Client) -> None:
    outsider, _ = followers(cluster)
    secret = cluster.path / "secret"
    right = secret.read_text()
    assert outsider.stop()
    secret.write_text("another secret, as long as it must be\n")
    try:
        outsider.start()
        fs.mkdirs("/without-the-outsider")
        said = "does not know the cluster's secret"
        wait_until(lambda: said in outsider.log_tail(), what=said)
        standing = cluster.namenode_status(outsider)
        assert standing is not None
        assert (standing.role, standing.leader) == ("follower", "")
    finally:
        secret.write_text(right)
        outsider.stop()
        outsider.start()
    leader = cluster.namenode_status(cluster.wait_leader())
    assert leader is not None

    def caught_up() -> bool:
        seen = cluster.namenode_status(outsider)
        return seen is not None and seen.commit_index >= leader.commit_index

    wait_until(caught_up)


def test_a_namenode_whose_folder_was_emptied_is_refused(cluster: LocalCluster, fs: Client) -> None:
    """It has forgotten votes and entries that others count on."""
    emptied, other = followers(cluster)
    folder = emptied.volumes[0] / "raft"
    emptied.kill()
    kept = folder.rename(folder.with_name("kept"))
    try:
        with pytest.raises(UnavailableError, match="holds no member of the cluster"):
            emptied.start()
        assert not folder.exists()
        fs.mkdirs("/without-the-emptied-one")
    finally:
        kept.rename(folder)
        emptied.start()
    other.kill()
    ended = paxosblock(*cluster.command(other.member)[3:], "--new-cluster")
    other.start()
    assert "holds a member already; start without it" in ended.stderr


class Elsewhere(LocalCluster):
    """Its NameNodes listen at one address and are known by another."""

    def command(self, member: NodeEntry) -> list[str]:
        words = super().command(member)
        if member.role is NodeKind.NAMENODE:
            place = words.index("--peers") + 1
            words[place] = words[place].replace("127.0.0.1", "localhost")
            port = member.listen.rpartition(":")[2]
            words[words.index("--listen") + 1] = f"127.0.0.1:{port}"
            words += ["--advertise", f"localhost:{port}"]
        return words


def test_namenodes_are_known_by_another_address_than_the_one_they_listen_at(tmp_path: Path) -> None:
    with Elsewhere(1, 3, tmp_path) as cluster, Client(cluster.url, QUICK) as fs:
        fs.mkdirs("/somewhere")
        assert {node.address.partition(":")[0] for node in cluster.namenodes} == {"localhost"}
        standing = cluster.namenode_status(followers(cluster)[0])
        assert standing is not None
        assert standing.leader == cluster.wait_leader().address
        assert set(standing.members) == set(cluster.addresses)


THREE = "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--peers", THREE), "must name 127.0.0.1:0 and each"),
        (("--peers", THREE, "--listen", "127.0.0.1:1"), "--peers needs --secret-file"),
        (("--peers", "127.0.0.1:1", "--listen", "127.0.0.1:1"), "only NameNode starts without it"),
        (("--peers", "nn:1", "--advertise", "nn:2"), "must name nn:2 and each"),
        (("--advertise", "127.0.0.1:1"), "--advertise, --new-cluster and --join go with --peers"),
        (("--new-cluster",), "--advertise, --new-cluster and --join go with --peers"),
        (("--join",), "--advertise, --new-cluster and --join go with --peers"),
        (
            (
                *("--peers", "127.0.0.1:1,127.0.0.1:2", "--listen", "127.0.0.1:1"),
                "--new-cluster",
            ),
            "2 NameNodes; an odd number",
        ),
        (
            ("--peers", THREE, "--listen", "127.0.0.1:1", "--secret-file", "open"),
            "others may read the secret: chmod 600 it",
        ),
        (
            ("--peers", THREE, "--listen", "127.0.0.1:1", "--secret-file", "short"),
            "the cluster secret must have at least 16 bytes",
        ),
    ],
)
def test_what_is_wrong_with_the_peers_is_one_line(
    tmp_path: Path, options: tuple[str, ...], reason: str
) -> None:
    for name, mode in (("open", 0o644), ("short", 0o600)):
        (tmp_path / name).write_text(name)
        (tmp_path / name).chmod(mode)
    given = [str(tmp_path / word) if word in ("open", "short") else word for word in options]
    listen = () if "--listen" in options else ("--listen", "127.0.0.1:0")
    ended = paxosblock("namenode", "--path", str(tmp_path / "nn"), *listen, *given)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert reason in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_folder_of_a_single_namenode_becomes_one_of_several_only_by_the_command(
    tmp_path: Path,
) -> None:
    with LocalCluster(1, path=tmp_path) as cluster:
        folder = cluster.namenode.volumes[0]
    secret = tmp_path / "secret"
    secret.write_text("a secret of the tests")
    secret.chmod(0o600)
    peers = ("--listen", "127.0.0.1:1", "--peers", THREE, "--secret-file", str(secret))
    ended = paxosblock("namenode", "--path", str(folder), *peers)
    assert "only NameNode: `paxosblock admin grow` makes it the first of several" in ended.stderr


def test_another_version_of_raftos_is_refused_with_the_way_to_the_right_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "raftos-0.2.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: raftos\nVersion: 0.2.5\n")
    secret = tmp_path / "secret"
    secret.write_text("a secret of the tests")
    secret.chmod(0o600)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    peers = ("--listen", "127.0.0.1:1", "--peers", THREE, "--secret-file", str(secret))
    ended = paxosblock("namenode", "--path", str(tmp_path / "nn"), *peers)
    assert ended.stderr.startswith("namenode: a NameNode needs raftos 0.2.6, not 0.2.5")
    assert "run: paxosblock setup raft" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_refused_call_says_that_nothing_was_done(cluster: LocalCluster) -> None:
    follower, _ = followers(cluster)
    with pytest.raises(PaxosBlockError) as caught:
        control.call(follower.address, MKDIRS, MakeDirectories("/refused"), 5.0)
    assert isinstance(caught.value, NotLeaderError)
    assert caught.value.retriable
    assert caught.value.outcome.value == "never"
