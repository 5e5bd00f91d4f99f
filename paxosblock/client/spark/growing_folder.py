"""A stream of the files that appear in a directory, or that match a pattern, once each.

Every entry of the namespace has the number of the change that linked it (see `Listing`), with which
the change feed tells of it, too. So new files come after all that were there, whatever their names
and times: a file that is moved here long after it was written, the files of one transaction, and
those of two listings that cross. An offset is a place in that order. It names no files except those
before it that were still being written; these follow when they are closed.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
)
from pyspark.sql.types import StructType

from paxosblock.client.spark.listing import ListedFile, ResolvedPath, base_of
from paxosblock.client.spark.new_files import NewFiles
from paxosblock.client.spark.short_errors import short_errors
from paxosblock.client.spark.source import plan
from paxosblock.client.spark.source_options import SparkOptions
from paxosblock.client.spark.stream_reader import WAIT_S, StreamReader
from paxosblock.errors import InvalidRequestError, NotFoundError


@dataclass(frozen=True, slots=True)
class StreamProgress:
    """The files that a stream has read: `files` of them, namely all up to (`linked`, `path`) in the
    order of `ListedFile.key`, but not those with the ids `pending`."""

    directory_id: int
    linked: int = 0
    path: str = ""
    files: int = 0
    pending: tuple[int, ...] = ()

    @classmethod
    def parse(cls, offset: dict[str, Any], path: str) -> StreamProgress:
        """Parse the result of `offset`. Raises InvalidRequestError if it is of another source."""
        if "directory_id" not in offset:
            raise InvalidRequestError(
                f"'{path}': is a directory, but the checkpoint is of a stream of a file", path=path
            )
        return cls(**{**offset, "pending": tuple(offset["pending"])})

    def offset(self) -> dict[str, Any]:
        """Return it as Spark keeps it: as JSON."""
        return {**asdict(self), "pending": list(self.pending)}

    @property
    def key(self) -> tuple[int, str]:
        """Return the last file that may have been read."""
        return self.linked, self.path

    def lacks(self, found: ListedFile) -> bool:
        """True if a file was not read yet."""
        return found.key > self.key or found.status.file_id in self.pending

    def before(self, other: StreamProgress) -> bool:
        """True if each file that this one read, the other one read, too."""
        return self.key <= other.key and self.files <= other.files


def advance(
    at: StreamProgress, finding: ResolvedPath, upto: int, limit: ReadLimit
) -> StreamProgress:
    """Return the progress after one more micro-batch; `at` when there is nothing new.

    Only files that were linked by the change `upto` or before count: among later ones the listing
    may have missed some that come before others.
    """
    new = [each for each in _in_order(finding) if each.linked <= upto and at.lacks(each)]
    taken = list(_limited((each for each in new if not each.status.open), limit))
    if not taken:
        return at
    linked, path = max(at.key, taken[-1].key)
    left = {each.status.file_id: each.key for each in new}
    for each in taken:
        del left[each.status.file_id]
    pending = sorted(file_id for file_id, key in left.items() if key <= (linked, path))
    return StreamProgress(at.directory_id, linked, path, at.files + len(taken), tuple(pending))


def files_between(
    start: StreamProgress, end: StreamProgress, finding: ResolvedPath
) -> list[ListedFile]:
    """Return the files of the micro-batch from `start` to `end`, the same whenever it is asked.

    Raises:
        NotFoundError: some are gone.
    """
    files = [each for each in _in_order(finding) if start.lacks(each) and not end.lacks(each)]
    gone = end.files - start.files - len(files)
    if gone:
        raise NotFoundError(
            f"{gone} of the {end.files - start.files} files of this micro-batch were deleted or "
            "moved before it was done"
        )
    return files


def _in_order(finding: ResolvedPath) -> list[ListedFile]:
    return sorted(finding.files.values(), key=lambda each: each.key)


def _limited(files: Iterable[ListedFile], limit: ReadLimit) -> Iterator[ListedFile]:
    if isinstance(limit, ReadMaxFiles):
        return itertools.islice(files, limit.max_files)
    if isinstance(limit, ReadMaxBytes):
        return _up_to(files, limit.max_bytes)
    return iter(files)


def _up_to(files: Iterable[ListedFile], most_bytes: int) -> Iterator[ListedFile]:
    """At least one."""
    total = 0
    for each in files:
        total += each.status.size
        if total > most_bytes and total > each.status.size:
            return
        yield each


class GrowingReader(StreamReader):
    """Reads the files of a directory as they appear."""

    def __init__(self, schema: StructType, options: SparkOptions) -> None:
        super().__init__(schema, options)
        self._latest: StreamProgress | None = None
        self._new: NewFiles | None = None
        self._since = StreamProgress(0)
        """The progress whose files `_new` does not know."""

    @short_errors
    def initialOffset(self) -> dict[str, Any]:
        """Return the offset before the first file."""
        return StreamProgress(self._directory_id()).offset()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the option `maxFilesPerTrigger` or `maxBytesPerTrigger`."""
        if self._options.max_files_per_trigger:
            return ReadMaxFiles(self._options.max_files_per_trigger)
        if self._options.max_bytes_per_trigger:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return ReadAllAvailable()

    @short_errors
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next micro-batch; `start` if no file came within a second.

        Raises:
            NotFoundError: the directory was deleted, or there is another one in its place.
        """
        at = StreamProgress.parse(start, self._options.path)
        deadline = time.monotonic() + WAIT_S
        while True:
            end = self._next(at, limit)
            left_s = deadline - time.monotonic()
            if end != at or self._goal is not None or left_s <= 0:
                return end.offset()
            self._new_since(at).wait(left_s)

    def _next(self, at: StreamProgress, limit: ReadLimit) -> StreamProgress:
        finding = self._find(at, at)
        upto = finding.revision if self._goal is None else min(finding.revision, self._goal)
        self._latest = advance(at, finding, upto, ReadAllAvailable())
        return advance(at, finding, upto, limit)

    def _find(self, begin: StreamProgress, at: StreamProgress) -> ResolvedPath:
        """Return what was not read at `begin`. Raises NotFoundError if the directory is not the one
        that was there `at` an offset."""
        if self._directory_id() != at.directory_id:
            raise NotFoundError(
                f"'{self._options.path}': is another directory than the one the stream began with",
                path=self._options.path,
            )
        return self._new_since(begin).now()

    def _new_since(self, at: StreamProgress) -> NewFiles:
        new = self._new
        if new is None or not self._since.before(at):
            new, self._since = NewFiles(self._fs, self._options.path), at
            if at.linked and not at.pending:  # these were there before
                new.begin(at.linked - 1)
            self._new = new
        return new

    def _directory_id(self) -> int:
        return self._fs.stat(base_of(self._options.path)[0]).file_id

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the end of all that was there at the last look, which a query's progress shows."""
        return None if self._latest is None else self._latest.offset()

    @short_errors
    def prepareForTriggerAvailableNow(self) -> None:
        """Let no more files appear from now on."""
        self._goal = self._fs.changes(base_of(self._options.path)[0]).revision

    def commit(self, end: dict[str, Any]) -> None:
        """Forget the files of the micro-batches up to `end`, which are done."""
        done = StreamProgress.parse(end, self._options.path)
        if self._new is not None and self._since.before(done):
            self._since = done
            self._new.keep(done.lacks)

    @short_errors
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the parts that each task reads of the files between two offsets.

        Raises:
            NotFoundError: the directory, or a file of this micro-batch, is gone.
            InvalidRequestError: the first file does not fit the schema.
        """
        path = self._options.path
        begin, last = StreamProgress.parse(start, path), StreamProgress.parse(end, path)
        files = files_between(begin, last, self._find(begin, last))
        return plan(self._fs, [each.status for each in files], self._schema, self._options)
