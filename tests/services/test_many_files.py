"""Many small files that are written together: each whole or not there, and once."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from urllib.request import urlopen

import pytest

from paxosblock import Client, CopyStep, LocalCluster
from paxosblock.base.paths import STAGING
from paxosblock.base.units import KIB, MIB
from paxosblock.client.fsspec import PaxosBlockFileSystem
from paxosblock.client.writing.many_files import FILES_TOGETHER
from paxosblock.errors import ExistsError, IsDirectoryError, NameQuotaError, PaxosBlockError
from tests.children import killed_at_the_end
from tests.fork_server import Program
from tests.secure import url_of
from tests.services.conftest import QUICK, wait_other_leader
from tests.services.content import content
from tests.waiting import wait_until


def files(folder: str, sizes: list[int]) -> dict[str, bytes]:
    named = ((f"{folder}/{number:04}", size) for number, size in enumerate(sizes))
    return {path: content(path, 0, size) for path, size in named}


def found_in(fs: Client, folder: str) -> dict[str, bytes]:
    return {each.path: fs.open(each.path).read() for each in fs.ls(folder)}


def test_files_of_all_sizes_are_there_with_their_bytes(fs: Client) -> None:
    sizes = [0, 1, 4 * KIB, 64 * KIB, 70 * KIB, MIB, 3 * MIB + 1, *range(1, 2 * FILES_TOGETHER)]
    wanted = files("/sizes", sizes)
    assert fs.put_many(wanted) == len(wanted)
    assert found_in(fs, "/sizes") == wanted
    shown = {each.path: (each.size, each.open) for each in fs.ls("/sizes")}
    assert shown == {path: (len(each), False) for path, each in wanted.items()}
    assert fs.ls(STAGING) == []


def test_what_is_made_is_as_if_it_was_created_by_itself(fs: Client) -> None:
    fs.mkdirs("/alike")
    fs.set_owner("/alike", group="staff")
    with fs.create("/alike/one/a", replication=2, umask=0o027) as out:
        out.write(b"bytes")
    fs.put_many([(PurePosixPath("/alike/many/a"), b"bytes")], replication=2, umask=0o027)
    one, many = fs.stat("/alike/one/a"), fs.stat("/alike/many/a")
    assert (one.permission, one.owner, one.group) == (many.permission, many.owner, many.group)
    assert (one.replication, one.size, one.durability) == (2, many.size, many.durability)
    above, beside = fs.stat("/alike/one"), fs.stat("/alike/many")
    assert (above.permission, above.group) == (beside.permission, beside.group)


def test_a_file_that_is_there_keeps_its_batch_away_unless_it_may_be_replaced(fs: Client) -> None:
    before = files("/there", [3])
    fs.put_many(before)
    wanted = files("/there", [5, 6, 7])
    with pytest.raises(ExistsError, match="'/there/0000'") as caught:
        fs.put_many(wanted)
    assert caught.value.details["published"] == 0
    assert found_in(fs, "/there") == before
    assert fs.put_many(wanted, overwrite=True) == 3
    assert found_in(fs, "/there") == wanted
    fs.mkdirs("/there/0009")
    with pytest.raises(IsDirectoryError):
        fs.put_many({"/there/0009": b""}, overwrite=True)
    assert fs.ls(STAGING) == []


def test_what_yields_the_files_is_asked_only_for_the_batches_that_are_under_way(
    fs: Client,
) -> None:
    asked: list[str] = []

    def without_end() -> Iterator[tuple[str, bytes]]:
        for number in range(100 * FILES_TOGETHER):
            path = f"/ends/{number}" if number != FILES_TOGETHER else "/"  # no file can be there
            asked.append(path)
            yield path, b"x"

    with pytest.raises(PaxosBlockError) as caught:
        fs.put_many(without_end())
    assert len(asked) < 20 * FILES_TOGETHER
    published = caught.value.details["published"]
    assert published == len(fs.ls("/ends")) > 0


def test_each_file_is_there_once_and_whole_while_leaders_are_killed(
    cluster: LocalCluster, fs: Client
) -> None:
    stop, done = threading.Event(), list[dict[str, bytes]]()

    def write() -> None:
        with Client(cluster.url, QUICK) as mine:
            while not stop.is_set():
                batch = files(f"/killed/{len(done)}", [4 * KIB] * (3 * FILES_TOGETHER))
                assert mine.put_many(batch) == len(batch)  # without `overwrite`: done once
                done.append(batch)

    def progress(running: threading.Event) -> None:
        goal = len(done) + 2
        wait_until(lambda: len(done) >= goal or running.is_set(), 30.0, "more files")

    with ThreadPoolExecutor(1) as pool:
        ended = threading.Event()
        writing = pool.submit(write)
        writing.add_done_callback(lambda _: ended.set())
        try:
            for _ in range(2):
                progress(ended)
                victim = cluster.wait_leader()
                victim.kill()
                wait_other_leader(cluster, victim)
                victim.start()
            progress(ended)
        finally:
            stop.set()
        writing.result(timeout=60)
    for number, batch in enumerate(done):
        assert found_in(fs, f"/killed/{number}") == batch
    assert fs.ls(STAGING) == []


def local_files(folder: Path, wanted: dict[str, bytes]) -> None:
    for path, each in wanted.items():
        local = folder / PurePosixPath(path).name
        local.write_bytes(each)
        os.utime(local, (0, 86_400 + len(each)))
        local.chmod(0o640)


def test_small_files_of_a_directory_are_put_together_and_told_in_their_order(
    cluster: LocalCluster, fs: Client, tmp_path: Path
) -> None:
    wanted = files("/put", [0, 3 * MIB, *range(2 * FILES_TOGETHER)])
    local_files(tmp_path, wanted)
    told = list[CopyStep]()
    before = batches_made(cluster)
    fs.upload(tmp_path, "/put", preserve="tp", told=told.append)
    assert batches_made(cluster) == before + 2
    assert [each.path for each in told] == [*wanted, "/put"]
    assert [each.error for each in told if each.error] == []
    assert found_in(fs, "/put") == wanted
    shown = {each.path: (each.modified_s, each.permission) for each in fs.ls("/put")}
    assert shown == {path: (86_400 + len(each), 0o640) for path, each in wanted.items()}
    assert fs.ls(STAGING) == []


def batches_made(cluster: LocalCluster) -> float:
    """Return how many batches of files the NameNode that leads has made since it started."""
    with urlopen(url_of(cluster.wait_leader().address, "metrics"), timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    asked = 'paxosblock_namenode_calls_total{call="create_files",outcome="done"}'
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(asked))


def test_files_for_which_there_is_no_room_do_not_keep_others_of_their_batch_away(
    fs: Client, tmp_path: Path
) -> None:
    wanted = files("/room", [7] * FILES_TOGETHER)
    local_files(tmp_path, wanted)
    fs.mkdirs("/room")
    fs.set_quota("/room", names=11)  # itself, and ten files
    told = list[CopyStep]()
    done = fs.upload(tmp_path, "/room", told=told.append)
    assert (done.copied, done.failed) == (10, FILES_TOGETHER - 10)
    refused = [step for step in told if step.error is not None]
    assert {type(each.error) for each in refused} == {NameQuotaError}
    there = found_in(fs, "/room")
    assert there == {path: wanted[path] for path in wanted.keys() - {each.path for each in refused}}
    assert fs.ls(STAGING) == []


def test_a_put_that_was_killed_leaves_whole_files_only(
    cluster: LocalCluster, fs: Client, tmp_path: Path
) -> None:
    wanted = files("/cut", [4 * KIB] * (40 * FILES_TOGETHER))
    local_files(tmp_path, wanted)
    command = [sys.executable, "-m", "paxosblock", "fs", "put", str(tmp_path), "/cut"]
    where = {"PAXOSBLOCK_NAMENODES": ",".join(cluster.addresses)}
    with killed_at_the_end(Program[bytes](command, env=os.environ | where)) as process:
        wait_until(lambda: fs.exists("/cut") and fs.ls("/cut"), 30.0, "the first files")
        process.kill()
        process.wait()
    there = found_in(fs, "/cut")
    assert len(there) > 0
    assert there == {path: wanted[path] for path in there}


def test_fsspec_puts_small_files_together_and_one_that_is_refused_by_itself(
    cluster: LocalCluster, fs: Client, tmp_path: Path
) -> None:
    wanted = files("/spec", [0, 3 * MIB, *range(3 * FILES_TOGETHER)])
    local_files(tmp_path, wanted)
    spec = PaxosBlockFileSystem(",".join(cluster.addresses))
    killed = fs.ls(STAGING)  # what a put that was killed leaves to its time to live
    try:
        before = batches_made(cluster)
        spec.put(f"{tmp_path}/", "/spec", recursive=True, replication=2)
        assert 0 < batches_made(cluster) - before <= 8
        assert found_in(fs, "/spec") == wanted
        assert {each.replication for each in fs.ls("/spec")} == {2}
        taken = [*wanted][5]
        fs.delete(taken)
        fs.mkdirs(taken)
        with pytest.raises(IsADirectoryError, match=taken):
            spec.put([str(tmp_path / "0004"), str(tmp_path / "0005")], ["/spec/new", taken])
        with pytest.raises((TypeError, PaxosBlockError), match="unheard_of"):
            spec.put([str(tmp_path / "0004")], ["/spec/other"], unheard_of=1)
    finally:
        spec.close()
        PaxosBlockFileSystem.clear_instance_cache()
    assert fs.ls(STAGING) == killed
