"""A small file beside the journal that says how far the journal is durable.

    durable = "PBKMARK1", index of an entry u64, crc32c of these u32        all integers big-endian

A journal that lost whole batches at its end looks like one whose last batches were never written.
The mark tells them apart. It is written after the sync of each batch and not synced itself, so it
costs one write in place: after a power cut it may be old or garbled, but it is never ahead of the
journal. As long as the machine runs it is exact, whatever happens to the process.
"""

from __future__ import annotations

import logging
import struct
from contextlib import suppress
from pathlib import Path

from paxosblock.checksum import crc32c
from paxosblock.disk import Disk, read_file
from paxosblock.errors import NoSpaceError, StorageError
from paxosblock.formats import refuse_later_magic
from paxosblock.namenode.kv.files import publish

NAME = "durable"

_MAGIC = b"PBKMARK1"
_MARK = struct.Struct(">8sQ")
_CRC = struct.Struct(">I")

_log = logging.getLogger(__name__)


def read_mark(disk: Disk, folder: Path) -> int:
    """Return the last entry that is known to have been durable; 0 if none is known.

    A mark that does not match its checksum was being written when the power went; it only means
    that none is known.

    Raises:
        ConfigError: a later version wrote the mark.
    """
    if NAME not in disk.names(folder):
        return 0
    data = read_file(disk, folder / NAME)
    body, stored = data[: -_CRC.size], data[-_CRC.size :]
    checks = stored == _CRC.pack(crc32c(body))
    if checks:
        refuse_later_magic(folder / NAME, body[: len(_MAGIC)], _MAGIC)
    if not checks or len(body) != _MARK.size or not body.startswith(_MAGIC):
        _log.warning(
            "%s: does not match its checksum; a journal cut short would go unnoticed", folder / NAME
        )
        return 0
    index: int = _MARK.unpack(body)[1]
    return index


class DurableMark:
    """The mark of a journal that is being written."""

    def __init__(self, disk: Disk, folder: Path, index: int) -> None:
        """Record durably that all entries up to `index` are durable."""
        self._disk = disk
        publish(disk, folder / NAME, [_encode(index)])
        self._file = disk.open(folder / NAME)

    def move(self, index: int) -> None:
        """Record that all entries up to `index` are durable; a power cut may undo the record."""
        # An older mark is true as well, and the journal's next write meets the same error.
        with suppress(NoSpaceError, StorageError):
            self._disk.write(self._file, _encode(index), 0)

    def keep(self) -> None:
        """Make the last record durable."""
        with suppress(NoSpaceError, StorageError):
            self._disk.sync(self._file)

    def close(self) -> None:
        """Release the file."""
        self._disk.close(self._file)


def _encode(index: int) -> bytes:
    body = _MARK.pack(_MAGIC, index)
    return body + _CRC.pack(crc32c(body))
