"""Many small files that are written together: each whole or not there, and once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePosixPath

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.base.paths import STAGING
from paxosblock.base.units import KIB, MIB
from paxosblock.client.writing.many_files import FILES_TOGETHER
from paxosblock.errors import ExistsError, IsDirectoryError, PaxosBlockError
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
