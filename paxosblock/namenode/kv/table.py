"""The map that a state machine changes, entry by entry, and what of it a disk has.

Two hold what the log says, and answer alike: `RocksTable`, which the product uses, and
`MemoryTable`, which keeps all in memory and its files behind the `Disk` seam: for simulations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from paxosblock.checksum import Buffer
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


class Checkpoint(Protocol):
    """A table as it was at one moment, as a stream of bytes, for another folder. Its methods block,
    and may run in any thread."""

    @property
    def size_bytes(self) -> int:
        """Length of the stream."""

    def read(self, size_bytes: int, offset: int) -> bytes:
        """Return some bytes from `offset` on, at least one, at most so many.

        Raises:
            StorageError: the disk refuses.
        """

    def close(self) -> None:
        """Give back the room that it takes; nobody reads it any more."""


@dataclass(frozen=True, slots=True)
class Copy:
    """Makes a checkpoint of the table as it was after entry `revision`, or later."""

    revision: int
    make: Callable[[], Checkpoint]
    """Blocks: call it in a thread, while the table goes on.

    Raises:
        NoSpaceError, StorageError: the disk refuses; the table goes on.
    """


class Table(Protocol):
    """Bytes to `Versioned`, in byte order of the keys, after the entries up to `revision`.

    No key is empty. All methods belong to one thread at a time.
    """

    @property
    def revision(self) -> int:
        """Index of the last entry whose changes are here."""

    @property
    def term(self) -> int:
        """Term of that entry; 0 where there is a single NameNode."""

    def __len__(self) -> int:
        """Return how many keys there are."""

    def get(self, key: bytes) -> Versioned:
        """Return the value of `key`; `ABSENT` when it is not there."""

    def scan(self, start: bytes, end: bytes, reverse: bool = False) -> Iterator[Item]:
        """Yield what is in [start, end) in order, or from the end; `b""` as `end`: no bound."""

    def count(self, first: bytes) -> int:
        """Return how many keys begin with the byte `first`, without visiting them."""

    def write(self, index: int, changes: Changes, term: int = 0) -> None:
        """Change all keys together, as entry `index` of `term`.

        Raises:
            StorageError: the table is of no use any more; what was flushed is on the disk.
        """

    def write_in_slices(self, index: int, changes: Changes, term: int = 0) -> Iterator[None]:
        """As `write`; yields where others may have a turn, who see nothing of it before the end.

        Who does not go on leaves the table as it was.
        """

    def flush(self) -> Flush:
        """Return what makes durable all that is written by now."""

    def checkpoint(self) -> Copy:
        """Return what copies all that is written by now."""

    def close(self) -> None:
        """Release the files; blocks. Nothing has to be durable."""

    def discard(self) -> None:
        """Close, and remove the files; blocks. Another table of the folder has taken its place."""


class Receiver(Protocol):
    """Takes the stream of a checkpoint, as a draft beside the table of a folder. Its methods block.

    Who raises is of no use any more, but for `discard`.
    """

    def write(self, data: Buffer) -> None:
        """Take what follows.

        Raises:
            CorruptionError: it is not the stream of a checkpoint.
            NoSpaceError, StorageError: the disk refuses.
        """

    def check(self) -> int:
        """Read all that came, which is then durable; return after which entry the table is.

        Raises:
            ConfigError, CorruptionError: it is of a later version, or not whole, or damaged.
            NoSpaceError, StorageError: the disk refuses.
        """

    def install(self) -> Table:
        """Open what was checked as the folder's table, durably: whoever opens the folder from now
        on finds this one, which must be the later one.

        Raises:
            NoSpaceError, StorageError: the disk refuses, and it is open which table a start finds.
        """

    def discard(self) -> None:
        """Give back the room that it takes.

        Raises:
            StorageError: the disk refuses.
        """


OpenTable = Callable[[Disk, Path], Table]
"""Opens the table in a folder, as the last flush left it, or makes an empty one; blocks.

Raises:
    ConfigError: another version wrote it.
    CorruptionError: it is damaged where it had been durable.
    NoSpaceError: there is no room to open it.
    StorageError: the disk refuses.
"""


@dataclass(frozen=True, slots=True)
class Tables:
    """A kind of table."""

    open: OpenTable
    receive: Callable[[Disk, Path], Receiver]
    """Begins a draft in the folder, in place of one that was there; blocks."""
