"""`paxosblock spark`: the jobs as people start them. Here they find a Spark session that runs."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from paxosblock import Client, LocalCluster
from paxosblock.cli.main import run


@pytest.fixture(autouse=True)
def here(spark: SparkSession, cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands find the cluster and the session of the tests."""
    monkeypatch.setenv("PAXOSBLOCK_NAMENODES", ",".join(cluster.addresses))


@pytest.fixture
def place(folder: str) -> str:
    """A path in the cluster where nothing is."""
    return "/" + folder.rpartition("/")[2]


def test_files_are_copied_checked_and_merged(
    tmp_path: Path, fs: Client, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_bytes(b"line\n")
    assert run(["spark", "distcp", os.fspath(tmp_path), place]) == 0
    assert "2 files copied and verified" in capsys.readouterr().out
    assert run(["spark", "fsck", "--deep", place]) == 0
    assert "2 files, 2 blocks, 6 replicas" in capsys.readouterr().out
    assert run(["spark", "compact", place]) == 0
    assert capsys.readouterr().out == f"{place}: 2 files became 1 (10), 0 left alone\n"


def test_what_machines_read_is_one_object(
    tmp_path: Path, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").symlink_to("nowhere")
    assert run(["spark", "distcp", "--json", os.fspath(tmp_path), place]) == 1
    report = msgspec.json.decode(capsys.readouterr().out)
    assert (report["target"], report["copied"], len(report["failures"])) == (place, 0, 1)


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["fsck", "--deep", "/nothing/here"], 1, "fsck: '/nothing/here': no such file"),
        (["fsck", "/"], 2, "--deep"),
        (["compact", "relative"], 1, "relative': no such file or directory"),
        (["compact", "/", "--small", "2 TiB"], 1, "cannot become files"),
        (["compact", "/", "--small", "a lot"], 1, "a lot"),
        (["distcp", "/nothing/here", "/x"], 1, "no such file or directory"),
        (["distcp", "a", "/x", "--update", "--overwrite"], 2, "exclude each other"),
        (["distcp", "a", "/x", "--option", "novalue"], 1, "NAME=VALUE"),
        (["distcp", "a", "/x", "--master", "bogus"], 2, "bogus"),
    ],
)
def test_what_makes_no_sense_is_told_in_one_line(
    words: list[str], code: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["spark", *words]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line


def test_the_session_that_was_there_goes_on(spark: SparkSession) -> None:
    assert run(["spark", "fsck", "--deep", "/nothing/here"]) == 1
    assert spark.range(3).count() == 3
