"""The batch sink on a real session and a real cluster: what a job that ends well leaves."""

from __future__ import annotations

import gzip
import itertools
import re
from collections import Counter

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

from paxosblock import Client, LocalCluster
from paxosblock.client.spark.attempts import Job
from paxosblock.client.spark.job import Written, written_of
from paxosblock.client.spark.sink import SUCCESS
from tests.spark.reading import MOST_LINES, Place

EVERY_TYPE = (
    "CAST(id AS BOOLEAN) AS bool",
    "CAST(id AS TINYINT) AS byte",
    "CAST(id AS SMALLINT) AS short",
    "CAST(id AS INT) AS int",
    "id AS long",
    "CAST(id AS FLOAT) / 3 AS float",
    "id / 7 AS double",
    "CAST(id AS DECIMAL(38, 9)) / 3 AS decimal",
    "CONCAT('é€𝄞 ', id) AS string",
    "CAST(CONCAT('b', id) AS BINARY) AS binary",
    "DATE_ADD(DATE'1969-12-30', CAST(id AS INT)) AS date",
    "TIMESTAMP_MICROS(id - 1) AS timestamp",
    "CAST(TIMESTAMP_MICROS(id) AS TIMESTAMP_NTZ) AS local",
    "MAKE_DT_INTERVAL(CAST(id AS INT), 1, 2, 3.000004) AS interval",
    "ARRAY(id, NULL) AS array",
    "MAP('k', id) AS map",
    "NAMED_STRUCT('a', id, 'b', ARRAY(NAMED_STRUCT('c', CAST(id AS STRING)))) AS struct",
    "PARSE_JSON(CONCAT('[', id, ']')) AS variant",
    "ARRAY(PARSE_JSON('1')) AS variants",
    "ST_GEOMFROMWKB(X'0101000000000000000000F03F0000000000000040') AS geometry",
    "ST_GEOGFROMWKB(X'0101000000000000000000F03F0000000000000040') AS geography",
    "NULL AS void",
)


def writing(frame: DataFrame, **options: str) -> DataFrameWriter:
    return frame.write.format("paxosblock").options(**options)


def test_a_job_publishes_a_file_per_task_and_marks_its_success(
    spark: SparkSession, table: Place
) -> None:
    writing(spark.range(100).repartition(3)).mode("append").save(table.url)
    files = [each.path.rpartition("/")[2] for each in table.files()]
    parts = [re.match(r"part-(\d{4})-[0-9a-f]{32}-\d+\.parquet$", name) for name in files]
    assert [part and part[1] for part in parts] == ["0000", "0001", "0002"]
    assert table.names() == sorted([SUCCESS, *files])
    assert table.ids() == Counter(range(100))


def test_every_type_and_null_come_back_from_parquet_and_arrow(
    spark: SparkSession, table: Place
) -> None:
    rows = spark.range(-2, 3).selectExpr(*EVERY_TYPE)
    nulls = rows.selectExpr(*(f"IF(false, {name}, NULL) AS {name}" for name in rows.columns))
    frame = rows.union(nulls).coalesce(1)
    expected = rows.toArrow().to_pylist() + [dict.fromkeys(rows.columns)] * 5
    for file_format in ("parquet", "arrow"):
        writing(frame, fileFormat=file_format).mode("append").save((table / file_format).url)
    [stream] = (table / "arrow").files()
    for found in ((table / "parquet").parquet(), stream.arrow()):
        assert found.schema.names == rows.columns
        for row, wanted in zip(found.to_pylist(), expected, strict=True):
            assert row == wanted


def test_timestamps_are_the_same_instant_whatever_the_session_shows(
    spark: SparkSession, table: Place
) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    try:
        frame = spark.sql("SELECT TIMESTAMP_SECONDS(86400) AS at")
        writing(frame).mode("append").save(table.url)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    found = table.parquet().column("at")
    assert found.type == pa.timestamp("us", "UTC")
    assert found.cast(pa.int64()).to_pylist() == [86_400_000_000]


def test_batches_that_spark_does_not_weigh_are_still_cut_by_their_number_of_rows(
    spark: SparkSession, table: Place
) -> None:
    """docs/spark.md recommends the setting: it must be one that Spark takes."""
    most = "spark.sql.execution.arrow.maxBytesPerBatch"
    spark.conf.set(most, (1 << 31) - 1)
    try:
        writing(spark.range(25_000).coalesce(1), fileFormat="arrow").mode("append").save(table.url)
    finally:
        spark.conf.unset(most)
    [stream] = table.files()
    batches = [batch.column(0).to_pylist() for batch in pa.ipc.open_stream(stream.content())]
    assert [len(batch) for batch in batches] == [10_000, 10_000, 5_000]
    assert list(itertools.chain.from_iterable(batches)) == list(range(25_000))


@pytest.mark.parametrize(
    ("file_format", "options", "expected"),
    [
        ("text", {}, b"a0\na1\na2\n"),
        ("binary", {}, b"a0a1a2"),
        ("csv", {"header": "true", "sep": "|"}, b'"v"\n"a0"\n"a1"\n"a2"\n'),
    ],
)
def test_plain_formats_are_written_as_they_are_read(
    spark: SparkSession,
    table: Place,
    file_format: str,
    options: dict[str, str],
    expected: bytes,
) -> None:
    kind = "BINARY" if file_format == "binary" else "STRING"
    frame = spark.range(3).coalesce(1).selectExpr(f"CAST(CONCAT('a', id) AS {kind}) AS v")
    writing(frame, fileFormat=file_format, **options).mode("append").save(table.url)
    [file] = table.files()
    assert file.content() == expected


