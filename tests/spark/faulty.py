"""The data source with faults on request: what a task or the driver does at the worst moment.

It wraps the real writers; Spark's workers import it, so a fault happens where it would happen.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from paxosblock.client.spark.datasource import PaxosBlockDataSource
from paxosblock.client.spark.sink import SUCCESS, BatchSink
from paxosblock.client.spark.target import client_of
from paxosblock.errors import PaxosBlockError
from tests.waiting import wait_until

DRIVER_GROUP = "TESTS_SPARK_DRIVER_GROUP"
"""Environment of a driver that may be killed: its process group."""

ROWS_BEFORE = 10_000
"""Rows that reach the writer before a fault "mid-write": one batch of Spark's."""


class FaultySource(PaxosBlockDataSource):
    """`format("faulty")` with the option `fault`, one of the names below."""

    @classmethod
    def name(cls) -> str:
        return "faulty"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        options = dict(self.options)
        fault = options.pop("fault")
        return FaultyWriter(PaxosBlockDataSource(options).writer(schema, overwrite), fault)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        options = dict(self.options)  # Spark calls this again, with the same object
        fault = options.pop("fault")
        writer = PaxosBlockDataSource(options).streamWriter(schema, overwrite)
        return FaultyStreamWriter(writer, fault)


def write_with_fault(
    writer: DataSourceArrowWriter | DataSourceStreamArrowWriter,
    batches: Iterator[pa.RecordBatch],
    fault: str,
) -> WriterCommitMessage:
    """One attempt. A fault in a task meets the first attempt of partition 1 only, unless it says
    that all fail. "process PID killed mid-write" is the end of a node of the cluster; "late REPORT"
    an attempt that another one outruns."""
    context = TaskContext.get()
    assert context is not None
    first = context.partitionId() == 1 and context.attemptNumber() == 0
    match fault:
        case "exception mid-write" if first:
            return writer.write(failing(batches))
        case "exit mid-write" if first:
            return writer.write(exiting(batches))
        case "exception after the file was complete" if first:
            writer.write(batches)
            raise RuntimeError("injected after the file")
        case killed if killed.startswith("process ") and first:
            return writer.write(killing(batches, int(killed.split()[1])))
        case late if late.startswith("late ") and first:
            return write_late(writer, batches, Path(late.split()[1]))
        case "all attempts fail" if context.partitionId() == 1:
            return writer.write(failing(batches))
    return writer.write(batches)


def failing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The first batch, then an exception."""
    yield next(batches)
    raise RuntimeError("injected mid-write")


def exiting(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The first batch, then the end of the process without a word."""
    yield next(batches)
    os._exit(9)


def killing(batches: Iterator[pa.RecordBatch], pid: int) -> Iterator[pa.RecordBatch]:
    """The first batch, then the end of a node, then the rest."""
    yield next(batches)
    command = Path(f"/proc/{pid}/cmdline")
    if command.exists() and b"paxosblock" in command.read_bytes():  # each batch comes here
        os.kill(pid, signal.SIGKILL)
    yield from batches


def write_late(
    writer: DataSourceArrowWriter | DataSourceStreamArrowWriter,
    batches: Iterator[pa.RecordBatch],
    report: Path,
) -> WriterCommitMessage:
    """An attempt that waits until the job has ended without it; `report` tells how it ended."""
    assert isinstance(writer, BatchSink)

    def late_rows() -> Iterator[pa.RecordBatch]:
        yield next(batches)
        with client_of(writer.options) as fs:
            wait_until(lambda: fs.exists(f"{writer.options.path}/{SUCCESS}"), timeout_s=90)
        yield pa.record_batch({"id": pa.array(range(1_000_000))})

    try:
        written = writer.write(late_rows())
    except PaxosBlockError as error:
        report.write_text(type(error).__name__)
        raise
    report.write_text("written")
    return written


class FaultyWriter(DataSourceArrowWriter):
    """The batch writer with one fault."""

    def __init__(self, writer: DataSourceArrowWriter, fault: str) -> None:
        self._writer = writer
        self._fault = fault

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_with_fault(self._writer, iterator, self._fault)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._fault == "exception before the commit":
            raise RuntimeError("injected before the commit")
        self._writer.commit(messages)
        if self._fault == "exception after the commit":
            raise RuntimeError("injected after the commit")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._writer.abort(messages)


class FaultyStreamWriter(DataSourceStreamArrowWriter):
    """The streaming writer with one fault.

    "driver killed after the commit of batch N": the batch is published, Spark does not know yet.
    """

    def __init__(self, writer: DataSourceStreamArrowWriter, fault: str) -> None:
        self._writer = writer
        self._fault = fault

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_with_fault(self._writer, iterator, self._fault)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._writer.commit(messages, batchId)
        if self._fault == f"exception after the commit of batch {batchId}":
            raise RuntimeError("injected after the commit")
        if self._fault == f"driver killed after the commit of batch {batchId}":
            kill_driver()

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._writer.abort(messages, batchId)


def kill_driver() -> None:
    """SIGKILL for the driver and its JVM, which are one process group, at the same moment."""
    os.killpg(int(os.environ[DRIVER_GROUP]), signal.SIGKILL)
