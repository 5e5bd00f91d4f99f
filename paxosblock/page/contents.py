"""The bytes of files, as a page shows them: the first ones as text, or all of them, to be kept.

A caller who looks at a page may read what they might read by calls: a file is opened as `CALLER`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol
from urllib.parse import quote

import msgspec

from paxosblock.base.paths import split
from paxosblock.base.wording import visible

FIRST_BYTES: Final = 4096
"""Bytes of a file that its page shows as text."""
WINDOW_BYTES: Final = 1 << 20
"""Bytes that a download asks for at once: the next ones when these are sent."""
_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+ ")


class FileBytes(Protocol):
    """A file that is open, as it was when it was opened."""

    @property
    def size(self) -> int:
        """Its bytes. Raises UnavailableError while the length of its end is not decided."""

    async def pread(self, offset: int, size: int) -> bytes:
        """Return bytes from `offset` on, fewer only at the end.

        Raises:
            PaxosBlockError: no replica gives them, or the file was cut.
        """


class Contents(Protocol):
    """Opens files for `CALLER`."""

    def open(self, path: str) -> AbstractAsyncContextManager[FileBytes]:
        """Open a file for a block.

        Raises:
            PaxosBlockError: there is none, or the caller may not read it.
        """


class FirstBytes(msgspec.Struct, frozen=True):
    """The first page of a file's bytes: `text` has `shown` of them, `size` are in the file."""

    path: str
    size: int
    shown: int
    text: str


async def first_bytes(contents: Contents, path: str) -> FirstBytes:
    """Return the first bytes of a file as text in which nothing acts: what is no UTF-8, and what
    would move or turn the writing, stands as `\\xff`."""
    async with contents.open(path) as file:
        found = await file.pread(0, FIRST_BYTES)
        lines = found.decode(errors="backslashreplace").splitlines()
        return FirstBytes(path, file.size, len(found), "\n".join(map(visible, lines)))


async def windows(file: FileBytes) -> AsyncIterator[bytes]:
    """Yield all bytes of a file, a window at a time. Raises as `pread`."""
    offset = 0
    while offset < file.size:
        piece = await file.pread(offset, WINDOW_BYTES)
        offset += len(piece)
        yield piece


def kept_as(path: str) -> str:
    """Return the header that has a browser keep bytes under the name of a file, and show none.

    The name stands in it twice: in letters that mean nothing to HTTP, and encoded as RFC 6266 asks.
    """
    name = split(path)[-1]
    plain = "".join(letter if letter in _PLAIN else "_" for letter in name)
    encoded = quote(name, safe="")
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{encoded}"
