"""The files that a stream of a directory takes, and where a batch of lines ends: no Spark."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxFiles

from paxosblock.api.namenode import FileStatus, Kind
from paxosblock.client.spark.growing_folder import StreamProgress, advance, files_between
from paxosblock.client.spark.listing import ListedFile, ResolvedPath
from paxosblock.errors import InvalidRequestError, NotFoundError
from paxosblock.protocol.types import Durability

NAMES = ("/a", "/b", "/c", "/d", "/e", "/f")


def file(path: str, file_id: int, *, is_open: bool = False, length: int = 1) -> FileStatus:
    return FileStatus(
        path=path,
        kind=Kind.FILE,
        file_id=file_id,
        size=length,
        replication=1,
        block_size=1,
        durability=Durability.DISK,
        open=is_open,
        modified_s=0,
        created_s=0,
        owner="",
        group="",
        permission=0o644,
    )


class Directory:
    """A directory whose entries are linked by numbered changes, as the NameNode does it."""

    def __init__(self) -> None:
        self.files: dict[str, ListedFile] = {}
        self.revision = 0
        self._ids = itertools.count(1)

    def create(self, path: str, *, is_open: bool, length: int = 1) -> None:
        self.revision += 1
        status = file(path, next(self._ids), is_open=is_open, length=length)
        self.files[path] = ListedFile(status, self.revision)

    def publish(self, paths: set[str]) -> None:
        """One transaction: all of them have the same number."""
        self.revision += 1
        for path in paths:
            self.files[path] = ListedFile(file(path, next(self._ids)), self.revision)

    def close(self, path: str) -> None:
        self.revision += 1
        found = self.files[path]
        self.files[path] = replace(found, status=msgspec.structs.replace(found.status, open=False))

    def rename(self, source: str, destination: str) -> None:
        self.revision += 1
        status = msgspec.structs.replace(self.files.pop(source).status, path=destination)
        self.files[destination] = ListedFile(status, self.revision)

    def listed(self) -> ResolvedPath:
        return ResolvedPath(dict(self.files), self.revision, is_pattern=False)


@dataclass(frozen=True)
class Step:
    """Something that happens: `kind` says what, to the files `first` and `second`."""

    kind: str
    first: str
    second: str


STEPS = st.builds(
    Step,
    kind=st.sampled_from(["open", "create", "close", "rename", "delete", "publish", "read"]),
    first=st.sampled_from(NAMES),
    second=st.sampled_from(NAMES),
)
LIMITS = st.one_of(
    st.just(ReadAllAvailable()),
    st.integers(1, 3).map(ReadMaxFiles),
    st.integers(1, 4).map(ReadMaxBytes),
)


class Stream:
    """The files that a stream has read, as (file id, number of the change that linked it)."""

    def __init__(self, limit: ReadLimit) -> None:
        self.at = StreamProgress(directory_id=1)
        self.read: list[tuple[int, int]] = []
        self._limit = limit

    def batch(self, directory: Directory) -> bool:
        """One micro-batch; whether there was anything to read."""
        finding = directory.listed()
        end = advance(self.at, finding, finding.revision, self._limit)
        taken = files_between(self.at, end, finding)
        assert not any(each.status.open for each in taken)
        self.read += [(each.status.file_id, each.linked) for each in taken]
        moved, self.at = end != self.at, end
        return moved


def happen(step: Step, directory: Directory) -> None:
    exists = step.first in directory.files
    match step.kind:
        case "open" | "create" if not exists:
            directory.create(step.first, is_open=step.kind == "open")
        case "close" if exists:
            directory.close(step.first)
        case "rename" if exists and step.first != step.second:
            directory.rename(step.first, step.second)
        case "delete" if exists:
            del directory.files[step.first]
        case "publish":
            directory.publish({step.first, step.second} - set(directory.files))


@settings(max_examples=300)
@given(st.lists(STEPS, max_size=30), LIMITS)
def test_every_file_is_read_once_it_is_complete_and_never_again(
    steps: list[Step], limit: ReadLimit
) -> None:
    directory, stream = Directory(), Stream(limit)
    for step in steps:
        if step.kind == "read":
            stream.batch(directory)
        happen(step, directory)
    for path in directory.files:
        directory.close(path)
    while stream.batch(directory):
        pass
    there = {(each.status.file_id, each.linked) for each in directory.files.values()}
    assert there <= set(stream.read)
    assert len(stream.read) == len(set(stream.read)) == stream.at.files
    # The next offset forgets a file that was deleted while it was being written.
    assert not set(stream.at.pending) & {file_id for file_id, _ in there}


def test_a_file_that_was_deleted_while_it_was_written_is_forgotten_with_the_next_batch() -> None:
    directory, stream = Directory(), Stream(ReadAllAvailable())
    directory.create("/a", is_open=True)
    directory.create("/b", is_open=False)
    assert stream.batch(directory)
    assert list(stream.at.pending) == [1]
    del directory.files["/a"]
    assert not stream.batch(directory)
    directory.create("/c", is_open=False)
    assert stream.batch(directory)
    assert not stream.at.pending


def test_a_batch_is_the_same_when_it_is_asked_for_again_after_others_came() -> None:
    directory, stream = Directory(), Stream(ReadMaxFiles(2))
    for path in ("/c", "/a", "/b"):
        directory.create(path, is_open=path == "/a")
    begin = stream.at
    stream.batch(directory)
    directory.close("/a")
    directory.create("/0", is_open=False)
    again = files_between(begin, stream.at, directory.listed())
    assert [each.status.path for each in again] == ["/c", "/b"]
    assert stream.at.pending == (2,)


def test_a_file_that_is_gone_before_its_batch_is_done_fails_the_stream() -> None:
    directory, stream = Directory(), Stream(ReadAllAvailable())
    directory.publish({"/a", "/b", "/c"})
    begin = stream.at
    stream.batch(directory)
    del directory.files["/b"]
    with pytest.raises(NotFoundError, match="1 of the 3 files of this micro-batch"):
        files_between(begin, stream.at, directory.listed())


def test_files_that_a_listing_may_have_missed_are_left_for_the_next() -> None:
    directory = Directory()
    directory.publish({"/a"})
    finding = directory.listed()
    directory.publish({"/z"})
    crossed = replace(finding, files=directory.listed().files)  # z came while it was listed
    end = advance(StreamProgress(1), crossed, crossed.revision, ReadAllAvailable())
    assert [each.status.path for each in files_between(StreamProgress(1), end, crossed)] == ["/a"]


def test_a_batch_of_limited_size_has_at_least_one_file() -> None:
    directory, stream = Directory(), Stream(ReadMaxBytes(10))
    for path, length in (("/a", 50), ("/b", 4), ("/c", 6), ("/d", 1)):
        directory.create(path, is_open=False, length=length)
    counts = []
    while stream.batch(directory):
        counts.append(stream.at.files)
    assert counts == [1, 3, 4]


def test_the_offset_of_another_kind_of_source_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="the checkpoint is of a stream of a file"):
        StreamProgress.parse({"file_id": 1, "offset": 0}, "/d")
