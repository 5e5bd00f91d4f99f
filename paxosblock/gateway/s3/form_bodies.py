"""Takes a form with a file apart while its bytes come, as a page in a browser sends it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from email.message import Message
from typing import Final
from urllib.parse import unquote

from paxosblock.base.units import KIB
from paxosblock.gateway.s3.s3_errors import S3Code, S3Error, invalid_argument

FORM: Final = "multipart/form-data"
FIELDS_BYTES_MAX: Final = 20 * KIB
"""Most bytes of the fields before the file, as in S3, and of those behind it, which do nothing."""
FILE: Final = "file"
"""The field that is the file."""

_END_OF_HEAD: Final = b"\r\n\r\n"
_DISPOSITION: Final = re.compile(r"(?im)^content-disposition:\s*form-data\s*;(.*)$")
_PARAMETER: Final = re.compile(r';?\s*(name|filename)(?:="([^"]*)"|\*=utf-8\'\'([^;\s]*))', re.I)
_OF_QUOTES: Final = (("%22", '"'), ("%0D", "\r"), ("%0A", "\n"))
"""The signs that browsers do not write into the quotes around a name, and what they write there."""


def boundary_of(content_type: str) -> bytes:
    """Return what stands between the parts of a form; b"" if this is the type of no form."""
    message = Message()
    message["content-type"] = content_type
    if message.get_content_type() != FORM:
        return b""
    return (message.get_boundary() or "").encode("utf-8", "replace")


class FormBody:
    """A form whose fields are read first, and then its file, piece by piece."""

    def __init__(self, boundary: bytes, pieces: AsyncIterator[bytes]) -> None:
        """`pieces` are the bytes of the form."""
        self._pieces = pieces
        self._mark = b"\r\n--" + boundary
        self._buffer = bytearray(b"\r\n")  # so that the first mark is one like the others
        self._left = FIELDS_BYTES_MAX
        self.file_name = ""
        """The name that the program gives the file, without directories; "" before it is read."""

    async def fields(self) -> dict[str, str]:
        """Return the fields that come before the file, by their names in small letters.

        Raises:
            S3Error: they are too long, or one comes twice, or there is no file, or it is no form.
            InvalidRequestError, DeadlineError: the bytes break off.
        """
        found: dict[str, str] = {}
        await self._until(self._mark)
        while True:
            name, file_name = _names_in(await self._head())
            if name == FILE:
                self.file_name = re.split(r"[/\\]", file_name)[-1]
                return found
            if name in found:
                raise invalid_argument(f"the form has the field {name[:80]!r} twice")
            found[name] = _text(await self._until(self._mark))

    async def file(self) -> AsyncIterator[bytes]:
        """Yield the bytes of the file, and read the form to its end.

        Raises:
            S3Error: the form has no end, or too much behind the file.
            InvalidRequestError, DeadlineError: the bytes break off.
        """
        while (at := self._buffer.find(self._mark)) < 0:
            ready = len(self._buffer) - len(self._mark) + 1  # the rest may be half a mark
            if ready > 0:
                yield self._take(ready)
            await self._more()
        if at:
            yield self._take(at)
        left = FIELDS_BYTES_MAX - len(self._buffer)
        while left >= 0 and (piece := await anext(self._pieces, None)) is not None:
            left -= len(piece)
        if left < 0:
            raise _no_form()

    async def _head(self) -> bytes:
        while len(self._buffer) < 2:
            await self._more()
        if self._buffer.startswith(b"--"):
            raise invalid_argument("POST requires exactly one file upload per request.")
        return await self._until(_END_OF_HEAD)

    async def _until(self, mark: bytes) -> bytes:
        """Take the bytes before a mark, and the mark."""
        while (at := self._buffer.find(mark)) < 0 and len(self._buffer) <= self._left:
            await self._more()
        self._left -= at + len(mark)
        if at < 0 or self._left < 0:
            raise S3Error(
                S3Code.MAX_POST_PRE_DATA,
                "Your POST request fields preceding the upload file were too large.",
            )
        taken = self._take(at)
        del self._buffer[: len(mark)]
        return taken

    def _take(self, count: int) -> bytes:
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    async def _more(self) -> None:
        piece = await anext(self._pieces, None)
        if piece is None:
            raise _no_form()
        self._buffer += piece


def _names_in(head: bytes) -> tuple[str, str]:
    """Return the name of a field, in small letters, and that of the file which it is."""
    disposition = _DISPOSITION.search(_text(head).replace("\r", ""))
    names: dict[str, str] = {}
    for found in _PARAMETER.finditer(disposition[1] if disposition else ""):
        which, quoted, encoded = found.groups()
        text = unquote(encoded) if quoted is None else quoted
        for written, meant in _OF_QUOTES if quoted is not None else ():
            text = text.replace(written, meant)
        names[which.lower()] = text
    if not names.get("name"):
        raise _no_form()
    return names["name"].lower(), names.get("filename", "")


def _text(written: bytes) -> str:
    try:
        return written.decode()
    except UnicodeDecodeError:
        raise _no_form() from None


def _no_form() -> S3Error:
    return S3Error(
        S3Code.MALFORMED_POST,
        f"The body of your POST request is not well-formed {FORM}.",
    )
