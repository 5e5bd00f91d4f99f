"""Damage to one file of a volume while its node is down, and what that may cost (FORMAT.md).

Only what a power cut cannot have done is told from a torn write, so the power does not go from the
damage on until a process has seen it.
"""

from __future__ import annotations

import enum
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paxosblock.datanode.store.identity import VERSION
from paxosblock.datanode.store.layout import CURRENT, RBW
from paxosblock.datanode.store.small_records import FORMAT, segment_numbers
from paxosblock.journal.durable_mark import read_mark
from paxosblock.journal.record_log import MARK_NAME
from paxosblock.protocol.types import BlockId
from tests.disks.simulated import SimulatedDisk

SMALL: Final = "small"


class Part(enum.Enum):
    """The use that a volume has for a file."""

    META = "meta file"
    OPEN = "block file in rbw"
    FINAL = "block file in current"
    SEGMENT = "segment of the log"
    INDEX = "index of a segment"
    MARK = "mark of the log"
    IDENTITY = "VERSION"


class How(enum.Enum):
    """A way to damage a file."""

    BIT = "one bit flipped"
    BYTES = "bytes garbled"
    CUT = "cut"


@dataclass(frozen=True, slots=True)
class Damage:
    """The damage to one file."""

    folder: Path
    path: Path
    part: Part
    how: How
    may_fail: bool
    """It may cost the volume."""

    @property
    def block(self) -> BlockId | None:
        """The block whose file it is."""
        found = re.match(r"blk_(\d+)", self.path.name)
        return None if found is None else BlockId(int(found[1]))


def part_of(path: Path) -> Part | None:
    """Return what a file is to its volume; None: nothing hangs on it."""
    folder, name = path.parent.name, path.name
    if folder in (CURRENT, RBW):
        if name.endswith(".meta"):
            return Part.META
        return Part.OPEN if folder == RBW else Part.FINAL
    if folder == SMALL and not name.endswith(".new"):
        if name == MARK_NAME:
            return Part.MARK
        return Part.INDEX if name.endswith(".index") else Part.SEGMENT
    return Part.IDENTITY if name == VERSION else None


def damage_one(disk: SimulatedDisk, folder: Path, rng: random.Random) -> Damage | None:
    """Damage one file of a volume; None: it has none."""
    files = list(_files(disk, folder))
    if not files:
        return None
    part = rng.choice(sorted({part for _, part in files}, key=lambda each: each.value))
    if part is Part.IDENTITY and rng.random() < 0.8:  # it costs all that is there
        return None
    path = rng.choice(sorted(path for path, each in files if each is part))
    # A file that a killed process left may end anywhere: what is cut off was never written.
    how = rng.choice((How.BIT, How.BYTES) if part is Part.OPEN else tuple(How))
    may_fail = part is Part.IDENTITY
    if part is Part.SEGMENT and how is not How.BIT:
        mark = read_mark(disk, folder / SMALL / MARK_NAME, FORMAT)
        (number,) = segment_numbers([path.name])
        may_fail = mark is None or mark[0] < number
    _harm(disk, path, how, rng)
    return Damage(folder, path, part, how, may_fail)


def _files(disk: SimulatedDisk, folder: Path) -> Iterator[tuple[Path, Part]]:
    for path, file in disk.names_now.items():
        part = part_of(path) if path.is_relative_to(folder) and file.data else None
        if part is not None:
            yield path, part


def _harm(disk: SimulatedDisk, path: Path, how: How, rng: random.Random) -> None:
    file = disk.names_now[path]
    at = rng.randrange(len(file.data))
    match how:
        case How.BIT:
            file.data[at] ^= 1 << rng.randrange(8)
        case How.BYTES:
            end = min(len(file.data), at + rng.randint(2, 200))
            file.data[at:end] = rng.randbytes(end - at)
        case How.CUT:
            del file.data[at:]
    file.settle()
