"""A file whose last block no node can decide, seen by everyone who reads: real nodes, killed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from paxosblock import Client, LocalCluster
from paxosblock.base.units import KIB
from paxosblock.cli.main import run
from paxosblock.client.spark.source import plan
from paxosblock.client.spark.source_options import Use, parse_options
from paxosblock.config import ClientConfig
from paxosblock.errors import PaxosBlockError, UnavailableError

FINALIZED = b"one line of a log that is being written\n" * 2048
TAIL = b"and some that are in its last block\n" * 100
PATH = "/log"
REASON = "only the first 81920 bytes can be read: block"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Two of the three members of the last block of PATH are dead; its writer is idle."""
    with (
        LocalCluster(datanodes=3, path=tmp_path_factory.mktemp("cluster")) as cluster,
        Client(cluster.url, ClientConfig(retry_for_s=1.0)) as writer,
    ):
        out = writer.create(PATH, block_size=len(FINALIZED) // 2, chunk_size=4 * KIB)
        out.write(FINALIZED + TAIL)
        out.hflush()
        for node in cluster.datanodes[1:]:
            node.kill()
        yield cluster
        with contextlib.suppress(PaxosBlockError):
            out.abort()


@pytest.fixture
def fs(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster.url, ClientConfig(retry_for_s=1.0)) as fs:
        yield fs


@pytest.mark.parametrize(
    ("verb", "shown"), [("cat", FINALIZED), ("tail", FINALIZED[-1024:]), ("head", FINALIZED[:1024])]
)
def test_cat_and_tail_show_what_is_decided_then_say_that_it_is_not_all(
    cluster: LocalCluster,
    verb: str,
    shown: bytes,
    capfdbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PAXOSBLOCK_NAMENODES", ",".join(cluster.addresses))
    monkeypatch.setenv("PAXOSBLOCK_CLIENT_RETRY_FOR", "1s")
    code = run(["fs", verb, PATH])
    out, err = capfdbinary.readouterr()
    assert out == shown
    if verb == "head":  # it has all that it shows
        assert (code, err) == (0, b"")
    else:
        assert code == 1
        assert err.startswith(f"{verb}: '{PATH}': {REASON}".encode())
        assert err.count(b"\n") == 1


def test_get_leaves_no_short_copy(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAXOSBLOCK_NAMENODES", ",".join(cluster.addresses))
    monkeypatch.setenv("PAXOSBLOCK_CLIENT_RETRY_FOR", "1s")
    assert run(["fs", "get", PATH, str(tmp_path / "copy")]) == 1
    assert list(tmp_path.iterdir()) == []


def test_fsspec_and_spark_do_not_take_the_beginning_for_the_file(
    cluster: LocalCluster, fs: Client
) -> None:
    remote = fsspec.filesystem("paxosblock", namenodes=",".join(cluster.addresses), retry_for_s=1)
    for read in (remote.open, remote.cat_file):
        with pytest.raises(UnavailableError, match=REASON):
            read(PATH)
    written = {"path": f"{cluster.url}{PATH}", "fileFormat": "text"}
    schema = StructType([StructField("value", StringType())])
    with pytest.raises(UnavailableError, match=REASON):
        plan(fs, [fs.stat(PATH)], schema, parse_options(written, Use.READ))


def test_a_reader_goes_on_when_the_datanodes_are_back(cluster: LocalCluster) -> None:
    with Client(cluster.url) as fs, fs.open(PATH) as file:
        assert file.undecided
        assert file.read(file.decided_size) == FINALIZED
        for node in cluster.datanodes[1:]:
            node.start()
        assert file.read() == TAIL
        assert (file.undecided, file.size) == ("", len(FINALIZED + TAIL))
