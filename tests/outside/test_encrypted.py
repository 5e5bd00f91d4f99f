"""An encryption zone through fsspec: pandas, pyarrow, transactions, names."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from paxosblock.client.blocking.sync import Client
from paxosblock.client.fsspec import PaxosBlockFileSystem
from paxosblock.errors import InvalidRequestError
from paxosblock.local.cluster import LocalCluster
from tests.master_keys import encrypt

MARKER = b"nobody may read this line of a file on a disk that was stolen\n"
DATA = os.urandom(300_000)


@pytest.fixture
def zone(fs: PaxosBlockFileSystem, cluster: LocalCluster) -> Iterator[str]:
    """A directory that became a zone."""
    path = f"/{uuid.uuid4().hex}"
    fs.makedirs(path)
    encrypt(cluster, path)
    yield path
    fs.rm(path, recursive=True)


def encrypted(cluster: LocalCluster, *names: str) -> list[bool]:
    """Tell of each path whether it is encrypted."""
    with Client(cluster.url) as client:
        return [client.stat(path).encrypted for path in names]


def on_disk(cluster: LocalCluster, marker: bytes) -> bool:
    """True if a DataNode holds these bytes."""
    files = [file for file in Path(cluster.path).rglob("*") if file.is_file()]
    return any(marker in file.read_bytes() for file in files)


def test_files_come_back_and_are_on_no_disk(
    fs: PaxosBlockFileSystem, zone: str, cluster: LocalCluster
) -> None:
    """Files are written below a hidden name outside of the zone, and then moved into it."""
    fs.pipe_file(f"{zone}/marked", MARKER * 3000)
    with fs.open(f"{zone}/sub/pieces", "wb", chunk_size=1000, block_size=7000) as out:
        for start in range(0, len(DATA), 33_333):
            out.write(DATA[start : start + 33_333])
    with fs.open(f"{zone}/marked", "ab") as out:
        out.write(MARKER)
    fs.pipe_file(f"{zone}/marked", MARKER * 10)  # in place of the one before
    assert all(encrypted(cluster, f"{zone}/marked", f"{zone}/sub", f"{zone}/sub/pieces"))
    assert [fs.info(path)["encrypted"] for path in (f"{zone}/marked", "/")] == [True, False]
    assert fs.cat(f"{zone}/marked") == MARKER * 10
    assert fs.cat_ranges([f"{zone}/sub/pieces"] * 3, [0, 6990, -5], [10, 7010, None]) == [
        DATA[:10],
        DATA[6990:7010],
        DATA[-5:],
    ]
    assert fs.info(f"{zone}/sub/pieces")["size"] == len(DATA)
    assert not on_disk(cluster, MARKER)
    fs.pipe_file(f"/{uuid.uuid4().hex}", MARKER)
    assert on_disk(cluster, MARKER)


def test_a_transaction_publishes_into_a_zone_and_beside_it(
    fs: PaxosBlockFileSystem, zone: str, home: str, cluster: LocalCluster
) -> None:
    with fs.transaction:
        fs.pipe_file(f"{zone}/in", DATA)
        fs.pipe_file(f"{home}/out", DATA)
    assert (fs.cat(f"{zone}/in"), fs.cat(f"{home}/out")) == (DATA, DATA)
    assert encrypted(cluster, f"{zone}/in", f"{home}/out") == [True, False]


def test_a_file_is_copied_across_the_border_and_not_moved(
    fs: PaxosBlockFileSystem, zone: str, home: str, cluster: LocalCluster
) -> None:
    fs.pipe_file(f"{zone}/a", DATA)
    fs.cp_file(f"{zone}/a", f"{home}/copy")
    fs.cp_file(f"{home}/copy", f"{zone}/back")
    assert fs.cat(f"{home}/copy") == fs.cat(f"{zone}/back") == DATA
    assert encrypted(cluster, f"{home}/copy", f"{zone}/back") == [False, True]
    for source, target in ((f"{zone}/a", f"{home}/a"), (f"{home}/copy", f"{zone}/b")):
        with pytest.raises(InvalidRequestError, match="can't be moved"):
            fs.mv(source, target)
        assert fs.cat(source) == DATA
        assert not fs.exists(target)
    fs.mv(f"{zone}/a", f"{zone}/b")
    assert fs.cat(f"{zone}/b") == DATA


def test_pandas_and_pyarrow_write_and_read_there(
    fs: PaxosBlockFileSystem, zone: str, cluster: LocalCluster
) -> None:
    frame = pd.DataFrame({"a": range(5000), "b": [f"row {n}" for n in range(5000)]})
    frame.to_parquet(f"{cluster.url}{zone}/frame.parquet")
    frame.to_csv(f"{cluster.url}{zone}/frame.csv.gz", index=False)
    assert pd.read_parquet(f"{cluster.url}{zone}/frame.parquet").equals(frame)
    assert pd.read_csv(f"{cluster.url}{zone}/frame.csv.gz").equals(frame)
    pq.write_to_dataset(
        pq.read_table(f"{zone}/frame.parquet", filesystem=fs), f"{zone}/set", filesystem=fs
    )
    assert pq.read_table(f"{zone}/set", filesystem=fs, columns=["b"]).num_rows == 5000
    assert encrypted(cluster, f"{zone}/frame.csv.gz") == [True]
