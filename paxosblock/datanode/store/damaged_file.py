"""The replicas of a volume that were found to be damaged: its `damaged` file (FORMAT.md 6).

A block file with a flipped bit looks sound until it is read. So a finding must survive the process,
or the replica would count again until the next scrub.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from paxosblock.base.checksum import crc32c
from paxosblock.base.formats import FROM_A_SNAPSHOT, refuse_later
from paxosblock.host.disk import Disk, publish, read_file
from paxosblock.protocol.types import BlockId

FORMAT: Final = 1
DAMAGED: Final = "damaged"

_FILE = re.compile(rb"format=(\d{1,9})\n((?:.*\n)*)crc=([0-9a-f]{8})\n")
_LINE = re.compile(rb"block=(\d{1,20}) copy=(\d{1,9})\n")


def encode_damaged(damaged: Mapping[BlockId, int]) -> bytes:
    """Return the bytes of the file for these blocks, each with the number of its block file."""
    lines = (f"block={block} copy={copy}\n" for block, copy in sorted(damaged.items()))
    body = f"format={FORMAT}\n" + "".join(lines)
    return f"{body}crc={crc32c(body.encode()):08x}\n".encode()


def decode_damaged(data: bytes, path: Path) -> dict[BlockId, int]:
    """Return the blocks in the bytes of the file at `path`; none if the file itself is damaged:
    then they have to be found again.

    Raises:
        ConfigError: a later version wrote it.
    """
    found = _FILE.fullmatch(data)
    if found is None or crc32c(data[: data.rindex(b"crc=")]) != int(found[3], 16):
        return {}
    refuse_later(path, int(found[1]), FORMAT, FROM_A_SNAPSHOT)
    return {BlockId(int(each[1])): int(each[2]) for each in _LINE.finditer(found[2])}


def read_damaged(disk: Disk, folder: Path) -> dict[BlockId, int]:
    """Return the blocks of the volume at `folder`. Raises StorageError, and as `decode_damaged`."""
    if DAMAGED not in disk.names(folder):
        return {}
    return decode_damaged(read_file(disk, folder / DAMAGED), folder / DAMAGED)


def write_damaged(disk: Disk, folder: Path, damaged: Mapping[BlockId, int]) -> None:
    """Replace the file of the volume at `folder`, durably. Raises as `publish`."""
    publish(disk, folder / f"{DAMAGED}.new", folder / DAMAGED, [encode_damaged(damaged)])
