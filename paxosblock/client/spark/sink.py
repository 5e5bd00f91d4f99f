"""The batch sink: `df.write.format("paxosblock")`.

The driver makes the job's directory, each task attempt a file in it, and one transaction publishes
the files that Spark took for the result, with `_SUCCESS`, and ends the directory. Until then no
reader sees any of it; afterwards no attempt can add to it.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import uuid
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

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
from paxosblock.client.spark.formats_write import check_schema
from paxosblock.client.spark.options import Options
from paxosblock.client.spark.publish import add_files, replace_files
from paxosblock.client.spark.target import check_target, client_of
from paxosblock.client.sync import Client
from paxosblock.errors import FencedError, NotFoundError, Outcome, PaxosBlockError
from paxosblock.transaction import Delete, Marker, Operation, TransactionOutcome
from paxosblock.units import DURATIONS

_log = logging.getLogger(__name__)

SUCCESS: Final = "_SUCCESS"
_COMMITTED: Final = 0
_ABORTED: Final = 1
"""Versions of the job's application: after the second, the first is not applied any more."""
KEPT_FOR_S: Final = 7 * DURATIONS["d"] / DURATIONS["s"]
"""How long the cluster remembers that a job was committed."""


def make_writer(schema: StructType, options: Options, *, overwrite: bool) -> DataSourceArrowWriter:
    """The writer of one job, once everything that can be checked beforehand is.

    Makes the job's directory.

    Raises:
        ConfigError, InvalidRequestError: the format has no such codec or cannot hold a column.
        PaxosBlockError: as `check_target`.
    """
    columns = arrow_schema(schema)
    check_schema(columns, options)
    writer = BatchWriter(options, columns, overwrite=overwrite)
    with client_of(options) as fs:
        check_target(fs, options, columns, overwrite=overwrite)
        fs.mkdirs(writer.directory, ttl_s=options.job_ttl_s)
    return writer


class BatchWriter(DataSourceArrowWriter):
    """One job. Spark pickles it from the planner to every task, and to `commit` or `abort`."""

    def __init__(self, options: Options, schema: pa.Schema, *, overwrite: bool) -> None:
        """`overwrite`: the result takes the place of what is at the path."""
        self.options = options
        self._schema = schema
        self._overwrite = overwrite
        self.job = uuid.uuid4().hex

    @property
    def directory(self) -> str:
        """Where the attempts write."""
        return f"{self.options.path}/{TEMPORARY}/{self.job}"

    @property
    def application(self) -> str:
        """The name of the job's transaction, as `transaction_status` takes it."""
        return f"spark/{self.job}"

    @brief
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """In a task: its rows as one file. Raises as `write_file`."""
        return self.write_as(Attempt.current(), iterator)

    def write_as(self, attempt: Attempt, batches: Iterator[pa.RecordBatch]) -> Written:
        """`write` for a certain attempt. The first partition has a file even without rows: it tells
        the columns, should the whole result be empty."""
        filled = first_rows(batches)
        if filled is None and attempt.partition > 0:
            return Written(attempt.partition)
        with client_of(self.options) as fs:
            file = write_file(
                self.options,
                self._schema,
                iter(()) if filled is None else filled,
                attempt=attempt,
                job=self.job,
                directory=self.directory,
                fs=fs,
            )
        return Written(attempt.partition, (file,))

    @brief
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver: publish all files at once.

        Raises:
            NotFoundError: the job's directory is gone: another job has replaced what is at the
                path, or the job took longer than `jobTtl`. Nothing was published.
            FencedError: the job was aborted.
            OutcomeUnknownError: no NameNode answered in time; the files may be published.
        """
        path, written = self.options.path, files_of(messages)
        files = [file for file in written if file.rows] or written[:1]
        changes: list[Operation] = (
            replace_files(files, path, self.job) if self._overwrite else add_files(files, path)
        )
        changes += [Delete(self.directory, recursive=True), Marker(f"{path}/{SUCCESS}")]
        with client_of(self.options) as fs:
            self._publish(fs, changes)
            _remove_empty(fs, f"{path}/{TEMPORARY}")
        _log.info(
            "job %s: %d files, %d rows, %d bytes in '%s'",
            self.job,
            len(files),
            sum(file.rows for file in files),
            sum(file.length for file in files),
            path,
        )

    @brief
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver: drop the attempts' files, and fence those that are still at it.

        Spark also calls this when `commit` raised. What was published then stays; a commit that is
        still on its way, and that nobody has heard of, is refused from now on.
        """
        with client_of(self.options) as fs:
            if fs.transaction_status(self.application) == _COMMITTED:
                _log.warning("job %s was reported as failed, but is published", self.job)
                return
            self._end(fs, [Delete(self.directory, recursive=True)], _ABORTED)
            _remove_empty(fs, f"{self.options.path}/{TEMPORARY}")

    def _publish(self, fs: Client, changes: list[Operation]) -> None:
        try:
            outcome = self._end(fs, changes, _COMMITTED)
        except NotFoundError as error:
            raise NotFoundError(
                f"job {self.job} published nothing: its directory is gone, as another job has "
                f"replaced '{self.options.path}' or 'jobTtl' is over ({error})"
            ) from error
        if outcome.version == _ABORTED:
            fenced = FencedError(f"job {self.job} published nothing: it was aborted")
            raise fenced.with_outcome(Outcome.NEVER)

    def _end(self, fs: Client, changes: list[Operation], version: int) -> TransactionOutcome:
        return fs.transact(changes, transaction=(self.application, version), keep_for_s=KEPT_FOR_S)


def files_of(messages: list[WriterCommitMessage | None]) -> list[WrittenFile]:
    """The files of a job's tasks, in the order of partitions."""
    written = [message for message in messages if isinstance(message, Written)]
    assert len(written) == len(messages), "Spark commits when every task has written"
    written.sort(key=lambda each: each.partition)
    return list(itertools.chain.from_iterable(each.files for each in written))


def _remove_empty(fs: Client, directory: str) -> None:
    """Tidy up, if no other job works there: an error changes nothing for anybody."""
    with contextlib.suppress(PaxosBlockError):
        fs.delete(directory)
