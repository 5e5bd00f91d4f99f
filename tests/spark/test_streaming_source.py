"""`spark.readStream.format("paxosblock")`: a file that is written meanwhile, a directory that
grows; stopped and started again, and what must fail."""

from __future__ import annotations

import io
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes
from pyspark.sql.streaming.query import StreamingQuery

from paxosblock import Client, LocalCluster
from paxosblock.api.transaction import MakeDirectory, Rename
from paxosblock.client.names.url import parse_url
from paxosblock.client.spark.datasource import PaxosBlockDataSource
from paxosblock.client.spark.stream_reader import WAIT_S
from paxosblock.client.spark.tail import TailReader
from paxosblock.errors import ConfigError, InvalidRequestError, NotFoundError, TruncatedError

Offset = dict[str, Any]


def path_of(url: str) -> str:
    return parse_url(url).path


def put(fs: Client, path: str, text: str) -> None:
    with fs.create(path) as out:
        out.write(text.encode())


def stream(spark: SparkSession, url: str, **options: object) -> DataFrame:
    reader = spark.readStream.format("paxosblock").option("fileFormat", "text")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load(url)


class Copied:
    """A stream written as local files of text, each batch once; started as often as one likes."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._checkpoint = folder / "checkpoint"
        self._lines = folder / "lines"

    def start(self, frame: DataFrame, **trigger: Any) -> StreamingQuery:
        writer = frame.writeStream.format("text").option(
            "checkpointLocation", str(self._checkpoint)
        )
        writer = writer.trigger(**trigger) if trigger else writer
        return writer.start(str(self._lines))

    def run(self, frame: DataFrame) -> StreamingQuery:
        """Read all that is there now, in as many batches as it takes."""
        query = self.start(frame, availableNow=True)
        query.awaitTermination()
        return query

    def lines(self) -> Counter[str]:
        found = self._spark.read.text(str(self._lines)).toArrow()
        return Counter(found["value"].to_pylist())


@pytest.fixture
def copied(spark: SparkSession, tmp_path: Path) -> Copied:
    return Copied(spark, tmp_path)


def batches(query: StreamingQuery) -> int:
    return sum(progress.numInputRows > 0 for progress in query.recentProgress)


# -- a file that is being written -----------------------------------------------------------------


def test_a_line_is_read_once_it_has_an_end_while_its_file_is_being_written(
    spark: SparkSession, fs: Client, folder: str, copied: Copied
) -> None:
    with fs.create(path_of(folder), block_size=8, chunk_size=4) as out:
        out.write(b"one\ntwo\nthr")
        out.hflush()
        query = copied.start(stream(spark, folder))
        try:
            query.processAllAvailable()
            assert copied.lines() == Counter(["one", "two"])
            out.write(b"ee\nfour\n")
            out.hflush()
            query.processAllAvailable()
            assert copied.lines() == Counter(["one", "two", "three", "four"])
        finally:
            query.stop()


@pytest.mark.slow
def test_no_line_is_lost_or_repeated_over_restarts_whatever_the_limit(
    spark: SparkSession, fs: Client, folder: str, copied: Copied
) -> None:
    lines = [f"{number}-{'y' * (number % 50)}" for number in range(300)]
    lines[100] = "long" * 500
    data = "".join(f"{line}\n" for line in lines).encode()
    cuts = [len(data) // 3, len(data) - 7, len(data)]
    limited = {"maxBytesPerTrigger": 1_501, "splitBytes": 701}
    with fs.create(path_of(folder), block_size=1_003, chunk_size=500) as out:
        for begin, end in zip([0, *cuts], cuts, strict=False):
            out.write(data[begin:end])
            out.hflush()
            query = copied.run(stream(spark, folder, **limited))
            assert batches(query) > 1 or end - begin < 2_000
    assert copied.lines() == Counter(lines)


@pytest.mark.slow
def test_progress_tells_how_far_a_stream_is_behind(
    spark: SparkSession, fs: Client, folder: str, copied: Copied
) -> None:
    put(fs, path_of(folder), "1234567\n" * 3)
    query = copied.run(stream(spark, folder, maxBytesPerTrigger=8))
    seen = [json.loads(each.json)["sources"][0] for each in query.recentProgress]
    read = [each for each in seen if each["numInputRows"]]
    assert [each["endOffset"]["offset"] for each in read] == [8, 16, 24]
    assert [each["latestOffset"]["offset"] for each in read] == [24, 24, 24]


def test_a_batch_that_failed_is_read_again_with_the_same_rows_though_more_came(
    spark: SparkSession, fs: Client, folder: str, tmp_path: Path
) -> None:
    seen: list[list[str]] = []

    def fail_once(batch: DataFrame, _: int) -> None:
        seen.append(sorted(row.value for row in batch.collect()))
        if len(seen) == 1:
            raise RuntimeError("the first time")

    def run() -> None:
        writer = stream(spark, folder).writeStream.foreachBatch(fail_once)
        checkpoint = str(tmp_path / "checkpoint")
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()

    with fs.create(path_of(folder)) as out:
        out.write(b"one\ntwo\nthr")
        out.hflush()
        with pytest.raises(StreamingQueryException, match="the first time"):
            run()
        out.write(b"ee\n")
        out.hflush()
        run()
    assert seen == [["one", "two"], ["one", "two"], ["three"]]


def test_a_stream_fails_when_its_file_is_replaced(
    spark: SparkSession, fs: Client, folder: str, copied: Copied
) -> None:
    put(fs, path_of(folder), "one\n")
    copied.run(stream(spark, folder))
    fs.delete(path_of(folder))
    put(fs, path_of(folder), "another\n")
    with pytest.raises(StreamingQueryException, match="was replaced by another file; 4 bytes"):
        copied.run(stream(spark, folder))
    assert copied.lines() == Counter(["one"])


# -- what Spark asks the driver's side, without Spark ---------------------------------------------


@pytest.fixture
def tail(fs: Client, folder: str) -> Iterator[TailReader]:
    """Of a file with two bytes."""
    put(fs, path_of(folder), "1\n")
    reader = reader_of(folder)
    assert isinstance(reader, TailReader)
    yield reader
    reader.stop()


def reader_of(url: str, **options: object) -> Any:
    texts = {name: str(value) for name, value in options.items()}
    source = PaxosBlockDataSource({"path": url, "fileFormat": "text", **texts})
    return source.streamReader(source.schema())


def read_now(url: str, at: Offset | None = None, **options: str) -> tuple[list[Any], Offset]:
    """All lines from an offset on that are there now, as `availableNow` reads them; and the end."""
    reader = reader_of(url, **options)
    start = reader.initialOffset() if at is None else at
    reader.prepareForTriggerAvailableNow()
    lines: list[Any] = []
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        for partition in reader.partitions(start, end):
            lines += [line for batch in reader.read(partition) for line in batch[0].to_pylist()]
        start = json.loads(json.dumps(end))  # as a checkpoint keeps it
    reader.stop()
    return lines, start


def test_the_last_line_of_a_closed_file_needs_no_end(fs: Client, folder: str) -> None:
    with fs.create(path_of(folder)) as out:
        out.write(b"one\ntwo")
        out.hflush()
        lines, at = read_now(folder)
        assert lines == ["one"]
    assert read_now(folder, at)[0] == ["two"]


def test_the_header_of_a_csv_file_that_grows_is_no_row(fs: Client, folder: str) -> None:
    with fs.create(path_of(folder)) as out:
        out.write(b"n,m\n1,2\n3")
        out.hflush()
        rows, at = read_now(folder, fileFormat="csv", header="true")
        assert rows == [1]
        out.write(b",4\n")
        out.hflush()
        assert read_now(folder, at, fileFormat="csv", header="true")[0] == [3]


def test_arrow_batches_are_read_once_they_are_whole(fs: Client, folder: str) -> None:
    """Two streams, one behind the other, come in pieces that end anywhere."""
    ids = list(range(30))
    table = pa.table({"id": ids})
    data = io.BytesIO()
    for part in (table.slice(0, 12), table.slice(12)):
        with pa.ipc.new_stream(data, table.schema) as writer:
            writer.write_table(part, max_chunksize=3)
    at: Offset | None = None
    found: list[int] = []
    with fs.create(path_of(folder)) as out:
        for piece in (data.getvalue()[begin : begin + 601] for begin in range(0, 6_000, 601)):
            out.write(piece)
            out.hflush()
            rows, at = read_now(folder, at, fileFormat="arrow", maxBytesPerTrigger="1")
            assert rows == ids[len(found) : len(found) + len(rows)]
            found += rows
    assert found == ids


def test_arrow_that_ends_in_the_middle_of_a_batch_fails_the_stream(fs: Client, folder: str) -> None:
    data = io.BytesIO()
    table = pa.table({"id": [1, 2]})
    with pa.ipc.new_stream(data, table.schema) as writer:
        writer.write_table(table)
    with fs.create(path_of(folder)) as out:
        out.write(data.getvalue()[:-10])
    with pytest.raises(InvalidRequestError, match="was closed in the middle of an Arrow message"):
        read_now(folder, fileFormat="arrow")


def test_a_stream_fails_when_its_path_is_of_another_kind_now(fs: Client, folder: str) -> None:
    put(fs, f"{path_of(folder)}/a", "1\n")
    _, of_directory = read_now(folder)
    _, of_file = read_now(f"{folder}/a")
    with pytest.raises(InvalidRequestError, match="the checkpoint is of a stream of a file"):
        read_now(folder, of_file)
    with pytest.raises(InvalidRequestError, match="the checkpoint is of a stream of a directory"):
        read_now(f"{folder}/a", of_directory)


def test_a_stream_fails_when_its_directory_is_replaced(fs: Client, folder: str) -> None:
    put(fs, f"{path_of(folder)}/a", "1\n")
    _, at = read_now(folder)
    fs.delete(path_of(folder), recursive=True)
    put(fs, f"{path_of(folder)}/a", "2\n")
    with pytest.raises(NotFoundError, match="is another directory than the one"):
        read_now(folder, at)


def test_a_file_that_vanishes_before_its_batch_is_done_fails_the_stream(
    fs: Client, folder: str
) -> None:
    for name in "ab":
        put(fs, f"{path_of(folder)}/{name}", f"{name}\n")
    reader = reader_of(folder)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    fs.delete(f"{path_of(folder)}/a")
    with pytest.raises(NotFoundError, match="1 of the 2 files of this micro-batch"):
        reader.partitions(start, end)
    reader.stop()


def test_what_comes_after_an_available_now_began_is_left_for_the_next(
    fs: Client, folder: str
) -> None:
    with fs.create(f"{path_of(folder)}/log") as out:
        out.write(b"1\n")
        out.hflush()
        tail, directory = reader_of(f"{folder}/log"), reader_of(folder)
        for reader in (tail, directory):
            reader.prepareForTriggerAvailableNow()
        out.write(b"2\n")
    put(fs, f"{path_of(folder)}/new", "3\n")
    assert tail.latestOffset(tail.initialOffset(), ReadAllAvailable())["offset"] == 2
    end = directory.latestOffset(directory.initialOffset(), ReadAllAvailable())
    assert (end["files"], end["path"]) == (1, f"{path_of(folder)}/log")


def test_a_question_for_news_waits_for_them_but_not_for_long(tail: TailReader) -> None:
    end = tail.latestOffset(tail.initialOffset(), ReadAllAvailable())
    assert end["offset"] == 2
    begun = time.monotonic()
    assert tail.latestOffset(end, ReadAllAvailable()) == end
    assert WAIT_S <= time.monotonic() - begun < 10 * WAIT_S


def test_news_end_the_waiting(fs: Client, tail: TailReader, folder: str) -> None:
    """The question is asked again and again, as Spark does; it is answered by the append."""
    heard: list[dict[str, Any]] = []

    def ask() -> None:
        end = start = {**tail.initialOffset(), "offset": 2}
        while end == start:
            end = tail.latestOffset(start, ReadAllAvailable())
        heard.append(end)

    asking = threading.Thread(target=ask)
    asking.start()
    with fs.append(path_of(folder)) as out:
        out.write(b"2\n")
        out.hflush()
        asking.join(30)
        assert [end["offset"] for end in heard] == [4]


def test_a_file_that_got_shorter_fails_the_stream(tail: TailReader) -> None:
    beyond = {**tail.initialOffset(), "offset": 3}
    with pytest.raises(NotFoundError, match="has only 2 bytes now; 3 were read"):
        tail.latestOffset(beyond, ReadMaxBytes(1))


def test_a_file_that_was_truncated_fails_the_stream_also_if_it_is_longer_than_before(
    fs: Client, folder: str, tail: TailReader
) -> None:
    begin = tail.initialOffset()
    end = tail.latestOffset(begin, ReadMaxBytes(1))
    fs.truncate(path_of(folder), 0)
    with fs.append(path_of(folder)) as out:
        out.write(b"quite others\n")
    for ask in (partial(tail.partitions, begin), partial(tail.latestOffset, limit=ReadMaxBytes(1))):
        with pytest.raises(TruncatedError, match="was truncated; 2 bytes of what it was before"):
            ask(end)


def test_options_that_do_not_go_together_are_refused(fs: Client, folder: str) -> None:
    put(fs, path_of(folder), "1\n")
    with pytest.raises(ConfigError, match="take one of them"):
        reader_of(folder, maxBytesPerTrigger=1, maxFilesPerTrigger=1)
    with pytest.raises(ConfigError, match="'maxFilesPerTrigger' has no effect"):
        reader_of(folder, maxFilesPerTrigger=1)
    with pytest.raises(ConfigError, match="a file can grow as plain text"):
        reader_of(folder, fileFormat="binary")


def test_a_stream_of_nothing_is_refused(cluster: LocalCluster, folder: str) -> None:
    with pytest.raises(NotFoundError, match="no such file or directory"):
        reader_of(folder)


def test_a_datanode_that_is_killed_while_a_file_is_written_costs_no_line(
    fs: Client, cluster: LocalCluster, folder: str
) -> None:
    victim = cluster.datanodes[1]
    with fs.create(path_of(folder), block_size=1_000, chunk_size=100) as out:
        out.write(b"before\n" * 100)
        out.hflush()
        victim.kill()
        try:
            lines, at = read_now(folder)
            assert lines == ["before"] * 100
            out.write(b"after\n" * 500)
            out.hflush()
            assert read_now(folder, at)[0] == ["after"] * 500
        finally:
            victim.start()
            cluster.wait_registered()


@pytest.mark.slow
def test_no_file_is_missed_when_another_namenode_takes_over(tmp_path: Path) -> None:
    """The order of files is that of the replicated log: it is the same at every NameNode."""
    with LocalCluster(3, 3, tmp_path / "cluster") as cluster, Client(cluster.url) as fs:
        fs.mkdirs("/in")
        reader = reader_of(f"{cluster.url}/in")
        at = reader.initialOffset()
        read: list[str] = []
        for number in range(6):
            put(fs, f"/in/{9 - number}", f"{number}\n")
            if number % 3 == 1:
                leader = cluster.wait_leader()
                leader.kill()
                cluster.wait_leader()
                leader.start()
            end = reader.latestOffset(at, ReadAllAvailable())
            for part in reader.partitions(at, end):
                read += [
                    value for batch in reader.read(part) for value in batch["value"].to_pylist()
                ]
            at = end
        reader.stop()
    assert read == [str(number) for number in range(6)]


# -- a directory that grows -----------------------------------------------------------------------


@pytest.mark.slow
def test_every_file_of_a_directory_is_read_once_over_restarts(
    spark: SparkSession, fs: Client, folder: str, copied: Copied
) -> None:
    path = path_of(folder)
    put(fs, f"{path}-elsewhere", "older\n")
    put(fs, f"{path}/b", "b\n")
    put(fs, f"{path}/_hidden", "hidden\n")
    put(fs, f"{path}/below/a", "below\n")
    query = copied.run(stream(spark, folder, maxFilesPerTrigger=1))
    assert batches(query) == 2
    with fs.create(f"{path}/a") as late:
        late.write(b"late\n")
        late.hflush()
        put(fs, f"{path}/0", "0\n")
        copied.run(stream(spark, folder))
        assert copied.lines() == Counter(["b", "below", "0"])
    fs.rename(f"{path}-elsewhere", f"{path}/00")
    put(fs, f"{path}/_temporary/x", "x\n")
    put(fs, f"{path}/_temporary/y", "y\n")
    moves = [Rename(f"{path}/_temporary/{name}", f"{path}/{name}") for name in "xy"]
    fs.transact([MakeDirectory(path), *moves])
    query = copied.run(stream(spark, folder, maxFilesPerTrigger=2))
    assert batches(query) == 2
    expected = Counter(["b", "below", "0", "late", "older", "x", "y"])
    assert copied.lines() == expected
    copied.run(stream(spark, folder))
    assert copied.lines() == expected


@pytest.mark.parametrize("file_format", [pytest.param("text", marks=pytest.mark.slow), "arrow"])
def test_what_a_sink_appends_is_read_as_it_comes(
    spark: SparkSession, fs: Client, folder: str, tmp_path: Path, file_format: str
) -> None:
    """The directory `in` is streamed into the file `log`, which is streamed."""
    path, at = path_of(folder), None
    for number in range(2):
        lines = [f"{number}-{each}" for each in range(20)]
        put(fs, f"{path}/in/{number}", "".join(f"{line}\n" for line in lines))
        appended = (
            stream(spark, f"{folder}/in")
            .writeStream.format("paxosblock")
            .options(fileFormat=file_format, layout="append", path=f"{folder}/log")
            .option("checkpointLocation", str(tmp_path / "appending"))
            .trigger(availableNow=True)
            .start()
        )
        appended.awaitTermination()
        found, at = read_now(f"{folder}/log", at, fileFormat=file_format)
        assert found == lines


def test_a_schema_is_needed_as_long_as_no_file_tells_one(fs: Client, folder: str) -> None:
    fs.mkdirs(path_of(folder))
    with pytest.raises(InvalidRequestError, match="no file tells a schema yet"):
        reader_of(folder, fileFormat="parquet")
