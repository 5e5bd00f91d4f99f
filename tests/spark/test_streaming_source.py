"""`spark.readStream.format("paxosblock")`: a file that is written meanwhile, a directory that
grows; stopped and started again, and what must fail."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes
from pyspark.sql.streaming.query import StreamingQuery

from paxosblock import Client, LocalCluster
from paxosblock.client.spark.datasource import PaxosBlockDataSource
from paxosblock.client.spark.tail import WAIT_S, TailReader
from paxosblock.client.url import parse_url
from paxosblock.errors import ConfigError, InvalidRequestError, NotFoundError
from paxosblock.transaction import MakeDirectory, Rename


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


def test_the_last_line_of_a_closed_file_needs_no_end(
    spark: SparkSession, fs: Client, folder: str, copied: Copied
) -> None:
    put(fs, path_of(folder), "one\ntwo")
    copied.run(stream(spark, folder))
    assert copied.lines() == Counter(["one", "two"])


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


def test_a_stream_fails_when_its_path_is_a_directory_now(
    spark: SparkSession, fs: Client, folder: str, copied: Copied
) -> None:
    put(fs, path_of(folder), "one\n")
    copied.run(stream(spark, folder))
    fs.delete(path_of(folder))
    put(fs, f"{path_of(folder)}/file", "one\n")
    with pytest.raises(StreamingQueryException, match="the checkpoint is of a stream of a file"):
        copied.run(stream(spark, folder))


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


def test_options_that_do_not_go_together_are_refused(fs: Client, folder: str) -> None:
    put(fs, path_of(folder), "1\n")
    with pytest.raises(ConfigError, match="take one of them"):
        reader_of(folder, maxBytesPerTrigger=1, maxFilesPerTrigger=1)
    with pytest.raises(ConfigError, match="'maxFilesPerTrigger' has no effect"):
        reader_of(folder, maxFilesPerTrigger=1)
    with pytest.raises(ConfigError, match="a file that grows is read by lines"):
        reader_of(folder, fileFormat="binary")


def test_a_stream_of_nothing_is_refused(cluster: LocalCluster, folder: str) -> None:
    with pytest.raises(NotFoundError, match="no such file or directory"):
        reader_of(folder)


# -- a directory that grows -----------------------------------------------------------------------


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


def test_a_stream_fails_when_its_directory_is_replaced(
    spark: SparkSession, fs: Client, folder: str, copied: Copied
) -> None:
    put(fs, f"{path_of(folder)}/a", "a\n")
    copied.run(stream(spark, folder))
    fs.delete(path_of(folder), recursive=True)
    put(fs, f"{path_of(folder)}/a", "another\n")
    with pytest.raises(StreamingQueryException, match="is another directory than the one"):
        copied.run(stream(spark, folder))


def test_what_a_sink_appends_is_read_line_by_line_as_it_comes(
    spark: SparkSession, fs: Client, folder: str, copied: Copied, tmp_path: Path
) -> None:
    """The directory `in` is streamed into the file `log`, which is streamed."""
    path = path_of(folder)
    expected: Counter[str] = Counter()
    for number in range(3):
        lines = [f"{number}-{each}" for each in range(20)]
        put(fs, f"{path}/in/{number}", "".join(f"{line}\n" for line in lines))
        appended = (
            stream(spark, f"{folder}/in")
            .writeStream.format("paxosblock")
            .options(fileFormat="text", layout="append", path=f"{folder}/log")
            .option("checkpointLocation", str(tmp_path / "appending"))
            .trigger(availableNow=True)
            .start()
        )
        appended.awaitTermination()
        copied.run(stream(spark, f"{folder}/log"))
        expected.update(lines)
        assert copied.lines() == expected


def test_a_schema_is_needed_as_long_as_no_file_tells_one(fs: Client, folder: str) -> None:
    fs.mkdirs(path_of(folder))
    with pytest.raises(InvalidRequestError, match="no file tells a schema yet"):
        reader_of(folder, fileFormat="parquet")
