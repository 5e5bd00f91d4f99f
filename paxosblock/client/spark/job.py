"""The protocol of a job, which the batch sink and each micro-batch of the streaming sink follow.

Attempts write files into the job's directory. One transaction, a version of an application, gives
the files that Spark chose as the result their names and ends the directory. Until then no reader
sees any of it; afterwards no attempt can add to it, and publishing that version again changes
nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from paxosblock.api.transaction import MakeDirectory, Operation
from paxosblock.client.blocking.sync import Client
from paxosblock.client.spark.arrow_types import arrow_schema
from paxosblock.client.spark.attempts import Job, TaskAttempt, WrittenFile, write_file
from paxosblock.client.spark.formats_write import check_schema
from paxosblock.client.spark.publish import add_files, replace_files
from paxosblock.client.spark.source_options import SparkOptions
from paxosblock.client.spark.target import check_target

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """A task's message for `commit`: its files, none when it had no rows.

    `repeated`: the job was published before, so the task wrote nothing.
    """

    job: Job
    partition: int
    files: tuple[WrittenFile, ...] = ()
    repeated: bool = False


def written_of(messages: list[WriterCommitMessage | None]) -> list[Written]:
    """Return what the tasks of a job have written, in the order of partitions."""
    written = [message for message in messages if isinstance(message, Written)]
    assert len(written) == len(messages), "Spark commits when every task has written"
    return sorted(written, key=lambda each: each.partition)


class JobWriter:
    """The common part of the writers of both sinks. Spark pickles them on their way."""

    def __init__(self, options: SparkOptions, schema: StructType, *, overwrite: bool) -> None:
        """`overwrite`: the result replaces everything at the path.

        Raises:
            ConfigError, InvalidRequestError: the format has no such codec or cannot hold a column.
        """
        self.options = options
        self._schema: pa.Schema = arrow_schema(schema)
        self._overwrite = overwrite
        check_schema(self._schema, options)

    def check(self, fs: Client) -> None:
        """Check, on the driver, that there is a place for the rows. Raises: as `check_target`."""
        check_target(fs, self.options, self._schema, overwrite=self._overwrite)

    def write_rows(
        self, fs: Client, job: Job, attempt: TaskAttempt, batches: Iterator[pa.RecordBatch]
    ) -> Written:
        """Write the rows as one file of the job, in a task. Raises: as `write_file`."""
        file = write_file(fs, job, attempt, batches, options=self.options, schema=self._schema)
        return Written(job, attempt.partition, (file,))

    def changes(self, job: Job, files: Sequence[WrittenFile]) -> list[Operation]:
        """Return the operations that publish the files at the path. Raises: as `add_files`."""
        path = self.options.path
        if self._overwrite:
            return replace_files(files, path, job.name)
        return [MakeDirectory(path), *add_files(files, path)]

    def log_published(self, what: object, files: Sequence[WrittenFile]) -> None:
        """Log what `commit` has published."""
        _log.info(
            "%s: %d files, %d rows, %d bytes in '%s'",
            what,
            len(files),
            sum(file.rows for file in files),
            sum(file.length for file in files),
            self.options.path,
        )
