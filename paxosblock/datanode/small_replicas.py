"""The small replicas of a volume, which share a log in place of files of their own (FORMAT.md 8).

A writer that will send one short chunk says so in its Create (PROTOCOL.md, D1). Such a replica is a
few records: that it was created, its chunk, that it is finalized. Whatever else happens to it comes
to few of them, and takes it to files of its own first (`FileStore`); it never comes back.
"""

from __future__ import annotations

import contextlib
import logging
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from paxosblock.checksum import Buffer
from paxosblock.datanode.layout import SMALL
from paxosblock.datanode.meta import Metadata, decode_metadata, describe
from paxosblock.datanode.small_log import Position, SegmentRemoved, SmallLog
from paxosblock.datanode.small_segment import Kind, Record
from paxosblock.datanode.store import Stored
from paxosblock.disk import Disk, FileHandle
from paxosblock.errors import ConfigError, CorruptionError, NoSpaceError
from paxosblock.logs import facts
from paxosblock.net.wire import HEADER_BYTES, Header
from paxosblock.protocol.effects import AdoptLog, Effect, StoreMetadata
from paxosblock.protocol.log import ChunkLog
from paxosblock.protocol.register import Replica
from paxosblock.protocol.types import SMALL_BYTES_MAX, BlockId, ReplicaState
from paxosblock.units import MIB

MOVED_BYTES: Final = 8 * MIB
"""So much of what counts is copied out of the oldest segment at a time."""
LOOKED_AT_BYTES: Final = 256
"""To look at a record that does not count costs as much as to copy so many bytes."""
WORTH_BYTES: Final = 64 * MIB
"""Less than so much room is not worth to be won back,"""
WORTH_TIMES: Final = 1
"""nor less than so many times what counts."""
_log = logging.getLogger(__name__)
_PLACE: Final = struct.Struct("<QQ")
_NOWHERE: Final = Position(0, 0)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class SmallPlace(Stored):
    """A replica in the log. The file is the log while the replica is being written."""

    block: BlockId


class _Entry:
    """The records that count of one replica."""

    __slots__ = ("chunk", "finalized", "said", "size_bytes")

    def __init__(self, said: Position, chunk: Position, size_bytes: int, *, finalized: bool):
        self.said = said
        """Its last record with metadata."""
        self.chunk = chunk
        self.size_bytes = size_bytes
        """All of its records together, about."""
        self.finalized = finalized


@dataclass(frozen=True, slots=True)
class SmallLoaded:
    """A replica as it was found; without metadata it is dead."""

    block: BlockId
    metadata: Metadata | None
    finalized: bool
    corrupt: str = ""


