"""`distcp`: files come into the cluster whole and verified, or not at all."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from pyspark.sql import SparkSession

from paxosblock import Client, LocalCluster
from paxosblock.client.spark.job_token import NO_TOKEN
from paxosblock.client.spark.jobs import distcp as job
from paxosblock.client.spark.jobs.copying import CopyWork, Part, Source
from paxosblock.client.spark.jobs.distcp import CopyReport, Existing, distcp
from paxosblock.errors import (
    ConfigError,
    IsDirectoryError,
    NotFoundError,
    UnavailableError,
)
from tests.files import read
from tests.spark.unstarted import no_spark

Copy = Callable[..., CopyReport]

TREE = {"a.txt": b"alpha", "deep/er/b.bin": os.urandom(100_000), "deep/empty": b""}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Some files and an empty directory."""
    for name, data in TREE.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (tmp_path / "tree" / "nothing").mkdir()
    return tmp_path / "tree"


@pytest.fixture
def place(folder: str) -> str:
    """A path in the cluster where nothing is."""
    return "/" + folder.rpartition("/")[2]


@pytest.fixture
def copy(spark: SparkSession, cluster: LocalCluster) -> Copy:
    """`distcp` into the cluster of the tests."""

    def run(source: Path | str, target: str, existing: Existing = Existing.SKIP) -> CopyReport:
        return distcp(spark, os.fspath(source), cluster.addresses, target, existing=existing)

    return run


def names(fs: Client, path: str) -> list[str]:
    return [entry.name for entry in fs.ls(path)]


def test_a_directory_comes_out_as_it_went_in(
    copy: Copy, fs: Client, tree: Path, place: str
) -> None:
    report = copy(tree, place)
    assert (report.copied, report.skipped, report.failures) == (3, 0, ())
    assert report.bytes_copied == sum(map(len, TREE.values()))
    assert {name: read(fs, f"{place}/{name}") for name in TREE} == TREE
    assert names(fs, place) == ["a.txt", "deep", "nothing"]


def test_a_single_file_goes_into_a_directory_under_its_own_name(
    copy: Copy, fs: Client, tree: Path, place: str
) -> None:
    fs.mkdirs(place)
    assert copy(f"file://{tree}/a.txt", place).copied == 1
    assert read(fs, f"{place}/a.txt") == TREE["a.txt"]


def test_a_single_file_gets_the_name_that_was_asked_for(
    copy: Copy, fs: Client, tree: Path, place: str
) -> None:
    copy(tree / "a.txt", f"{place}/new/name")
    assert read(fs, f"{place}/new/name") == TREE["a.txt"]


@pytest.mark.parametrize(
    ("existing", "left"),
    [
        (Existing.SKIP, (b"other", b"other")),
        (Existing.UPDATE, (b"other", b"longer")),
        (Existing.OVERWRITE, (b"alpha", b"longer")),
    ],
)
def test_what_is_there_already_stays_or_is_replaced_as_asked(
    copy: Copy, fs: Client, tmp_path: Path, existing: Existing, left: tuple[bytes, bytes]
) -> None:
    place = f"/existing-{existing.value}"
    for name, data in (("a-same-length", b"alpha"), ("b-another-length", b"longer")):
        (tmp_path / name).write_bytes(data)
        with fs.create(f"{place}/{name}") as out:
            out.write(b"other")
    report = copy(tmp_path, place, existing)
    assert tuple(read(fs, f"{place}/{name}") for name in names(fs, place)) == left
    assert (report.copied, report.skipped) == (2 - left.count(b"other"), left.count(b"other"))


def test_a_long_file_is_copied_in_parts_and_joined(
    copy: Copy,
    fs: Client,
    tmp_path: Path,
    place: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job, "PART_BYTES", 30_001)
    data = os.urandom(100_000)
    (tmp_path / "long").write_bytes(data)
    assert copy(tmp_path, place).copied == 1
    assert read(fs, f"{place}/long") == data
    assert len(fs.locations(f"{place}/long")) == 4
    assert names(fs, place) == ["long"]