def test_compressed_files_tell_so_by_their_names(spark: SparkSession, table: Place) -> None:
    frame = spark.range(3).coalesce(1).selectExpr("CAST(id AS STRING)")
    writing(frame, fileFormat="text", compression="gzip").mode("append").save(table.url)
    [file] = table.files()
    assert file.path.endswith(".txt.gz")
    assert gzip.decompress(file.content()) == b"0\n1\n2\n"


def test_appending_leaves_what_is_there_and_overwriting_does_not(
    spark: SparkSession, table: Place
) -> None:
    writing(spark.range(10)).mode("append").save(table.url)
    writing(spark.range(10, 20)).mode("append").save(table.url)
    assert table.ids() == Counter(range(20))
    table.fs.mkdirs(f"{table.path}/day=1/_temporary")
    writing(spark.range(5)).mode("overwrite").save(table.url)
    assert table.ids() == Counter(range(5))
    assert [name for name in table.names() if not name.startswith("part-")] == [SUCCESS]


def test_overwriting_may_change_the_columns(spark: SparkSession, table: Place) -> None:
    writing(spark.range(10)).mode("append").save(table.url)
    writing(spark.range(3).selectExpr("CAST(id AS STRING) AS name")).mode("overwrite").save(
        table.url
    )
    assert table.parquet().column("name").to_pylist() == ["0", "1", "2"]


def test_an_empty_result_is_a_file_that_tells_the_columns(
    spark: SparkSession, table: Place
) -> None:
    writing(spark.range(0).selectExpr("id", "CAST(id AS STRING) AS name")).mode("append").save(
        table.url
    )
    found = table.parquet()
    assert (found.schema.names, found.num_rows) == (["id", "name"], 0)


def test_a_result_that_lacks_a_task_is_not_published() -> None:
    job = Job("spark/job", 0, "job", "/table/_temporary/job")
    one, two = Written(job, 0), Written(job, 1)
    assert written_of([two, one]) == [one, two]
    with pytest.raises(AssertionError, match="every task"):
        written_of([one, None])


def test_partitions_without_rows_leave_no_files(spark: SparkSession, table: Place) -> None:
    frame = spark.range(0, 8, 1, numPartitions=4).where("id >= 6")
    writing(frame).mode("append").save(table.url)
    assert [re.findall(r"part-(\d+)", each.path) for each in table.files()] == [["0003"]]
    assert table.ids() == Counter([6, 7])


def test_a_directory_named_by_path_and_namenodes_is_the_same(
    spark: SparkSession, cluster: LocalCluster, table: Place
) -> None:
    options = {"namenodes": ",".join(cluster.addresses), "replication": "2"}
    writing(spark.range(5), **options).mode("append").save(table.path)
    assert table.ids() == Counter(range(5))
    assert {table.fs.stat(each.path).replication for each in table.files()} == {2}


@pytest.fixture(scope="module")
def existing(spark: SparkSession, cluster: LocalCluster, fs: Client) -> Place:
    """A directory with a parquet file of one column."""
    table = Place(f"{cluster.url}/existing", fs)
    writing(spark.range(1)).mode("append").save(table.url)
    return table


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ("id", {"rowGroupByte": "1"}, "unknown option 'rowgroupbyte'; did you mean 'rowGroupByt"),
        ("id", {"fileFormat": "text"}, "text files hold one column of type string, not (id bigin"),
        ("ARRAY(id) AS a", {"fileFormat": "csv"}, "column 'a': csv files cannot hold array<bigi"),
        ("id", {"compression": "lzo"}, "'compression' = 'lzo': parquet files know snappy"),
        ("MAKE_YM_INTERVAL(1, 2) AS i", {}, "column 'i': type interval year to month has no Arr"),
        ("CAST(id AS STRING) AS id", {}, "'id' is bigint there and string in the new rows"),
        ("id; 1 AS more", {}, "'more' is not there"),
        ("id", {"fileFormat": "csv"}, "csv files cannot be added to parquet"),
    ],
)
def test_bad_input_is_one_error_before_any_task_starts(
    spark: SparkSession, existing: Place, columns: str, options: dict[str, str], message: str
) -> None:
    before = existing.names()
    frame = spark.range(3).selectExpr(*columns.split("; "))
    with pytest.raises(AnalysisException) as caught:
        writing(frame, **options).mode("append").save(existing.url)
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) <= MOST_LINES, "not the way through our modules"
    assert existing.names() == before


def test_a_mode_that_the_api_has_not_is_refused(spark: SparkSession, table: Place) -> None:
    with pytest.raises(AnalysisException, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        writing(spark.range(3)).mode("error").save(table.url)


def test_a_file_is_no_place_for_a_job(spark: SparkSession, table: Place) -> None:
    with table.fs.create(table.path) as out:
        out.write(b"x")
    with pytest.raises(AnalysisException, match="rows go into a directory; this is a file"):
        writing(spark.range(3)).mode("overwrite").save(table.url)
    assert table.content() == b"x"


def test_no_path_is_one_error(spark: SparkSession, cluster: LocalCluster) -> None:
    frame = writing(spark.range(3), namenodes=",".join(cluster.addresses)).mode("append")
    with pytest.raises(AnalysisException, match="option 'path' is missing"):
        frame.save()


def test_no_namenode_is_one_error_before_any_task_starts(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match=r"127\.0\.0\.1:1"):
        writing(spark.range(3), retryFor="100ms").mode("append").save("paxosblock://127.0.0.1:1/x")
