"""The streaming sink on a real session and a real cluster: what each batch leaves."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import LongType, StringType, StructField, StructType

from paxosblock.client.spark.attempts import TaskAttempt
from paxosblock.client.spark.source_options import Use, parse_options
from paxosblock.client.spark.streaming_sink import Batch, StreamWriter, make_stream_writer
from paxosblock.errors import (
    ConfigError,
    FencedError,
    InvalidRequestError,
    IsDirectoryError,
    NotFoundError,
)
from paxosblock.spark import published_batch
from tests.spark.reading import Place
from tests.waiting import wait_until

LINES = 20
VALUE = StructType([StructField("value", StringType())])


@dataclass(frozen=True)
class Feed:
    """A directory of text files; each file becomes one batch."""

    spark: SparkSession
    folder: Path

    def add(self, *numbers: int) -> Counter[str]:
        """Add files by number; all lines of them."""
        lines = Counter[str]()
        (self.folder / "in").mkdir(exist_ok=True)
        for number in numbers:
            text = [f"{number}-{line}" for line in range(LINES)]
            lines.update(text)
            hidden = self.folder / f"{number}"
            hidden.write_text("\n".join(text) + "\n")
            hidden.rename(self.folder / "in" / f"{number:04}.txt")
        return lines

    def rows(self) -> DataFrame:
        """The lines as a stream, in two partitions."""
        reader = self.spark.readStream.option("maxFilesPerTrigger", 1)
        return reader.text(f"{self.folder}/in").repartition(2)

    def run(self, place: Place, rows: DataFrame | None = None, **options: str) -> StreamingQuery:
        """Write all that is there, batch by batch; returns when that is done.

        Among the options, `mode` is the output mode and `checkpoint` a name.
        """
        mode, checkpoint = options.pop("mode", "append"), options.pop("checkpoint", "checkpoint")
        writer = (self.rows() if rows is None else rows).writeStream.outputMode(mode)
        writer = writer.format("faulty" if "fault" in options else "paxosblock").options(**options)
        writer = writer.option("checkpointLocation", f"{self.folder}/{checkpoint}")
        query = writer.trigger(availableNow=True).start(place.url)
        query.awaitTermination()
        return query


@pytest.fixture
def feed(spark: SparkSession, tmp_path: Path) -> Feed:
    """Nothing in it yet."""
    return Feed(spark, tmp_path)


def values(table: Place) -> Counter[str]:
    return Counter(table.parquet().column("value").to_pylist())


def test_each_batch_adds_its_files_and_can_be_asked_for(feed: Feed, table: Place) -> None:
    lines = feed.add(0, 1, 2)
    query = feed.run(table)
    assert values(table) == lines
    assert published_batch(table.fs, query) == published_batch(table.fs, query.id) == 2
    assert query.lastProgress is not None
    assert query.lastProgress.batchId == 2
    assert len(table.files()) == 6
    assert {query.id in each.path for each in table.files()} == {True}
    assert [name for name in table.leftovers() if "/" in name] == []


def test_the_layout_append_makes_one_file_longer_also_after_a_restart(
    feed: Feed, table: Place
) -> None:
    lines = feed.add(0, 1)
    feed.run(table / "log", layout="append", fileFormat="text")
    assert (table / "log").lines() == lines
    before = table.fs.stat((table / "log").path)
    lines += feed.add(2)
    feed.run(table / "log", layout="append", fileFormat="text")
    assert (table / "log").lines() == lines
    assert [name for name in table.names() if "/" in name] == []
    assert table.fs.stat((table / "log").path).file_id == before.file_id


@pytest.mark.slow
def test_the_output_mode_complete_replaces_what_was_there(feed: Feed, table: Place) -> None:
    feed.add(0, 1)
    counts = feed.rows().selectExpr("SPLIT(value, '-')[0] AS id").groupBy("id").count()
    feed.run(table, counts.selectExpr("CAST(id AS BIGINT) AS id", "count"), mode="complete")
    assert table.ids() == Counter([0, 1])
    assert table.parquet().column("count").to_pylist() == [LINES, LINES]


@pytest.mark.slow
def test_a_new_checkpoint_on_an_old_path_adds_all_again(feed: Feed, table: Place) -> None:
    lines = feed.add(0, 1)
    first = feed.run(table, checkpoint="c1")
    second = feed.run(table, checkpoint="c2")
    assert values(table) == lines + lines
    assert (published_batch(table.fs, first), published_batch(table.fs, second)) == (1, 1)


@pytest.mark.parametrize("layout", ["files", pytest.param("append", marks=pytest.mark.slow)])
def test_a_commit_that_raises_after_it_took_effect_is_not_repeated(
    feed: Feed, table: Place, layout: str
) -> None:
    lines = feed.add(0, 1, 2)
    out, options = table / "out", {"layout": layout, "fileFormat": "text"}
    with pytest.raises(StreamingQueryException, match="injected after the commit"):
        feed.run(out, None, **options, fault="exception after the commit of batch 1")
    lines += feed.add(3)
    query = feed.run(out, None, **options)
    found = out.lines() if layout == "append" else sum((f.lines() for f in out.files()), Counter())
    assert found == lines
    assert published_batch(table.fs, query) == 3
    assert [name for name in table.leftovers() if query.id in name] == []


@pytest.mark.parametrize(
    "fault", ["exit mid-write", pytest.param("exception mid-write", marks=pytest.mark.slow)]
)
def test_an_attempt_that_fails_is_repeated(feed: Feed, table: Place, fault: str) -> None:
    lines = feed.add(0, 1)
    feed.run(table, fault=fault)
    assert values(table) == lines


def test_a_batch_that_fails_is_repeated_after_a_restart(feed: Feed, table: Place) -> None:
    lines = feed.add(0)
    with pytest.raises(StreamingQueryException, match="injected mid-write"):
        feed.run(table, fault="all attempts fail")
    feed.run(table)
    assert values(table) == lines


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layout": "append"}, "a parquet file ends with its index and cannot grow"),
        ({"mode": "update"}, "does not support Update mode"),
    ],
)
def test_bad_input_is_one_error_and_writes_nothing(
    feed: Feed, table: Place, options: dict[str, str], message: str
) -> None:
    feed.add(0)
    with pytest.raises(PySparkException, match=message):
        feed.run(table, None, **options)
    assert not table.fs.exists(table.path)


# -- one step at a time, without Spark: attempts and drivers that come late -----------------------


def writer_of(place: Place, **options: str) -> StreamWriter:
    given = {"path": place.url, **options}
    writer = make_stream_writer(VALUE, parse_options(given, Use.STREAM_WRITE), overwrite=False)
    assert isinstance(writer, StreamWriter)
    return writer


def batches(*lines: str) -> Iterator[pa.RecordBatch]:
    for line in lines:
        yield pa.record_batch({"value": pa.array([line])})


@pytest.mark.parametrize(
    ("options", "overwrite", "message"),
    [
        ({"fileFormat": "csv", "header": "true"}, False, "every batch would add a 'header'"),
        ({"fileFormat": "text", "compression": "gzip"}, False, "no 'compression' around"),
        ({"fileFormat": "text"}, True, "the output mode must be append, too"),
    ],
)
def test_what_cannot_be_appended_to_is_refused(
    table: Place, options: dict[str, str], overwrite: bool, message: str
) -> None:
    given = parse_options({"path": table.url, "layout": "append", **options}, Use.STREAM_WRITE)
    with pytest.raises(ConfigError, match=message):
        make_stream_writer(VALUE, given, overwrite=overwrite)


def test_a_file_of_another_kind_is_not_appended_to(table: Place) -> None:
    log = table / "log"
    append(log, "q-8", ["a"], "arrow")
    given = {"path": log.url, "layout": "append", "fileFormat": "arrow"}
    options = parse_options(given, Use.STREAM_WRITE)
    numbers = StructType([StructField("value", LongType())])
    with pytest.raises(InvalidRequestError, match="'value' is string there and bigint in the new"):
        make_stream_writer(numbers, options, overwrite=False)
    table.fs.mkdirs((table / "folder").path)
    with pytest.raises(IsDirectoryError, match="writes one file; this is a directory"):
        writer_of(table / "folder", layout="append", fileFormat="text")


def test_a_line_or_an_index_that_ends_the_file_is_not_appended_to(table: Place) -> None:
    log, indexed = table / "log", table / "indexed"
    with table.fs.create(log.path) as out:
        out.write(b"whole\nhalf")
    with pytest.raises(InvalidRequestError, match="log' does not end with a line end"):
        writer_of(log, layout="append", fileFormat="text")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, pa.schema([("value", pa.string())])):
        pass
    with table.fs.create(indexed.path) as out:
        out.write(sink.getvalue())
    with pytest.raises(InvalidRequestError, match="an Arrow file ends with its index"):
        writer_of(indexed, layout="append", fileFormat="arrow")


@pytest.mark.parametrize(
    ("file_format", "expected"),
    [("text", b"a\nb\nc\n"), ("csv", b'"a"\n"b"\n"c"\n'), ("binary", b"abc"), ("arrow", None)],
)
def test_batches_are_appended_in_the_order_of_partitions(
    table: Place, file_format: str, expected: bytes | None
) -> None:
    log = table / "log"
    append(log, file_format, ["a", "b"], file_format)
    append(log, file_format, ["c"], file_format, number=1)
    if expected is None:
        assert log.arrow().column("value").to_pylist() == ["a", "b", "c"]
    else:
        assert log.content() == expected


def append(
    log: Place, query: str, partitions: list[str], file_format: str, *, number: int = 0
) -> None:
    """One batch with a row in each partition; their tasks end in the opposite order."""
    kind = pa.binary() if file_format == "binary" else pa.string()
    given = {"path": log.url, "layout": "append", "fileFormat": file_format}
    schema = StructType([StructField("value", from_arrow_type(kind))])
    writer = make_stream_writer(schema, parse_options(given, Use.STREAM_WRITE), overwrite=False)
    assert isinstance(writer, StreamWriter)
    messages: list[WriterCommitMessage | None] = [
        writer.write_as(
            TaskAttempt(partition, partition),
            Batch(query, number),
            iter([pa.record_batch({"value": pa.array([row], kind)})]),
        )
        for partition, row in enumerate(partitions)
    ]
    writer.commit(messages[::-1], number)


def untouched() -> Iterator[pa.RecordBatch]:
    pytest.fail("nobody reads the rows of a batch that is published")
    yield


@pytest.mark.parametrize("layout", ["files", "append"])
def test_the_time_of_a_change_tells_when_the_last_batch_was_published(
    table: Place, layout: str
) -> None:
    out, query = table / "out", f"q-{layout}"
    writer = writer_of(out, layout=layout, fileFormat="text")
    writer.commit([writer.write_as(TaskAttempt(0, 1), Batch(query, 0), batches("a"))], 0)
    first = table.fs.stat(out.path).modified_s
    written = writer.write_as(TaskAttempt(0, 1), Batch(query, 1), batches("b"))
    wait_until(lambda: time.time() * 1000 > first + 1)
    writer.commit([written], 1)
    assert first < table.fs.stat(out.path).modified_s <= time.time()


def test_a_batch_that_is_published_is_not_written_again(table: Place) -> None:
    writer, batch = writer_of(table), Batch("q-1", 0)
    writer.commit([writer.write_as(TaskAttempt(0, 1), batch, batches("a"))], 0)
    before = table.names()
    repeated = writer.write_as(TaskAttempt(0, 2), batch, untouched())
    assert repeated.repeated
    writer.commit([repeated], 0)
    assert table.names() == before


def test_a_batch_that_was_written_twice_is_published_once(table: Place) -> None:
    first, second, batch = writer_of(table), writer_of(table), Batch("q-2", 0)
    one = first.write_as(TaskAttempt(0, 1), batch, batches("a"))
    other = second.write_as(TaskAttempt(0, 1), batch, batches("a"))
    first.commit([one], 0)
    second.commit([other], 0)
    assert values(table) == Counter("a")
    assert [name for name in table.leftovers() if "/" in name] == []


def test_an_attempt_that_writes_while_its_batch_is_published_is_fenced(table: Place) -> None:
    writer, batch = writer_of(table, fileFormat="text"), Batch("q-3", 0)
    winner = writer.write_as(TaskAttempt(0, 1), batch, batches("a"))

    def late() -> Iterator[pa.RecordBatch]:
        yield from batches("a")
        writer.commit([winner], 0)
        yield from batches("x" * 8_000_000)

    with pytest.raises((FencedError, NotFoundError)):
        writer.write_as(TaskAttempt(0, 2), batch, late())
    assert [each.lines() for each in table.files()] == [Counter("a")]
    assert [name for name in table.leftovers() if "/" in name] == []


def test_an_abort_after_the_batch_was_published_deletes_nothing(table: Place) -> None:
    writer, batch = writer_of(table), Batch("q-4", 0)
    written = writer.write_as(TaskAttempt(0, 1), batch, batches("a"))
    writer.commit([written], 0)
    writer.abort([written], 0)
    assert values(table) == Counter("a")


def test_an_abort_leaves_nothing_of_the_batch_and_lets_it_be_repeated(table: Place) -> None:
    writer, batch = writer_of(table), Batch("q-5", 0)
    failed = writer.write_as(TaskAttempt(0, 1), batch, batches("a"))
    writer.abort([None, failed], 0)
    assert [name for name in table.leftovers() if "/" in name] == []
    writer.commit([writer.write_as(TaskAttempt(0, 2), batch, batches("a"))], 0)
    assert values(table) == Counter("a")


def test_a_batch_that_another_driver_gave_up_fails_and_is_repeated_whole(table: Place) -> None:
    """The old driver's abort takes away what the new one's tasks wrote to the same place."""
    old, new, batch = writer_of(table), writer_of(table), Batch("q-9", 0)
    failed = old.write_as(TaskAttempt(0, 1), batch, batches("a"))
    messages = [
        new.write_as(TaskAttempt(at, 2), batch, batches(row)) for at, row in enumerate("ab")
    ]
    old.abort([failed, None], 0)
    with pytest.raises(NotFoundError):
        new.commit([*messages], 0)
    new.abort([*messages], 0)
    messages = [
        new.write_as(TaskAttempt(at, 3), batch, batches(row)) for at, row in enumerate("ab")
    ]
    new.commit([*messages], 0)
    assert values(table) == Counter("ab")


def test_a_batch_whose_place_was_overwritten_meanwhile_is_repeated_whole(table: Place) -> None:
    writer, batch = writer_of(table), Batch("q-10", 0)
    messages = [writer.write_as(TaskAttempt(0, 1), batch, batches("a"))]
    table.fs.delete(table.path, recursive=True)  # as a job does that replaces the directory
    messages.append(writer.write_as(TaskAttempt(1, 2), batch, batches("b")))
    with pytest.raises(NotFoundError):
        writer.commit([*messages], 0)
    assert table.files() == []
    messages = [
        writer.write_as(TaskAttempt(at, 3), batch, batches(row)) for at, row in enumerate("ab")
    ]
    writer.commit([*messages], 0)
    assert values(table) == Counter("ab")


def test_a_checkpoint_that_was_set_back_is_an_error_not_a_silent_loss(
    table: Place,
) -> None:
    writer = writer_of(table)
    writer.commit([writer.write_as(TaskAttempt(0, 1), Batch("q-6", 5), batches("a"))], 5)
    old = writer.write_as(TaskAttempt(0, 2), Batch("q-6", 3), batches("b"))
    with pytest.raises(InvalidRequestError, match="batch 3 comes after batch 5 was published"):
        writer.commit([old], 3)


def test_two_queries_append_to_one_file_without_losing_a_row(table: Place) -> None:
    def run(query: str) -> None:
        for number in range(15):
            append(table / "log", query, [f"{query}-{number}"], "text", number=number)

    threads = [threading.Thread(target=run, args=(name,)) for name in ("left", "right")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = itertools.product(("left", "right"), range(15))
    assert (table / "log").lines() == Counter(f"{name}-{number}" for name, number in expected)


def test_a_batch_is_not_appended_to_a_file_that_somebody_writes(table: Place) -> None:
    log = table / "log"
    writer = writer_of(log, layout="append", fileFormat="text")
    written = writer.write_as(TaskAttempt(0, 1), Batch("q-7", 0), batches("a"))
    with table.fs.create(log.path) as out:
        out.write(b"theirs\n")
        with pytest.raises(Exception, match="log"):
            writer.commit([written], 0)
    writer.commit([written], 0)
    assert log.content() == b"theirs\na\n"
