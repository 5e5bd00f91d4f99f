"""The point that the scrubber of a volume has reached: its `scrub` file (FORMAT.md 7).

It is a hint. Without it, or when it cannot be read, replicas are only read once more.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paxosblock.api.namenode import NO_BLOCK
from paxosblock.api.reports import LAST_BLOCK
from paxosblock.base.checksum import crc32c
from paxosblock.host.disk import Disk, publish, read_file
from paxosblock.protocol.types import BlockId

FORMAT: Final = 1
SCRUB: Final = "scrub"

_LINES = re.compile(
    rb"format=(\d{1,9})\nblock=(\d{1,20})\nbegun_ms=(\d{1,15})\nread_bytes=(\d{1,20})\n"
    rb"whole_ms=(\d{1,15})\ncrc=([0-9a-f]{8})\n"
)


@dataclass(frozen=True, slots=True)
class Cursor:
    """The progress of a pass; times are Unix times in milliseconds.

    In the pass that began at `begun_ms` the replicas up to `block` were read, `read_bytes` of them.
    The last pass that came to its end did so at `whole_ms`; 0: none.
    """

    block: BlockId
    begun_ms: int
    read_bytes: int = 0
    whole_ms: int = 0

    @property
    def ended(self) -> bool:
        """True if the pass is over."""
        return self.block == LAST_BLOCK

    def encode(self) -> bytes:
        """Return the bytes of the file."""
        body = (
            f"format={FORMAT}\nblock={self.block}\nbegun_ms={self.begun_ms}\n"
            f"read_bytes={self.read_bytes}\nwhole_ms={self.whole_ms}\n"
        )
        return f"{body}crc={crc32c(body.encode()):08x}\n".encode()


NEVER: Final = Cursor(LAST_BLOCK, begun_ms=0)
"""The cursor of a volume that was never scrubbed: the next pass is due."""


def decode_cursor(data: bytes) -> Cursor:
    """Return the cursor in the bytes of its file; `NEVER` if they are not those of this format."""
    found = _LINES.fullmatch(data)
    if found is None or crc32c(data[: data.rindex(b"crc=")]) != int(found[6], 16):
        return NEVER
    known, block, begun_ms, read_bytes, whole_ms = (int(each) for each in found.groups()[:5])
    if known != FORMAT or not NO_BLOCK <= block <= LAST_BLOCK:
        return NEVER
    return Cursor(BlockId(block), begun_ms, read_bytes, whole_ms)


def read_cursor(disk: Disk, folder: Path) -> Cursor:
    """Return the cursor of the volume at `folder`. Raises StorageError."""
    if SCRUB not in disk.names(folder):
        return NEVER
    return decode_cursor(read_file(disk, folder / SCRUB))


def write_cursor(disk: Disk, folder: Path, cursor: Cursor) -> None:
    """Replace the cursor of the volume at `folder`, durably. Raises as `publish`."""
    publish(disk, folder / f"{SCRUB}.new", folder / SCRUB, [cursor.encode()])
