"""The beginnings and ends of messages in Arrow IPC streams, from their headers alone.

A message is a marker, the length of its metadata, the metadata (a flatbuffer with the length and
kind of the body) and the body. A stream is a schema, batches, and an end without
metadata, which may be missing; a file may hold several streams, one behind the other. (Arrow's
columnar format, section "Encapsulated message format".)
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.types as kinds

from paxosblock.base.units import KIB
from paxosblock.errors import InvalidRequestError

Pread = Callable[[int, int], bytes]

_PREFIX: Final = struct.Struct("<II")
_MARKER: Final = 0xFFFFFFFF
_LOOK_BYTES: Final = 64 * KIB

# Places of fields in the table `ArrowMessage` of Arrow's Message.fbs.
_HEADER_TYPE: Final = 1
_BODY_LENGTH: Final = 3


class MessageKind(enum.Enum):
    """The kind of a message; the values are Arrow's."""

    END = 0
    SCHEMA = 1
    DICTIONARY = 2
    BATCH = 3


@dataclass(frozen=True, slots=True)
class ArrowMessage:
    """The bytes [start, stop) of a file are a message."""

    kind: MessageKind
    start: int
    stop: int


def messages(pread: Pread, start: int, end: int) -> Iterator[ArrowMessage]:
    """Yield the messages that are whole in [start, end); a message begins at `start`.

    Args:
        pread: reads so many bytes from an offset on, fewer only at the end.

    Raises:
        InvalidRequestError: the bytes are something else.
    """
    window = _Window(pread, end)
    while start + _PREFIX.size <= end:
        marker, size = _PREFIX.unpack(window.read(start, _PREFIX.size))
        if marker != _MARKER:
            raise InvalidRequestError(f"byte {start} begins no Arrow message")
        body = start + _PREFIX.size + size
        if body > end:
            return
        kind, length = (
            _header(window.read(start + _PREFIX.size, size)) if size else (MessageKind.END, 0)
        )
        if body + length > end:
            return
        yield ArrowMessage(kind, start, body + length)
        start = body + length


class _Window:
    """Makes a few large reads of many small ones near each other."""

    def __init__(self, pread: Pread, end: int) -> None:
        self._pread = pread
        self._end = end
        self._start = 0
        self._data = b""

    def read(self, start: int, size: int) -> bytes:
        if start < self._start or start + size > self._start + len(self._data):
            self._start = start
            self._data = self._pread(start, min(max(size, _LOOK_BYTES), self._end - start))
        return self._data[start - self._start : start - self._start + size]


def _header(metadata: bytes) -> tuple[MessageKind, int]:
    """Return kind and length of the body, by the rules of flatbuffers: a table has a list of the
    places of its fields, and the beginning has the place of the table."""
    try:
        (table,) = struct.unpack_from("<I", metadata)
        (back,) = struct.unpack_from("<i", metadata, table)
        fields = table - back
        (fields_bytes,) = struct.unpack_from("<H", metadata, fields)

        def place(field: int) -> int:
            at = 4 + 2 * field
            if at + 2 > fields_bytes:
                return 0
            (offset,) = struct.unpack_from("<H", metadata, fields + at)
            return table + offset if offset else 0

        kind, length = place(_HEADER_TYPE), place(_BODY_LENGTH)
        (body,) = struct.unpack_from("<q", metadata, length) if length else (0,)
        return MessageKind(metadata[kind] if kind else 0), body
    except (struct.error, ValueError, IndexError) as error:
        raise InvalidRequestError(f"the header of an Arrow message makes no sense: {error}") from (
            error
        )


@dataclass(frozen=True, slots=True)
class ArrowOffset:
    """The place between two messages: at `offset`, in the stream that begins at `stream`."""

    offset: int
    stream: int

    def after(self, message: ArrowMessage) -> ArrowOffset:
        """Return the place behind the message that begins here."""
        if message.kind is MessageKind.END:
            return ArrowOffset(message.stop, message.stop)
        return ArrowOffset(
            message.stop, message.start if message.kind is MessageKind.SCHEMA else self.stream
        )


def last_place(pread: Pread, at: ArrowOffset, most: int, end: int) -> ArrowOffset:
    """Return how far whole messages go: about `most` bytes, or one with rows if that is longer."""
    stop = at.offset + most
    has_rows = False
    for message in messages(pread, at.offset, end):
        if message.stop > stop and has_rows:
            break
        at = at.after(message)
        has_rows = has_rows or message.kind is MessageKind.BATCH
    return at


def opening(pread: Pread, stream: int, end: int) -> bytes:
    """Return what the messages from `end` on need before them to be read alone: the schema that the
    stream begins with, and the dictionaries that came since.

    Raises InvalidRequestError when the stream has no schema.
    """
    before = messages(pread, stream, end)
    first = next(before, None)
    if first is None or first.kind is not MessageKind.SCHEMA:
        raise InvalidRequestError(f"byte {stream} begins no Arrow stream")
    schema = pread(first.start, first.stop - first.start)
    if not any(map(_has_dictionary, pa.ipc.read_schema(pa.BufferReader(schema)))):
        return schema
    dictionaries = (each for each in before if each.kind is MessageKind.DICTIONARY)
    return b"".join([schema, *(pread(each.start, each.stop - each.start) for each in dictionaries)])


def _has_dictionary(field: pa.Field) -> bool:
    kind = field.type
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    below = (kind.field(at) for at in range(kind.num_fields))
    return kinds.is_dictionary(kind) or any(map(_has_dictionary, below))
