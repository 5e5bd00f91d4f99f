"""Snapshots through real processes: the bytes of the moment, whatever happens afterwards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from paxosblock.api.transaction import Operation, Rename
from paxosblock.base.units import KIB
from paxosblock.client import AsyncClient
from paxosblock.client.blocking.sync import Client
from paxosblock.client.names import truncating
from paxosblock.config import ClientConfig
from paxosblock.errors import (
    ExistsError,
    InvalidRequestError,
    NotFoundError,
    PermissionDeniedError,
)
from paxosblock.local.cluster import LocalCluster

BLOCK_BYTES = 64 * KIB
CHUNK_BYTES = 16 * KIB


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    path = tmp_path_factory.mktemp("cluster")
    with LocalCluster(datanodes=4, namenodes=3, path=path) as cluster:
        yield cluster


@pytest.fixture
def fs(cluster: LocalCluster) -> Iterator[Client]:
    config = ClientConfig(retry_for_s=30.0, block_size=BLOCK_BYTES, chunk_size=CHUNK_BYTES)
    with Client(cluster.url, config) as client:
        yield client


def write(fs: Client, path: str, size: int) -> bytes:
    data = os.urandom(size)
    with fs.create(path, overwrite=True) as out:
        out.write(data)
    return data


def append(fs: Client, path: str, size: int) -> bytes:
    data = os.urandom(size)
    with fs.append(path) as out:
        out.write(data)
    return data


def read(fs: Client, path: str) -> bytes:
    with fs.open(path) as file:
        return file.read()


def test_a_snapshot_shows_the_bytes_of_its_moment(fs: Client, cluster: LocalCluster) -> None:
    names = ("grown", "cut", "joined", "target", "gone", "moved", "replaced")
    was = {name: write(fs, f"/d/{name}", 3 * BLOCK_BYTES // 2 + 100) for name in names}
    fs.mkdirs("/d/sub/empty")
    where = fs.create_snapshot("/d", "s1")
    assert where == "/d/.snapshot/s1"

    grown = was["grown"] + append(fs, "/d/grown", 1000)
    fs.truncate("/d/cut", BLOCK_BYTES + CHUNK_BYTES // 2)
    fs.concat("/d/target", ["/d/joined"])
    fs.truncate("/d/target", len(was["target"]) + 10)
    fs.delete("/d/gone")
    fs.mkdirs("/elsewhere")
    fs.rename("/d/moved", "/elsewhere/moved")
    fs.delete("/elsewhere", recursive=True)
    write(fs, "/d/replaced", 10)
    fs.delete("/d/sub", recursive=True)
    cluster.datanodes[0].kill()
    cluster.wait_leader().kill()

    assert read(fs, "/d/grown") == grown
    assert read(fs, "/d/cut") == was["cut"][: BLOCK_BYTES + CHUNK_BYTES // 2]
    assert read(fs, "/d/target") == was["target"] + was["joined"][:10]
    for name, data in was.items():
        assert read(fs, f"{where}/{name}") == data, name
        assert fs.stat(f"{where}/{name}").size == len(data)
    shown = [entry.path for entry in fs.ls(where)]
    assert shown == [f"{where}/{name}" for name in sorted((*names, "sub"))]
    assert [entry.path for entry in fs.ls("/d/.snapshot")] == [where]
    assert [entry.path for entry in fs.glob("/d/.snapshot/*/g*")] == [
        f"{where}/gone",
        f"{where}/grown",
    ]
    summary = fs.content_summary(where)
    assert (summary.files, summary.directories) == (len(names), 3)
    assert summary.size == sum(map(len, was.values()))
    assert len(list(fs.walk(where))) == len(names) + 2

    fs.rename_snapshot("/d", "s1", "s2")
    assert read(fs, "/d/.snapshot/s2/gone") == was["gone"]
    assert [each.name for each in fs.list_snapshots("/d")] == ["s2"]
    fs.delete_snapshot("/d", "s2")
    assert fs.list_snapshots("/d") == ()
    assert not fs.exists("/d/.snapshot")
    assert read(fs, "/d/target") == was["target"] + was["joined"][:10]


def test_an_append_goes_on_in_a_block_that_a_snapshot_shows(fs: Client) -> None:
    before = write(fs, "/log/a", 100)
    where = fs.create_snapshot("/log", "s")
    with fs.append("/log/a") as out:
        out.write(b"more")
        out.hflush()
        assert read(fs, f"{where}/a") == before
        assert read(fs, "/log/a") == before + b"more"
    assert read(fs, f"{where}/a") == before


def test_a_file_that_is_written_shows_its_blocks_that_others_follow(fs: Client) -> None:
    data = os.urandom(BLOCK_BYTES + 100)
    with fs.create("/open/a") as out:
        out.write(data)
        out.hflush()
        where = fs.create_snapshot("/open", "s")
        assert read(fs, f"{where}/a") == data[:BLOCK_BYTES]
    fs.delete("/open/a")
    assert read(fs, f"{where}/a") == data[:BLOCK_BYTES]


def test_nothing_below_a_snapshot_is_changed(fs: Client) -> None:
    write(fs, "/kept/a", 100)
    where = fs.create_snapshot("/kept", "s")
    refused = "read-only snapshot"
    with pytest.raises(PermissionDeniedError, match=refused):
        fs.create(f"{where}/b")
    with pytest.raises(PermissionDeniedError, match=refused):
        fs.append(f"{where}/a")
    with pytest.raises(PermissionDeniedError, match=refused):
        fs.delete(f"{where}/a")
    with pytest.raises(PermissionDeniedError, match=refused):
        fs.rename(f"{where}/a", "/kept/b")
    with pytest.raises(PermissionDeniedError, match=refused):
        fs.rename("/kept/a", f"{where}/b")
    with pytest.raises(PermissionDeniedError, match=refused):
        fs.mkdirs(f"{where}/b")
    with pytest.raises(PermissionDeniedError, match=refused):
        fs.transact([Rename(f"{where}/a", "/kept/b")])
    with pytest.raises(InvalidRequestError, match="reserved name"):
        fs.mkdirs("/kept/.snapshot")
    with pytest.raises(InvalidRequestError, match="reserved name"):
        fs.mkdirs("/other/.snapshot")
    with pytest.raises(InvalidRequestError, match="already has snapshots"):
        fs.delete("/kept", recursive=True)
    with pytest.raises(ExistsError, match="same name"):
        fs.create_snapshot("/kept", "s")
    with pytest.raises(InvalidRequestError, match="cannot contain"):
        fs.create_snapshot("/kept", "a/b")
    with pytest.raises(NotFoundError, match="does not exist"):
        fs.delete_snapshot("/kept", "none")
    with pytest.raises(NotFoundError):
        fs.stat("/kept/.snapshot/none/a")
    assert [entry.name for entry in fs.ls("/kept")] == ["a"]
    fs.delete_snapshot("/kept", "s")
    assert fs.delete("/kept", recursive=True)


async def test_a_snapshot_that_is_taken_in_the_middle_of_a_truncate_costs_no_byte(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes of one chunk were written already when the rest of its block came to be shown."""
    config = ClientConfig(block_size=BLOCK_BYTES, chunk_size=CHUNK_BYTES)
    data, length = os.urandom(BLOCK_BYTES), BLOCK_BYTES - CHUNK_BYTES // 2
    prepare, taken = truncating._in_two, list[str]()
    async with AsyncClient(cluster.url, config) as fs:
        async with await fs.create("/late/f") as out:
            await out.write(data)

        async def prepare_late(*given: Any) -> tuple[Operation, ...]:
            steps = await prepare(*given)
            if not taken:
                taken.append(await fs.create_snapshot("/late", "s"))
            return steps

        monkeypatch.setattr(truncating, "_in_two", prepare_late)
        await fs.truncate("/late/f", length)
        for path, size in (("/late/f", length), (f"{taken[0]}/f", BLOCK_BYTES)):
            async with await fs.open(path) as file:
                assert await file.read() == data[:size]
        await fs.delete_snapshot("/late", "s")
