"""`spark.read.format("paxosblock")`: every format, cut into splits of any size."""

from __future__ import annotations

import io
from collections.abc import Callable

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from paxosblock import Client
from paxosblock.client.url import parse_url

ROWS = 5_000


def put(fs: Client, url: str, data: bytes, block_size: int = 1 << 20) -> str:
    """Write a file, whose path is a URL of the shared cluster, in blocks of a size."""
    path = parse_url(url).path
    with fs.create(path, block_size=block_size, chunk_size=min(block_size, 1 << 16)) as out:
        out.write(data)
    return path


def load(spark: SparkSession, url: str, file_format: str, **options: object) -> DataFrame:
    reader = spark.read.format("paxosblock").option("fileFormat", file_format)
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load(url)


def numbers(rows: int = ROWS) -> pa.Table:
    """A number, its text padded to many lengths, and a null now and then."""
    return pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "text": pa.array([f"{at}-{'x' * (at % 97)}" for at in range(rows)]),
            "half": pa.array([None if at % 10 == 0 else at / 2 for at in range(rows)]),
        }
    )


def as_text(table: pa.Table) -> bytes:
    return "".join(f"{text}\n" for text in table["text"].to_pylist()).encode()


def as_csv(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pc.write_csv(table, out, pc.WriteOptions(include_header=True))
    return out.getvalue()


def as_parquet(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=300)
    return out.getvalue()


def as_arrow_file(table: pa.Table) -> bytes:
    out = io.BytesIO()
    with pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table, max_chunksize=300)
    return out.getvalue()


def as_arrow_streams(table: pa.Table) -> bytes:
    """Two streams, one behind the other."""
    out = io.BytesIO()
    for part in (table.slice(0, 1000), table.slice(1000)):
        with pa.ipc.new_stream(out, table.schema) as writer:
            writer.write_table(part, max_chunksize=300)
    return out.getvalue()


FORMATS: dict[str, tuple[str, Callable[[pa.Table], bytes]]] = {
    "parquet": ("parquet", as_parquet),
    "csv": ("csv", as_csv),
    "arrow file": ("arrow", as_arrow_file),
    "arrow streams": ("arrow", as_arrow_streams),
}


@pytest.mark.parametrize("split_bytes", [40_009, 1 << 30])
@pytest.mark.parametrize("kind", FORMATS)
def test_every_row_is_read_once_whatever_the_size_of_splits(
    spark: SparkSession, fs: Client, folder: str, kind: str, split_bytes: int
) -> None:
    file_format, encoded = FORMATS[kind]
    table = numbers()
    put(fs, f"{folder}/data", encoded(table), block_size=50_021)
    found = load(spark, folder, file_format, header="true", splitBytes=split_bytes).toArrow()
    assert found.sort_by("id").to_pylist() == table.to_pylist()


@pytest.mark.parametrize("split_bytes", [7_001, 1 << 30])
def test_every_line_of_text_is_read_once_whatever_the_size_of_splits(
    spark: SparkSession, fs: Client, folder: str, split_bytes: int
) -> None:
    table = numbers(2_000)
    put(fs, f"{folder}/data", as_text(table), block_size=10_007)
    frame = load(spark, folder, "text", splitBytes=split_bytes)
    counted = frame.agg(F.count("*"), F.countDistinct("value"), F.sum(F.length("value"))).first()
    lengths = sum(map(len, table["text"].to_pylist()))
    assert counted is not None
    assert tuple(counted) == (2_000, 2_000, lengths)
    assert frame.rdd.getNumPartitions() > 1 or split_bytes > 1 << 20
