"""Paths that match a pattern, found directory by directory."""

from __future__ import annotations

import fnmatch
from collections.abc import AsyncIterator
from typing import Protocol

from paxosblock.api.namenode import FileStatus, Kind
from paxosblock.client.paths import join
from paxosblock.errors import NotDirectoryError, NotFoundError


class Namespace(Protocol):
    """What `glob` asks of a client."""

    async def stat(self, path: str) -> FileStatus: ...

    def scan(self, path: str) -> AsyncIterator[FileStatus]: ...


async def glob(fs: Namespace, pattern: str) -> AsyncIterator[FileStatus]:
    """What matches `pattern`, in order of path; a name without a wildcard is looked up directly."""
    names = [name for name in pattern.split("/") if name]
    async for entry in _match(fs, "/", names):
        yield entry


async def _match(fs: Namespace, directory: str, names: list[str]) -> AsyncIterator[FileStatus]:
    if not names:
        async for entry in _lookup(fs, directory):
            yield entry
        return
    name, rest = names[0], names[1:]
    if not any(sign in name for sign in "*?["):
        async for entry in _match(fs, join(directory, name), rest):
            yield entry
        return
    if name == "**" and rest:
        async for entry in _match(fs, directory, rest):
            yield entry
    async for entry in _scan(fs, directory):
        async for found in _match_entry(fs, entry, name, rest):
            yield found


async def _match_entry(
    fs: Namespace, entry: FileStatus, name: str, rest: list[str]
) -> AsyncIterator[FileStatus]:
    """What `entry` adds: itself at the end of the pattern, what is below it before that."""
    directory = entry.kind is Kind.DIRECTORY
    if name == "**":
        if not rest:
            yield entry
        if directory:
            async for found in _match(fs, entry.path, [name, *rest]):
                yield found
    elif fnmatch.fnmatchcase(entry.name, name):
        if not rest:
            yield entry
        elif directory:
            async for found in _match(fs, entry.path, rest):
                yield found


async def _lookup(fs: Namespace, path: str) -> AsyncIterator[FileStatus]:
    try:
        yield await fs.stat(path)
    except (NotFoundError, NotDirectoryError):
        return


async def _scan(fs: Namespace, directory: str) -> AsyncIterator[FileStatus]:
    try:
        async for entry in fs.scan(directory):
            yield entry
    except NotFoundError:
        return
