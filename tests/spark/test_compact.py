"""`compact`: few large files of many small ones, with the same content, in one step."""

from __future__ import annotations

import io
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import csv, parquet
from pyspark.sql import SparkSession

from paxosblock import Client, LocalCluster
from paxosblock.client.spark.jobs.compact import CompactedDirectory, CompactOptions, compact
from paxosblock.client.spark.jobs.merging import MergeFormat
from paxosblock.errors import InvalidRequestError, NotDirectoryError, NotFoundError
from tests.files import read
from tests.spark.unstarted import no_spark

ALL_AT_ONCE = CompactOptions()
Compact = Callable[..., CompactedDirectory]


@pytest.fixture
def place(folder: str) -> str:
    """A path in the cluster where nothing is."""
    return "/" + folder.rpartition("/")[2]


@pytest.fixture
def run(spark: SparkSession, cluster: LocalCluster) -> Compact:
    """`compact` of one directory of the tests' cluster."""

    def compacted(path: str, options: CompactOptions = ALL_AT_ONCE) -> CompactedDirectory:
        (directory,) = compact(spark, cluster.addresses, path, options).directories
        return directory

    return compacted


def put(fs: Client, path: str, data: bytes) -> None:
    with fs.create(path) as out:
        out.write(data)


def visible(fs: Client, path: str) -> list[str]:
    paths = [entry.path for entry in fs.ls(path)]
    return [path for path in paths if not path.rpartition("/")[2].startswith("_")]


def table(start: int, **columns: Any) -> pa.Table:
    rows = range(start, start + 1000)
    return pa.table({"id": rows, "name": [f"name {row}" for row in rows]} | columns)


def as_parquet(rows: pa.Table) -> bytes:
    out = io.BytesIO()
    parquet.write_table(rows, out, compression="zstd")
    return out.getvalue()


def as_stream(rows: pa.Table) -> bytes:
    out = io.BytesIO()
    with pa.ipc.new_stream(out, rows.schema) as writer:
        writer.write_table(rows)
    return out.getvalue()


def test_parquet_files_become_one_with_the_same_rows_in_order(
    run: Compact, fs: Client, place: str
) -> None:
    tables = [table(1000 * number) for number in range(5)]
    for number, rows in enumerate(tables):
        put(fs, f"{place}/{number}.parquet", as_parquet(rows))
    done = run(place)
    (merged,) = visible(fs, place)
    with fs.open(merged) as file:
        found = parquet.ParquetFile(file)
        assert found.read().equals(pa.concat_tables(tables))
        assert found.metadata.num_row_groups == 1
        assert found.metadata.row_group(0).column(0).compression == "ZSTD"
        assert (done.merged, done.into, done.size_bytes) == (5, 1, file.size)


def test_lines_stay_lines_where_a_file_does_not_end_with_one(
    run: Compact, fs: Client, place: str
) -> None:
    for number, data in enumerate((b"a\nb", b"c\n", b"", b"d")):
        put(fs, f"{place}/{number}.txt", data)
    run(place)
    (merged,) = visible(fs, place)
    assert read(fs, merged) == b"a\nb\nc\nd"


def test_a_csv_header_is_written_once(run: Compact, fs: Client, place: str) -> None:
    put(fs, f"{place}/1.csv", b"id,name\n1,one\n")
    put(fs, f"{place}/2.csv", b"id,name\r\n2,two\r\n")
    run(place, CompactOptions(header=True))
    (merged,) = visible(fs, place)
    rows = csv.read_csv(io.BytesIO(read(fs, merged)))
    assert rows.to_pydict() == {"id": [1, 2], "name": ["one", "two"]}


def test_csv_files_that_begin_alike_are_merged_only_when_it_is_said_whether_with_a_header(
    run: Compact, fs: Client, place: str
) -> None:
    put(fs, f"{place}/1.csv", b"id,name\n1,one\n")
    put(fs, f"{place}/2.csv", b"id,name\n2,two\n")
    done = run(place)
    assert done.error.endswith(
        "all of its csv files begin with 'id,name': say --header if that names the columns, "
        "--no-header if it is a row"
    )
    assert len(visible(fs, place)) == 2
    run(place, CompactOptions(header=False))
    (merged,) = visible(fs, place)
    assert read(fs, merged) == b"id,name\n1,one\nid,name\n2,two\n"


def test_csv_files_without_a_header_need_no_word_about_it(
    run: Compact, fs: Client, place: str
) -> None:
    put(fs, f"{place}/1.csv", b"1,one\n")
    put(fs, f"{place}/2.csv", b"2,two\n")
    run(place)
    (merged,) = visible(fs, place)
    assert read(fs, merged) == b"1,one\n2,two\n"


def test_arrow_streams_stand_one_behind_the_other(run: Compact, fs: Client, place: str) -> None:
    tables = [table(0), table(1000)]
    for number, rows in enumerate(tables):
        put(fs, f"{place}/{number}.arrow", as_stream(rows))
    run(place)
    (merged,) = visible(fs, place)
    with fs.open(merged) as file:
        assert [pa.ipc.open_stream(file).read_all() for _ in tables] == tables


