"""The parts of files that are read, asked as Spark asks but without a Spark session."""

from __future__ import annotations

import gzip
import io
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from typing import Any, cast

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    In,
    IsNull,
    StringStartsWith,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from paxosblock import Client
from paxosblock.api.transaction import Delete, Marker, Operation, Rename
from paxosblock.client.names.url import parse_url
from paxosblock.client.spark.datasource import PaxosBlockDataSource
from paxosblock.client.spark.listing import find
from paxosblock.client.spark.source import PruningReader
from paxosblock.errors import InvalidRequestError, NotFoundError, PaxosBlockError
from tests.paging import changed_between_pages


def path_of(url: str) -> str:
    return parse_url(url).path


def put(fs: Client, url: str, data: bytes | str) -> None:
    with fs.create(path_of(url), block_size=1 << 16, chunk_size=1 << 14) as out:
        out.write(data.encode() if isinstance(data, str) else data)


def parquet(table: pa.Table, rows: int = 100) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=rows)
    return out.getvalue()


def arrow(table: pa.Table) -> bytes:
    out = io.BytesIO()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()


def source(url: str, file_format: str, **options: object) -> PaxosBlockDataSource:
    texts = {name: str(value) for name, value in options.items()}
    return PaxosBlockDataSource({"path": url, "fileFormat": file_format, **texts})


TYPES: dict[str, DataType] = {
    "array<int>": ArrayType(IntegerType()),
    "bigint": LongType(),
    "decimal(20,0)": DecimalType(20, 0),
    "double": DoubleType(),
    "int": IntegerType(),
    "string": StringType(),
    "tinyint": ByteType(),
}


def struct(text: str) -> StructType:
    """Return what Spark makes of such a text; asking Spark takes a session."""
    columns = [column.split(" ") for column in text.split(", ")]
    return StructType([StructField(name, TYPES[kind]) for name, kind in columns])


def read(
    url: str, file_format: str, schema: str | StructType | None = None, **options: object
) -> pa.Table:
    """All rows, in the order of files and splits; every batch has the schema Spark insists on."""
    chosen = source(url, file_format, **options)
    fields = struct(schema) if isinstance(schema, str) else schema or chosen.schema()
    reader = chosen.reader(fields)
    batches = list(batches_of(reader))
    assert all(batch.schema.equals(to_arrow_schema(fields, timezone="UTC")) for batch in batches)
    return pa.Table.from_batches(batches) if batches else pa.table({})


def batches_of(reader: DataSourceReader) -> Iterator[pa.RecordBatch]:
    for partition in reader.partitions():
        yield from cast("Iterator[pa.RecordBatch]", reader.read(partition))


def lines(url: str) -> list[str]:
    table = read(url, "text")
    return table["value"].to_pylist() if table.num_columns else []


# -- which files ----------------------------------------------------------------------------------


def test_a_directory_means_all_files_below_it_but_hidden_ones(fs: Client, folder: str) -> None:
    for name in ("b", "a/c", "a/_d", "_temporary/e", ".f", "_SUCCESS"):
        put(fs, f"{folder}/{name}", f"{name}\n")
    assert lines(folder) == ["a/c", "b"]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.txt", ["1.txt"]),
        ("**/*.txt", ["1.txt", "x/2.txt", "x/y/3.txt"]),
        ("x*", ["x/2.txt", "x/y/3.txt"]),
        ("x/[!y]*", ["x/2.txt"]),
        ("**/y", ["x/y/3.txt"]),
        ("xx/_5/?", ["xx/_5/6"]),
        ("{1,2,3}.txt", ["1.txt"]),
        ("{x,nothing}/{2,{3,y}}*", ["x/2.txt", "x/y/3.txt"]),
    ],
)
def test_a_pattern_means_the_files_and_directories_it_matches(
    fs: Client, folder: str, pattern: str, found: list[str]
) -> None:
    for name in ("1.txt", "x/2.txt", "x/y/3.txt", "x/y/_4.txt", "xx/_5/6"):
        put(fs, f"{folder}/{name}", f"{name}\n")
    assert lines(f"{folder}/{pattern}") == found


