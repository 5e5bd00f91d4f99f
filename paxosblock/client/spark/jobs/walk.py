"""Walking over what is below a path."""

from __future__ import annotations

from collections.abc import Iterator

from paxosblock.api.namenode import FileStatus, Kind
from paxosblock.client.sync import Client
from paxosblock.errors import NotFoundError


def walk(fs: Client, path: str) -> Iterator[FileStatus]:
    """Every file and directory below `path`, in no order; of a file, the file itself.

    What is created or deleted meanwhile may be seen or not. Holds one page of each directory.

    Raises NotFoundError when `path` is not there.
    """
    waiting = [path]
    while waiting:
        directory = waiting.pop()
        try:
            for entry in fs.scan(directory):
                if entry.kind is Kind.DIRECTORY:
                    waiting.append(entry.path)
                yield entry
        except NotFoundError:
            if directory == path:
                raise


def files_below(fs: Client, path: str) -> Iterator[FileStatus]:
    """The files of `walk`."""
    return (entry for entry in walk(fs, path) if entry.kind is Kind.FILE)
