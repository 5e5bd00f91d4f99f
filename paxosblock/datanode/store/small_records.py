"""The records of the log of small replicas (FORMAT.md 8), which `paxosblock/journal` keeps.

segment  log_<number>
record   the key is the block
"""

from __future__ import annotations

import enum
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from paxosblock.base.checksum import crc32c
from paxosblock.base.formats import FROM_A_SNAPSHOT
from paxosblock.journal.segment import (
    FIRST_OWN_KIND,
    LogFormat,
    LogRecord,
)
from paxosblock.protocol.types import BlockId

_NAME: Final = re.compile(r"log_([1-9][0-9]{0,17})")
_FORMAT_1: Final = struct.Struct("<4s8s64sI")


class RecordKind(enum.IntEnum):
    """The things that a record says of its block."""

    CREATED = FIRST_OWN_KIND
    """The replica is being written. The payload is its metadata."""
    CHUNK = 3
    """The payload is its one chunk: the frame from the wire."""
    FINALIZED = 4
    """The replica is finalized. The payload: segment and offset of its chunk's record, its
    metadata."""
    GONE = 5
    """The replica is no longer here: it is deleted, or in files of its own."""


def _is_earlier(data: bytes) -> bool:
    """True for a segment of format 1."""
    head = data[: _FORMAT_1.size]
    if len(head) < _FORMAT_1.size or not head.startswith(b"PXL1"):
        return False
    found: int = _FORMAT_1.unpack(head)[3]
    return found == crc32c(head[:-4])


FORMAT: Final = LogFormat(
    b"PXSMALL2",
    b"PXLMARK2",
    FROM_A_SNAPSHOT,
    _is_earlier,
    # There may be very many chunks.
    checked_when_read=RecordKind.CHUNK,
)


@dataclass(frozen=True, slots=True)
class SmallNames:
    """The names of the files in a folder."""

    folder: Path

    def path(self, number: int) -> Path:
        """Return the path of a segment."""
        return self.folder / segment_name(number)

    def draft(self, path: Path) -> Path:
        """Return the path that a file has until it is whole."""
        return path.with_name(f"{path.name}.new")

    def numbers(self, names: list[str]) -> list[int]:
        """Return the numbers of the segments among the names of files, in order."""
        return segment_numbers(names)

    def following(self, last: int, highest: int) -> int:
        """Return the number of the segment after the `last` one."""
        return last + 1


def segment_name(number: int) -> str:
    """Return the name of the file of a segment."""
    return f"log_{number}"


def segment_numbers(names: list[str]) -> list[int]:
    """Return the numbers of the segments among the names of files, in order."""
    return sorted(int(found[1]) for name in names if (found := _NAME.fullmatch(name)))


class SmallRecord(NamedTuple):
    """A record of a block; `payload` is None if those bytes are not what was written."""

    kind: RecordKind
    block: BlockId
    offset: int
    payload: memoryview | None
    size: int
    """Bytes of the payload."""


def small_records(records: Iterable[LogRecord]) -> Iterator[SmallRecord]:
    """Yield those that are about a block.

    Raises:
        ValueError: a record is of no kind that there is.
    """
    for kind, key, offset, payload, size in records:
        if kind >= FIRST_OWN_KIND:
            yield SmallRecord(RecordKind(kind), BlockId(key), offset, payload, size)
