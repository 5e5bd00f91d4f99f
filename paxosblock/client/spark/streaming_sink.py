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
from paxosblock.api.transaction import TransactionOutcome
from paxosblock.api.user_tokens import TokenRight
from paxosblock.client.blocking.sync import Client
from paxosblock.client.spark.attempts import TEMPORARY, Job, TaskAttempt, WrittenFile, first_rows
from paxosblock.client.spark.formats_write import codec_of
from paxosblock.client.spark.job import JobWriter, Written, written_of
from paxosblock.client.spark.publish import append_files
from paxosblock.client.spark.short_errors import short_errors
from paxosblock.client.spark.source_options import FileFormat, Layout, SparkOptions
from paxosblock.client.spark.target import client_of, with_token
from paxosblock.errors import ConfigError, InvalidRequestError, NotFoundError, PaxosBlockError

_log = logging.getLogger(__name__)

_BATCH: Final = "streaming.sql.batchId"
_QUERY: Final = "sql.streaming.queryId"
_APPLICATIONS: Final = "spark/"


def make_stream_writer(
    schema: StructType, options: SparkOptions, *, overwrite: bool
) -> DataSourceStreamArrowWriter:
    """Make the writer of one micro-batch, or of one step of it, after checking everything.

    Args:
        overwrite: the output mode is `complete`: each batch replaces those before.

    Raises:
        ConfigError, InvalidRequestError: format, codec, columns, layout and output mode do not go
            together.
        PaxosBlockError: as `check_target`.
    """
    writer = StreamWriter(options, schema, overwrite=overwrite)
    if options.layout is Layout.APPEND:
        _check_append(options, overwrite=overwrite)
    with client_of(options) as fs:
        writer.check(fs)
        writer.options = with_token(fs, options, TokenRight.READ | TokenRight.WRITE)
    return writer


def application_of(query: str) -> str:
    """Return the application that a streaming query's batches are versions of."""
    return _APPLICATIONS + query


def last_published(fs: Client, query: str) -> int:
    """Return the number of a query's last published batch, linearizable; -1 if there is none."""
    return _last_version(fs, application_of(query))


def _last_version(fs: Client, application: str) -> int:
    version = fs.transaction_status(application)
    return -1 if version is None else version


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch: the id of its query, which the checkpoint keeps, and its number from 0 on.

    A number alone does not identify it: a query with a new checkpoint starts at 0 again.
    """

    query: str
    number: int

    @classmethod
    def current(cls) -> Self:
        """Return the batch whose task this Python worker runs."""
        context = TaskContext.get()
        assert context is not None, "only a Spark task writes"
        query, number = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
        assert query is not None, "the task belongs to no streaming query"
        assert number is not None, "the task belongs to no micro-batch"
        return cls(query, int(number))

    def job(self, options: SparkOptions) -> Job:
        """Return the job that the transaction of this batch publishes."""
        name = f"{self.query}-{self.number}"
        path = options.path
        if options.layout is Layout.APPEND:
            path = path.rpartition("/")[0]
        directory = f"{path}/{TEMPORARY}/{name}"
        return Job(application_of(self.query), self.number, name, directory)


class StreamWriter(JobWriter, DataSourceStreamArrowWriter):
    """One micro-batch."""

    @short_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write its rows as one file, in a task. Raises as `write_file`."""
        return self.write_as(TaskAttempt.current(), Batch.current(), iterator)

    def write_as(
        self, attempt: TaskAttempt, batch: Batch, batches: Iterator[pa.RecordBatch]
    ) -> Written:
        """As `write`, for this attempt and batch. A batch that was published is not written again,
        whether Spark repeats it or this attempt is late.
        """
        job = batch.job(self.options)
        with client_of(self.options) as fs:
            if last_published(fs, batch.query) >= batch.number:
                return Written(job, attempt.partition, repeated=True)
            filled = first_rows(batches)
            if filled is None:
                return Written(job, attempt.partition)
            fs.mkdirs(job.directory, ttl_s=self.options.job_ttl_s)
            return self.write_rows(fs, job, attempt, filled)

    @short_errors
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver: publish the batch, or find that it is published.

        Raises:
            InvalidRequestError: a later batch of the query is published: another driver runs it,
                or the checkpoint was set back.
            OutcomeUnknownError: no NameNode answered in time. The query stops; when it is started
                again from its checkpoint it finds out.
        """
        written = written_of(messages)
        assert written, "a micro-batch has a task"
        job = written[0].job
        assert job.version == batchId, f"the tasks wrote batch {job.version}, not {batchId}"
        files = [file for each in written for file in each.files]
        with client_of(self.options) as fs:
            repeated = any(each.repeated for each in written)
            if repeated or not self._publish(fs, job, files).applied:
                self._drop_repeated(fs, job)
                return
        self.log_published(_described(job), files)

    @short_errors
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver: drop the attempts' files, unless the batch was published after all.

        Spark also calls this when `commit` raised, and repeats the batch after a restart.
        """
        written = [message for message in messages if isinstance(message, Written)]
        if not written:
            return  # No task says which query this is; the directory ends with its time to live.
        job = written[0].job
        with client_of(self.options) as fs:
            if _last_version(fs, job.application) >= job.version:
                _log.warning("%s was reported as failed, but is published", _described(job))
                return
            fs.delete(job.directory, recursive=True)

    def _publish(self, fs: Client, job: Job, files: list[WrittenFile]) -> TransactionOutcome:
        if self.options.layout is Layout.APPEND:
            return self._append(fs, job, files)
        return job.end(fs, self.changes(job, files))

    def _append(self, fs: Client, job: Job, files: list[WrittenFile]) -> TransactionOutcome:
        """Append, and try again if another program appended to the same file first: then nothing
        was done.

        This ends: each further try means that another program's rows arrived.
        """
        path = self.options.path
        while True:
            seen = _file_at(fs, path)
            try:
                return job.end(fs, append_files(files, path, seen))
            except PaxosBlockError:
                if _identity(_file_at(fs, path)) == _identity(seen):
                    raise

    @staticmethod
    def _drop_repeated(fs: Client, job: Job) -> None:
        last = _last_version(fs, job.application)
        if last != job.version:
            raise InvalidRequestError(
                f"{_described(job)} comes after batch {last} was published: another driver runs "
                "this query, or its checkpoint was set back; start with a new checkpoint"
            )
        fs.delete(job.directory, recursive=True)
        _log.info("%s was published before: nothing to do", _described(job))


def _described(job: Job) -> str:
    return f"query {job.application.removeprefix(_APPLICATIONS)}, batch {job.version}"


def _check_append(options: SparkOptions, *, overwrite: bool) -> None:
    """Check the format: only files that stay readable when another piece follows can grow."""
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
    return None if status is None else (status.file_id, status.size)