def test_a_list_of_paths_is_read_together_and_each_file_once(fs: Client, folder: str) -> None:
    for name in ("a", "x/b", "x/c", "y"):
        put(fs, f"{folder}/{name}", f"{name}\n")
    urls = [f"{folder}/{name}" for name in ("x", "a", "x/c", "{a,z}")]
    several = PaxosBlockDataSource({"paths": json.dumps(urls), "fileFormat": "text"})
    rows = pa.Table.from_batches(batches_of(several.reader(several.schema())))
    assert rows["value"].to_pylist() == ["a", "x/b", "x/c"]
    lacking = PaxosBlockDataSource({"paths": json.dumps([*urls, f"{folder}/*z"])})
    with pytest.raises(NotFoundError, match=r"/\*z': matches no file$"):
        lacking.schema()


@pytest.mark.parametrize("file_format", ["parquet", "arrow"])
def test_merge_schema_takes_the_columns_of_all_files_and_fills_in_nulls(
    fs: Client, folder: str, file_format: str
) -> None:
    write = {"parquet": parquet, "arrow": arrow}[file_format]
    put(fs, f"{folder}/1", write(pa.table({"id": [1, 2]})))
    put(fs, f"{folder}/2", write(pa.table({"name": ["c"], "id": [3]})))
    put(fs, f"{folder}/3", write(pa.table({"other": [4.0]})))
    rows = read(folder, file_format, mergeSchema="true")
    assert rows.to_pylist() == [
        {"id": 1, "name": None, "other": None},
        {"id": 2, "name": None, "other": None},
        {"id": 3, "name": "c", "other": None},
        {"id": None, "name": None, "other": 4.0},
    ]
    chosen = read(folder, file_format, "name string", mergeSchema="true")
    assert chosen["name"].to_pylist() == [None, None, "c", None]
    with pytest.raises(InvalidRequestError, match=r"/3': has no column 'id'"):
        read(folder, file_format, "id bigint")


def test_merge_schema_refuses_two_types_of_one_column(fs: Client, folder: str) -> None:
    put(fs, f"{folder}/1", parquet(pa.table({"id": [1]})))
    put(fs, f"{folder}/2", parquet(pa.table({"id": ["x"]})))
    with pytest.raises(
        InvalidRequestError, match=r"/2': column 'id' is string, in other files bigint$"
    ):
        read(folder, "parquet", mergeSchema="true")


@pytest.mark.parametrize("file_format", ["parquet", "arrow", "csv", "text"])
def test_the_path_of_a_rows_file_is_a_column_on_demand(
    fs: Client, folder: str, file_format: str
) -> None:
    for name, ids in (("1", [1, 2]), ("2", [3])):
        columnar = {"parquet": parquet, "arrow": arrow}.get(file_format)
        plain = "".join(f"{each}\n" for each in ids)
        put(fs, f"{folder}/{name}", columnar(pa.table({"id": ids})) if columnar else plain)
    expected = [path_of(f"{folder}/{name}") for name in ("1", "1", "2")]
    rows = read(folder, file_format, pathColumn="file")
    assert (rows.num_columns, rows["file"].to_pylist()) == (2, expected)
    if columnar:
        assert read(folder, file_format, "file string", pathColumn="file").to_pydict() == {
            "file": expected
        }


def test_a_path_column_that_cannot_be_is_an_error_of_the_driver(fs: Client, folder: str) -> None:
    put(fs, folder, parquet(pa.table({"id": [1]})))
    with pytest.raises(InvalidRequestError, match="the files have a column 'id' themselves"):
        read(folder, "parquet", pathColumn="id")
    with pytest.raises(InvalidRequestError, match="the schema has no string column 'file'"):
        read(folder, "parquet", "id bigint", pathColumn="file")


