"""Directories as they were at one time, what is below them, and paths that match a pattern."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Final, Protocol

from paxosblock.api.namenode import FileStatus, Kind, ListDirectory, Listing
from paxosblock.base.paths import SEPARATOR, not_absolute
from paxosblock.client.names.glob_pattern import (
    SIGNS,
    compiled,
    expanded,
    is_pattern,
    unescaped,
)
from paxosblock.errors import NotDirectoryError, NotFoundError

TRIES: Final = 10
"""Times that a directory is listed because its names changed between two pages. The last time, its
pages may be of different states; `changed` tells so."""


def join(directory: str, name: str) -> str:
    """Return the path of an entry of a directory."""
    return f"{directory.rstrip('/')}/{name}"


def base_name(path: str) -> str:
    """Return the last part of a path; "" for the root."""
    return path.rstrip("/").rpartition("/")[2]


class Namespace(Protocol):
    """The calls of a client that are needed here."""

    async def stat(self, path: str) -> FileStatus: ...

    async def ls(self, path: str) -> list[FileStatus]: ...


async def pages(
    ask: Callable[[ListDirectory], Awaitable[Listing]],
    path: str,
    after: str = "",
    *,
    one_state: bool = True,
) -> AsyncIterator[Listing]:
    """As `AsyncClient.pages`; `ask` gets the answer to each request."""
    following: str | None = after
    if not one_state:
        while following is not None:  # one page at a time, however large the directory is
            page = await ask(ListDirectory(path, following))
            yield page
            following = page.next_after
        return
    found: list[Listing] = []
    tries = TRIES
    while following is not None:
        found.append(await ask(ListDirectory(path, following)))
        following = found[-1].next_after
        if found[-1].state != found[0].state and tries > 1:
            tries, following = tries - 1, after
            found.clear()
    for page in found:
        yield page


async def walk(
    fs: Namespace,
    path: str,
    order: Callable[[list[FileStatus]], Iterable[FileStatus]] = iter,
) -> AsyncIterator[FileStatus]:
    """As `AsyncClient.walk`, with the entries of each directory in this order."""
    levels = [iter(order(await fs.ls(path)))]
    while levels:
        entry = next(levels[-1], None)
        if entry is None:
            levels.pop()
            continue
        yield entry
        if entry.kind is Kind.DIRECTORY:
            with suppress(NotFoundError, NotDirectoryError):
                levels.append(iter(order(await fs.ls(entry.path))))


async def glob(fs: Namespace, pattern: str) -> AsyncIterator[FileStatus]:
    """Yield what matches `pattern` by path; a name without a wildcard is looked up directly.

    Raises:
        InvalidRequestError: it is no pattern.
    """
    whole = expanded(pattern)
    for each in whole:
        if not each.startswith(SEPARATOR):
            raise not_absolute(each)
    patterns = [[name for name in each.split("/") if name] for each in whole]
    for names in patterns:
        for name in filter(is_pattern, names):
            compiled(name)  # raises before anything is yielded
    if len(patterns) == 1:
        async for entry in _match(fs, "/", patterns[0]):
            yield entry
        return
    found = {entry.path: entry for names in patterns async for entry in _match(fs, "/", names)}
    for path in sorted(found):
        yield found[path]


async def _match(fs: Namespace, directory: str, names: list[str]) -> AsyncIterator[FileStatus]:
    if not names:
        async for entry in _lookup(fs, directory):
            yield entry
        return
    name, rest = names[0], names[1:]
    if not any(sign in name for sign in SIGNS if sign != "\\"):
        name = unescaped(name)
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
    elif compiled(name).fullmatch(entry.name):
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
        return await fs.ls(directory)
    except NotFoundError:
        return []
