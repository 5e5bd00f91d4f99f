"""The map that a state machine changes, entry by entry, and what of it a disk has.

Two hold what the log says, and answer alike: `RocksTable`, which the product uses, and
`MemoryTable`, which keeps all in memory and its files behind the `Disk` seam: for simulations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from paxosblock.disk import Disk
from paxosblock.namenode.kv.interface import Item, Versioned

Changes = dict[bytes, Versioned]
"""Changes of one entry: the value that a key has from then on, `ABSENT` if it is removed."""

SLICE_KEYS = 1000
"""Keys that are looked at or changed before others get a turn, while a long entry is applied."""


@dataclass(frozen=True, slots=True)
class Flush:
    """Makes the table durable as it was after entry `revision`, or later."""

    revision: int
    write: Callable[[], None]
    """Blocks: call it in a thread, while the table goes on.

    Raises:
        NoSpaceError: nothing was changed, and the table goes on.
        StorageError: the disk refuses. What was durable before still is.
    """


class Table(Protocol):
    """Bytes to `Versioned`, in byte order of the keys, after the entries up to `revision`.

    No key is empty. All methods belong to one thread at a time.
    """

    @property
    def revision(self) -> int:
        """Index of the last entry whose changes are here."""

    def __len__(self) -> int:
        """Return how many keys there are."""

    def get(self, key: bytes) -> Versioned:
        """Return the value of `key`; `ABSENT` when it is not there."""

    def scan(self, start: bytes, end: bytes, reverse: bool = False) -> Iterator[Item]:
        """Yield what is in [start, end) in order, or from the end; `b""` as `end`: no bound."""

    def count(self, first: bytes) -> int:
        """Return how many keys begin with the byte `first`, without visiting them."""

    def write(self, index: int, changes: Changes) -> None:
        """Change all keys together, as entry `index`.

        Raises:
            StorageError: the table is of no use any more; what was flushed is on the disk.
        """

    def write_in_slices(self, index: int, changes: Changes) -> Iterator[None]:
        """As `write`; yields where others may have a turn, who see nothing of it before the end.

        Who does not go on leaves the table as it was.
        """

    def flush(self) -> Flush:
        """Return what makes durable all that is written by now."""

    def close(self) -> None:
        """Release the files; blocks. Nothing has to be durable."""


OpenTable = Callable[[Disk, Path], Table]
"""Opens the table in a folder, as the last flush left it, or makes an empty one; blocks.

Raises:
    ConfigError: another version wrote it.
    CorruptionError: it is damaged where it had been durable.
    NoSpaceError: there is no room to open it.
    StorageError: the disk refuses.
"""
