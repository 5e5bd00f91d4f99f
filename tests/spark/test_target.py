"""The path as the driver finds it before a task starts: asked without a Spark session."""

from __future__ import annotations

import gzip

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from paxosblock import Client, LocalCluster
from paxosblock.client.spark.sink import make_writer
from paxosblock.client.spark.source_options import Use, parse_options
from paxosblock.errors import InvalidRequestError
from tests.spark.reading import Place

ROWS = StructType([StructField("id", LongType()), StructField("name", StringType())])


def check(table: Place, **options: str) -> None:
    """As for a job that adds rows to csv files."""
    given = {"path": table.url, "fileFormat": "csv", **options}
    make_writer(ROWS, parse_options(given, Use.WRITE), overwrite=False)


def put(table: Place, name: str, content: bytes) -> None:
    with table.fs.create((table / name).path) as out:
        out.write(content)


@pytest.mark.parametrize(
    ("header", "name", "content", "message"),
    [
        ("true", "a.csv", b'"id","title"\n1,x\n', "its first line has id, title; the new rows "),
        ("true", "a.csv", b'1,"x"\n', "its first line has 1, x; the new rows have id, name"),
        ("false", "a.csv", b"1,2,3\n", "its first line has 3 columns"),
        ("false", "a.csv.gz", gzip.compress(b"1\n2\n", mtime=0), "its first line has 1 columns"),
    ],
)
def test_csv_files_with_other_columns_are_not_added_to(
    table: Place, header: str, name: str, content: bytes, message: str
) -> None:
    put(table, name, content)
    with pytest.raises(InvalidRequestError, match=message):
        check(table, header=header)
    assert table.names() == [name]


@pytest.mark.parametrize(
    ("header", "content"),
    [("true", b'"id","name"\r\n'), ("false", b'1,"x,y"\n'), ("false", b'1,"x\ny"\n')],
)
def test_csv_files_with_the_same_columns_are_added_to(
    table: Place, header: str, content: bytes
) -> None:
    put(table, "a.csv", content)
    check(table, header=header)


def test_the_root_is_no_place_for_rows(cluster: LocalCluster, fs: Client) -> None:
    with pytest.raises(InvalidRequestError, match="not into the root"):
        check(Place(cluster.url, fs))
