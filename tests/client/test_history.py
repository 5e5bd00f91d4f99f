"""The window of history through real processes."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

import fsspec
import pyarrow as pa
import pytest

from paxosblock.base.units import KIB
from paxosblock.cli.main import run
from paxosblock.client.blocking.sync import Client
from paxosblock.client.spark.source import infer_schema, make_reader
from paxosblock.client.spark.source_options import Use, parse_options
from paxosblock.config import ClientConfig
from paxosblock.errors import (
    ExistsError,
    InvalidRequestError,
    NotFoundError,
    PermissionDeniedError,
)
from paxosblock.local.cluster import LocalCluster
from tests.files import read
from tests.services.content import content
from tests.waiting import wait_until

SIZES = (0, 10, 5_000, 200_000)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    path = tmp_path_factory.mktemp("cluster")
    with LocalCluster(
        datanodes=3, namenodes=3, path=path, settings={"namenode": {"history": "1h"}}
    ) as cluster:
        yield cluster


@pytest.fixture
def fs(cluster: LocalCluster) -> Iterator[Client]:
    config = ClientConfig(retry_for_s=30.0, block_size=64 * KIB, chunk_size=16 * KIB)
    with Client(cluster.url, config) as client:
        yield client


def write(fs: Client, folder: str) -> None:
    for size in SIZES:
        with fs.create(f"{folder}/{size}") as out:
            out.write(content(f"{size}", 0, size))


def check(fs: Client, folder: str) -> None:
    assert {entry.name for entry in fs.ls(folder)} == {str(size) for size in SIZES}
    for size in SIZES:
        assert read(fs, f"{folder}/{size}") == content(f"{size}", 0, size)


def now_with(fs: Client, path: str) -> float:
    """A time at which the history has a path."""

    def noted() -> float:
        at_s = time.time()
        try:
            return at_s if fs.exists(fs.as_of(at_s) + path) else 0.0
        except NotFoundError:
            return 0.0  # the window has not begun

    return wait_until(noted)


def test_what_was_deleted_is_read_as_it_was_and_comes_back(
    fs: Client, cluster: LocalCluster
) -> None:
    write(fs, "/data/table")
    at_s = now_with(fs, "/data/table/200000")
    then = fs.as_of(at_s)
    fs.truncate("/data/table/200000", 100)
    fs.delete("/data/table", recursive=True)
    fs.delete("/data/none")
    cluster.wait_leader().kill()
    check(fs, f"{then}/data/table")
    assert fs.as_of(at_s) == then
    with pytest.raises(PermissionDeniedError, match="read-only"):
        fs.delete(f"{then}/data/table/10")
    assert fs.undelete("/data/table").path == "/data/table"
    assert read(fs, "/data/table/200000") == content("200000", 0, 100)
    assert read(fs, "/data/table/5000") == content("5000", 0, 5000)
    fs.delete("/data/table/5000")
    fs.undelete("/data/table/5000")
    assert read(fs, "/data/table/5000") == content("5000", 0, 5000)
    check(fs, f"{then}/data/table")


def test_each_way_in_reads_what_was_there_at_a_time(
    fs: Client, cluster: LocalCluster, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, text in (("a", b"1\n2\n"), ("b", b"3\n")):
        with fs.create(f"/ways/{name}.txt") as out:
            out.write(text)
    at_s = now_with(fs, "/ways/b.txt")
    at = datetime.fromtimestamp(at_s, UTC).isoformat()
    with fs.append("/ways/a.txt") as out:
        out.write(b"more\n")
    fs.delete("/ways/b.txt")
    names = ["a.txt", "b.txt"]
    for when in (at_s, at, fs.as_of(at).rpartition("/")[2]):
        with fs.open("/ways/a.txt", at=when) as file:
            assert file.read() == b"1\n2\n"
        assert [each.name for each in fs.ls("/ways", at=when)] == names
        assert [each.name for each in fs.walk("/ways", at=when)] == names
        assert [each.name for each in fs.walk("/ways", at=when, one_state=True)] == names
        assert fs.stat("/ways/a.txt", at=when).size == 4
        assert fs.exists("/ways/b.txt", at=when)
        assert not fs.exists("/ways/c.txt", at=when)
    assert not fs.exists("/ways/b.txt")
    with pytest.raises(NotFoundError, match="before the history"):
        fs.exists("/ways/b.txt", at=1000.0)
    url = f"{cluster.url}/ways/b.txt?at={at}"
    with fsspec.open(url) as opened:
        assert opened.read() == b"3\n"
    assert fsspec.filesystem("paxosblock", namenodes=cluster.addresses).exists(url)
    run(["fs", "cat", url])
    assert capfd.readouterr().out == "3\n"
    run(["fs", "ls", "-C", f"{cluster.url}/ways", "--at", at])
    assert capfd.readouterr().out.count("\n") == 2
    run(["admin", "report", "--namenodes", ",".join(cluster.addresses)])
    report = capfd.readouterr().out
    assert re.search(r"\nHistory   since 2\S+ \S+ and 0 snapshots, which keep \d+ records", report)


def test_a_table_is_read_by_spark_as_it_was(fs: Client, cluster: LocalCluster) -> None:
    for name in ("a", "b"):
        with fs.create(f"/table/{name}.txt") as out:
            out.write(name.encode() * 10 + b"\n")
    at_s = now_with(fs, "/table/b.txt")
    fs.delete("/table/a.txt")
    fs.truncate("/table/b.txt", 5)
    written = {"path": f"{cluster.url}/table", "fileFormat": "text"}
    at = datetime.fromtimestamp(at_s, UTC).isoformat()
    for options, wanted in ((written, ["bbbbb"]), (written | {"asOf": at}, ["a" * 10, "b" * 10])):
        planned = parse_options(options, Use.READ)
        reader = make_reader(infer_schema(parse_options(options, Use.READS)), planned)
        tasks = (reader.read(partition) for partition in reader.partitions())
        batches: Iterator[pa.RecordBatch] = chain.from_iterable(tasks)
        lines = chain.from_iterable(batch["value"].to_pylist() for batch in batches)
        assert sorted(lines) == wanted


def test_what_cannot_come_back_is_refused(fs: Client) -> None:
    write(fs, "/refused")
    now_with(fs, "/refused/200000")
    fs.rename("/refused/10", "/refused/ten")
    fs.concat("/refused/5000", ["/refused/200000"])
    before = [entry.name for entry in fs.ls("/refused")]
    with pytest.raises(ExistsError):
        fs.undelete("/refused/ten")
    with pytest.raises(ExistsError):
        fs.undelete("/")
    with pytest.raises(InvalidRequestError, match="renamed"):
        fs.undelete("/refused/10")
    with pytest.raises(InvalidRequestError, match="another file"):
        fs.undelete("/refused/200000")
    with pytest.raises(NotFoundError, match="nothing of this name"):
        fs.undelete("/refused/none")
    with pytest.raises(NotFoundError, match="before the history"):
        fs.as_of(1000.0)
    with pytest.raises(InvalidRequestError, match="future"):
        fs.as_of(time.time() + 60)
    for name in ("@x", "@t", "@99999999"):
        with pytest.raises(NotFoundError):
            fs.stat(f"/.snapshot/{name}/refused")
    assert [entry.name for entry in fs.ls("/refused")] == before


def test_all_that_reads_takes_a_time(
    fs: Client, cluster: LocalCluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Verbs and calls say of then what they said before everything was changed."""

    def called(at: str | None) -> tuple[object, ...]:
        here = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        fs.download("/then", here, at=at)
        return (
            fs.content_summary("/then", at=at),
            [each.summary for each in fs.content_summaries("/then", at=at)],
            [each.name for each in fs.glob("/then/*.{txt,log}", at=at)],
            fs.checksum("/then/a.txt", at=at),
            fs.get_attributes("/then/a.txt", at=at),
            fs.get_acl_status("/then/a.txt", at=at),
            sorted(each.name for each in here.iterdir()),
        )

    def told(*more: str) -> list[str]:
        run(["fs", "cp", "-f", *more, "/then/a.txt", f"{cluster.url}/copy"])
        lines = []
        for verb in (
            *("ls -C -R /then", "cat /then/*.txt", "text /then/a.txt", "head /then/a.txt"),
            *("tail /then/a.txt", "get /then/a.txt -", "du -s /then", "count /then"),
            *("find /then -name *.txt", "checksum /then/a.txt", "stat %b:%n /then/a.txt"),
            *("test -e /then/b.txt", "getfacl -R /then", "getfattr -d /then/a.txt", "cat /copy"),
        ):
            given = more if "/copy" not in verb else ()
            words = [cluster.url + word if word[0] == "/" else word for word in verb.split()]
            code = run(["fs", words[0], *given, *words[1:]])
            lines.append(re.sub(r"/\.snapshot/@\d+", "", f"{code} {capfd.readouterr().out}"))
        return lines

    for name, text in (("a.txt", b"1\n2\n"), ("b.txt", b"3\n"), ("c.log", b"")):
        with fs.create(f"/then/{name}") as out:
            out.write(text)
    fs.set_attributes("/then/a.txt", {"user.x": b"1"})
    fs.set_permission("/then/a.txt", 0o640)
    then = fs.as_of(now_with(fs, "/then/c.log"))
    before, lines = called(None), told()
    at = then.rpartition("/")[2]
    fs.truncate("/then/a.txt", 1)
    fs.set_attributes("/then/a.txt", {"user.x": None})
    fs.set_permission("/then/a.txt", 0o600)
    fs.delete("/then/b.txt")
    fs.rename("/then/c.log", "/then/d.log")
    assert [before == called(None), lines == told()] == [False, False]
    assert (called(at), told("--at", at)) == (before, lines)
    with pytest.raises(NotFoundError, match="before the history"):
        fs.glob("/then/*", at=1000.0)
    assert run(["fs", "tail", "-f", "--at", at, f"{cluster.url}/then/a.txt"]) == 2
    assert run(["fs", "du", "--at", "1000d", f"{cluster.url}/then"]) == 1
    assert "before the history" in capfd.readouterr().err