class SmallReplicas:
    """The small replicas of one volume. All methods but `append`, `stays` and `say` block."""

    def __init__(self, disk: Disk, folder: Path, boot: str) -> None:
        """`folder` is the volume's; `load` comes first."""
        self.log = SmallLog(disk, folder / SMALL, boot)
        self._disk = disk
        self._boot = boot
        self._entries: dict[BlockId, _Entry] = {}
        self._live_bytes = 0
        self._lock = threading.Lock()
        """Held while a record is chosen and appended, so that none is copied meanwhile."""
        self._moving: tuple[int, Iterator[Record]] | None = None
        self._stuck = False

    def __contains__(self, block: BlockId) -> bool:
        return block in self._entries

    # -- the start ------------------------------------------------------------------------------

    def load(self) -> list[SmallLoaded]:
        """Return every replica; changes nothing.

        Raises:
            ConfigError: a later version wrote it.
            StorageError: the log is damaged, or as the disk says.
        """
        said: dict[BlockId, bytes | None] = {}
        torn: set[BlockId] = set()
        for segment, record in self.log.records():
            self._replay(segment, record, said, torn)
        self._live_bytes = sum(entry.size_bytes for entry in self._entries.values())
        return [self._loaded(block, said.pop(block), block in torn) for block in self._entries]

    def _replay(
        self, segment: int, record: Record, said: dict[BlockId, bytes | None], torn: set[BlockId]
    ) -> None:
        block, at = record.block, Position(segment, record.offset)
        known = self._entries.get(block)
        match record.kind:
            case Kind.CREATED:  # of one that is known it is a copy
                chunk, size = (known.chunk, known.size_bytes) if known else (_NOWHERE, 0)
                self._entries[block] = _Entry(at, chunk, size + record.size, finalized=False)
                said[block] = None if record.payload is None else bytes(record.payload)
            case Kind.FINALIZED:
                chunk, data = _NOWHERE, None
                if record.payload is not None:
                    chunk = Position(*_PLACE.unpack_from(record.payload))
                    data = bytes(record.payload[_PLACE.size :])
                size = record.size + (known.size_bytes if known else 0)
                self._entries[block] = _Entry(at, chunk, size, finalized=True)
                said[block] = data
            case Kind.CHUNK if known is not None:
                known.chunk, known.size_bytes = at, known.size_bytes + record.size
                if record.payload is None:
                    torn.add(block)
            case Kind.GONE:
                self._entries.pop(block, None)
                said.pop(block, None)
                torn.discard(block)
            case _:
                pass

    def _loaded(self, block: BlockId, said: bytes | None, torn: bool) -> SmallLoaded:
        finalized = self._entries[block].finalized
        if said is None:
            return SmallLoaded(block, None, finalized, f"metadata of block {block} is damaged")
        try:
            metadata = decode_metadata(said, block)
        except (CorruptionError, ConfigError) as error:  # its checksum is right
            return SmallLoaded(block, None, finalized, str(error))
        lost = f"the chunk of block {block}, which this replica voted for, is damaged"
        return SmallLoaded(block, metadata, finalized, lost if torn and not finalized else "")

    def log_of(self, block: BlockId) -> ChunkLog:
        """Return the log of a replica that is being written, from its chunk's own header."""
        if self._entries[block].chunk == _NOWHERE:
            return ChunkLog()
        header = Header.unpack(self.frame(block))
        return ChunkLog().append(header.payload_length, header.payload_crc)

    # -- steps ----------------------------------------------------------------------------------

    def create(self, replica: Replica) -> SmallPlace:
        """Make a replica without chunks, durably."""
        self.log.begin_segment()
        place = self._say_created(replica)
        self.log.sync()
        return place

    def say(self, files: Stored | None, effect: Effect, after: Replica) -> SmallPlace | None:
        """Append the record that is all of `effect`; see `ReplicaStore.say`."""
        if not self.log.has_segment:
            return None
        with contextlib.suppress(NoSpaceError):
            match effect:
                case StoreMetadata(small=True) if files is None:
                    return self._say_created(after)
                case AdoptLog() if self.stays(files, after, effect):
                    return self._say_finalized(after)
        return None

    def _say_created(self, replica: Replica) -> SmallPlace:
        self._say(Kind.CREATED, replica)
        return SmallPlace(self.log, replica.block)

    def append(self, block: BlockId, log: ChunkLog, frame: Buffer) -> None:
        """Hand the record of the chunk after `log` to the operating system.

        Raises:
            NoSpaceError: it is more than its writer said; or as the disk says.
        """
        if len(log) or len(frame) > HEADER_BYTES + SMALL_BYTES_MAX:
            raise NoSpaceError(f"block {block} is more than the one short chunk that was announced")
        with self._lock:
            entry = self._entries[block]
            entry.chunk = self.log.append(Kind.CHUNK, block, frame)
            self._count(entry, len(frame))

    def stays(self, files: Stored | None, after: Replica, effect: AdoptLog) -> bool:
        """True if one that is being written is finalized as it is: any other goes to files."""
        entry = self._entries.get(after.block) if isinstance(files, SmallPlace) else None
        finalized = after.registers.state is ReplicaState.FINALIZED
        return entry is not None and not entry.finalized and finalized and not effect.append

    def finalize(self, replica: Replica) -> SmallPlace:
        """Become `replica`, durably, which has the chunk that is here, or none."""
        self.log.begin_segment()
        place = self._say_finalized(replica)
        self.log.sync()
        return place

    def _say_finalized(self, replica: Replica) -> SmallPlace:
        self._say(Kind.FINALIZED, replica)
        return SmallPlace(None, replica.block)

    def _say(self, kind: Kind, replica: Replica) -> None:
        data = describe(replica, self._boot, 0).encode()
        with self._lock:
            entry = self._entries.get(replica.block)
            chunk = entry.chunk if entry is not None and replica.length else _NOWHERE
            payload = _PLACE.pack(*chunk) + data if kind is Kind.FINALIZED else data
            said = self.log.append(kind, replica.block, payload)
            finalized = kind is Kind.FINALIZED
            before = 0 if entry is None else entry.size_bytes
            self._entries[replica.block] = _Entry(said, chunk, before, finalized=finalized)
            self._count(self._entries[replica.block], len(payload))

    def _count(self, entry: _Entry, size_bytes: int) -> None:
        entry.size_bytes += size_bytes
        self._live_bytes += size_bytes

    def forget(self, block: BlockId) -> None:
        """Let it be no more here, durably."""
        self.log.begin_segment()
        with self._lock:
            if block in self._entries:
                self.log.append(Kind.GONE, block)
                self._live_bytes -= self._entries.pop(block).size_bytes
        self.log.sync()

    # -- reading --------------------------------------------------------------------------------

    def read(self, block: BlockId, size_bytes: int, how: Callable[[FileHandle, int, int], T]) -> T:
        """Return what `how`, a method of the disk, reads of so many bytes of its chunk's frame.

        Raises:
            CorruptionError: it has none.
            StorageError: as the disk says.
        """
        return self._where_it_is(
            block, lambda entry: self.log.read(entry.chunk, size_bytes, how), chunk=True
        )

    def frame(self, block: BlockId) -> bytes:
        """Return its chunk's frame.

        Raises:
            CorruptionError: it is damaged, or there is none.
        """
        return self._where_it_is(
            block, lambda entry: self.log.payload(entry.chunk, self._disk.read), chunk=True
        )

    def metadata(self, block: BlockId) -> Metadata:
        """Return what the disk itself says of it.

        Raises:
            CorruptionError: it is damaged, or gone.
        """

        def read(entry: _Entry) -> bytes:
            skipped = _PLACE.size if entry.finalized else 0
            return self.log.payload(entry.said, self._disk.read_stored)[skipped:]

        return decode_metadata(self._where_it_is(block, read), block)

    def _where_it_is(
        self, block: BlockId, read: Callable[[_Entry], T], *, chunk: bool = False
    ) -> T:
        """Return what is read of its records, which may be copied to another place meanwhile."""
        before = _NOWHERE
        while True:
            entry = self._entries.get(block)
            place = _NOWHERE if entry is None else entry.chunk if chunk else entry.said
            if entry is None or place in (_NOWHERE, before):
                raise CorruptionError(f"block {block} is not where the log has it", block=block)
            with contextlib.suppress(SegmentRemoved):
                return read(entry)
            before = place

    # -- room -----------------------------------------------------------------------------------

    def tidy(self) -> None:
        """Mark what is durable, and win back some room if half of the log does not count.

        The oldest segment goes when all that counts in it was copied to the end of the log: a part
        of it with each call, so that no disk is busy with it.

        Raises:
            NoSpaceError: there is no room for the copies.
            StorageError: as the disk says.
        """
        self.log.mark()
        if self._stuck:
            return
        if self._moving is None:
            oldest, lost_bytes = self.log.oldest, self.log.size_bytes - self._live_bytes
            if oldest is None or lost_bytes < max(WORTH_BYTES, WORTH_TIMES * self._live_bytes):
                return
            self._moving = oldest, self.log.records_of(oldest)
        number, records = self._moving
        self.log.begin_segment()
        moved_bytes, more = 0, True
        try:
            while moved_bytes < MOVED_BYTES and more:
                record = next(records, None)
                more = record is not None
                if record is not None:
                    moved = self._move(Position(number, record.offset), record)
                    moved_bytes += max(moved, LOOKED_AT_BYTES)
        except NoSpaceError:
            self._moving = None  # begun again, when there is room
            raise
        except CorruptionError as error:  # a reader or the scrubber finds it
            _log.warning("no room is won back", extra=facts(reason=error))
            self._stuck = True
            return
        self.log.sync()
        if not more:
            self._moving = None
            self.log.remove(number)

    def _move(self, at: Position, record: Record) -> int:
        """Copy a replica's records to the end if this one of them counts; return how many bytes
        that took.

        All that must be read in one order is copied together: a chunk counts only behind what says
        that its replica was created.
        """
        while True:
            entry = self._entries.get(record.block)
            if entry is None or at not in (entry.said, entry.chunk):
                return 0
            said, chunk, finalized = entry.said, entry.chunk, entry.finalized
            data, frame = self.log.payload(said, self._disk.read), b""
            if at == chunk:
                assert record.payload is not None, "a chunk of an old segment is not checked"
                frame = bytes(record.payload)
            elif not finalized and chunk != _NOWHERE:
                frame = self.log.payload(chunk, self._disk.read)
            with self._lock:
                now = self._entries.get(record.block)
                if now is not entry or (entry.said, entry.chunk) != (said, chunk):
                    continue  # a step or a vote came meanwhile
                if not finalized:
                    said = self.log.append(Kind.CREATED, record.block, data)
                if frame:
                    chunk = self.log.append(Kind.CHUNK, record.block, frame)
                if finalized:
                    data = _PLACE.pack(*chunk) + data[_PLACE.size :]
                    said = self.log.append(Kind.FINALIZED, record.block, data)
                entry.said, entry.chunk = said, chunk  # only now: there may be no room for all
            return len(frame) + len(data)