def test_nothing_at_the_path_is_an_error_and_an_empty_directory_has_no_rows(
    fs: Client, folder: str
) -> None:
    with pytest.raises(NotFoundError, match="no such file or directory"):
        lines(f"{folder}/missing")
    fs.mkdirs(path_of(folder))
    assert lines(folder) == []
    with pytest.raises(NotFoundError, match="matches no file"):
        lines(f"{folder}/*.txt")
    with pytest.raises(InvalidRequestError, match="no file tells a schema yet"):
        read(folder, "parquet")
    assert read(folder, "parquet", "id bigint").num_rows == 0


def test_a_file_being_written_is_read_as_far_as_its_last_flushed_line(
    fs: Client, folder: str
) -> None:
    with fs.create(path_of(folder)) as out:
        out.write(b"one\ntwo\nthr")
        out.hflush()
        assert lines(folder) == ["one", "two"]
    assert lines(folder) == ["one", "two", "thr"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("replaced", "was replaced or cut"),
        ("truncated", "was replaced or cut"),
        ("deleted", "no such file"),
    ],
)
def test_a_file_that_changes_between_plan_and_read_is_never_read(
    fs: Client, folder: str, change: str, message: str
) -> None:
    put(fs, folder, "one\n")
    chosen = source(folder, "text")
    reader = chosen.reader(chosen.schema())
    [partition] = reader.partitions()
    if change == "truncated":
        fs.truncate(path_of(folder), 0)
        with fs.append(path_of(folder)) as out:
            out.write(b"other\n")
    else:
        fs.delete(path_of(folder))
    if change == "replaced":
        put(fs, folder, "other\n")
    with pytest.raises(NotFoundError, match=message):
        list(reader.read(partition))


def found_names(fs: Client, url: str, *between: Sequence[Operation]) -> list[str]:
    with changed_between_pages(fs, *between):
        files = find(fs, path_of(url), one_state=True).files
    return [path.removeprefix(f"{path_of(url)}/") for path in sorted(files)]


def test_a_job_that_is_published_while_pages_are_listed_is_seen_whole(
    fs: Client, folder: str
) -> None:
    path = path_of(folder)
    old, new = [f"{name}-old" for name in "abcd"], [f"{name}-new" for name in "abcd"]
    for name in (*old, *(f"_temporary/{name}" for name in new)):
        put(fs, f"{folder}/{name}", "x\n")
    moves = [Rename(f"{path}/_temporary/{name}", f"{path}/{name}") for name in new]
    assert found_names(fs, folder, moves) == sorted(old + new)


