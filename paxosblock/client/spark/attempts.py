"""The work of one attempt of one task: its rows become one file, which no reader sees yet.

Spark starts attempts again, starts two of one task, and leaves some running after the job has
ended. So every attempt has a file of its own, below a directory that ends with the job: a late
attempt finds no place to write to, and one that dies leaves a file behind that no commit refers to.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Self

import pyarrow as pa
from pyspark import TaskContext

from paxosblock.api.transaction import Delete, Operation, TransactionOutcome
from paxosblock.client.blocking.sync import Client, FileWriter
from paxosblock.client.spark.arrow_types import fit
from paxosblock.client.spark.formats_write import extension_of, open_writer
from paxosblock.client.spark.source_options import SparkOptions

TEMPORARY: Final = "_temporary"
"""Name of the directory that jobs work in; every reader of the ecosystem skips names with `_`."""


@dataclass(frozen=True, slots=True)
class TaskAttempt:
    """An attempt: of a partition of the data, by a number that is Spark's own."""

    partition: int
    number: int

    @classmethod
    def current(cls) -> Self:
        """Return the attempt that this Python worker runs."""
        context = TaskContext.get()
        assert context is not None, "only a Spark task writes"
        return cls(context.partitionId(), context.taskAttemptId())


@dataclass(frozen=True, slots=True)
class Job:
    """The content of one transaction: `version` of `application`.

    `name` stands in the names of files and directories; attempts write into `directory`.
    """

    application: str
    version: int
    name: str
    directory: str

    def end(
        self, fs: Client, changes: Sequence[Operation], keep_for_s: float | None = None
    ) -> TransactionOutcome:
        """Make the changes and delete the directory, unless this version or a later one was applied
        before: the outcome tells. Raises as `AsyncClient.transact`."""
        return fs.transact(
            [*changes, Delete(self.directory, recursive=True)],
            once=(self.application, self.version),
            keep_for_s=keep_for_s,
        )


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A closed file in a job's directory, and the name it gets when the job ends well."""

    path: str
    name: str
    length: int
    rows: int


def write_file(
    fs: Client,
    job: Job,
    attempt: TaskAttempt,
    batches: Iterator[pa.RecordBatch],
    *,
    options: SparkOptions,
    schema: pa.Schema,
) -> WrittenFile:
    """Stream `batches` to the DataNodes as one file in the directory of `job`, which must exist.

    Memory is bounded by the client's window and by what the format collects. When this returns, the
    file is closed and safe.

    Raises:
        NotFoundError, FencedError: the directory is gone: the job has ended without this attempt.
        PaxosBlockError: the cluster did not take all of it. The end of the job removes the file.
    """
    extension = extension_of(options)
    name = f"part-{attempt.partition:04}-{job.name}-{attempt.number}"
    # Numbers of attempts start again with every driver, and a crashed one may have left its files.
    path = f"{job.directory}/{name}-{uuid.uuid4().hex[:8]}{extension}"
    with fs.create(path, parent_must_exist=True) as file:
        rows = _write(_AttemptOutput(file), options, schema, batches)
    return WrittenFile(path, name + extension, file.status.size, rows)


def _write(
    out: _AttemptOutput, options: SparkOptions, schema: pa.Schema, batches: Iterator[pa.RecordBatch]
) -> int:
    """Return the number of rows. After an error pyarrow's writers no longer reach the file."""
    rows = 0
    try:
        writer = open_writer(out, schema, options)
        for batch in batches:
            writer.write_batch(fit(batch, schema))
            rows += batch.num_rows
        writer.close()
    finally:
        out.detach()
    return rows


def first_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch] | None:
    """Return the same batches without the empty ones; None when there is not a single row."""
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    return None if first is None else itertools.chain((first,), filled)


class _AttemptOutput:
    """A file for pyarrow to write to, without `flush`, which would wait for all DataNodes."""

    closed = False

    def __init__(self, file: FileWriter) -> None:
        self._file: FileWriter | None = file

    def write(self, data: bytes, /) -> int:
        if self._file is not None:
            self._file.write(data)
        return len(data)

    def flush(self) -> None:
        """Do nothing: the file is flushed when it is closed."""

    def close(self) -> None:
        """Do nothing: its maker closes the file."""

    def detach(self) -> None:
        """Drop all writes from now on: pyarrow writes an end even if the file is given up."""
        self._file = None
