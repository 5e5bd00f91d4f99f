"""`paxosblock admin backup` and `restore`: a cluster that lost its catalog has that of a backup."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.api.namenode import ADD_BLOCK, CREATE, NO_BLOCK, AddBlock
from paxosblock.api.status import CLUSTER_STATUS, ClusterStatusRequest, PastStatus
from paxosblock.errors import AccessDeniedError, SafeModeError
from paxosblock.local.cluster_folder import ClusterFolder
from paxosblock.namenode.catalog.ids import FILES_SKIPPED
from paxosblock.net.calls.control import call
from tests.cli.conftest import Paxosblock, Result
from tests.fork_server import ended
from tests.namenode.scene import ANN, create_request
from tests.services.conftest import QUICK
from tests.services.content import content
from tests.waiting import wait_until

LOSE = "--yes-lose-data"
HASTY = replace(QUICK, retry_for_s=2.0)
"""Of a client that waits less long for the end of safe mode."""
SIZES = (0, 10, 5_000, 100_000, 300_000)
"""Some share a log at the DataNodes, some have files there."""


def write(fs: Client, folder: str, kind: str) -> None:
    for size in SIZES:
        with fs.create(f"{folder}/{size}") as out:
            out.write(content(f"{kind} {size}", 0, size))


def check(fs: Client, folder: str, kind: str) -> None:
    for size in SIZES:
        with fs.open(f"{folder}/{size}") as file:
            assert file.read() == content(f"{kind} {size}", 0, size)


@contextmanager
def writing(fs: Client) -> Iterator[None]:
    """Small files are written, one after the other, before the body begins until it ends."""
    stop, wrote = Event(), Event()

    def write_on() -> None:
        number = 0
        while not stop.is_set():
            with fs.create(f"/beside/{number}") as out:
                out.write(b"%d" % number)
            number += 1
            wrote.set()

    thread = Thread(target=write_on)
    thread.start()
    try:
        assert wrote.wait(20)
        yield
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("count", [1, 3])
def test_a_lost_catalog_is_brought_back_with_every_file_that_was_there(
    count: int, tmp_path: Path, paxosblock: Paxosblock
) -> None:
    backup = tmp_path / "backup"
    with LocalCluster(3, count, tmp_path / "cluster") as cluster, Client(cluster.url, QUICK) as fs:
        where = ("--namenodes", ",".join(cluster.addresses))
        write(fs, "/before", "before")
        token, revoked = fs.issue_token(600), fs.issue_token(600)
        with writing(fs):
            told = paxosblock("admin", "backup", backup, *where)
            assert (told.code, told.err) == (0, "")
            assert told.out.startswith(f"{backup} holds the catalog up to entry ")
        write(fs, "/since", "since")
        fs.revoke_token(revoked.note.serial)
        for node in cluster.namenodes:
            node.kill()
            shutil.rmtree(node.volumes[0])
        bring_back(cluster, tmp_path, paxosblock, backup)
        check(fs, "/before", "before")
        # Whoever has the backup could make tokens, and it does not know of those revoked since.
        assert fs.tokens() == ()
        for issued in (token, revoked, fs.issue_token(600)):
            with Client(cluster.url, QUICK, token=issued.token) as bringing:
                if issued in (token, revoked):
                    with pytest.raises(AccessDeniedError, match="did not sign the token"):
                        bringing.stat("/before")
                else:
                    bringing.stat("/before")
        beside = [status for status in fs.ls("/beside") if not status.open]
        assert beside, "the backup began when some were there"
        for status in beside:
            with fs.open(status.path) as file:
                assert file.read() == status.path.removeprefix("/beside/").encode()
        assert not fs.exists("/since")
        with Client(cluster.url, HASTY) as hasty, pytest.raises(SafeModeError):
            hasty.mkdirs("/since")
        assert paxosblock("admin", "safemode", "leave", *where).code == 0
        # The DataNodes still have blocks of the files that were there since the backup.
        write(fs, "/since", "again")
        assert fs.stat("/since/10").file_id > FILES_SKIPPED, "and so no id is given again"
        check(fs, "/since", "again")
        check(fs, "/before", "before")


@pytest.mark.parametrize("count", [1, 3])
def test_a_snapshot_comes_back_with_the_catalog(
    count: int, tmp_path: Path, paxosblock: Paxosblock
) -> None:
    """It is read after all of it was changed and deleted, before the backup and since; its end
    gives back the room."""
    backup = tmp_path / "backup"
    with LocalCluster(3, count, tmp_path / "cluster") as cluster, Client(cluster.url, QUICK) as fs:
        where = ("--namenodes", ",".join(cluster.addresses))
        write(fs, "/kept", "kept")
        kept = fs.create_snapshot("/kept", "s")
        with fs.append("/kept/5000") as out:
            out.write(b"more")
        fs.truncate("/kept/100000", 70_000)
        fs.rename("/kept/10", "/kept/ten")
        fs.delete("/kept/300000")
        assert paxosblock("admin", "backup", backup, *where).code == 0
        fs.delete("/kept/ten")
        fs.delete("/kept/5000")
        for node in cluster.namenodes:
            node.kill()
            shutil.rmtree(node.volumes[0])
        bring_back(cluster, tmp_path, paxosblock, backup)
        check(fs, kept, "kept")
        assert paxosblock("admin", "safemode", "leave", *where).code == 0
        later = fs.create_snapshot("/kept", "later")
        for name in [each.path for each in fs.ls("/kept")]:
            fs.delete(name)
        check(fs, kept, "kept")
        with fs.open(f"{later}/100000") as file:
            assert file.read() == content("kept 100000", 0, 70_000)

        def keeps_bytes() -> bool:
            """The sweep has seen what was deleted."""
            past = call(cluster.wait_leader().address, CLUSTER_STATUS, ClusterStatusRequest()).past
            return (past.snapshots, past.records > 0) == (2, True) and past.bytes > 3 * 400_000

        wait_until(keeps_bytes, 60)
        assert "\nSnapshots 2, which keep " in paxosblock("admin", "report", *where).out
        fs.delete_snapshot("/kept", "s")
        fs.delete_snapshot("/kept", "later")

        def nothing_is_left() -> bool:
            seen = call(cluster.wait_leader().address, CLUSTER_STATUS, ClusterStatusRequest())
            return seen.blocks == 0 and seen.past == PastStatus()

        wait_until(nothing_is_left, 60)
        assert "Snapshots" not in paxosblock("admin", "report", *where).out


def bring_back(cluster: LocalCluster, path: Path, paxosblock: Paxosblock, backup: Path) -> None:
    """Restore the first NameNode, and start all of them."""
    first, *others = cluster.namenodes
    peers = ("--peers", ",".join(cluster.addresses)) if others else ()
    told = paxosblock("admin", "restore", backup, "--path", first.volumes[0], *peers, LOSE)
    assert (told.code, told.err, told.out.count("\n")) == (0, "", 1)
    assert told.out.startswith(f"{first.volumes[0]} holds the catalog up to entry ")
    if others:
        ClusterFolder(path / "cluster").mark_growing()  # so the others start with --join
    for node in cluster.namenodes:
        node.launch()
    for node in cluster.namenodes:
        node.wait_ready()
    cluster.wait_registered()


def test_a_file_whose_last_block_no_datanode_ever_had_is_closed_after_a_restore(
    tmp_path: Path, paxosblock: Paxosblock
) -> None:
    """Its writer asked for the block, and died before it made a replica."""
    backup = tmp_path / "backup"
    with LocalCluster(3, path=tmp_path / "cluster") as cluster:
        where = ("--namenodes", ",".join(cluster.addresses))
        address = cluster.namenode.address
        file = call(address, CREATE, create_request("/open")).status.file_id
        block = call(address, ADD_BLOCK, AddBlock(file, ANN, NO_BLOCK, window=2)).record.block
        assert paxosblock("admin", "backup", backup, *where).code == 0
        cluster.namenode.kill()
        shutil.rmtree(cluster.namenode.volumes[0])
        bring_back(cluster, tmp_path, paxosblock, backup)
        hasty = ("--timeout", "2s", *where)
        early = paxosblock("admin", "recover-lease", "/open", "--force", "--yes", *hasty)
        assert (early.code, "until an operator leaves safe mode" in early.err) == (1, True)
        assert paxosblock("admin", "safemode", "leave", *where).code == 0

        def all_have_answered() -> Result | None:
            told = paxosblock("admin", "recover-lease", "/open", *where)
            assert told.code == 1
            return told if told.out.count(": has nothing of it\n") == 3 else None

        told = wait_until(all_have_answered)
        assert f"block {block} is of a backup: no DataNode that is heard has any" in told.out
        assert "not heard" not in told.out.partition("--force")[0]
        assert "end it empty: --force" in told.err
        forced = paxosblock("admin", "recover-lease", "/open", "--force", "--yes", *where)
        assert (forced.code, forced.out.splitlines()[-1]) == (0, "'/open' is closed: 0 bytes")
        with Client(cluster.url) as fs, fs.append("/open") as out:
            out.write(b"on")
        assert paxosblock("fs", "cat", "/open", *where).out == "on"


@pytest.fixture
def backup(cluster: LocalCluster, paxosblock: Paxosblock, tmp_path: Path) -> Path:
    """A backup of the shared cluster."""
    folder = tmp_path / "backup"
    told = paxosblock("admin", "backup", folder, "--from", cluster.addresses[0])
    assert (told.code, told.err) == (0, "")
    return folder


def test_a_restore_is_refused_in_one_line_that_says_what_it_loses(
    backup: Path, paxosblock: Paxosblock, tmp_path: Path
) -> None:
    new = tmp_path / "new"
    refused = paxosblock("admin", "restore", backup, "--path", new)
    why = (
        "restore: all names that were made or changed since the backup are lost, also where "
        "another NameNode still has them: with --yes-lose-data it is done all the same\n"
    )
    assert refused == Result(1, "", why)
    assert not new.exists()


def test_a_folder_that_is_not_empty_is_refused_in_one_line(
    cluster: LocalCluster, backup: Path, paxosblock: Paxosblock, tmp_path: Path
) -> None:
    before = sorted(backup.rglob("*"))
    where = ("--namenodes", ",".join(cluster.addresses))
    again = paxosblock("admin", "backup", backup, *where)
    assert again == Result(1, "", f"backup: {backup} is not empty: a backup goes to a new one\n")
    assert sorted(backup.rglob("*")) == before
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes").touch()
    refused = paxosblock("admin", "restore", backup, "--path", mine, LOSE)
    why = f"restore: {mine} is not empty: a backup is brought back to a new one\n"
    assert refused == Result(1, "", why)
    assert [each.name for each in mine.iterdir()] == ["notes"]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("none", "holds no backup, or one that was cut short"),
        ("no database", "holds no backup, or one that was cut short"),
        ("note", "backup: damaged: "),
        ("other entry", "damaged: its files are of entry "),
        ("later", "is of format 2, and this version of paxosblock knows up to 1"),
        ("bytes", "damaged: Corruption"),
        ("a file", "damaged: "),
    ],
)
def test_what_is_no_backup_or_a_damaged_one_is_refused_in_one_line(
    damage: str, words: str, backup: Path, paxosblock: Paxosblock, tmp_path: Path
) -> None:
    note, database = backup / "backup", backup / "db"
    table = max(database.glob("*.sst"), key=lambda path: path.stat().st_size)
    match damage:
        case "none":
            note.unlink()
        case "no database":
            shutil.rmtree(database)
        case "note":
            note.write_text("{")
        case "other entry":
            note.write_text('{"entry":99999,"cluster":"c","format":1}')
        case "later":
            note.write_text(note.read_text().replace('"format":1', '"format":2'))
        case "bytes":
            data = bytearray(table.read_bytes())
            data[20] ^= 1
            table.write_bytes(data)
        case _:
            table.unlink()
    new = tmp_path / "new"
    refused = paxosblock("admin", "restore", backup, "--path", new, LOSE)
    assert (refused.code, refused.out, refused.err.count("\n")) == (1, "", 1)
    assert words in refused.err
    assert not (new / "raft").exists()


def test_one_that_was_cut_short_is_no_namenode_until_it_is_done_again(
    backup: Path, paxosblock: Paxosblock, tmp_path: Path
) -> None:
    new = tmp_path / "new"
    sound = tmp_path / "sound"
    shutil.copytree(backup, sound)
    shutil.rmtree(backup / "db")
    (backup / "db").mkdir()
    assert paxosblock("admin", "restore", backup, "--path", new, LOSE).code == 1
    # In a process of its own: a node sets up the log of its process, and this one is pytest's.
    node = ("-m", "paxosblock", "namenode", "--path", new, "--listen", "127.0.0.1:0")
    refused = ended([sys.executable, *node])
    again = "run `paxosblock admin restore` again, which was cut short"
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (1, "", 1)
    assert again in refused.stderr
    assert paxosblock("admin", "restore", sound, "--path", new, LOSE).code == 0
    assert [each.name for each in new.iterdir()] == ["raft"]


def test_nobody_there_is_one_line_and_nothing_is_made(
    paxosblock: Paxosblock, tmp_path: Path
) -> None:
    nobody = "127.0.0.1:1"
    silent = paxosblock("admin", "backup", tmp_path / "backup", "--from", nobody)
    assert silent == Result(1, "", f"backup: {nobody} does not answer\n")
    alone = paxosblock("admin", "backup", tmp_path / "backup", "--namenodes", nobody)
    assert alone.err == "backup: no NameNode leads: wait, or name one with --from\n"
    peers = ("--peers", "a:1,b:1")
    two = paxosblock("admin", "restore", tmp_path, "--path", tmp_path / "new", *peers, LOSE)
    assert "name three or five NameNodes" in two.err
    assert not list(tmp_path.iterdir())
