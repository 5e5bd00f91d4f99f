"""`spark.read.format("paxosblock")`: the schema and the splits on the driver, batches in tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import BinaryType, StringType, StructType

from paxosblock.api.namenode import FileStatus
from paxosblock.api.user_tokens import TokenRight
from paxosblock.client.blocking.sync import Client, FileReader
from paxosblock.client.spark.columnar_read import Keeps
from paxosblock.client.spark.formats_read import (
    BINARY_SCHEMA,
    FIXED_SCHEMAS,
    check_file,
    end_of_records,
    file_schema,
    read_split,
    splits_of,
)
from paxosblock.client.spark.job_token import JobToken
from paxosblock.client.spark.listing import find
from paxosblock.client.spark.pruning import may_match
from paxosblock.client.spark.read_types import (
    batch_schema,
    check_path_field,
    merge,
    with_path_field,
)
from paxosblock.client.spark.short_errors import short_errors
from paxosblock.client.spark.source_options import FileFormat, SparkOptions
from paxosblock.client.spark.splits import Split, pack
from paxosblock.client.spark.target import client_of, with_token
from paxosblock.errors import InvalidRequestError, NotFoundError


def infer_schema(options: SparkOptions) -> StructType:
    """Return the schema of the first file that has any bytes, or with `mergeSchema` of all; fixed
    for text and binary. The column `pathColumn` follows.

    Raises:
        NotFoundError: there is nothing at the path.
        InvalidRequestError: no file tells a schema, it is not of the format, or two files differ in
            the type of a column.
    """
    with client_of(options) as fs:
        files = files_at(fs, options)
        found = FIXED_SCHEMAS.get(options.file_format) or _schema_of(fs, files, options)
    return with_path_field(found, options)


def _schema_of(fs: Client, files: Iterable[FileStatus], options: SparkOptions) -> StructType:
    merged: StructType | None = None
    for status in files:
        with fs.open(status.path) as file:
            if not file.size:
                continue
            found = file_schema(file, options)
        merged = found if merged is None else merge(merged, found, status.path)
        if not options.merge_schema:
            break
    if merged is None:
        raise InvalidRequestError(
            f"'{options.path}': no file tells a schema yet; name one with .schema(...)",
            path=options.path,
        )
    return merged


def files_at(fs: Client, options: SparkOptions) -> list[FileStatus]:
    """Return the files that are read, in order of path; each once, even if several paths mean it.

    Raises:
        NotFoundError: there is nothing at a path, or nothing matches a pattern.
    """
    files: dict[str, FileStatus] = {}
    for root in options.roots:
        found = find(fs, root, one_state=True)
        if not found.files and found.is_pattern:
            raise NotFoundError(f"'{root}': matches no file", path=root)
        files |= {path: each.status for path, each in found.files.items()}
    return [files[path] for path in sorted(files)]


def make_reader(schema: StructType, options: SparkOptions) -> DataSourceReader:
    """Make the reader of a query. Raises InvalidRequestError if the format lacks such a schema."""
    check_schema(schema, options)
    # Spark refuses a reader that has pushFilters while its own setting is off.
    kind = PruningReader if options.pushdown else BatchReader
    return kind(schema, options)


def check_schema(schema: StructType, options: SparkOptions) -> None:
    """Raise InvalidRequestError when no file of the format can have this schema."""
    batch_schema(schema)
    check_path_field(schema, options)
    match options.file_format:
        case FileFormat.TEXT:
            kinds = [type(each.dataType) for each in schema if each.name != options.path_column]
            if kinds not in ([StringType], [BinaryType]):
                raise InvalidRequestError(
                    f"text has one column of strings, not {schema.simpleString()}"
                )
        case FileFormat.BINARY:
            for field in schema:
                known = BINARY_SCHEMA[field.name] if field.name in BINARY_SCHEMA.names else None
                if known is None or known.dataType != field.dataType:
                    raise InvalidRequestError(
                        f"binary has no column {field.name!r} of type "
                        f"{field.dataType.simpleString()}; it has {BINARY_SCHEMA.simpleString()}"
                    )


class PlannedSplits(InputPartition):
    """The splits of a task, and the token with which it reads them: a stream is planned again and
    again, and its reader went to the tasks long before."""

    def __init__(self, splits: tuple[Split, ...], token: JobToken) -> None:
        super().__init__(splits)
        self.token = token

    def __repr__(self) -> str:
        return f"PlannedSplits({self.value!r})"


class BatchReader(DataSourceReader):
    """Cuts files into splits, and reads a split."""

    def __init__(self, schema: StructType, options: SparkOptions) -> None:
        self._schema = schema
        self._options = options

    @short_errors
    def partitions(self) -> list[InputPartition]:
        """Return a partition for each task, with its `Split`s.

        Raises:
            NotFoundError: there is nothing at the path.
            InvalidRequestError: the first file does not fit the schema.
        """
        with client_of(self._options) as fs:
            return plan(fs, files_at(fs, self._options), self._schema, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the batches of its splits, in a task."""
        return read_planned(partition, self._schema, self._options)


