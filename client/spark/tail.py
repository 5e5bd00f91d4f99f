"""A stream of the lines of one file that is being written.

An offset is the file's id and a byte of it. Everything below the length that `open` tells is there
for good (a quorum voted for it), so whoever reads the bytes between two offsets, now or after a
restart, reads the same lines.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
)
from pyspark.sql.types import StructType

from paxosblock.client.spark.arrow_types import arrow_schema
from paxosblock.client.spark.formats_read import check_file
from paxosblock.client.spark.lines import last_line_end, next_line_end
from paxosblock.client.spark.options import Options
from paxosblock.client.spark.splits import Split, cut
from paxosblock.client.spark.stream_reader import WAIT_S, StreamReader
from paxosblock.client.sync_files import FileReader
from paxosblock.errors import InvalidRequestError, NotFoundError


@dataclass(frozen=True, slots=True)
class Position:
    """How far a stream has read: all lines that end at or before `offset`, a byte of the file."""

    file_id: int
    offset: int

    @classmethod
    def parse(cls, offset: dict[str, Any], path: str) -> Position:
        """What `asdict` made of one. Raises InvalidRequestError when it is of another source."""
        try:
            return cls(int(offset["file_id"]), int(offset["offset"]))
        except KeyError:
            raise InvalidRequestError(
                f"'{path}': is a file, but the checkpoint is of a stream of a directory", path=path
            ) from None


def end_of_batch(file: FileReader, offset: int, most: int, goal: int) -> int:
    """Where a micro-batch of whole lines that begins at `offset` ends; `offset` if there is none.

    It has about `most` bytes, or one line if that is longer; it ends before `goal`. A last line
    without an end counts once the file is closed.
    """
    visible = min(file.size, goal)
    stop = min(visible, offset + most)
    if (end := last_line_end(file.pread, offset, stop)) > offset:
        return end
    if (end := next_line_end(file.pread, stop, visible)) > offset:
        return end
    is_complete = not file.status.open and visible == file.size
    return max(offset, visible) if is_complete else offset


class TailReader(StreamReader):
    """Follows one file."""

    def __init__(self, schema: StructType, options: Options) -> None:
        super().__init__(schema, options)
        self._seen: Position | None = None

    def initialOffset(self) -> dict[str, Any]:
        """The beginning of the file."""
        return asdict(Position(self._fs.stat(self._options.path).file_id, 0))

    def getDefaultReadLimit(self) -> ReadLimit:
        """The option `maxBytesPerTrigger`."""
        most = self._options.max_bytes_per_trigger
        return ReadMaxBytes(most) if most else ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next micro-batch ends; `start` when nothing came within a second.

        Raises:
            NotFoundError: the file was deleted, replaced or cut.
        """
        at = Position.parse(start, self._options.path)
        deadline = time.monotonic() + WAIT_S
        while True:
            end = self._end(at, limit)
            left_s = deadline - time.monotonic()
            if end.offset > at.offset or self._goal is not None or left_s <= 0:
                return asdict(end)
            assert self._seen is not None, "the file was just looked at"
            self._fs.wait_longer(self._options.path, self._seen.offset, left_s)

    def _end(self, at: Position, limit: ReadLimit) -> Position:
        with self._open(at) as file:
            self._seen = Position(at.file_id, file.size)
            most = limit.max_bytes if isinstance(limit, ReadMaxBytes) else file.size
            goal = file.size if self._goal is None else self._goal
            return Position(at.file_id, end_of_batch(file, at.offset, most, goal))

    def _open(self, at: Position) -> FileReader:
        file = self._fs.open(self._options.path)
        status, size = file.status, file.size
        if status.file_id == at.file_id and size >= at.offset:
            return file
        file.close()
        path = self._options.path
        raise NotFoundError(
            f"'{path}': was replaced by another file; {at.offset} bytes of the one before were read"
            if status.file_id != at.file_id
            else f"'{path}': has only {size} bytes now; {at.offset} were read",
            path=path,
        )

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """How long the file was when it was last looked at: what a query's progress shows."""
        return None if self._seen is None else asdict(self._seen)

    def prepareForTriggerAvailableNow(self) -> None:
        """From now on the file is as long as it is now."""
        with self._fs.open(self._options.path) as file:
            self._goal = file.size

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """One for each split of the bytes between two offsets. Raises as `latestOffset`."""
        path = self._options.path
        begin, last = Position.parse(start, path), Position.parse(end, path)
        if begin.offset == last.offset:
            return []
        with self._open(last) as file:
            if begin.offset == 0:
                check_file(file, arrow_schema(self._schema), self._options)
        ranges = cut(begin.offset, last.offset, self._edges(begin, last), self._options.split_bytes)
        return [
            InputPartition(
                (Split(path, last.file_id, begin.offset, each, stop, last.offset),),
            )
            for each, stop in ranges
        ]

    def _edges(self, begin: Position, end: Position) -> list[int]:
        if end.offset - begin.offset <= self._options.split_bytes:
            return []
        blocks = self._fs.locations(self._options.path)
        return [block.offset + block.length for block in blocks]
