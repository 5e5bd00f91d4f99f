"""The operations that publish a job's files; that they do it, the tests of the sinks show."""

from __future__ import annotations

import pytest

from paxosblock.api.transaction import (
    OPERATIONS_MAX,
    AssertAbsent,
    Concat,
    Delete,
    MakeDirectory,
    Marker,
    Rename,
)
from paxosblock.client.spark.attempts import WrittenFile
from paxosblock.client.spark.publish import FILES_MAX, add_files, append_files, replace_files
from paxosblock.errors import InvalidRequestError


def files(count: int) -> list[WrittenFile]:
    return [WrittenFile(f"/t/_temporary/j/{each}-x", f"{each}", 1, 1) for each in range(count)]


def test_replacing_waits_beside_the_directory_and_swaps() -> None:
    assert replace_files(files(1), "/a/t", "j") == [
        MakeDirectory("/a/_temporary-t-j"),
        Rename("/t/_temporary/j/0-x", "/a/_temporary-t-j/0"),
        Delete("/a/t", recursive=True),
        Rename("/a/_temporary-t-j", "/a/t"),
    ]


def test_a_file_that_is_not_there_is_made_before_it_is_appended_to() -> None:
    assert append_files(files(1), "/log", None) == [
        AssertAbsent("/log"),
        Marker("/log"),
        Concat("/log", ("/t/_temporary/j/0-x",)),
    ]


def test_a_batch_without_files_appends_nothing() -> None:
    assert append_files([], "/log", None) == []


def test_as_many_files_as_fit_one_transaction_are_published_and_not_one_more() -> None:
    changes = replace_files(files(FILES_MAX), "/t", "j")
    assert len(changes) + 2 <= OPERATIONS_MAX, "the job's end and its marker come with them"
    with pytest.raises(InvalidRequestError, match=r"4089 files for '/t': at most 4088"):
        add_files(files(FILES_MAX + 1), "/t")
