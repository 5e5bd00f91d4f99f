"""A stream of the lines, or the Arrow batches, of one file that is being written.

An offset is the file's id and a byte of it. Everything below the length that `open` reports is
there for good (a quorum voted for it), so the bytes between two offsets are the same rows whenever
they are read, also after a restart.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
)
from pyspark.sql.types import StructType

from paxosblock.api.user_tokens import TokenRight
from paxosblock.client.blocking.sync import FileReader
from paxosblock.client.spark.arrow_frames import ArrowOffset, last_place
from paxosblock.client.spark.columnar_read import arrow_splits
from paxosblock.client.spark.formats_read import check_file
from paxosblock.client.spark.lines import last_line_end, next_line_end
from paxosblock.client.spark.read_types import batch_schema
from paxosblock.client.spark.short_errors import short_errors
from paxosblock.client.spark.source import PlannedSplits
from paxosblock.client.spark.source_options import FileFormat, SparkOptions
from paxosblock.client.spark.splits import Split, cut
from paxosblock.client.spark.stream_reader import WAIT_S, StreamReader
from paxosblock.client.spark.target import with_token
from paxosblock.errors import InvalidRequestError, NotFoundError, TruncatedError


@dataclass(frozen=True, slots=True)
class TailPosition:
    """A stream's place: it has read all records that end at or before `offset`, a byte of the file.

    For Arrow, `stream` is where the schema of the following batches is. The file had been truncated
    `truncations` times when it was first read.
    """

    file_id: int
    offset: int
    stream: int = 0
    truncations: int = 0

    @classmethod
    def parse(cls, offset: dict[str, Any], path: str) -> TailPosition:
        """Parse the result of `asdict`. Raises InvalidRequestError if it is of another source."""
        if "file_id" not in offset:
            raise InvalidRequestError(
                f"'{path}': is a file, but the checkpoint is of a stream of a directory", path=path
            )
        return cls(**offset)


def next_position(
    file: FileReader, at: TailPosition, most: int, goal: int, *, arrow: bool
) -> TailPosition:
    """Return the end of a micro-batch of whole records that begins at `at`; `at` if there is none.

    It has about `most` bytes, or one record if that is longer; it ends before `goal`.

    Raises:
        InvalidRequestError: the file was closed in the middle of an Arrow message.
    """
    visible = min(file.size, goal)
    is_complete = not file.status.open and visible == file.size
    if not arrow:
        return replace(at, offset=_end_of_lines(file, at.offset, most, visible, is_complete))
    place = last_place(file.pread, ArrowOffset(at.offset, at.stream), most, visible)
    if is_complete and place.offset == at.offset < visible:
        raise InvalidRequestError(
            f"'{file.name}': was closed in the middle of an Arrow message", path=file.name
        )
    return replace(at, offset=place.offset, stream=place.stream)


def _end_of_lines(file: FileReader, offset: int, most: int, visible: int, is_complete: bool) -> int:
    stop = min(visible, offset + most)
    if (end := last_line_end(file.pread, offset, stop)) > offset:
        return end
    if (end := next_line_end(file.pread, stop, visible)) > offset:
        return end
    # A last line without an end counts once the file is closed.
    return max(offset, visible) if is_complete else offset


class TailReader(StreamReader):
    """Follows one file."""

    def __init__(self, schema: StructType, options: SparkOptions) -> None:
        super().__init__(schema, options)
        self._arrow = options.file_format is FileFormat.ARROW
        self._seen: TailPosition | None = None

    @short_errors
    def initialOffset(self) -> dict[str, Any]:
        """Return the beginning of the file."""
        status = self._fs.stat(self._options.path)
        return asdict(TailPosition(status.file_id, 0, truncations=status.truncations))

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the option `maxBytesPerTrigger`."""
        most = self._options.max_bytes_per_trigger
        return ReadMaxBytes(most) if most else ReadAllAvailable()

    @short_errors
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next micro-batch; `start` if no bytes came within a second.

        Raises:
            NotFoundError: the file was deleted or replaced.
            TruncatedError: it was truncated.
        """
        at = TailPosition.parse(start, self._options.path)
        deadline = time.monotonic() + WAIT_S
        while True:
            end = self._end(at, limit)
            left_s = deadline - time.monotonic()
            if end.offset > at.offset or self._goal is not None or left_s <= 0:
                return asdict(end)
            assert self._seen is not None, "the file was just looked at"
            self._fs.wait_longer(self._options.path, self._seen.offset, left_s)

    def _end(self, at: TailPosition, limit: ReadLimit) -> TailPosition:
        with self._open(at) as file:
            self._seen = replace(at, offset=file.size, stream=0)
            most = limit.max_bytes if isinstance(limit, ReadMaxBytes) else file.size
            goal = file.size if self._goal is None else self._goal
            return next_position(file, at, most, goal, arrow=self._arrow)

    def _open(self, at: TailPosition) -> FileReader:
        file = self._fs.open(self._options.path)
        status, size = file.status, file.size
        same = (status.file_id, status.truncations) == (at.file_id, at.truncations)
        if same and size >= at.offset:
            return file
        file.close()
        path = self._options.path
        if status.file_id == at.file_id and status.truncations != at.truncations:
            text = f"'{path}': was truncated; {at.offset} bytes of what it was before were read"
            raise TruncatedError(text, path=path)
        raise NotFoundError(
            f"'{path}': was replaced by another file; {at.offset} bytes of the one before were read"
            if status.file_id != at.file_id
            else f"'{path}': has only {size} bytes now; {at.offset} were read",
            path=path,
        )

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the length of the file at the last look, which a query's progress shows."""
        return None if self._seen is None else asdict(self._seen)

    @short_errors
    def prepareForTriggerAvailableNow(self) -> None:
        """Read the file only up to its length at this moment."""
        with self._fs.open(self._options.path) as file:
            self._goal = file.size

    @short_errors
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return a partition for each split between two offsets. Raises as `latestOffset`."""
        path = self._options.path
        begin, last = TailPosition.parse(start, path), TailPosition.parse(end, path)
        if begin.offset == last.offset:
            return []
        with self._open(last) as file:
            if begin.offset == 0:
                check_file(file, batch_schema(self._schema), self._options)
            ranges = list(self._ranges(file, begin, last.offset))
        token = with_token(self._fs, self._options, TokenRight.READ).token
        return [
            PlannedSplits(
                (Split(path, last.file_id, first, start, stop, last.offset, last.truncations),),
                token,
            )
            for first, start, stop in ranges
        ]

    def _ranges(
        self, file: FileReader, begin: TailPosition, end: int
    ) -> Iterator[tuple[int, int, int]]:
        """`begin`, `start` and `stop` of each split."""
        most = self._options.split_bytes
        if self._arrow:
            for place, stop in arrow_splits(
                file, ArrowOffset(begin.offset, begin.stream), end, most
            ):
                yield place.stream, place.offset, stop
            return
        length = end - begin.offset
        path = self._options.path
        blocks = self._fs.locations(path, begin.offset, length) if length > most else []
        edges = [block.offset + block.size for block in blocks]
        for start, stop in cut(begin.offset, end, edges, most):
            yield begin.offset, start, stop