def test_any_file_system_of_fsspec_can_be_the_source(
    cluster: LocalCluster, fs: Client, place: str
) -> None:
    MemoryFileSystem().pipe("/bucket/key", b"from memory")
    fs.mkdirs(f"{place}/work")
    (done,) = work(cluster, f"{place}/work", Source("memory", {}))([part("/bucket/key", place)])
    assert done.error == ""
    assert read(fs, f"{place}/target") == b"from memory"


def work(cluster: LocalCluster, folder: str, source: Source | None = None) -> CopyWork:
    return CopyWork(
        cluster.addresses, NO_TOKEN, source or Source("file", {}), uuid.uuid4().hex, folder
    )


def part(source: str, place: str, size: int = 11) -> Part:
    return Part(source, f"{place}/target", 0, 0, 1, 0, size, size, False)


def shorter(path: Path) -> None:
    path.write_bytes(b"123")


def longer(path: Path) -> None:
    path.write_bytes(b"x" * 100)


def gone(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("change", [shorter, longer, gone])
def test_a_file_that_changed_since_it_was_listed_is_not_copied(
    cluster: LocalCluster, fs: Client, tmp_path: Path, place: str, change: Callable[[Path], None]
) -> None:
    path = tmp_path / "changing"
    path.write_bytes(b"12345678901")
    change(path)
    fs.mkdirs(f"{place}/work")
    (done,) = work(cluster, f"{place}/work")([part(os.fspath(path), place)])
    assert done.error
    assert not fs.exists(f"{place}/target")


def test_a_task_that_is_repeated_after_its_file_was_published_changes_nothing(
    cluster: LocalCluster, fs: Client, tmp_path: Path, place: str
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"12345678901")
    fs.mkdirs(f"{place}/work")
    attempt = work(cluster, f"{place}/work")
    for _ in range(2):
        (done,) = attempt([part(os.fspath(path), place)])
        assert done.error == ""
    assert read(fs, f"{place}/target") == b"12345678901"


def test_a_task_that_outlives_its_job_publishes_nothing(
    cluster: LocalCluster, fs: Client, tmp_path: Path, place: str
) -> None:
    (tmp_path / "a").write_bytes(b"12345678901")
    (done,) = work(cluster, f"{place}/folder-of-a-job-that-ended")(
        [part(os.fspath(tmp_path / "a"), place)]
    )
    assert "no such file" in done.error
    assert not fs.exists(f"{place}/target")


def test_one_file_that_cannot_be_copied_does_not_stop_the_others(
    copy: Copy, fs: Client, tmp_path: Path, place: str
) -> None:
    (tmp_path / "good").write_bytes(b"good")
    (tmp_path / "gone").symlink_to("nowhere")
    report = copy(tmp_path, place)
    assert report.copied == 1
    (failure,) = report.failures
    assert failure.source.endswith("gone")
    assert names(fs, place) == ["good"]


def test_a_source_that_is_not_there_is_told_before_spark_starts(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    with pytest.raises(NotFoundError, match="no such file"):
        distcp(no_spark, f"{tmp_path}/nothing", cluster.addresses, "/nowhere")


def test_a_protocol_that_nobody_knows_is_one_clear_line(cluster: LocalCluster) -> None:
    with pytest.raises(ConfigError, match="bogus"):
        distcp(no_spark, "bogus://bucket/key", cluster.addresses, "/nowhere")


def test_a_directory_cannot_become_a_file(
    cluster: LocalCluster, fs: Client, tree: Path, place: str
) -> None:
    fs.create(place).close()
    with pytest.raises(IsDirectoryError):
        distcp(no_spark, os.fspath(tree), cluster.addresses, place)


def test_no_namenode_is_told_before_spark_starts(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAXOSBLOCK_CLIENT_RETRY_FOR", "0.2s")
    with pytest.raises(UnavailableError):
        distcp(no_spark, os.fspath(tree), ("127.0.0.1:1",), "/nowhere")
