"""The interface of a disk format to a DataNode: replicas as records of chunks, never as files.

`file_store.py` is the format that there is (FORMAT.md), with `load.py`, `records.py`, `meta.py`,
`fetched.py` and `layout.py`. Another one is another `ReplicaStore` for `volume.py`.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from paxosblock.checksum import Buffer
from paxosblock.datanode.open_file import OpenFile
from paxosblock.datanode.removals import Removals
from paxosblock.disk import Room
from paxosblock.even_run import EvenRun
from paxosblock.net.wire import HEADER_BYTES
from paxosblock.protocol.effects import AdoptLog, DropReplica, Effect, StoreMetadata
from paxosblock.protocol.log import ENTRY_BYTES, ChunkLog, read_entries
from paxosblock.protocol.register import Replica, Step
from paxosblock.protocol.types import FIRST_GENERATION, BlockId, ChunkName, Generation

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stored:
    """The place of a replica's records: the store's own subclass knows. `file` is open while the
    replica may take writes."""

    file: OpenFile | None


@dataclass(frozen=True, slots=True)
class Loaded:
    """One replica as it was found.

    `corrupt` says why it is dead, "" when it is not. Of a dead replica `replica` tells only what it
    promised; None: not even that is known, but the `epoch` of its log (D9).
    """

    block: BlockId
    replica: Replica | None
    files: Stored | None
    corrupt: str = ""
    epoch: Generation = FIRST_GENERATION


class Found(NamedTuple):
    """The replicas of a volume as they were found. Those that are `resting` are finalized and
    sound, and nothing more is made of them before `wake`: there may be very many."""

    loaded: Sequence[Loaded] = ()
    resting: Sequence[BlockId] = ()
    resting_bytes: int = 0
    """The records of their chunks take so much."""


class FetchedChunks(Protocol):
    """Successive chunks from a holder, until a log with them is adopted. All methods block."""

    @property
    def block(self) -> BlockId:
        """Return the block whose they are."""

    @property
    def names(self) -> tuple[ChunkName, ...]:
        """Names of the chunks that are here."""

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


@dataclass(frozen=True, slots=True)
class Records:
    """The records of successive chunks, checked, as they are on disk; the first chunk begins at
    user byte `begin` of its block."""

    whole: Buffer
    begin: int
    even: EvenRun
    """Its names are those of all chunks."""

    @property
    def payloads(self) -> list[Buffer]:
        """Return the user data of all chunks in order; of those that are equally long, together."""
        even, view = self.even, memoryview(self.whole)
        stride = HEADER_BYTES + even.size_bytes
        begin, position = self.begin + even.chunks * even.size_bytes, even.chunks * stride
        parts = list[Buffer]()
        if even.chunks:
            split = _split(even.chunks, even.size_bytes)
            parts.append(b"".join(split.unpack_from(view)))
        for end, _ in read_entries(even.names[even.chunks * ENTRY_BYTES :]):
            stop = position + HEADER_BYTES + end - begin
            parts.append(view[position + HEADER_BYTES : stop])
            begin, position = end, stop
        return parts


@functools.lru_cache(16)
def _split(chunks: int, size_bytes: int) -> struct.Struct:
    """Return what takes the user data out of equally long records."""
    return struct.Struct(f"{HEADER_BYTES}x{size_bytes}s" * chunks)


class ReplicaStore(Protocol):
    """The replicas of one volume. All methods but `append`, `say`, `read_cached`, `read_part`,
    `size_bytes`, `rests` and `wake` block.

    After a StorageError nothing is known about the volume; NoSpaceError says that nothing was
    changed. Whatever is interrupted, `load` finishes or undoes at the next start.
    """

    removals: Removals
    """The files of deleted replicas that are still there."""

    def load(self) -> Found:
        """Return every replica; those that may have lost votes are weak, durably (D8)."""

    def rests(self, files: Stored) -> bool:
        """True if the replica in `files` need not be remembered: `wake` returns the same."""

    def wake(self, block: BlockId) -> Loaded:
        """Return a replica that rests."""

    def room(self) -> Room:
        """Take what is missing of the room that is kept for promises; return what is left."""

    def keep_damaged(self, damaged: Mapping[BlockId, Stored]) -> None:
        """Remember, durably, that of all replicas these are dead, and no others.

        Raises:
            NoSpaceError: what was remembered before still is.
        """

    def prove(self) -> None:
        """Write, sync and read back a little, and leave nothing of it.

        Raises:
            NoSpaceError: there is no room for it.
            StorageError: the disk does not work.
        """

    def with_spare(self, step: Callable[[], T]) -> T:
        """Do `step`, which changes nothing when it finds no room; then with the room that is kept.

        Raises: what `step` raises.
        """

    def size_bytes(self, log: ChunkLog) -> int:
        """Return how much the records of the log take."""

    def say(self, files: Stored | None, effect: Effect, after: Replica) -> Stored | None:
        """Append the record by which `effect` makes a replica in `files` become `after`.

        Return where it is then; it is durable when the file is synced in which it may be written.
        None: it takes more than a record, or finds no room; nothing was changed.
        """

    def create(self, replica: Replica, *, small: bool = False) -> Stored:
        """Make a replica without chunks, durably (D1, D3); a `small` one takes one short chunk."""

    def append(self, files: Stored, log: ChunkLog, frame: Buffer) -> None:
        """Hand the record of the chunk after `log` to the operating system (D2). Does not sync."""

    def sync(self, files: Stored) -> None:
        """Bring every chunk to stable storage."""

    def store_metadata(self, files: Stored, replica: Replica) -> Stored:
        """Replace what is kept beside the chunks, durably; return where they are then."""

    def draft(self, block: BlockId, first: int) -> FetchedChunks:
        """Return a place for chunks of `block` from `first` on."""

    def adopt(
        self, files: Stored | None, after: Replica, effect: AdoptLog, draft: FetchedChunks | None
    ) -> Stored:
        """Become `after` (D4, D5): keep `effect.keep` chunks, take the others from `draft`.

        The result's file is open exactly when `after` may take writes; an open file of `files`
        that the result does not have is the caller's to retire.

        Raises:
            CorruptionError: the records to keep are gone; nothing was changed.
        """

    def drop(self, files: Stored, replica: Replica) -> None:
        """Delete the replica, durably (D7); its bytes are among `removals`."""

    def purge(self, block: BlockId, kept: Stored | None = None) -> None:
        """Delete all of a dead replica, durably (D7), but not the copy `kept` that has taken its
        place (D9)."""

    def open(self, files: Stored) -> OpenFile:
        """Open a replica that takes no writes, for readers."""

    def tidy(self) -> None:
        """Win back some room that deleted replicas left. Nobody waits for it.

        Raises:
            NoSpaceError: there is no room to do it in.
        """

    def close(self) -> None:
        """Close what the replicas share; nobody uses one any more."""

    def read(self, file: OpenFile, block: BlockId, log: ChunkLog, chunks: range) -> Records:
        """Return the records of `chunks`, each checked.

        Raises:
            CorruptionError: one is not what the log says.
        """

    def read_cached(
        self, file: OpenFile, block: BlockId, log: ChunkLog, chunks: range, into: memoryview
    ) -> Records | None:
        """As `read`, into a buffer of their size; None unless the system has all in memory."""

    def read_part(
        self, file: OpenFile, log: ChunkLog, index: int, start: int, into: memoryview
    ) -> bool:
        """Fill `into` with user data of chunk `index` from byte `start` of it on, unchecked; False
        unless the system has all in memory, and the replica has a file of its own.
        """

    def check_metadata(self, files: Stored, replica: Replica) -> None:
        """Compare what is kept beside the chunks with `replica`, which is what was written.

        Raises:
            CorruptionError: it is not that.
        """

    def read_stored(self, file: OpenFile, block: BlockId, log: ChunkLog, chunks: range) -> Records:
        """As `read`, from the disk itself, and without a trace in the system's memory."""

    def size_of(self, log: ChunkLog, chunks: range) -> int:
        """Return how long the records of `chunks` are."""


def carry_out(
    store: ReplicaStore,
    step: Step,
    before: Replica | None,
    files: Stored | None,
    draft: FetchedChunks | None,
) -> Stored | None:
    """Make the effect of a control request durable; return where the replica is then."""
    effect, after = step.effect, step.replica
    match effect:
        case StoreMetadata() if after is not None and files is None:
            return store.create(after, small=effect.small)
        case StoreMetadata() if after is not None and files is not None:
            return store.store_metadata(files, after)
        case AdoptLog() if after is not None:
            return store.adopt(files, after, effect, draft)
        case DropReplica() if before is not None and files is not None:
            store.drop(files, before)
            return None
    raise AssertionError(f"{effect} is no effect of a control request")
