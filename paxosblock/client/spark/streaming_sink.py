"""The streaming sink: `df.writeStream.format("paxosblock")`, each micro-batch exactly once.

A batch is one transaction of the application `spark/<query id>` with the batch's number as version.
Spark repeats a batch, with the same rows, until its own log has it; the cluster applies it once.

Spark makes a new writer for every step, so nothing is remembered here: tasks learn query and batch
from their context, and `commit` learns them from the tasks' messages.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Self

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from paxosblock.api.namenode import FileStatus
from paxosblock.client.spark.arrow_types import arrow_schema
from paxosblock.client.spark.attempts import (
    TEMPORARY,
    Attempt,
    Written,
    WrittenFile,
    first_rows,
    write_file,
)
from paxosblock.client.spark.brief import brief
from paxosblock.client.spark.formats_write import check_schema, codec_of
from paxosblock.client.spark.options import FileFormat, Layout, Options
from paxosblock.client.spark.publish import add_files, append_files, replace_files
from paxosblock.client.spark.sink import files_of
from paxosblock.client.spark.target import check_target, client_of
from paxosblock.client.sync import Client
from paxosblock.errors import ConfigError, InvalidRequestError, NotFoundError, PaxosBlockError
from paxosblock.transaction import Delete, MakeDirectory, Operation, TransactionOutcome

_log = logging.getLogger(__name__)

_BATCH: Final = "streaming.sql.batchId"
_QUERY: Final = "sql.streaming.queryId"


def make_stream_writer(
    schema: StructType, options: Options, *, overwrite: bool
) -> DataSourceStreamArrowWriter:
    """The writer of one micro-batch, or of one step of it, once everything is checked.

    Args:
        overwrite: the output mode is `complete`: each batch takes the place of those before.

    Raises:
        ConfigError, InvalidRequestError: format, codec, columns, layout and output mode do not go
            together.
        PaxosBlockError: as `check_target`.
    """
    columns = arrow_schema(schema)
    check_schema(columns, options)
    if options.layout is Layout.APPEND:
        _check_append(options, overwrite=overwrite)
    with client_of(options) as fs:
        check_target(fs, options, columns, overwrite=overwrite)
    return StreamWriter(options, columns, overwrite=overwrite)


def application_of(query: str) -> str:
    """The application that a streaming query's batches are versions of."""
    return f"spark/{query}"


