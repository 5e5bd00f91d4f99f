"""The map that a state machine changes, entry by entry, and that a flush makes durable.

`RocksTable` is one. Simulations use another, which keeps the map in memory and writes its files
through the `Disk` seam, so that they can cut the power between any two steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from paxosblock.base.checksum import Buffer
from paxosblock.errors import CorruptionError, PaxosBlockError
from paxosblock.host.disk import Disk
from paxosblock.namenode.kv.interface import Item, Moment, Values, Versioned

Changes = dict[bytes, Versioned]
"""Changes of one entry: the new value of each key, `ABSENT` if the key is removed."""

SLICE_KEYS = 1000
"""Keys of a long entry that are read or changed before other tasks get a turn."""


@dataclass(frozen=True, slots=True)
class Flush:
    """Makes the table durable as it was after entry `revision`, or later."""

    revision: int
    write: Callable[[], None]
    """Blocks: call it in a thread, while the table goes on.

    Raises:
        NoSpaceError: nothing was changed, and the table goes on.
        StorageError: the disk refuses; all that was durable before still is.
    """


class Checkpoint(Protocol):
    """A table as it was at one moment, as a stream of bytes, for another folder. Its methods block,
    and may run in any thread."""

    @property
    def size_bytes(self) -> int:
        """Return the length of the stream."""

    def read(self, size_bytes: int, offset: int) -> bytes:
        """Return some bytes from `offset` on: at least one, at most `size_bytes`.

        Raises:
            StorageError: the disk refuses.
        """

    def close(self) -> None:
        """Give back the room that the checkpoint takes; it is not read any more."""


def pieces(checkpoint: Checkpoint, size_bytes: int) -> Iterator[bytes]:
    """Yield the stream of a checkpoint in pieces of at most `size_bytes`. Blocks as it does."""
    offset = 0
    while offset < checkpoint.size_bytes:
        piece = checkpoint.read(size_bytes, offset)
        assert 0 < len(piece) <= size_bytes, "a piece is not empty, nor too long"
        offset += len(piece)
        yield piece


@dataclass(frozen=True, slots=True)
class CheckpointCopy:
    """Makes a checkpoint of the table as it was after entry `revision`, or later."""

    revision: int
    make: Callable[[], Checkpoint]
    """Blocks: call it in a thread, while the table goes on.

    Raises:
        NoSpaceError, StorageError: the disk refuses; the table goes on.
    """


OnDamage = Callable[[CorruptionError], PaxosBlockError]
"""Is told of damage that a read or a change of a table met; returns the error that it raises."""


def as_it_is(damage: CorruptionError) -> PaxosBlockError:
    """Return the damage itself: only the caller that reads it hears of it."""
    return damage


class Table(Protocol):
    """Bytes to `Versioned`, in byte order of the keys, after the entries up to `revision`.

    No key is empty. All methods belong to one thread at a time.
    """

    on_damage: OnDamage
    """Called in that thread; `as_it_is` until a watcher is set."""

    @property
    def revision(self) -> int:
        """Return the index of the last entry whose changes are here."""

    @property
    def term(self) -> int:
        """Return the term of entry `revision`; 0 before the first one."""

    def __len__(self) -> int:
        """Return how many keys there are."""

    def get(self, key: bytes, /) -> Versioned:
        """Return the value of `key`; `ABSENT` when it is not there."""

    def scan(self, start: bytes, end: bytes, reverse: bool = False) -> Iterator[Item]:
        """Yield the items in [start, end) in order, or from the end; `b""` as `end`: no bound."""

    def read_some(self, start: bytes, keys: int) -> bytes | None:
        """Read this many keys from `start` on, to find damage, and cache nothing of them.

        Returns:
            The key to go on from; None after the last one.
        """

    def count(self, first: bytes) -> int:
        """Return how many keys begin with the byte `first`, without visiting them."""

    def moment(self) -> Moment:
        """Keep the table as it is now. `close` and `discard` release it."""

    def values(self) -> Values:
        """Keep the values as they are now, until then as `moment`."""

    def write(self, index: int, changes: Changes, term: int = 0) -> None:
        """Change all keys together, as entry `index` of `term`.

        Raises:
            StorageError: the table can no longer be used; all that was flushed is on the disk.
        """

    def write_in_slices(self, index: int, changes: Changes, term: int = 0) -> Iterator[None]:
        """Write as `write` does, and yield where other tasks may have a turn.

        They see none of the changes before the end. A caller that stops before the end leaves the
        table as it was.
        """

    def flush(self) -> Flush:
        """Return the flush that makes durable all that is written by now."""

    def checkpoint(self) -> CheckpointCopy:
        """Return the copy of all that is written by now."""

    def close(self) -> int:
        """Release the files; blocks. It need not make anything durable.

        Returns:
            The entry after which the durable table is; 0 if that is not known.
        """

    def discard(self) -> None:
        """Close and remove the files, as another table of the folder has taken over; blocks."""


class Receiver(Protocol):
    """Takes the stream of a checkpoint, as a draft beside the table of a folder. Its methods block.

    Once one of them has raised, only `discard` may be called; after an UnavailableError `check`,
    too.
    """

    def write(self, data: Buffer) -> None:
        """Take the next bytes of the stream.

        Raises:
            CorruptionError: they are not those of a checkpoint.
            NoSpaceError, StorageError: the disk refuses.
        """

    def check(self) -> int:
        """Read all that came and make it durable; return the entry that the table is after.

        Raises:
            ConfigError, CorruptionError: a later version wrote it, or it is not whole, or damaged.
            NoSpaceError, StorageError: the disk refuses.
            UnavailableError: the process that read it did not come to the end.
        """

    def install(self) -> Table:
        """Open what was checked as the folder's table, durably: a later start finds this table,
        which must be the later one.

        Raises:
            NoSpaceError, StorageError: the disk refuses, and a start may find either table.
        """

    def discard(self) -> None:
        """Give back the room that the draft takes.

        Raises:
            StorageError: the disk refuses.
        """


OpenTable = Callable[[Disk, Path], Table]
"""Opens the table in a folder, as the last flush left it, or makes an empty one; blocks.

Raises:
    ConfigError: another version wrote the table.
    CorruptionError: it is damaged where it had been durable.
    NoSpaceError: there is no room to open it.
    StorageError: the disk refuses.
"""


@dataclass(frozen=True, slots=True)
class Tables:
    """A kind of table."""

    open: OpenTable
    receive: Callable[[Disk, Path], Receiver]
    """Begins a draft in the folder, in place of a draft that was there; blocks."""
