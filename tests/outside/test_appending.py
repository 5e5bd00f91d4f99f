"""Mode `a`: little goes into the last block of a file, more is joined; all of it or nothing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from paxosblock import Client, WriteOptions
from paxosblock.client import append_mode
from paxosblock.client.async_client import AsyncClient
from paxosblock.client.fsspec import PaxosBlockFileSystem
from paxosblock.client.writing.file_writer import AsyncFileWriter
from paxosblock.errors import InvalidRequestError, LeaseError
from paxosblock.local.cluster import LocalCluster
from tests.outside.staging import staged

CHUNK = 4096
OLD = b"old\n"


class Oops(Exception):
    """Whatever ends a block."""


def blocks(cluster: LocalCluster, path: str) -> int:
    with Client(cluster.url) as client:
        return len(client.locations(path))


def append(fs: PaxosBlockFileSystem, path: str, data: bytes) -> None:
    with fs.open(path, "ab", chunk_size=CHUNK) as out:
        out.write(data)


@pytest.fixture
def path(fs: PaxosBlockFileSystem, home: str) -> str:
    """A file with a line in it."""
    fs.pipe_file(f"{home}/log", OLD)
    return f"{home}/log"


def test_a_file_that_grows_by_lines_stays_one_block(
    fs: PaxosBlockFileSystem, cluster: LocalCluster, path: str
) -> None:
    for number in range(10):
        with fs.open(path, "a") as out:
            out.write(f"{number}\n")
            assert fs.cat_file(path).count(b"\n") == number + 1, "not before it is closed"
    assert fs.cat_file(path) == OLD + b"".join(b"%d\n" % number for number in range(10))
    assert blocks(cluster, path) == 1
    assert staged(fs) == []


@pytest.mark.parametrize(("size", "count"), [(CHUNK, 1), (CHUNK + 1, 2)])
def test_what_is_more_than_a_chunk_becomes_a_block_of_its_own(
    fs: PaxosBlockFileSystem, cluster: LocalCluster, path: str, size: int, count: int
) -> None:
    with fs.open(path, "ab", chunk_size=CHUNK) as out:
        for start in range(0, size, 1000):
            out.write(b"x" * min(1000, size - start))
        assert fs.cat_file(path) == OLD
    assert fs.cat_file(path) == OLD + b"x" * size
    assert blocks(cluster, path) == count
    assert staged(fs) == []


def test_what_is_asked_of_the_new_bytes_holds_for_them_alone(
    fs: PaxosBlockFileSystem, cluster: LocalCluster, path: str
) -> None:
    with fs.open(path, "ab", replication=1) as out:
        out.write(b"new\n")
    with Client(cluster.url) as client:
        members = [len(each.hosts) for each in client.locations(path)]
    assert members == [3, 1]


@pytest.mark.parametrize("size", [10, 3 * CHUNK])
def test_a_block_of_python_that_raises_leaves_the_file_as_it_was(
    fs: PaxosBlockFileSystem, path: str, size: int
) -> None:
    def half() -> None:
        with fs.open(path, "ab", chunk_size=CHUNK) as out:
            out.write(b"x" * size)
            raise Oops

    with pytest.raises(Oops):
        half()
    assert fs.cat_file(path) == OLD
    assert staged(fs) == []


@pytest.mark.parametrize("size", [10, 3 * CHUNK])
def test_a_file_that_is_gone_when_the_new_bytes_come_takes_none(
    fs: PaxosBlockFileSystem, path: str, size: int
) -> None:
    out = fs.open(path, "ab", chunk_size=CHUNK)
    out.write(b"x" * size)
    fs.rm_file(path)
    with pytest.raises(FileNotFoundError):
        out.close()
    assert not fs.exists(path)
    assert staged(fs) == []


def test_many_who_append_to_one_file_wait_for_each_other_and_tear_nothing(
    fs: PaxosBlockFileSystem, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append_mode, "WAIT_S", 30.0)
    pieces = [bytes([65 + number]) * size + b"\n" for number in range(6) for size in (9, 2 * CHUNK)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda piece: append(fs, path, piece), pieces))
    assert sorted(fs.cat_file(path).splitlines(keepends=True)) == sorted([OLD, *pieces])


@pytest.mark.parametrize("size", [10, 3 * CHUNK])
def test_a_file_that_somebody_else_writes_is_left_to_them(
    fs: PaxosBlockFileSystem,
    cluster: LocalCluster,
    path: str,
    size: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(append_mode, "WAIT_S", 0.1)
    with Client(cluster.url) as client, client.append(path) as other:
        other.write(b"theirs\n")
        with pytest.raises(LeaseError):
            append(fs, path, b"x" * size)
    assert fs.cat_file(path) == OLD + b"theirs\n"
    assert staged(fs) == []


@pytest.mark.parametrize(("mode", "name"), [("wb", "create"), ("ab", "append")])
def test_a_file_says_what_becomes_of_a_block_that_loses_a_datanode(
    fs: PaxosBlockFileSystem, path: str, mode: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, call = [], getattr(AsyncClient, name)

    async def noted(client: AsyncClient, *args: Any, **how: Any) -> AsyncFileWriter:
        asked.append(how["options"])
        out: AsyncFileWriter = await call(client, *args, **how)
        return out

    monkeypatch.setattr(AsyncClient, name, noted)
    with fs.open(path, mode, **POLICY) as out:
        out.write(b"new\n")
    assert asked == [WriteOptions(**POLICY)]
    with pytest.raises(InvalidRequestError, match="'maybe'"):
        fs.open(path, mode, on_failure="maybe")


POLICY: dict[str, Any] = {
    "on_failure": "rebuild",
    "replace_on_failure": "always",
    "best_effort": True,
}
