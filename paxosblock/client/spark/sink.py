"""The batch sink: `df.write.format("paxosblock")`.

The driver makes the job's directory, each task attempt makes a file in it, and one transaction
publishes the files that Spark chose as the result, with `_SUCCESS`, and ends the directory. Until
then no reader sees any of it; afterwards no attempt can add to it.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from paxosblock.api.transaction import Marker, Operation
from paxosblock.api.user_tokens import TokenRight
from paxosblock.base.units import DURATIONS
from paxosblock.client.blocking.sync import Client
from paxosblock.client.spark.attempts import TEMPORARY, Job, TaskAttempt, first_rows
from paxosblock.client.spark.job import JobWriter, Written, written_of
from paxosblock.client.spark.short_errors import short_errors
from paxosblock.client.spark.source_options import SparkOptions
from paxosblock.client.spark.target import client_of, with_token
from paxosblock.errors import FencedError, NotFoundError, PaxosBlockError

_log = logging.getLogger(__name__)

SUCCESS: Final = "_SUCCESS"
_COMMITTED: Final = 0
_ABORTED: Final = 1
"""Versions of the job's application: after the second, the first is no longer applied."""
KEPT_FOR_S: Final = 7 * DURATIONS["d"] / DURATIONS["s"]
"""Seconds that the cluster remembers that a job was committed."""


def make_writer(
    schema: StructType, options: SparkOptions, *, overwrite: bool
) -> DataSourceArrowWriter:
    """Make the writer of one job, after checking everything that can be checked beforehand.

    Makes the job's directory.

    Raises:
        ConfigError, InvalidRequestError: the format has no such codec or cannot hold a column.
        PaxosBlockError: as `check_target`.
    """
    writer = BatchSink(options, schema, overwrite=overwrite)
    with client_of(options) as fs:
        writer.check(fs)
        fs.mkdirs(writer.job.directory, ttl_s=options.job_ttl_s)
        rights = TokenRight.READ | TokenRight.WRITE
        writer.options = with_token(fs, options, rights, options.job_ttl_s)
    return writer


class BatchSink(JobWriter, DataSourceArrowWriter):
    """One job. Spark pickles it from the planner to every task, and to `commit` or `abort`."""

    def __init__(self, options: SparkOptions, schema: StructType, *, overwrite: bool) -> None:
        """As `JobWriter`."""
        super().__init__(options, schema, overwrite=overwrite)
        name = uuid.uuid4().hex
        directory = f"{options.path}/{TEMPORARY}/{name}"
        self.job = Job(f"spark/{name}", _COMMITTED, name, directory)

    @short_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write its rows as one file, in a task. Raises as `write_file`."""
        return self.write_as(TaskAttempt.current(), iterator)

    def write_as(self, attempt: TaskAttempt, batches: Iterator[pa.RecordBatch]) -> Written:
        """As `write`, for this attempt. The first partition has a file even without rows: it states
        the columns if the whole result is empty.
        """
        filled = first_rows(batches)
        if filled is None and attempt.partition > 0:
            return Written(self.job, attempt.partition)
        with client_of(self.options) as fs:
            return self.write_rows(fs, self.job, attempt, filled or iter(()))

    @short_errors
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver: publish all files at once.

        Raises:
            NotFoundError: the job's directory is gone: another job has replaced what is at the
                path, or the job took longer than `jobTtl`. Nothing was published.
            FencedError: the job was aborted.
            OutcomeUnknownError: no NameNode answered in time; the files may be published.
        """
        path = self.options.path
        written = [file for each in written_of(messages) for file in each.files]
        files = [file for file in written if file.rows] or written[:1]
        with client_of(self.options) as fs:
            self._publish(fs, [*self.changes(self.job, files), Marker(f"{path}/{SUCCESS}")])
            _remove_empty(fs, f"{path}/{TEMPORARY}")
        self.log_published(f"job {self.job.name}", files)

    @short_errors
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver: drop the attempts' files, and fence those that are still at it.

        Spark also calls this when `commit` raised. What was published then stays; a commit that is
        still on its way, unheard of so far, is refused from now on.
        """
        with client_of(self.options) as fs:
            if fs.transaction_status(self.job.application) == _COMMITTED:
                _log.warning("job %s was reported as failed, but is published", self.job.name)
                return
            replace(self.job, version=_ABORTED).end(fs, [], KEPT_FOR_S)
            _remove_empty(fs, f"{self.options.path}/{TEMPORARY}")

    def _publish(self, fs: Client, changes: list[Operation]) -> None:
        name = self.job.name
        try:
            outcome = self.job.end(fs, changes, KEPT_FOR_S)
        except NotFoundError as error:
            raise NotFoundError(
                f"job {name} published nothing: its directory is gone, as another job has "
                f"replaced '{self.options.path}' or 'jobTtl' is over ({error})"
            ) from error
        if outcome.version == _ABORTED:
            raise FencedError(f"job {name} published nothing: it was aborted")


def _remove_empty(fs: Client, directory: str) -> None:
    """Tidy up, if no other job works there; an error changes nothing for any job."""
    with contextlib.suppress(PaxosBlockError):
        fs.delete(directory)