def last_published(fs: Client, query: str) -> int:
    """Number of the last batch of a query that is published, linearizable; -1 when none is."""
    version = fs.transaction_status(application_of(query))
    return -1 if version is None else version


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch: the id of its query, which the checkpoint keeps, and its number from 0 on.

    Numbers alone are no name: a query with a new checkpoint starts at 0 again.
    """

    query: str
    number: int

    @classmethod
    def current(cls) -> Self:
        """The batch whose task this Python worker runs."""
        context = TaskContext.get()
        assert context is not None, "only a Spark task writes"
        query, number = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
        assert query is not None, "the task belongs to no streaming query"
        assert number is not None, "the task belongs to no micro-batch"
        return cls(query, int(number))

    def __str__(self) -> str:
        return f"query {self.query}, batch {self.number}"

    @property
    def job(self) -> str:
        """A name for files and directories."""
        return f"{self.query}-{self.number}"


@dataclass(frozen=True, slots=True)
class BatchWritten(WriterCommitMessage):
    """What Spark takes from a task to `commit`. `repeated`: the batch was published before, so the
    task wrote nothing."""

    batch: Batch
    written: Written
    repeated: bool = False


class StreamWriter(DataSourceStreamArrowWriter):
    """One micro-batch."""

    def __init__(self, options: Options, schema: pa.Schema, *, overwrite: bool) -> None:
        """`overwrite`: the batch takes the place of what is at the path."""
        self._options = options
        self._schema = schema
        self._overwrite = overwrite

    def directory(self, batch: Batch) -> str:
        """Where the attempts of a batch write."""
        path = self._options.path
        if self._options.layout is Layout.APPEND:
            path = path.rpartition("/")[0]
        return f"{path}/{TEMPORARY}/{batch.job}"

    @brief
    def write(self, iterator: Iterator[pa.RecordBatch]) -> BatchWritten:
        """In a task: its rows as one file. Raises as `write_file`."""
        return self.write_as(Attempt.current(), Batch.current(), iterator)

    def write_as(
        self, attempt: Attempt, batch: Batch, batches: Iterator[pa.RecordBatch]
    ) -> BatchWritten:
        """`write` for a certain attempt and batch. A batch that was published is not written again,
        be it that Spark repeats it or that this attempt is late."""
        with client_of(self._options) as fs:
            if last_published(fs, batch.query) >= batch.number:
                return BatchWritten(batch, Written(attempt.partition), repeated=True)
            filled = first_rows(batches)
            if filled is None:
                return BatchWritten(batch, Written(attempt.partition))
            directory = self.directory(batch)
            fs.mkdirs(directory, ttl_s=self._options.job_ttl_s)
            file = write_file(
                self._options,
                self._schema,
                filled,
                attempt=attempt,
                job=batch.job,
                directory=directory,
                fs=fs,
            )
        return BatchWritten(batch, Written(attempt.partition, (file,)))

    @brief
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver: publish the batch, or find that it is published.

        Raises:
            InvalidRequestError: a later batch of the query is published: another driver runs it,
                or the checkpoint was set back.
            OutcomeUnknownError: no NameNode answered in time. The query stops; started again from
                its checkpoint it finds out.
        """
        written = [message for message in messages if isinstance(message, BatchWritten)]
        assert len(written) == len(messages) > 0, "Spark commits when every task has written"
        batch = written[0].batch
        assert batch.number == batchId, f"the tasks wrote batch {batch.number}, not {batchId}"
        files = files_of([message.written for message in written])
        with client_of(self._options) as fs:
            if any(message.repeated for message in written):
                self._drop_repeated(fs, batch)
                return
            outcome = self._publish(fs, batch, files)
            if not outcome.applied:
                self._drop_repeated(fs, batch)
                return
        _log.info(
            "%s: %d files, %d rows, %d bytes to '%s'",
            batch,
            len(files),
            sum(file.rows for file in files),
            sum(file.length for file in files),
            self._options.path,
        )

    @brief
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver: drop the attempts' files, unless the batch is published all the same.

        Spark also calls this when `commit` raised, and repeats the batch after a restart.
        """
        written = [message for message in messages if isinstance(message, BatchWritten)]
        if not written:
            return  # No task says which query this is; the directory's time to live ends it.
        batch = written[0].batch
        with client_of(self._options) as fs:
            if last_published(fs, batch.query) >= batch.number:
                _log.warning("%s was reported as failed, but is published", batch)
                return
            fs.delete(self.directory(batch), recursive=True)

    def _publish(self, fs: Client, batch: Batch, files: list[WrittenFile]) -> TransactionOutcome:
        path = self._options.path
        if self._options.layout is Layout.APPEND:
            return self._append(fs, batch, files)
        if self._overwrite:
            return self._transact(fs, batch, replace_files(files, path, batch.job))
        return self._transact(fs, batch, [MakeDirectory(path), *add_files(files, path)])

    def _append(self, fs: Client, batch: Batch, files: list[WrittenFile]) -> TransactionOutcome:
        """Others may append to the same file: when one was faster, nothing was done, so try again.

        This ends: each turn means that somebody else's rows arrived.
        """
        while True:
            seen = _file_at(fs, self._options.path)
            changes = append_files(files, self._options.path, seen)
            try:
                return self._transact(fs, batch, changes)
            except PaxosBlockError:
                if _identity(_file_at(fs, self._options.path)) == _identity(seen):
                    raise

    def _transact(self, fs: Client, batch: Batch, changes: list[Operation]) -> TransactionOutcome:
        return fs.transact(
            [*changes, Delete(self.directory(batch), recursive=True)],
            transaction=(application_of(batch.query), batch.number),
        )

    def _drop_repeated(self, fs: Client, batch: Batch) -> None:
        last = last_published(fs, batch.query)
        if last != batch.number:
            raise InvalidRequestError(
                f"{batch} comes after batch {last} was published: another driver runs this query, "
                "or its checkpoint was set back; start with a new checkpoint"
            )
        fs.delete(self.directory(batch), recursive=True)
        _log.info("%s was published before: nothing to do", batch)


def _check_append(options: Options, *, overwrite: bool) -> None:
    """Only what stays readable when another piece follows can be appended."""
    if overwrite:
        raise ConfigError("option 'layout' = 'append': the output mode must be append, too")
    if options.file_format is FileFormat.PARQUET:
        raise ConfigError(
            "option 'layout' = 'append': a parquet file ends with its index and cannot grow; "
            "take the layout 'files', or the format arrow, csv, text or binary"
        )
    if options.file_format is FileFormat.CSV and options.header:
        raise ConfigError("option 'layout' = 'append': every batch would add a 'header'")
    if options.file_format is not FileFormat.ARROW and codec_of(options) != "none":
        raise ConfigError("option 'layout' = 'append': no 'compression' around a growing file")


def _file_at(fs: Client, path: str) -> FileStatus | None:
    try:
        return fs.stat(path)
    except NotFoundError:
        return None


def _identity(status: FileStatus | None) -> tuple[int, int] | None:
    return None if status is None else (status.file_id, status.length)