def test_jobs_that_are_published_faster_than_a_directory_is_listed_are_seen_whole(
    fs: Client, folder: str
) -> None:
    """Of each job one file has a name in front of all others and one behind them."""
    path, jobs = path_of(folder), [f"{number:03}" for number in range(30)]
    for name in ("k", "m", "p"):
        put(fs, f"{folder}/{name}", "x\n")
    names = [(f"a-{job}", f"z-{job}") for job in jobs]
    found = found_names(fs, folder, *([Marker(f"{path}/{each}") for each in job] for job in names))
    assert found[len(found) // 2 - 1 : len(found) // 2 + 2] == ["k", "m", "p"]
    halves = Counter(name.partition("-")[2] for name in found if "-" in name)
    assert halves == dict.fromkeys(jobs[: len(halves)], 2)
    assert 0 < len(halves) < len(jobs), "it ends before they do"


def test_files_that_give_way_to_one_while_pages_are_listed_do_not_vanish(
    fs: Client, folder: str
) -> None:
    """As `compact` does: the new one's name is in the page that was listed before."""
    path = path_of(folder)
    for name in ("b", "c", "small-1", "small-2", "_temporary/merged"):
        put(fs, f"{folder}/{name}", "x\n")
    swap: list[Operation] = [
        *(Rename(f"{path}/{name}", f"{path}/_{name}") for name in ("small-1", "small-2")),
        Rename(f"{path}/_temporary/merged", f"{path}/a"),
    ]
    assert found_names(fs, folder, swap) == ["a", "b", "c"]


def test_a_directory_that_is_replaced_while_those_below_are_listed_is_listed_again(
    fs: Client, folder: str
) -> None:
    path = path_of(folder)
    for name in ("x/1", "x/2", "x/3", "y/4"):
        put(fs, f"{folder}/{name}", "old\n")
    put(fs, f"{folder}-new/5", "new\n")
    swap: list[Operation] = [Delete(path, recursive=True), Rename(f"{path}-new", path)]
    assert found_names(fs, folder, swap) == ["5"]


# -- text and csv ---------------------------------------------------------------------------------


def test_line_ends_of_windows_and_compressed_files_are_understood(fs: Client, folder: str) -> None:
    text = "a\r\n\r\nä \nlast"
    put(fs, f"{folder}/1.txt", text)
    put(fs, f"{folder}/2.txt.gz", gzip.compress(text.encode()))
    put(fs, f"{folder}/3.txt.zst", pa.compress(text.encode(), "zstd", asbytes=True))
    assert lines(folder) == ["a", "", "ä ", "last"] * 3


def test_the_types_of_csv_are_guessed_from_a_sample(fs: Client, folder: str) -> None:
    put(
        fs,
        folder,
        "id,name,half,day,at,zoned,none,flag\n"
        '1,"x",0.5,2024-01-02,2024-01-02 03:04:05,2024-01-02 03:04:05Z,,true\n'
        '2,"",,,,,,\n',
    )
    assert source(folder, "csv", header="true").schema().simpleString() == (
        "struct<id:bigint,name:string,half:double,day:date,at:timestamp_ntz,zoned:timestamp,"
        "none:string,flag:boolean>"
    )
    at = datetime(2024, 1, 2, 3, 4, 5)
    first = [1, "x", 0.5, date(2024, 1, 2), at, at.replace(tzinfo=UTC), None, True]
    rows = [tuple(row.values()) for row in read(folder, "csv", header="true").to_pylist()]
    assert rows == [tuple(first), (2, "", None, None, None, None, None, None)]


def test_csv_without_a_header_has_the_names_that_spark_gives(fs: Client, folder: str) -> None:
    put(fs, folder, "1;a,b\n2;\n")
    assert read(folder, "csv", sep=";").to_pydict() == {"_c0": [1, 2], "_c1": ["a,b", None]}


def test_a_schema_for_csv_goes_by_position(fs: Client, folder: str) -> None:
    put(fs, folder, "n,m\n1,2\n")
    found = read(folder, "csv", "a double, b string", header="true")
    assert found.to_pydict() == {"a": [1.0], "b": ["2"]}


def test_a_single_column_of_csv_keeps_its_nulls_and_its_empty_strings(
    fs: Client, folder: str
) -> None:
    put(fs, folder, '"x"\n\n""\n')
    assert read(folder, "csv", "v string").to_pydict() == {"v": ["x", None, ""]}


VALUES = pa.table({"id": [1, 2, 3], "text": ["a\nb", 'say "x",\r\ny', "c"]})


def quoted() -> bytes:
    out = io.BytesIO()
    pc.write_csv(VALUES, out, pc.WriteOptions(include_header=True))
    return out.getvalue()


def test_values_with_line_ends_are_read_with_multi_line(fs: Client, folder: str) -> None:
    put(fs, f"{folder}/1.csv", quoted())
    put(fs, f"{folder}/2.csv.gz", gzip.compress(quoted()))
    found = read(folder, "csv", header="true", multiLine="true")
    assert found.to_pylist() == VALUES.to_pylist() * 2


def test_a_value_that_is_cut_in_two_by_a_split_is_an_error_not_a_wrong_row(
    fs: Client, folder: str
) -> None:
    put(fs, folder, quoted() * 3)
    with pytest.raises(InvalidRequestError, match="need the option multiLine=true"):
        read(folder, "csv", "id string, text string", splitBytes=20)


def test_csv_that_does_not_fit_is_an_error_of_the_driver(fs: Client, folder: str) -> None:
    put(fs, folder, "1,x\n2,y\n")
    with pytest.raises(InvalidRequestError, match="Expected 3 columns, got 2: 1,x"):
        source(folder, "csv").reader(struct("a int, b string, c int")).partitions()
    with pytest.raises(InvalidRequestError, match="conversion error to int32"):
        source(folder, "csv").reader(struct("a int, b int")).partitions()


# -- parquet and Arrow ----------------------------------------------------------------------------

TABLE = pa.table({"id": pa.array(range(1000)), "name": [f"n{at:04}" for at in range(1000)]})


@pytest.mark.parametrize(("file_format", "encode"), [("parquet", parquet), ("arrow", arrow)])
def test_a_schema_chooses_columns_by_name_and_widens_types(
    fs: Client, folder: str, file_format: str, encode: Any
) -> None:
    put(fs, folder, encode(TABLE))
    found = read(folder, file_format, "name string, id decimal(20,0)")
    assert found.column_names == ["name", "id"]
    assert found["id"].cast(pa.int64()).to_pylist() == list(range(1000))
    assert read(folder, file_format, "name string").column_names == ["name"]


@pytest.mark.parametrize(("file_format", "encode"), [("parquet", parquet), ("arrow", arrow)])
def test_a_schema_that_no_file_can_have_is_an_error_of_the_driver(
    fs: Client, folder: str, file_format: str, encode: Any
) -> None:
    put(fs, folder, encode(TABLE))
    for schema, message in [
        ("id bigint, other int", "has no column 'other'; it has 'id', 'name'"),
        ("id array<int>", "column 'id' is int64, which cannot be read as list"),
    ]:
        with pytest.raises(InvalidRequestError, match=message):
            source(folder, file_format).reader(struct(schema)).partitions()


def test_a_value_that_does_not_fit_its_column_is_an_error(fs: Client, folder: str) -> None:
    put(fs, folder, parquet(TABLE))
    with pytest.raises(InvalidRequestError, match="column 'id': Integer value 128 not in range"):
        read(folder, "parquet", "id tinyint")
    with pytest.raises(InvalidRequestError, match="column 'name': Failed to parse string: 'n00"):
        read(folder, "parquet", "name int")


def test_a_column_without_nulls_is_checked_not_believed(fs: Client, folder: str) -> None:
    put(fs, f"{folder}/1", parquet(pa.table({"id": [1, 2]})))
    never_null = StructType([StructField("id", LongType(), nullable=False)])
    assert read(folder, "parquet", never_null).to_pydict() == {"id": [1, 2]}
    put(fs, f"{folder}/2", parquet(pa.table({"id": [3, None]})))
    with pytest.raises(InvalidRequestError, match=r"column 'id': .* null values to non-nullable"):
        read(folder, "parquet", never_null)


@pytest.mark.parametrize("file_format", ["parquet", "arrow"])
def test_a_file_of_another_format_is_an_error_that_names_it(
    fs: Client, folder: str, file_format: str
) -> None:
    put(fs, f"{folder}/rubbish", "this is no such file, whatever its name says\n")
    with pytest.raises(InvalidRequestError, match=f"rubbish': cannot be read as {file_format}"):
        read(folder, file_format)


def test_damage_inside_a_file_is_an_error_that_names_it(fs: Client, folder: str) -> None:
    put(fs, f"{folder}/1.txt.gz", gzip.compress(b"a line\n" * 1000)[:-20])
    with pytest.raises(InvalidRequestError, match=r"1\.txt\.gz': cannot be read as text"):
        lines(folder)
    whole = parquet(TABLE)
    put(fs, f"{folder}-2", whole[:200] + b"\x00" * 500 + whole[700:])
    with pytest.raises(InvalidRequestError, match="-2': cannot be read as parquet"):
        read(f"{folder}-2", "parquet")


def test_types_that_spark_lacks_become_the_smallest_that_hold_their_values(
    fs: Client, folder: str
) -> None:
    table = pa.table(
        {
            "u8": pa.array([255], pa.uint8()),
            "u64": pa.array([2**64 - 1], pa.uint64()),
            "dict": pa.array(["a"]).dictionary_encode(),
            "large": pa.array(["b"], pa.large_string()),
            "view": pa.array(["c"], pa.string_view()),
            "fixed": pa.array([[1, 2]], pa.list_(pa.uint16(), 2)),
            "ns": pa.array([1_000], pa.timestamp("ns")),
            "day": pa.array([86_400_000], pa.date64()),
            "deep": pa.array([[{"x": 7}]], pa.large_list(pa.struct([("x", pa.uint32())]))),
        }
    )
    put(fs, folder, arrow(table))
    assert source(folder, "arrow").schema().simpleString() == (
        "struct<u8:smallint,u64:decimal(20,0),dict:string,large:string,view:string,"
        "fixed:array<int>,ns:timestamp_ntz,day:date,deep:array<struct<x:bigint>>>"
    )
    assert [str(value) for value in read(folder, "arrow").to_pylist()[0].values()] == [
        "255",
        "18446744073709551615",
        "a",
        "b",
        "c",
        "[1, 2]",
        "1970-01-01 00:00:00.000001",
        "1970-01-02",
        "[{'x': 7}]",
    ]


def test_a_type_that_spark_has_nothing_for_is_named(fs: Client, folder: str) -> None:
    kind = pa.month_day_nano_interval()
    put(fs, folder, arrow(pa.table({"gap": pa.array([(1, 2, 3)], kind)})))
    with pytest.raises(InvalidRequestError, match="column 'gap': Spark has no type for month_day"):
        read(folder, "arrow")


@pytest.mark.parametrize(
    ("wanted", "groups"),
    [
        (EqualTo(("id",), 250), 1),
        (EqualTo(("id",), 299), 1),
        (EqualTo(("id",), 300), 1),
        (GreaterThan(("id",), 799), 2),
        (In(("id",), (5, 15, 905)), 2),
        (StringStartsWith(("name",), "n01"), 1),
        (IsNull(("id",)), 0),
        (EqualTo(("id",), "250"), 10),
        (EqualTo(("absent",), 1), 10),
        (EqualTo(("id",), -1), 0),
    ],
)
def test_row_groups_that_a_filter_refuses_are_not_read(
    fs: Client, folder: str, wanted: Filter, groups: int
) -> None:
    put(fs, folder, parquet(TABLE))
    chosen = source(folder, "parquet", pushdown="true")
    reader = chosen.reader(chosen.schema())
    assert isinstance(reader, PruningReader)
    assert list(reader.pushFilters([wanted])) == [wanted]  # Spark applies it to the rows
    assert sum(batch.num_rows for batch in batches_of(reader)) == groups * 100


# -- binary ---------------------------------------------------------------------------------------


def test_binary_is_a_row_for_each_file_like_sparks_own(fs: Client, folder: str) -> None:
    put(fs, f"{folder}/a", b"\x00\xff")
    put(fs, f"{folder}/b", b"")
    found = read(folder, "binary").to_pylist()
    assert [row["content"] for row in found] == [b"\x00\xff", b""]
    assert [row["length"] for row in found] == [2, 0]
    assert [row["path"] for row in found] == [path_of(f"{folder}/{name}") for name in "ab"]
    modified = [int(row["modificationTime"].timestamp() * 1000) for row in found]
    assert modified == [round(fs.stat(row["path"]).modified_s * 1000) for row in found]


def test_binary_fetches_only_the_columns_that_are_asked_for(fs: Client, folder: str) -> None:
    put(fs, f"{folder}/a", b"12345")
    assert read(folder, "binary", "length bigint").to_pydict() == {"length": [5]}


@pytest.mark.parametrize(
    ("file_format", "schema", "message"),
    [
        ("binary", "content string", "binary has no column 'content' of type string"),
        ("binary", "size bigint", "binary has no column 'size'"),
        ("text", "a string, b string", "text has one column of strings"),
        ("text", "a int", "text has one column of strings"),
    ],
)
def test_a_schema_that_the_format_lacks_is_refused(
    folder: str, file_format: str, schema: str, message: str
) -> None:
    with pytest.raises(PaxosBlockError, match=message):
        source(folder, file_format).reader(struct(schema))