class PruningReader(BatchReader):
    """Leaves out row groups of parquet files in which no row passes the query's filters."""

    def __init__(self, schema: StructType, options: SparkOptions) -> None:
        super().__init__(schema, options)
        self._filters: list[Filter] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Remember the filters; Spark still applies all of them to each row."""
        self._filters = filters
        return filters

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the batches of its splits, in a task, without the row groups that are left out."""
        keeps = partial(may_match, self._filters)
        return read_planned(partition, self._schema, self._options, keeps)


def plan(
    fs: Client, files: Iterable[FileStatus], schema: StructType, options: SparkOptions
) -> list[InputPartition]:
    """Return the splits of `files` for each task; the first file is checked against the schema."""
    target = batch_schema(schema)
    splits: list[Split] = []
    for status in files:
        found = list(_splits_of_file(fs, status, options))
        if found and not splits:
            with open_planned(fs, found[0]) as file:
                check_file(file, target, options)
        splits += found
    token = with_token(fs, options, TokenRight.READ).token
    return [PlannedSplits(task, token) for task in pack(splits, options.split_bytes)]


def _splits_of_file(fs: Client, status: FileStatus, options: SparkOptions) -> Iterator[Split]:
    path, length = status.path, status.size
    if not status.open and length <= options.split_bytes:
        if length or options.file_format is FileFormat.BINARY:
            yield Split(path, status.file_id, 0, 0, length, length, status.truncations)
        return
    with fs.open(path) as file:
        status, end = file.status, end_of_records(file, options)
        if end or options.file_format is FileFormat.BINARY:
            for begin, start, stop in splits_of(fs, file, end, options):
                yield Split(path, status.file_id, begin, start, stop, end, status.truncations)


def _keep_all(_: Any) -> bool:
    return True


def read_planned(
    partition: InputPartition,
    schema: StructType,
    options: SparkOptions,
    keeps: Keeps = _keep_all,
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a task as it was planned."""
    if not isinstance(partition, PlannedSplits):
        return iter(())  # Spark's own, of a plan without any
    options = replace(options, token=partition.token)
    return read_splits(partition.value, schema, options, keeps)


@short_errors
def read_splits(
    splits: tuple[Split, ...], schema: StructType, options: SparkOptions, keeps: Keeps = _keep_all
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a task, with exactly the schema that Spark expects."""
    target = batch_schema(schema)
    with client_of(options) as fs:
        for split in splits:
            with open_planned(fs, split) as file:
                yield from read_split(file, split, target, options, keeps)


def open_planned(fs: Client, split: Split) -> FileReader:
    """Open the file that a split was cut from.

    Raises:
        NotFoundError: it is gone, there is another one in its place, or its end is gone.
    """
    file = fs.open(split.path)
    same = (file.status.file_id, file.status.truncations) == (split.file_id, split.truncations)
    if not same or file.size < split.end:
        file.close()
        raise NotFoundError(
            f"'{split.path}': was replaced or cut since the query was planned", path=split.path
        )
    return file
