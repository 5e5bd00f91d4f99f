"""Directories as they were at one time, what is below them, and paths that match a pattern."""

from __future__ import annotations

import fnmatch
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from typing import Final, Protocol

from paxosblock.api.namenode import FileStatus, Kind, ListDirectory, Listing
from paxosblock.errors import NotDirectoryError, NotFoundError

TRIES: Final = 10
"""Times that a directory is begun anew because its names changed between two pages."""


def join(directory: str, name: str) -> str:
    """Return the path of an entry of a directory."""
    return f"{directory.rstrip('/')}/{name}"


def is_pattern(path: str) -> bool:
    """True if a path has a sign that stands for others."""
    return any(sign in path for sign in "*?[")


def base_name(path: str) -> str:
    """Return the last part of a path; "" for the root."""
    return path.rstrip("/").rpartition("/")[2]


class DirectoryPages:
    """The requests that list a directory, and their answers: send `request`, give the answer to
    `receive`, until there is no request any more. It does no I/O itself.

    `pages` are then parts of one state of the directory, unless its names changed faster than it
    could be listed, `tries` times: each page is of a time of its own then, and `changed` tells so.
    """

    def __init__(self, path: str, tries: int = TRIES) -> None:
        """Begin with the first page of the directory at `path`."""
        self.pages: list[Listing] = []
        self._path = path
        self._tries = tries

    @property
    def request(self) -> ListDirectory | None:
        """Return what to ask next; None when all pages are there."""
        after = self.pages[-1].next_after if self.pages else ""
        return None if after is None else ListDirectory(self._path, after)

    def receive(self, page: Listing) -> None:
        """Take the answer to `request`. A page of another state begins the listing anew."""
        self.pages.append(page)
        first = self.pages[0]
        if (page.directory, page.changed) != (first.directory, first.changed) and self._tries > 1:
            self._tries -= 1
            self.pages.clear()


class Namespace(Protocol):
    """The calls of a client that are needed here."""

    async def stat(self, path: str) -> FileStatus: ...

    async def list(self, path: str) -> list[FileStatus]: ...

    async def page(self, path: str, after: str = "") -> Listing: ...


async def pages(fs: Namespace, path: str, *, one_state: bool) -> AsyncIterator[Listing]:
    """As `AsyncClient.pages`."""
    if one_state:
        listing = DirectoryPages(path)
        while (request := listing.request) is not None:
            listing.receive(await fs.page(request.path, request.after))
        for page in listing.pages:
            yield page
        return
    after: str | None = ""
    while after is not None:  # one page at a time, however large the directory is
        page = await fs.page(path, after)
        yield page
        after = page.next_after


async def walk(
    fs: Namespace,
    path: str,
    order: Callable[[list[FileStatus]], Iterable[FileStatus]] = iter,
) -> AsyncIterator[FileStatus]:
    """As `AsyncClient.walk`, with the entries of each directory in this order."""
    levels = [iter(order(await fs.list(path)))]
    while levels:
        entry = next(levels[-1], None)
        if entry is None:
            levels.pop()
            continue
        yield entry
        if entry.kind is Kind.DIRECTORY:
            with suppress(NotFoundError, NotDirectoryError):
                levels.append(iter(order(await fs.list(entry.path))))


async def glob(fs: Namespace, pattern: str) -> AsyncIterator[FileStatus]:
    """Yield what matches `pattern` by path; a name without a wildcard is looked up directly."""
    names = [name for name in pattern.split("/") if name]
    async for entry in _match(fs, "/", names):
        yield entry


async def _match(fs: Namespace, directory: str, names: list[str]) -> AsyncIterator[FileStatus]:
    if not names:
        async for entry in _lookup(fs, directory):
            yield entry
        return
    name, rest = names[0], names[1:]
    if not is_pattern(name):
        async for entry in _match(fs, join(directory, name), rest):
            yield entry
        return
    if name == "**" and rest:
        async for entry in _match(fs, directory, rest):
            yield entry
    for entry in await _list(fs, directory):
        async for found in _match_entry(fs, entry, name, rest):
            yield found


async def _match_entry(
    fs: Namespace, entry: FileStatus, name: str, rest: list[str]
) -> AsyncIterator[FileStatus]:
    """Yield what `entry` adds: itself at the end of the pattern, what is below it before that."""
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


async def _list(fs: Namespace, directory: str) -> list[FileStatus]:
    try:
        return await fs.list(directory)
    except NotFoundError:
        return []
