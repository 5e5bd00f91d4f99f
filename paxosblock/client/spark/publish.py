"""The publication of a job's files: lists of operations for one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from paxosblock.api.namenode import FileStatus
from paxosblock.api.transaction import (
    OPERATIONS_MAX,
    AssertAbsent,
    AssertFile,
    Concat,
    Delete,
    MakeDirectory,
    Marker,
    Operation,
    Rename,
)
from paxosblock.client.spark.attempts import TEMPORARY, WrittenFile
from paxosblock.errors import InvalidRequestError

FILES_MAX: Final = OPERATIONS_MAX - 8
"""The most files that one transaction publishes, besides what else it does."""


def add_files(files: Sequence[WrittenFile], directory: str) -> list[Operation]:
    """Move files under their final names into a directory that exists.

    Raises InvalidRequestError when they are more than FILES_MAX.
    """
    if len(files) > FILES_MAX:
        raise InvalidRequestError(
            f"{len(files)} files for '{directory}': at most {FILES_MAX} are published in one step; "
            "write with fewer tasks, by coalesce"
        )
    return [Rename(file.path, f"{directory}/{file.name}") for file in files]


def replace_files(files: Sequence[WrittenFile], directory: str, job: str) -> list[Operation]:
    """Let `directory` hold these files and nothing else.

    Everything that is there when the transaction is applied goes, including the work of jobs that
    are under way: they are fenced. The files wait in a directory beside it, which exists only
    inside the transaction.

    Raises as `add_files`.
    """
    parent, _, name = directory.rpartition("/")
    beside = f"{parent}/{TEMPORARY}-{name}-{job}"
    return [
        MakeDirectory(beside),
        *add_files(files, beside),
        Delete(directory, recursive=True),
        Rename(beside, directory),
    ]


def append_files(
    files: Iterable[WrittenFile], target: str, seen: FileStatus | None
) -> list[Operation]:
    """Move the blocks of files to the end of `target`, if it is still as it was `seen`.

    None: it was not there, and is made.
    """
    sources = tuple(file.path for file in files)
    if not sources:
        return []
    if seen is None:
        return [AssertAbsent(target), Marker(target), Concat(target, sources)]
    same = AssertFile(target, seen.file_id, seen.size, seen.truncations)
    return [same, Concat(target, sources)]
