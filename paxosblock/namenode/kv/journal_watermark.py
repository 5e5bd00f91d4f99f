"""The mark that says how far the journal is durable (`durable_mark.py`).

durable = "PBKMARK1", index of an entry u64, crc32c of these u32        all integers big-endian
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

from paxosblock.host.disk import Disk
from paxosblock.host.durable_mark import MarkFormat, Watermark
from paxosblock.host.durable_mark import read_mark as read_numbers
from paxosblock.namenode.kv.files import draft_of

NAME: Final = "durable"
_FORMAT: Final = MarkFormat(b"PBKMARK1", struct.Struct(">8sQ"), struct.Struct(">I"))


def read_mark(disk: Disk, folder: Path) -> int:
    """Return the last entry that is known to have been durable; 0 if none is known.

    Raises:
        ConfigError: a later version wrote the mark.
    """
    numbers = read_numbers(disk, folder / NAME, _FORMAT)
    return 0 if numbers is None else numbers[0]


class JournalWatermark(Watermark):
    """The mark of a journal that is being written, at the index of an entry."""

    def __init__(self, disk: Disk, folder: Path, index: int) -> None:
        """Record durably that all entries up to `index` are durable."""
        super().__init__(disk, draft_of(folder / NAME), folder / NAME, _FORMAT, index)
