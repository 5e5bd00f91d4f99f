"""A small file beside a log that says how far the log is durable.

    mark = magic 8 bytes, segment u64, offset u64, greatest key so far u64, crc32c of these u32

A log that lost records at its end looks like one whose last records were never written. The mark
tells them apart. It is written after each sync of the log and not synced itself, so it costs one
write in place: after a power cut it may be old or garbled, but it is never ahead of the log. As
long as the machine runs it is exact, whatever happens to the process.
"""

from __future__ import annotations

import logging
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from paxosblock.base.checksum import crc32c
from paxosblock.base.formats import OTHER_VERSION, refuse_later_magic
from paxosblock.errors import ConfigError, NoSpaceError, StorageError
from paxosblock.host.disk import Disk, publish, read_file
from paxosblock.journal.segment import LogFormat

_BODY: Final = struct.Struct("<8sQQQ")
_CRC: Final = struct.Struct("<I")

_log = logging.getLogger(__name__)


class DurableTo(NamedTuple):
    """The end of what is durable."""

    segment: int
    offset: int
    highest: int
    """The greatest key of a record up to there."""


def read_mark(disk: Disk, path: Path, form: LogFormat) -> DurableTo | None:
    """Return what the mark at `path` says; None if there is none that checks.

    A mark that does not match its checksum was being written when the power went; it only means
    that none is known.

    Raises:
        ConfigError: another version wrote the mark.
    """
    if path.name not in disk.names(path.parent):
        return None
    data = read_file(disk, path)
    body, stored = data[: -_CRC.size], data[-_CRC.size :]
    if stored == _CRC.pack(crc32c(body)):
        refuse_later_magic(path, body[: len(form.mark_magic)], form.mark_magic, form.way_back)
        if body.startswith(form.mark_magic[:-1]) and not body.startswith(form.mark_magic):
            raise ConfigError(f"{path} {OTHER_VERSION}")
        if len(body) == _BODY.size and body.startswith(form.mark_magic):
            _, segment, offset, highest = _BODY.unpack(body)
            return DurableTo(segment, offset, highest)
    _log.warning("%s: does not match its checksum; a log cut short would go unnoticed", path)
    return None


class Watermark:
    """The mark of a log that is being written."""

    def __init__(self, disk: Disk, path: Path, draft: Path, magic: bytes, at: DurableTo) -> None:
        """Record durably that all up to `at` is durable; `draft` is as in `publish`."""
        self._disk = disk
        self._magic = magic
        self.at = at
        """All up to there is durable."""
        body = _BODY.pack(magic, *at)
        publish(disk, draft, path, [body + _CRC.pack(crc32c(body))])
        self._file = disk.open(path)

    def move(self, at: DurableTo) -> None:
        """Record that all up to `at`, which is later, is durable. A power cut may undo it."""
        self.at = at
        body = _BODY.pack(self._magic, *at)
        # An older mark is true as well, and the log's next write meets the same error.
        try:
            self._disk.write(self._file, body + _CRC.pack(crc32c(body)), 0)
        except (NoSpaceError, StorageError):
            return

    def keep(self) -> None:
        """Make the last record durable."""
        with suppress(NoSpaceError, StorageError):
            self._disk.sync(self._file)

    def close(self) -> None:
        """Release the file."""
        self._disk.close(self._file)
