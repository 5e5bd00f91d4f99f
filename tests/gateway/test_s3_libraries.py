"""Libraries that speak S3, unmodified: pyarrow's file system, polars, delta-rs.

In each there is a directory that another program asked for, whose key a list shows.
"""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import FileSelector, FileType, S3FileSystem

from paxosblock import Client
from paxosblock.gateway.s3.access_keys import OPEN_SECRET
from paxosblock.host.user import current_user
from tests.gateway.gateways import RunningGateway

ROWS = 1000


@pytest.fixture(scope="module")
def s3_url(gateways: tuple[RunningGateway, RunningGateway]) -> str:
    """The address of one gateway."""
    return gateways[0].s3_url


@pytest.fixture
def bucket(fs: Client) -> str:
    """A bucket that only this test uses."""
    name = f"b-{uuid.uuid4().hex}"
    fs.mkdirs(f"/{name}")
    return name


@pytest.fixture
def options(s3_url: str) -> dict[str, str]:
    """Those of the libraries that are made with `object_store`, of Rust."""
    return {
        "aws_endpoint_url": s3_url,
        "aws_allow_http": "true",
        "aws_access_key_id": current_user(),
        "aws_secret_access_key": OPEN_SECRET,
        "aws_region": "us-east-1",
        "aws_conditional_put": "etag",
    }


@pytest.fixture
def arrow(s3_url: str) -> S3FileSystem:
    """The file system of pyarrow."""
    return S3FileSystem(
        access_key=current_user(),
        secret_key=OPEN_SECRET,
        endpoint_override=s3_url.removeprefix("http://"),
        scheme="http",
        region="us-east-1",
    )


def test_pyarrow_reads_writes_and_names_files(arrow: S3FileSystem, fs: Client, bucket: str) -> None:
    fs.mkdirs(f"/{bucket}/table/made")
    table = pa.table({"a": list(range(ROWS))})
    for number in range(3):
        pq.write_table(table, f"{bucket}/table/part={number}/f.parquet", filesystem=arrow)
    found = arrow.get_file_info(FileSelector(f"{bucket}/table"))
    kinds = {each.base_name: each.type for each in found}
    assert kinds == dict.fromkeys(["made", "part=0", "part=1", "part=2"], FileType.Directory)
    assert pq.read_table(f"{bucket}/table", filesystem=arrow).num_rows == 3 * ROWS
    arrow.copy_file(f"{bucket}/table/part=0/f.parquet", f"{bucket}/table/made/g.parquet")
    arrow.move(f"{bucket}/table/made/g.parquet", f"{bucket}/table/made/h.parquet")
    assert [each.name for each in fs.ls(f"/{bucket}/table/made")] == ["h.parquet"]
    arrow.delete_dir(f"{bucket}/table")
    assert fs.ls(f"/{bucket}") == []


def test_polars_reads_and_writes_by_url(options: dict[str, str], fs: Client, bucket: str) -> None:
    fs.mkdirs(f"/{bucket}/table")
    frame = pl.DataFrame({"a": range(ROWS)})
    for number in range(2):
        frame.write_parquet(f"s3://{bucket}/table/{number}.parquet", storage_options=options)
    found = pl.scan_parquet(f"s3://{bucket}/table/", storage_options=options).collect()
    assert found["a"].to_list() == [*range(ROWS)] * 2


def test_four_writers_of_delta_add_to_one_table_at_once(
    options: dict[str, str], fs: Client, bucket: str
) -> None:
    """Each version of the table is an object that is made if there is none."""
    url = f"s3://{bucket}/table"
    fs.mkdirs(f"/{bucket}/table")

    def add(number: int) -> None:
        rows: Any = pa.table({"writer": [number] * ROWS})
        deltalake.write_deltalake(url, rows, mode="append", storage_options=options)

    add(0)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(1, 5)))
    table = deltalake.DeltaTable(url, storage_options=options)
    assert table.version() == 4
    counted = table.to_pyarrow_table().column("writer").value_counts().to_pylist()
    assert sorted((each["values"], each["counts"]) for each in counted) == [
        (number, ROWS) for number in range(5)
    ]
