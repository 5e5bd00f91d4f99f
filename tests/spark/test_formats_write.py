"""Arrow batches as files: bytes that pyarrow, or a look at them, gives back."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from paxosblock.client.spark.formats_write import (
    CODECS,
    check_schema,
    extension_of,
    format_of,
    open_writer,
)
from paxosblock.client.spark.source_options import FileFormat, SparkOptions
from paxosblock.errors import ConfigError, InvalidRequestError


class Kept(io.BytesIO):
    """A stream whose bytes are there after it was closed."""

    def close(self) -> None:
        self.content = self.getvalue()


def options(file_format: FileFormat, **given: Any) -> SparkOptions:
    return SparkOptions(path="/x", namenodes=("nn:1",), file_format=file_format, **given)


def written(batches: Iterable[pa.RecordBatch], schema: pa.Schema, chosen: SparkOptions) -> bytes:
    out = Kept()
    writer = open_writer(out, schema, chosen)
    for batch in batches:
        writer.write_batch(batch)
    writer.close()
    return out.getvalue()


NAMES = pa.record_batch({"name": pa.array(["ab", None, "", "ç\u20ac"])})
TYPES = pa.record_batch(
    {
        "bool": pa.array([True, None]),
        "byte": pa.array([1, None], pa.int8()),
        "long": pa.array([1 << 40, None]),
        "double": pa.array([0.1, float("nan")]),
        "decimal": pa.array([Decimal("1.50"), None], pa.decimal128(38, 2)),
        "string": pa.array(["x", None]),
        "binary": pa.array([b"\x00\xff", None]),
        "date": pa.array([1, None], pa.date32()),
        "timestamp": pa.array([1, None], pa.timestamp("us", "UTC")),
        "local": pa.array([1, None], pa.timestamp("us")),
        "interval": pa.array([1, None], pa.duration("us")),
        "list": pa.array([[1, None], None]),
        "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32())),
        "struct": pa.array([{"a": 1, "b": "x"}, None]),
        "void": pa.nulls(2),
    }
)


@pytest.mark.parametrize("codec", CODECS[FileFormat.PARQUET])
def test_parquet_gives_back_every_type_with_every_codec(codec: str) -> None:
    data = written([TYPES, TYPES], TYPES.schema, options(FileFormat.PARQUET, compression=codec))
    assert_same(pq.read_table(io.BytesIO(data)), pa.Table.from_batches([TYPES, TYPES]))


@pytest.mark.parametrize("codec", CODECS[FileFormat.ARROW])
def test_arrow_gives_back_every_type_with_every_codec(codec: str) -> None:
    data = written([TYPES, TYPES], TYPES.schema, options(FileFormat.ARROW, compression=codec))
    assert_same(pa.ipc.open_stream(data).read_all(), pa.Table.from_batches([TYPES, TYPES]))


def assert_same(found: pa.Table, expected: pa.Table) -> None:
    assert found.schema.equals(expected.schema)
    # By text: a NaN equals nothing, not even itself.
    assert str(found.to_pylist()) == str(expected.to_pylist())


def test_arrow_is_compressed_with_zstd_unless_another_codec_is_asked_for() -> None:
    rows = pa.record_batch({"word": ["again"] * 1000})
    default, zstd, lz4 = (
        written([rows], rows.schema, options(FileFormat.ARROW, compression=codec))
        for codec in ("", "zstd", "lz4")
    )
    assert default == zstd != lz4


def test_a_row_group_collects_batches_up_to_its_size() -> None:
    batch = pa.record_batch({"a": pa.array(range(1000))})
    chosen = options(FileFormat.PARQUET, row_group_bytes=20_000)
    data = written([batch] * 7, batch.schema, chosen)
    groups = pq.ParquetFile(io.BytesIO(data)).metadata
    assert [groups.row_group(at).num_rows for at in range(groups.num_row_groups)] == [
        3000,
        3000,
        1000,
    ]


def test_a_file_without_rows_still_tells_its_columns() -> None:
    data = written([], TYPES.schema, options(FileFormat.PARQUET))
    assert pq.read_schema(io.BytesIO(data)).equals(TYPES.schema)


def test_text_has_a_line_per_row_and_an_empty_one_for_null() -> None:
    data = written([NAMES, NAMES.slice(3)], NAMES.schema, options(FileFormat.TEXT))
    assert data.decode() == "ab\n\n\nç\u20ac\nç\u20ac\n"


def test_binary_has_the_values_and_nothing_else() -> None:
    batch = pa.record_batch({"b": pa.array([b"\x00", None, b"", b"\xff\xfe"])})
    data = written([batch, batch.slice(2)], batch.schema, options(FileFormat.BINARY))
    assert data == b"\x00\xff\xfe\xff\xfe"


@pytest.mark.parametrize("codec", CODECS[FileFormat.CSV])
def test_csv_is_read_back_with_every_codec(codec: str) -> None:
    batch = pa.record_batch({"a": pa.array([1, None]), "b": pa.array(['x;"y"', None])})
    chosen = options(FileFormat.CSV, header=True, sep=";", compression=codec)
    data = written([batch, batch], batch.schema, chosen)
    if codec != "none":
        data = pa.CompressedInputStream(pa.py_buffer(data), codec).read()
    assert data.splitlines()[0] == b'"a";"b"'
    layout = pyarrow.csv.ParseOptions(delimiter=";")
    convert = pyarrow.csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False)
    table = pyarrow.csv.read_csv(io.BytesIO(data), None, layout, convert)
    assert table.to_pylist() == batch.to_pylist() * 2


def test_a_compressed_text_file_is_whole() -> None:
    data = written([NAMES], NAMES.schema, options(FileFormat.TEXT, compression="gzip"))
    assert gzip.decompress(data).decode() == "ab\n\n\nç\u20ac\n"


def test_the_end_of_a_name_tells_format_and_codec() -> None:
    assert extension_of(options(FileFormat.PARQUET, compression="zstd")) == ".parquet"
    assert extension_of(options(FileFormat.CSV, compression="gzip")) == ".csv.gz"
    assert extension_of(options(FileFormat.TEXT, compression="uncompressed")) == ".txt"
    assert format_of("part-0000.csv.gz") is FileFormat.CSV
    assert format_of("part-0000.arrows") is FileFormat.ARROW
    assert format_of("README") is None


def test_a_codec_that_the_format_has_not_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'compression' = 'lzo': parquet files know snappy, no"):
        check_schema(TYPES.schema, options(FileFormat.PARQUET, compression="lzo"))


@pytest.mark.parametrize(
    ("file_format", "schema", "message"),
    [
        (FileFormat.CSV, pa.schema({"a": pa.list_(pa.int8())}), "cannot hold array<tinyint>"),
        (FileFormat.PARQUET, pa.schema({"a": pa.struct([])}), "'a': parquet files cannot hold str"),
        (FileFormat.PARQUET, pa.schema([]), "there are no columns"),
        (FileFormat.PARQUET, pa.schema([("a", pa.int8())] * 2), "there are several columns 'a'"),
        (FileFormat.TEXT, pa.schema({"a": pa.int8()}), "of type string, not \\(a tinyint\\)"),
        (FileFormat.TEXT, pa.schema({"a": pa.string(), "b": pa.string()}), "hold one column of"),
        (FileFormat.BINARY, pa.schema({"a": pa.string()}), "of type binary, not \\(a string\\)"),
    ],
)
def test_columns_that_a_format_cannot_hold_are_refused_by_name(
    file_format: FileFormat, schema: pa.Schema, message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        check_schema(schema, options(file_format))
