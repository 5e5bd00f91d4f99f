"""The interface of a disk format to a DataNode: replicas as records of chunks, never as files.

A volume keeps replicas in two forms (FORMAT.md). `file_store.py`, a `ReplicaStore`, gives each
replica files of its own; `small_replicas.py` keeps those of one short chunk in a log that they
share, and `volume.py` chooses between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeVar

from paxosblock.base.checksum import Buffer
from paxosblock.base.even_run import EvenRun
from paxosblock.base.units import MIB
from paxosblock.datanode.store.open_file import OpenFile
from paxosblock.datanode.store.removals import Removals
from paxosblock.host.disk import FileHandle, Room
from paxosblock.net.wire import HEADER_BYTES
from paxosblock.protocol.chunk_log import ChunkLog
from paxosblock.protocol.effects import AdoptLog, Effect
from paxosblock.protocol.register import Replica
from paxosblock.protocol.types import FIRST_GENERATION, BlockId, ChunkName, Generation

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stored:
    """The place of a replica's records, which only the store's own subclass knows. `file` is open
    while the replica may take writes."""

    file: OpenFile | None


@dataclass(frozen=True, slots=True)
class Loaded:
    """One replica as the start found it.

    `corrupt` says why it is dead, "" if it is not. If it is dead, `replica` says only what it
    promised; it is None if only the `epoch` of its log is known (D9).
    """

    block: BlockId
    replica: Replica | None
    files: Stored | None
    corrupt: str = ""
    epoch: Generation = FIRST_GENERATION


@dataclass(frozen=True, slots=True)
class SmallLimits:
    """Bounds of the log of small replicas: of a segment, and of the room that is won back."""

    segment_bytes: int = 64 * MIB
    """A control step begins a new segment once the last one has so many bytes."""
    moved_bytes: int = 8 * MIB
    """At most this much is copied out of the oldest segment at a time."""
    worth_bytes: int = 64 * MIB
    """Winning back less room than this, or less than `worth_share` of the log, is not worth it."""
    worth_share: float = 0.5


SHIPPED: Final = SmallLimits()


class Forgot(NamedTuple):
    """The losses of the log of small replicas (PROTOCOL.md, D11)."""

    up_to: BlockId
    """No lost record was of a block with a greater id."""
    through: int
    """No record was lost behind the segment of this number."""


class LoadedReplicas(NamedTuple):
    """The replicas of a volume as the start found them. Those that are `resting` are finalized and
    sound; they are only ids until `wake`, as there may be very many."""

    loaded: Sequence[Loaded] = ()
    resting: Sequence[BlockId] = ()
    resting_bytes: int = 0
    """Bytes of the records of their chunks."""
    unread: Sequence[BlockId] = ()
    """Finalized replicas that are not read yet, in order: `first_read` tells how they are."""
    forgot: Forgot | None = None


class FetchedChunks(Protocol):
    """Successive chunks from a holder, until a log with them is adopted. All methods block."""

    @property
    def block(self) -> BlockId:
        """The block of these chunks."""

    @property
    def names(self) -> tuple[ChunkName, ...]:
        """Names of the chunks fetched so far."""

    @property
    def stop(self) -> int:
        """Index of the chunk that comes next."""

    def append(self, names: tuple[ChunkName, ...], records: Buffer) -> None:
        """Add the records of `names`.

        Raises:
            CorruptionError: the records are not those of `names`; nothing was added.
            NoSpaceError, StorageError: as the disk says.
        """

    def discard(self) -> None:
        """Forget them, unless a log was adopted with them."""


class Records(NamedTuple):
    """The records of successive chunks, checked, as they are on disk."""

    whole: Buffer
    even: EvenRun
    """Its names are those of all chunks."""
    others: list[memoryview]
    """The user data of each chunk behind the even ones."""

    def take_payloads(self) -> list[Buffer]:
        """Return the user data of all chunks in order; chunks that are equally long come as one
        piece.

        Their data is moved together where it is, for new memory costs more: `whole` is of no use
        then.
        """
        if not self.even.chunks:
            return [*self.others]
        view, size = memoryview(self.whole), self.even.size_bytes
        stop, stride = self.even.chunks * size, HEADER_BYTES + size
        for target, chunk in zip(
            range(0, stop, size),
            range(HEADER_BYTES, self.even.chunks * stride, stride),
            strict=True,
        ):
            view[target : target + size] = view[chunk : chunk + size]
        return [view[:stop], *self.others]


class ReplicaStore(Protocol):
    """The replicas of one volume. All methods but `append`, `say`, `read_cached`, `read_part`,
    `size_bytes`, `rests`, `is_unread`, `take_read_bytes` and `wake` block.

    After a StorageError nothing is known about the volume; NoSpaceError says that nothing was
    changed. If a method is interrupted, `load` finishes or undoes its work at the next start.
    """

    removals: Removals
    """The files of deleted replicas that are still there."""

    def load(self) -> LoadedReplicas:
        """Return every replica; those that may have lost votes are weak, durably (D8)."""

    def is_unread(self, block: BlockId) -> bool:
        """True if `load` found the replica, and it was not read since."""

    def first_read(self, blocks: Sequence[BlockId]) -> None:
        """Read those of the replicas that are unread; after an error the others still are.

        Raises:
            ConfigError: a later version wrote the metadata of one.
        """

    def take_read_bytes(self) -> int:
        """Return the bytes of the records of those that rest since `first_read`; once."""

    def rests(self, block: BlockId, files: Stored) -> bool:
        """True if the replica in `files` need not be remembered: `wake` returns the same."""

    def wake(self, block: BlockId) -> Loaded:
        """Return a replica that rests, or is dead since `first_read`."""

    def room(self) -> Room:
        """Fill up the room that is kept for promises; return the room that is left."""

    def keep_damaged(self, damaged: Mapping[BlockId, Stored]) -> None:
        """Remember, durably, that these replicas are dead, and no others.

        Raises:
            NoSpaceError: those remembered before still are.
        """

    def prove(self, name: str) -> None:
        """Write, sync and read back a few bytes in a temporary file `name`, and remove it.

        Raises:
            NoSpaceError: there is no room for them.
            StorageError: the disk does not work.
        """

    def with_spare(self, step: Callable[[], T]) -> T:
        """Do `step`; if it changed nothing for lack of room, do it with the room that is kept.

        Raises: as `step`.
        """

    def size_bytes(self, log: ChunkLog) -> int:
        """Return how much the records of the log take."""

    def say(self, files: Stored | None, effect: Effect, after: Replica) -> Stored | None:
        """Append the one record by which `effect` makes the replica in `files` become `after`.

        Return the new place; it is durable once the file of the old or the new place is synced.
        None: it takes more than a record, or there is no room; nothing was changed.
        """

    def create(self, replica: Replica, *, small: bool = False) -> Stored:
        """Make a replica without chunks, durably (D1, D3); a `small` one takes one short chunk."""

    def append(self, files: Stored, log: ChunkLog, frame: Buffer) -> None:
        """Hand the record of the chunk after `log` to the operating system (D2). Does not sync."""

    def sync(self, files: Stored) -> None:
        """Bring every chunk to stable storage."""

    def store_metadata(self, files: Stored, replica: Replica) -> Stored:
        """Replace the metadata, durably; return the new place."""

    def draft(self, block: BlockId, first: int) -> FetchedChunks:
        """Return a place for chunks of `block` from `first` on."""

    def adopt(
        self, files: Stored | None, after: Replica, effect: AdoptLog, draft: FetchedChunks | None
    ) -> Stored:
        """Become `after` (D4, D5): keep `effect.keep` chunks, take the others from `draft`.

        The result's file is open exactly if `after` may take writes; the caller must retire an open
        file of `files` that the result does not have.

        Raises:
            CorruptionError: the records to keep are gone; nothing was changed.
        """

    def drop(self, files: Stored, replica: Replica) -> None:
        """Delete the replica, durably (D7); its bytes wait in `removals`."""

    def purge(self, block: BlockId, kept: Stored | None = None) -> None:
        """Delete all files of a dead replica, durably (D7), but not the copy `kept` that replaced
        it (D9)."""

    def open(self, files: Stored) -> OpenFile:
        """Open a replica that takes no writes, for readers."""

    def lend(self, files: Stored) -> FileHandle | None:
        """Open the file of a replica that takes no writes, for a process that may only read it;
        None if other replicas share the file.
        """

    def take_back(self, file: FileHandle) -> None:
        """Close what `lend` opened."""

    def tidy(self) -> None:
        """Win back some of the room of deleted replicas. No request waits for it.

        Raises:
            NoSpaceError: it needs room itself, and there is none.
        """

    def close(self) -> None:
        """Close the files that replicas share; the store may not be used any more."""

    def read(
        self, file: OpenFile, block: BlockId, log: ChunkLog, chunks: range, into: memoryview
    ) -> Records:
        """Read the records of `chunks` into a buffer of their size; return them, each checked.

        Raises:
            CorruptionError: one is not what the log says.
        """

    def read_cached(
        self, file: OpenFile, block: BlockId, log: ChunkLog, chunks: range, into: memoryview
    ) -> Records | None:
        """As `read`; None unless the system has all in memory."""

    def read_part(
        self, file: OpenFile, log: ChunkLog, index: int, start: int, into: memoryview
    ) -> bool:
        """Fill `into` with user data of chunk `index` from byte `start` of it on, unchecked; False
        unless the system has all in memory, and the replica has a file of its own.
        """

    def check_metadata(self, files: Stored, replica: Replica) -> None:
        """Compare the stored metadata with that of `replica`, as it was written.

        Raises:
            CorruptionError: they differ.
        """

    def read_stored(self, file: OpenFile, block: BlockId, log: ChunkLog, chunks: range) -> Records:
        """As `read`, from the disk itself, bypassing the system's memory; into new memory."""

    def size_of(self, log: ChunkLog, chunks: range) -> int:
        """Return the length of the records of `chunks` in bytes."""
