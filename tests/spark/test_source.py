"""`spark.read.format("paxosblock")`: every format, cut into splits of any size."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from paxosblock import Client, LocalCluster
from paxosblock.client.names.url import parse_url
from tests.spark.reading import MOST_LINES, Place

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
    options = {"header": "true"} if file_format == "csv" else {}
    found = load(spark, folder, file_format, splitBytes=split_bytes, **options).toArrow()
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


# -- types ----------------------------------------------------------------------------------------

ZONED = datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
COLUMNS: dict[str, tuple[pa.DataType, list[object]]] = {
    "boolean": (pa.bool_(), [True, False]),
    "tinyint": (pa.int8(), [-128, 127]),
    "smallint": (pa.int16(), [-(2**15), 2**15 - 1]),
    "int": (pa.int32(), [-(2**31), 2**31 - 1]),
    "bigint": (pa.int64(), [-(2**63), 2**63 - 1]),
    "float": (pa.float32(), [0.5, float("-inf")]),
    "double": (pa.float64(), [1e300, -0.25]),
    "decimal(38,9)": (pa.decimal128(38, 9), [Decimal("-1.000000001"), Decimal(10) ** 28]),
    "string": (pa.string(), ["", "ä\n\x00z"]),
    "binary": (pa.binary(), [b"", b"\x00\xff"]),
    "date": (pa.date32(), [date(1, 1, 1), date(9999, 12, 31)]),
    "timestamp": (pa.timestamp("us", "UTC"), [ZONED, datetime(1900, 1, 1, tzinfo=UTC)]),
    "timestamp_ntz": (pa.timestamp("us"), [ZONED.replace(tzinfo=None), datetime(1, 1, 1)]),
    "time(6)": (pa.time64("ns"), [time(0), time(23, 59, 59, 999_999)]),
    "interval day to second": (pa.duration("us"), [timedelta(microseconds=-1), timedelta(9)]),
    "array<int>": (pa.list_(pa.int32()), [[], [1, None]]),
    "map<string,double>": (pa.map_(pa.string(), pa.float64()), [[], [("a", 1.0), ("b", None)]]),
    "struct<x:int,y:array<string>>": (
        pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))]),
        [{"x": None, "y": ["a", None]}, {"x": 1, "y": None}],
    ),
    "array<struct<m:map<int,bigint>>>": (
        pa.list_(pa.struct([("m", pa.map_(pa.int32(), pa.int64()))])),
        [[{"m": [(1, 2)]}, None], []],
    ),
    "void": (pa.null(), [None, None]),
}
"""Every type that Spark and pyarrow both have, with values at its edges."""


@pytest.mark.parametrize("file_format", ["parquet", "arrow"])
def test_every_type_comes_back_as_it_was_written(
    spark: SparkSession, fs: Client, folder: str, file_format: str
) -> None:
    table = pa.table(
        {name: pa.array([*values, None], kind) for name, (kind, values) in COLUMNS.items()}
    )
    put(fs, folder, as_parquet(table) if file_format == "parquet" else as_arrow_file(table))
    frame = load(spark, folder, file_format)
    assert [field.dataType.simpleString() for field in frame.schema] == list(COLUMNS)
    found = frame.toArrow()
    assert found.to_pylist() == table.to_pylist()


@pytest.mark.parametrize("file_format", ["parquet", "arrow"])
def test_a_variant_comes_back_as_it_was_written(
    spark: SparkSession, fs: Client, folder: str, file_format: str
) -> None:
    table = spark.sql("select parse_json('{\"a\":[1,null]}') as value").toArrow()
    put(fs, folder, as_parquet(table) if file_format == "parquet" else as_arrow_file(table))
    frame = load(spark, folder, file_format)
    assert frame.schema.simpleString() == "struct<value:variant>"
    assert [row[0] for row in frame.selectExpr("to_json(value)").collect()] == ['{"a":[1,null]}']


# -- what may happen ------------------------------------------------------------------------------


def test_filters_are_pushed_down_when_the_option_and_spark_allow_it(
    spark: SparkSession, fs: Client, folder: str
) -> None:
    put(fs, folder, as_parquet(numbers()))
    frame = load(spark, folder, "parquet", pushdown="true")
    with pytest.raises(PySparkException, match="DATA_SOURCE_PUSHDOWN_DISABLED"):
        frame.count()
    setting = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(setting, "true")
    try:
        wanted = load(spark, folder, "parquet", pushdown="true").where("id >= 4990 and half > 0")
        assert wanted.count() == 9
        assert load(spark, folder, "parquet").where("id >= 4990").count() == 10
    finally:
        spark.conf.unset(setting)


def test_a_table_of_the_catalog_is_refused_in_a_line_that_tells_what_to_do(
    spark: SparkSession, table: Place
) -> None:
    writing = spark.range(3).write.format("paxosblock").mode("append")
    rows = table / "rows"
    writing.save(rows.url)
    advice = "CREATE TEMPORARY VIEW ... USING paxosblock OPTIONS (path '...')"
    with pytest.raises(AnalysisException, match=re.escape(advice)):
        spark.sql(f"CREATE TABLE made USING paxosblock OPTIONS (path '{rows.url}')")
    with pytest.raises(AnalysisException, match=re.escape(advice)):
        writing.saveAsTable("managed")
    assert not spark.catalog.listTables("default")
    # Spark asks nothing when it is told the columns, and on a write it tells no table from a path.
    spark.sql(f"CREATE TABLE made (id bigint) USING paxosblock OPTIONS (path '{rows.url}')")
    writing.option("path", (table / "saved").url).saveAsTable("saved")
    try:
        for name in ("made", "saved"):
            with pytest.raises(AnalysisException, match=re.escape(advice)):
                spark.table(name).count()
    finally:
        spark.sql("DROP TABLE made")
        spark.sql("DROP TABLE saved")
    assert rows.ids() == (table / "saved").ids() == Counter([0, 1, 2])


@pytest.fixture
def view(spark: SparkSession, table: Place) -> Iterator[Callable[[], None]]:
    """Make the temporary view `v` of a directory with ten rows, or make it anew."""
    spark.range(10).write.format("paxosblock").mode("append").save(table.url)

    def make() -> None:
        what = f"v USING paxosblock OPTIONS (path '{table.url}')"
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {what}")

    make()
    yield make
    spark.catalog.dropTempView("v")


def test_a_view_shows_what_was_inserted_when_it_is_made_anew(
    spark: SparkSession, view: Callable[[], None]
) -> None:
    """Spark plans the files of a view once, and tells a Python source of no later query."""
    assert spark.table("v").count() == 10
    spark.sql("INSERT INTO v VALUES (10), (11)")
    view()
    assert spark.table("v").count() == 12
    spark.sql("INSERT OVERWRITE v VALUES (9)")
    with pytest.raises(PySparkException, match="no such file or directory"):
        spark.table("v").collect()
    view()
    assert [row.id for row in spark.sql("SELECT id FROM v").collect()] == [9]


def test_a_hint_makes_a_small_source_a_broadcast(
    spark: SparkSession, view: Callable[[], None]
) -> None:
    """Spark asks no Python source for its size, and takes it for the largest there is."""

    def plan(hint: str) -> str:
        joined = spark.sql(f"SELECT {hint} * FROM v JOIN range(100000) USING (id)")
        return str(joined._jdf.queryExecution().executedPlan().toString())

    # The other side is broadcast if any is: it has a size.
    assert "BuildLeft" in plan("/*+ BROADCAST(v) */")
    assert "BuildLeft" not in plan("")


def test_files_of_different_columns_are_read_as_one_with_the_path_of_each_row(
    spark: SparkSession, table: Place
) -> None:
    for name, value in (("a", F.lit("x")), ("b", F.lit(2.5))):
        one = spark.range(1).withColumn(name, value)
        one.write.format("paxosblock").mode("append").save((table / name).url)
    for meant in (table.url, f"{table.url}/{{a,b}}", [(table / "a").url, (table / "b").url]):
        reading = spark.read.format("paxosblock").option("mergeSchema", "true")
        found = reading.option("pathColumn", "file").load(meant)
        assert found.columns == ["id", "a", "b", "file"]
        folder = F.regexp_extract("file", "/([ab])/part-[^/]*$", 1)
        rows = {tuple(row) for row in found.select(folder, "a", "b").collect()}
        assert rows == {("a", "x", None), ("b", None, 2.5)}
    assert [name for (name,) in found.select(F.input_file_name()).collect()] == ["", ""]


def test_a_datanode_that_is_killed_while_it_serves_costs_no_row(
    spark: SparkSession, fs: Client, cluster: LocalCluster, folder: str
) -> None:
    """It is killed from within a query, when the first rows have come to Spark."""
    table = numbers(20_000)
    put(fs, folder, as_text(table), block_size=100_003)
    victim = cluster.datanodes[0]
    frame = load(spark, folder, "text", splitBytes=300_007)
    rows = frame.toLocalIterator()
    found = [next(rows).value]
    victim.kill()
    try:
        found += [row.value for row in rows]
    finally:
        victim.start()
        cluster.wait_registered()
    assert sorted(found) == sorted(table["text"].to_pylist())


@pytest.mark.parametrize(
    ("file_format", "options", "message"),
    [
        ("text", {"splitByte": "1"}, "unknown option 'splitbyte'; did you mean 'splitBytes'?"),
        ("text", {"splitBytes": "many"}, "option 'splitBytes' = 'many'"),
        ("text", {"rowGroupBytes": "1"}, "option 'rowGroupBytes' has no effect on a read"),
        ("csvs", {}, "option 'fileFormat' = 'csvs': expected one of parquet, arrow, csv"),
        ("text", {}, "no such file or directory"),
        ("text", {"namenodes": "127.0.0.1:1", "retryFor": "1ms"}, "127.0.0.1:1"),
    ],
)
def test_what_cannot_be_read_is_one_clear_error_before_any_task_starts(
    spark: SparkSession,
    cluster: LocalCluster,
    file_format: str,
    options: dict[str, str],
    message: str,
) -> None:
    options = {"namenodes": ",".join(cluster.addresses), **options}
    with pytest.raises(AnalysisException) as error:
        load(spark, "/not-there", file_format, **options)
    lines = str(error.value).splitlines()
    assert message in [line for line in lines if "paxosblock.errors." in line][-1]
    assert len(lines) <= MOST_LINES, "not the way through our modules"
