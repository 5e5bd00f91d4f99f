"""Reads each format: batches of a split in a task, and a schema on the driver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from paxosblock.base.units import MIB
from paxosblock.client.blocking.sync import Client, FileReader
from paxosblock.client.spark.arrow_frames import ArrowOffset, last_place
from paxosblock.client.spark.columnar_read import (
    Keeps,
    arrow_batches,
    arrow_file_schema,
    arrow_splits,
    as_arrow_file,
    is_arrow_file,
    parquet_batches,
    parquet_schema,
)
from paxosblock.client.spark.csv_read import (
    check_csv,
    csv_batches,
    csv_batches_of_file,
    csv_schema,
    first_fields,
)
from paxosblock.client.spark.formats_write import CODEC_EXTENSIONS
from paxosblock.client.spark.lines import (
    NEWLINE,
    first_byte,
    last_line_end,
    line_array,
    whole_lines,
)
from paxosblock.client.spark.read_types import (
    check_readable,
    conform,
    spark_schema,
    with_path,
    without_path,
)
from paxosblock.client.spark.source_options import FileFormat, SparkOptions
from paxosblock.client.spark.splits import Split, cut
from paxosblock.errors import InvalidRequestError, PaxosBlockError

TEXT_SCHEMA: Final = StructType([StructField("value", StringType())])
BINARY_SCHEMA: Final = StructType(
    [
        StructField("path", StringType()),
        StructField("modificationTime", TimestampType()),
        StructField("length", LongType()),
        StructField("content", BinaryType()),
    ]
)
"""As Spark's own format `binaryFile` has it."""
FIXED_SCHEMAS: Final = {FileFormat.TEXT: TEXT_SCHEMA, FileFormat.BINARY: BINARY_SCHEMA}
"""The schema of formats whose files do not state one."""

SAMPLE_BYTES: Final = MIB
"""The types of a csv file are guessed from this many bytes of its beginning."""
MOST_CONTENT_BYTES: Final = (1 << 31) - 1
UNKNOWN_END: Final = 1 << 62
"""The end of a decompressed file: more bytes than there ever are."""


def codec_of(path: str, options: SparkOptions) -> str | None:
    """Return the compression of a whole file."""
    if options.file_format not in (FileFormat.CSV, FileFormat.TEXT):
        return None
    return next((codec for codec, end in CODEC_EXTENSIONS.items() if path.endswith(end)), None)


def is_cut_by_lines(path: str, options: SparkOptions) -> bool:
    """True if a record is a line, so that a file may be read up to any line end."""
    if codec_of(path, options):
        return False
    if options.file_format is FileFormat.CSV:
        return not options.multi_line
    return options.file_format is FileFormat.TEXT


def splits_of(
    fs: Client, file: FileReader, end: int, options: SparkOptions
) -> Iterator[tuple[int, int, int]]:
    """`begin`, `start` and `stop` of each `Split` of a file whose records end at `end`."""
    most = options.split_bytes
    by_lines = is_cut_by_lines(file.name, options)
    parallel = by_lines or options.file_format in (FileFormat.PARQUET, FileFormat.ARROW)
    if end <= most or not parallel:
        yield 0, 0, end
    elif options.file_format is FileFormat.ARROW and not is_arrow_file(file):
        for place, stop in arrow_splits(file, ArrowOffset(0, 0), end, most):
            yield place.stream, place.offset, stop
    else:
        edges = [block.offset + block.size for block in fs.locations(file.name, 0, end)]
        for start, stop in cut(0, end, edges, most):
            yield 0, start, stop


def file_schema(file: FileReader, options: SparkOptions) -> StructType:
    """Return the schema of one file, read from it.

    Raises:
        InvalidRequestError: it is not of the format, or Spark lacks a type for a column.
    """
    fixed = FIXED_SCHEMAS.get(options.file_format)
    return fixed or spark_schema(arrow_schema_of(file, options), file.name)


def arrow_schema_of(file: FileReader, options: SparkOptions) -> pa.Schema:
    """Return the Arrow schema of a parquet, Arrow or csv file. Raises InvalidRequestError."""
    with _errors_named(file.name, options):
        match options.file_format:
            case FileFormat.PARQUET:
                return parquet_schema(file)
            case FileFormat.ARROW:
                return arrow_file_schema(file)
            case _:
                return csv_schema(_sample(file, options), options)


def first_fields_of(file: FileReader, options: SparkOptions) -> list[str] | None:
    """Return the fields of the first line of a csv file. Raises InvalidRequestError."""
    with _errors_named(file.name, options):
        return first_fields(_sample(file, options), options)


def check_file(file: FileReader, target: pa.Schema, options: SparkOptions) -> None:
    """Raise InvalidRequestError when a file, as far as its beginning tells, has another schema."""
    target = without_path(target, options)
    match options.file_format:
        case FileFormat.PARQUET | FileFormat.ARROW:
            found = arrow_schema_of(file, options)
            check_readable(found, target, file.name, missing_is_null=options.merge_schema)
        case FileFormat.CSV:
            with _errors_named(file.name, options):
                check_csv(_sample(file, options), target, options)


