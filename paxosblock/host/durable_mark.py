"""A small file beside a log that says how far the log is durable.

    mark = magic 8 bytes, numbers u64 that tell a place in the log, crc32c of these u32

A log that lost records at its end looks like one whose last records were never written. The mark
tells them apart. It is written after each sync of the log and not synced itself, so it costs one
write in place: after a power cut it may be old or garbled, but it is never ahead of the log. As
long as the machine runs it is exact, whatever happens to the process.
"""

from __future__ import annotations

import logging
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from paxosblock.base.checksum import crc32c
from paxosblock.base.formats import FROM_A_COPY, refuse_later_magic
from paxosblock.errors import NoSpaceError, StorageError
from paxosblock.host.disk import Disk, publish, read_file

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MarkFormat:
    """The bytes of a mark."""

    magic: bytes
    body: struct.Struct
    """The magic, and the numbers."""
    crc: struct.Struct
    way_back: str = FROM_A_COPY
    """As in `refuse_later_magic`."""

    def encode(self, *numbers: int) -> bytes:
        """Return the bytes of the file."""
        body = self.body.pack(self.magic, *numbers)
        return body + self.crc.pack(crc32c(body))


def read_mark(disk: Disk, path: Path, form: MarkFormat) -> tuple[int, ...] | None:
    """Return the numbers of the mark at `path`; None if there is none that checks.

    A mark that does not match its checksum was being written when the power went; it only means
    that none is known.

    Raises:
        ConfigError: a later version wrote the mark.
    """
    if path.name not in disk.names(path.parent):
        return None
    data = read_file(disk, path)
    body, stored = data[: -form.crc.size], data[-form.crc.size :]
    checks = stored == form.crc.pack(crc32c(body))
    if checks:
        refuse_later_magic(path, body[: len(form.magic)], form.magic, form.way_back)
    if not checks or len(body) != form.body.size or not body.startswith(form.magic):
        _log.warning("%s: does not match its checksum; a log cut short would go unnoticed", path)
        return None
    numbers: tuple[int, ...] = form.body.unpack(body)[1:]
    return numbers


class Watermark:
    """The mark of a log that is being written."""

    def __init__(
        self, disk: Disk, draft: Path, path: Path, form: MarkFormat, *numbers: int
    ) -> None:
        """Record durably that all up to `numbers` is durable; `draft` is as in `publish`."""
        self._disk = disk
        self._form = form
        self._numbers = numbers
        publish(disk, draft, path, [form.encode(*numbers)])
        self._file = disk.open(path)

    def move(self, *numbers: int) -> None:
        """Record that all up to `numbers` is durable; a power cut may undo the record."""
        assert numbers >= self._numbers, "what is durable stays so"
        self._numbers = numbers
        # An older mark is true as well, and the log's next write meets the same error.
        with suppress(NoSpaceError, StorageError):
            self._disk.write(self._file, self._form.encode(*numbers), 0)

    def keep(self) -> None:
        """Make the last record durable."""
        with suppress(NoSpaceError, StorageError):
            self._disk.sync(self._file)

    def close(self) -> None:
        """Release the file."""
        self._disk.close(self._file)