def test_files_are_merged_up_to_the_size_that_was_asked_for(
    run: Compact, fs: Client, place: str
) -> None:
    for number in range(7):
        put(fs, f"{place}/{number}.txt", b"%d" % number * 9 + b"\n")
    done = run(place, CompactOptions(small_bytes=11, target_bytes=30))
    assert (done.merged, done.into, done.left_alone) == (6, 2, 1)
    contents = [read(fs, path) for path in visible(fs, place)]
    assert sorted(map(len, contents)) == [10, 30, 30]
    assert sorted(b"".join(contents)) == sorted(b"0123456" * 9 + b"\n" * 7)


def test_other_files_are_left_alone(run: Compact, fs: Client, place: str) -> None:
    put(fs, f"{place}/large.txt", b"x" * 100)
    put(fs, f"{place}/unknown.xyz", b"x")
    put(fs, f"{place}/_hidden.txt", b"x")
    put(fs, f"{place}/small.txt", b"x")
    with fs.create(f"{place}/written.txt") as out:
        out.write(b"x")
        out.hflush()
        before = [entry.file_id for entry in fs.ls(place)]
        done = run(place, CompactOptions(small_bytes=50))
    assert (done.merged, done.left_alone, done.error) == (0, 4, "")
    assert [entry.file_id for entry in fs.ls(place)] == before


def test_who_has_opened_a_small_file_goes_on_reading_it(
    run: Compact, fs: Client, place: str
) -> None:
    for name in ("1.txt", "2.txt"):
        put(fs, f"{place}/{name}", name.encode() * 1000)
    with fs.open(f"{place}/1.txt") as file:
        run(place)
        assert not fs.exists(f"{place}/1.txt")
        assert file.read() == b"1.txt" * 1000


def test_readers_meanwhile_find_every_row_once(run: Compact, fs: Client, place: str) -> None:
    """A name may be gone between listing and opening: who lists again finds all the rows."""
    for number in range(60):
        put(fs, f"{place}/{number:02}.txt", b"%d\n" % number)
    sizes = (5, 12, 40, 1000)  # each round merges what the one before made

    def compacted_again() -> None:
        for size in sizes:
            assert run(place, CompactOptions(small_bytes=size, target_bytes=3 * size)).error == ""

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(compacted_again)
        while not running.done():
            with suppress(NotFoundError):
                lines = b"".join(read(fs, path) for path in visible(fs, place)).split()
                assert sorted(map(int, lines)) == list(range(60))
        running.result()
    assert len(visible(fs, place)) == 1


def test_a_file_that_is_no_parquet_leaves_the_directory_as_it_is(
    run: Compact, fs: Client, place: str
) -> None:
    put(fs, f"{place}/1.parquet", as_parquet(table(0)))
    put(fs, f"{place}/2.parquet", b"no parquet")
    done = run(place)
    assert "Parquet" in done.error
    assert visible(fs, place) == [f"{place}/1.parquet", f"{place}/2.parquet"]


@pytest.mark.parametrize(
    ("kind", "first", "second"),
    [
        ("parquet", as_parquet(table(0)), as_parquet(table(0, more=[1] * 1000))),
        ("arrow", as_stream(table(0)), as_stream(table(0, more=[1] * 1000))),
        ("csv", b"id\n1\n", b"number\n1\n"),
    ],
)
def test_files_of_different_columns_are_not_mixed(
    run: Compact, fs: Client, kind: str, first: bytes, second: bytes
) -> None:
    place = f"/different-{kind}"
    put(fs, f"{place}/1.{kind}", first)
    put(fs, f"{place}/2.{kind}", second)
    done = run(place, CompactOptions(header=True))
    assert f"2.{kind}" in done.error
    assert len(visible(fs, place)) == 2


def test_the_format_can_be_told_where_names_do_not(run: Compact, fs: Client, place: str) -> None:
    for name in ("a", "b"):
        put(fs, f"{place}/{name}", b"line\n")
    run(place, CompactOptions(format=MergeFormat.TEXT))
    (merged,) = visible(fs, place)
    assert read(fs, merged) == b"line\nline\n"


def test_directories_below_are_compacted_each_for_itself(
    spark: SparkSession, cluster: LocalCluster, fs: Client, place: str
) -> None:
    for day in (1, 2):
        for number in range(3):
            put(fs, f"{place}/day={day}/{number}.txt", b"x\n")
    report = compact(spark, cluster.addresses, place, CompactOptions(recursive=True))
    assert [(done.path, done.merged, done.into) for done in report.directories] == [
        (place, 0, 0),
        (f"{place}/day=1", 3, 1),
        (f"{place}/day=2", 3, 1),
    ]


def test_a_second_run_finds_nothing_to_merge_and_starts_no_spark(
    run: Compact, cluster: LocalCluster, fs: Client, place: str
) -> None:
    for number in range(3):
        put(fs, f"{place}/{number}.txt", b"x\n")
    run(place)
    (directory,) = compact(no_spark, cluster.addresses, place).directories
    assert directory.merged == 0


@pytest.mark.parametrize(
    ("path", "options", "error"),
    [
        ("/no/such/directory", ALL_AT_ONCE, NotFoundError),
        ("/a-file-to-compact", ALL_AT_ONCE, NotDirectoryError),
        ("/", CompactOptions(small_bytes=10, target_bytes=9), InvalidRequestError),
    ],
)
def test_what_makes_no_sense_is_told_before_spark_starts(
    cluster: LocalCluster, fs: Client, path: str, options: CompactOptions, error: type[Exception]
) -> None:
    fs.create("/a-file-to-compact", overwrite=True).close()
    with pytest.raises(error):
        compact(no_spark, cluster.addresses, path, options)