def end_of_records(file: FileReader, options: SparkOptions) -> int:
    """Return the offset up to which a file that may still be written can be read now: the end of
    its last whole line or Arrow message; for other formats and closed files their end."""
    if not file.status.open:
        return file.size
    if is_cut_by_lines(file.name, options):
        return last_line_end(file.pread, 0, file.size)
    if options.file_format is FileFormat.ARROW and not is_arrow_file(file):
        return last_place(file.pread, ArrowOffset(0, 0), file.size, file.size).offset
    return file.size


@contextmanager
def _errors_named(path: str, options: SparkOptions) -> Iterator[None]:
    """Turn pyarrow's errors about bytes into ours, with the file's name, for all formats."""
    try:
        yield
    except PaxosBlockError:  # errors of the file below; some of them are an OSError too
        raise
    except (pa.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())
        raise InvalidRequestError(
            f"'{path}': cannot be read as {options.file_format.value}: {reason}", path=path
        ) from error


def _sample(file: FileReader, options: SparkOptions) -> bytes:
    """Return whole lines from the beginning; all of it when a line is longer than a sample."""
    source = _plain(file, file.size, options)
    sample: bytes = source.read(SAMPLE_BYTES)
    whole = sample[: sample.rfind(NEWLINE) + 1]
    if len(sample) < SAMPLE_BYTES:
        return whole if file.status.open else sample
    return whole or sample + source.read()


def _plain(file: FileReader, size: int, options: SparkOptions) -> pa.NativeFile:
    """Return the content of a file that may be compressed as a whole."""
    source = as_arrow_file(file, size)
    codec = codec_of(file.name, options)
    return source if codec is None else pa.CompressedInputStream(source, codec)


def read_split(
    file: FileReader, split: Split, target: pa.Schema, options: SparkOptions, keeps: Keeps
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a split, in batches with exactly the schema `target`.

    Raises:
        InvalidRequestError: the file is not of the format, or does not fit the schema.
    """
    with _errors_named(file.name, options):
        batches = _batches(file, split, without_path(target, options), options, keeps)
    while True:
        with _errors_named(file.name, options):
            batch = next(batches, None)
        if batch is None:
            return
        if batch.num_rows:
            batch = with_path(batch, file.name, options)
            yield conform(batch, target, file.name, missing_is_null=options.merge_schema)


def _batches(
    file: FileReader, split: Split, target: pa.Schema, options: SparkOptions, keeps: Keeps
) -> Iterator[pa.RecordBatch]:
    match options.file_format:
        case FileFormat.PARQUET:
            return parquet_batches(file, split, target.names, keeps)
        case FileFormat.ARROW:
            return arrow_batches(file, split)
        case FileFormat.CSV if options.multi_line:
            return csv_batches_of_file(_plain(file, split.end, options), target, options)
        case FileFormat.CSV:
            return csv_batches(*_pieces(file, split, options), target, options)
        case FileFormat.TEXT:
            return _text_batches(*_pieces(file, split, options), target)
        case FileFormat.BINARY:
            return iter([_whole_file(file, split, target)])


def _pieces(
    file: FileReader, split: Split, options: SparkOptions
) -> tuple[Split, Iterator[memoryview | bytes]]:
    """Return the bytes of the lines of a split; for a compressed file the decompressed ones."""
    if codec_of(file.name, options) is None:
        file.seek(first_byte(split))
        return split, file.pieces()
    source = _plain(file, split.end, options)
    everything = replace(split, stop=UNKNOWN_END, end=UNKNOWN_END)
    return everything, iter(lambda: source.read(SAMPLE_BYTES), b"")


def _text_batches(
    split: Split, pieces: Iterator[memoryview | bytes], target: pa.Schema
) -> Iterator[pa.RecordBatch]:
    for lines in whole_lines(split, pieces):
        yield pa.record_batch([line_array(lines)], target.names)


def _whole_file(file: FileReader, split: Split, target: pa.Schema) -> pa.RecordBatch:
    """Yield one row; the content is fetched only if the query needs it."""
    if "content" in target.names and split.end > MOST_CONTENT_BYTES:
        raise InvalidRequestError(
            f"'{file.name}': has {split.end} bytes; a value holds less than 2 GiB", path=file.name
        )
    values: dict[str, pa.Array] = {
        "path": pa.array([file.name]),
        "modificationTime": pa.array([round(file.status.modified_s * 1000)], pa.int64())
        .cast(pa.timestamp("ms", "UTC"))
        .cast(pa.timestamp("us", "UTC")),
        "length": pa.array([split.end]),
    }
    if "content" in target.names:
        values["content"] = pa.array([file.pread(0, split.end)], pa.binary())
    return pa.record_batch([values[name] for name in target.names], target.names)
