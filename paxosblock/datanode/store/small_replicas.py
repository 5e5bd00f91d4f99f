"""The small replicas of a volume, which share a log in place of files of their own (FORMAT.md 8).

A writer that will send one short chunk says so in its Create (PROTOCOL.md, D1). Such a replica is a
few records: that it was created, its chunk, that it is finalized. Anything else happens to few
replicas, and first moves the replica to files of its own (`FileStore`); it never comes back.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from msgspec.structs import replace

from paxosblock.base.checksum import Buffer
from paxosblock.datanode.store.disk_format import SHIPPED, Forgot, SmallLimits, Stored
from paxosblock.datanode.store.layout import SMALL
from paxosblock.datanode.store.meta import Metadata, decode_metadata, describe
from paxosblock.datanode.store.small_index import (
    NOWHERE,
    PLACE,
    Index,
    Row,
    created_row,
    decode_row,
    decode_sizes,
    finalized_row,
    read_finalized,
)
from paxosblock.datanode.store.small_log import NO_BLOCK, NONE, SmallLog
from paxosblock.datanode.store.small_records import RecordKind, SmallRecord
from paxosblock.errors import ConfigError, CorruptionError, NoSpaceError, StorageError
from paxosblock.host.disk import Disk, FileHandle
from paxosblock.host.logs import facts
from paxosblock.journal.record_log import RecordPosition, SegmentRemoved
from paxosblock.journal.segment import RECORD_BYTES
from paxosblock.net.wire import HEADER_BYTES, Header
from paxosblock.protocol.chunk_log import ChunkLog
from paxosblock.protocol.effects import AdoptLog, Effect, StoreMetadata
from paxosblock.protocol.register import Replica
from paxosblock.protocol.types import SMALL_BYTES_MAX, BlockId, ReplicaState

LOOKED_AT_BYTES: Final = 256
"""Looking at a record that does not count costs as much as copying so many bytes."""
_log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class SmallPlace(Stored):
    """A replica in the log. While the replica is being written, `file` is the log."""

    block: BlockId


@dataclass(frozen=True, slots=True)
class SmallLoaded:
    """A replica that is not at rest, as the start found it; without metadata it is dead."""

    block: BlockId
    metadata: Metadata | None
    corrupt: str = ""


class SmallReplicas:
    """The small replicas of one volume. All methods but `append`, `stays`, `say`, `rests` and
    `at_rest` block."""

    def __init__(self, disk: Disk, folder: Path, boot: str, limits: SmallLimits = SHIPPED) -> None:
        """`folder` is the volume's; call `load` first."""
        self.log = SmallLog(disk, folder / SMALL, boot, limits)
        self.forgot: Forgot | None = None
        """The losses of the log; None: there were none."""
        self._disk = disk
        self._boot = boot
        self._rows: dict[BlockId, bytes] = {}
        """The row of each replica, encoded."""
        self._live_bytes = 0
        self._lock = threading.Lock()
        """Held while a record is chosen and appended, so that `tidy` copies none meanwhile."""
        self._unindexed_from = 1
        """Every whole segment below this number has its index, or cannot be read."""
        self._moving: tuple[int, Iterator[SmallRecord]] | None = None
        self._stuck = False

    def __contains__(self, block: BlockId) -> bool:
        return block in self._rows

    def __iter__(self) -> Iterator[BlockId]:
        return iter(tuple(self._rows))

    def _row(self, block: BlockId) -> Row | None:
        data = self._rows.get(block)
        return None if data is None else decode_row(data)

    def _keep(self, block: BlockId, row: Row) -> None:
        self._live_bytes += row.live_bytes - self._live_bytes_of(block)
        self._rows[block] = row.encode()

    def _live_bytes_of(self, block: BlockId) -> int:
        data = self._rows.get(block)
        return 0 if data is None else decode_sizes(data).live_bytes

    # -- the start ------------------------------------------------------------------------------

    def load(self, forgot: Forgot | None = None) -> list[SmallLoaded]:
        """Find every replica; return those that are not at rest. It writes nothing but indexes.

        `forgot` is what an earlier start has found; what this one finds is in `self.forgot`.

        Raises:
            ConfigError: a later version wrote the log.
            StorageError: the log is damaged, or as the disk says.
        """
        said: dict[BlockId, bytes | None] = {}
        torn: set[BlockId] = set()
        known = Forgot(NO_BLOCK, NONE) if forgot is None else forgot
        doubted = NONE
        try:
            for number in self.log.open(known.through):
                doubted = self._doubt(doubted, known, number, said)
                index = self.log.index_of(number) or self.log.made_index(number)
                self._apply(number, index, said, torn)
                self._unindexed_from = number + 1
            doubted = self._doubt(doubted, known, self.log.records.last, said)
            for record in self.log.last_records():
                self._replay(self.log.records.last, record, said, torn)
            self._doubt(doubted, known, self.log.records.last + 1, said)
        except CorruptionError as error:  # it is not known which blocks are lost
            raise StorageError(str(error)) from error
        self.log.records.highest = max(self.log.records.highest, max(self._rows, default=NO_BLOCK))
        self.forgot = forgot
        if self.log.lost_through != NONE:
            up_to = max(known.up_to, BlockId(self.log.records.highest))
            self.forgot = Forgot(up_to, max(known.through, self.log.lost_through))
        self._live_bytes = sum(decode_sizes(each).live_bytes for each in self._rows.values())
        return [self._loaded(block, data, block in torn) for block, data in said.items()]

    def _doubt(
        self, doubted: int, known: Forgot, following: int, said: dict[BlockId, bytes | None]
    ) -> int:
        """Behind the last segment that lost records, forget the replicas that are not at rest: a
        vote of theirs may be among those records. Then the rule for blocks that have nothing here
        holds for them (D11).

        Segments before `following` were replayed; up to `doubted` this was done. Return how far it
        is now.
        """
        through = max(known.through, self.log.lost_through)
        if not doubted < through < following:
            return doubted
        self.log.records.highest = max(self.log.records.highest, max(said, default=NO_BLOCK))
        for block in said:
            self._rows.pop(block, None)
        said.clear()
        return through

    def _apply(
        self, number: int, index: Index, said: dict[BlockId, bytes | None], torn: set[BlockId]
    ) -> None:
        for block in index.gone:
            self._rows.pop(block, None)
            said.pop(block, None)
        self._rows.update(index.finalized)
        for block in said.keys() & index.finalized.keys():
            del said[block]
        for kind, block, offset, size in index.others:
            payload: memoryview | None = memoryview(b"")
            if kind is not RecordKind.CHUNK:  # `_replay` does not look into a chunk
                payload = self._payload(RecordPosition(number, offset))
            self._replay(number, SmallRecord(kind, block, offset, payload, size), said, torn)

    def _payload(self, at: RecordPosition) -> memoryview | None:
        try:
            return memoryview(self.log.records.payload(at, self._disk.read))
        except CorruptionError:
            return None

    def _replay(
        self,
        segment: int,
        record: SmallRecord,
        said: dict[BlockId, bytes | None],
        torn: set[BlockId],
    ) -> None:
        """Apply a record. `said` gets the metadata of replicas that are not at rest, `torn` the
        replicas whose chunk is damaged."""
        block, at, payload = record.block, RecordPosition(segment, record.offset), record.payload
        known = self._row(block)
        match record.kind:
            case RecordKind.CREATED:  # if the replica is known, it is a copy of its first record
                chunk = NOWHERE if known is None else known.chunk
                self._rows[block] = created_row(at, chunk, record.size).encode()
                said[block] = None if payload is None else bytes(payload)
            case RecordKind.FINALIZED:
                row = read_finalized(at, record)
                self._rows[block] = row.encode()
                if row.registers is not None:
                    said.pop(block, None)
                else:
                    said[block] = None if payload is None else bytes(payload[PLACE.size :])
            case RecordKind.CHUNK if known is not None:
                self._rows[block] = _with_chunk(known, at, record.size).encode()
                if payload is None:
                    torn.add(block)
            case RecordKind.GONE:
                self._rows.pop(block, None)
                said.pop(block, None)
                torn.discard(block)
            case _:
                pass

    def _loaded(self, block: BlockId, said: bytes | None, torn: bool) -> SmallLoaded:
        if said is None:
            return SmallLoaded(block, None, f"metadata of block {block} is damaged")
        try:
            metadata = decode_metadata(said, block)
        except (CorruptionError, ConfigError) as error:  # its checksum is right
            return SmallLoaded(block, None, str(error))
        row = self._row(block)
        if row is None or row.finalized:
            return SmallLoaded(block, None, f"metadata of block {block} contradicts itself")
        lost = f"the chunk of block {block}, which this replica voted for, is damaged"
        return SmallLoaded(block, metadata, lost if torn else "")

    def log_of(self, block: BlockId) -> ChunkLog:
        """Return the log of a replica that is being written, as its chunk's header has it."""
        row = self._row(block)
        if row is None or row.chunk == NOWHERE:
            return ChunkLog()
        header = Header.unpack(self.frame(block))
        return ChunkLog().append(header.payload_length, header.payload_crc)

    # -- replicas at rest -----------------------------------------------------------------------

    def rests(self, block: BlockId) -> bool:
        """True if the block is finalized here, so that `at_rest` returns all there is to know."""
        row = self._row(block)
        return row is not None and row.registers is not None

    def at_rest(self, block: BlockId) -> Replica:
        """Return a replica that rests."""
        row = self._row(block)
        registers = None if row is None else row.its_registers()
        assert row is not None
        assert registers is not None, "it rests"
        return Replica(block, registers, ChunkLog.from_bytes(row.chunks))

    def frame_bytes(self, blocks: Iterable[BlockId]) -> int:
        """Return how many bytes the frames of these replicas take."""
        return sum(decode_sizes(self._rows[block]).frame_bytes for block in blocks)

    # -- steps ----------------------------------------------------------------------------------

    def create(self, replica: Replica) -> SmallPlace:
        """Make a replica without chunks, durably."""
        self.log.begin_segment()
        place = self._say_created(replica)
        self.log.records.sync()
        return place

    def say(self, files: Stored | None, effect: Effect, after: Replica) -> SmallPlace | None:
        """Append the one record that makes `effect` happen; see `ReplicaStore.say`."""
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
        self._say(RecordKind.CREATED, replica)
        return SmallPlace(self.log, replica.block)

    def append(self, block: BlockId, log: ChunkLog, frame: Buffer) -> None:
        """Hand the record of the chunk after `log` to the operating system.

        Raises:
            NoSpaceError: it is more than its writer announced; or as the disk says.
        """
        if len(log) or len(frame) > HEADER_BYTES + SMALL_BYTES_MAX:
            raise NoSpaceError(f"block {block} is more than the one short chunk that was announced")
        with self._lock:
            row = self._row(block)
            assert row is not None, "it was created"
            at = self.log.records.append(RecordKind.CHUNK, block, frame)
            self._keep(block, _with_chunk(row, at, len(frame)))

    def stays(self, files: Stored | None, after: Replica, effect: AdoptLog) -> bool:
        """True if `effect` finalizes a replica that is being written here as it is; any other
        effect moves it to files."""
        row = self._row(after.block) if isinstance(files, SmallPlace) else None
        finalized = after.registers.state is ReplicaState.FINALIZED
        return row is not None and not row.finalized and finalized and not effect.append

    def finalize(self, replica: Replica) -> SmallPlace:
        """Finalize as `replica`, durably, which has the chunk that is here, or none."""
        self.log.begin_segment()
        place = self._say_finalized(replica)
        self.log.records.sync()
        return place

    def _say_finalized(self, replica: Replica) -> SmallPlace:
        self._say(RecordKind.FINALIZED, replica)
        return SmallPlace(None, replica.block)

    def _say(self, kind: RecordKind, replica: Replica) -> None:
        block, metadata = replica.block, describe(replica, self._boot, 0)
        payload = metadata.encode()
        with self._lock:
            known = self._row(block)
            chunk = known.chunk if known is not None and replica.length else NOWHERE
            if kind is RecordKind.FINALIZED:
                payload = PLACE.pack(*chunk) + payload
            said = self.log.records.append(kind, block, payload)
            if kind is RecordKind.FINALIZED:
                self._keep(block, finalized_row(said, chunk, len(payload), metadata))
            else:
                self._keep(block, created_row(said, chunk, len(payload)))

    def forget(self, block: BlockId) -> None:
        """Note that the block is no longer in the log, durably."""
        self.log.begin_segment()
        with self._lock:
            if block in self._rows:
                self.log.records.append(RecordKind.GONE, block)
                self._live_bytes -= self._live_bytes_of(block)
                del self._rows[block]
        self.log.records.sync()

    # -- reading --------------------------------------------------------------------------------

    def read(self, block: BlockId, size_bytes: int, how: Callable[[FileHandle, int, int], T]) -> T:
        """Read `size_bytes` of the frame of the block's chunk by `how`, a method of the disk.

        Raises:
            CorruptionError: it has no chunk.
            StorageError: as the disk says.
        """
        return self._where_it_is(
            block, lambda row: self.log.records.read(row.chunk, size_bytes, how), chunk=True
        )

    def frame(self, block: BlockId) -> bytes:
        """Return the frame of the block's chunk.

        Raises:
            CorruptionError: it is damaged, or there is none.
        """
        return self._where_it_is(
            block, lambda row: self.log.records.payload(row.chunk, self._disk.read), chunk=True
        )

    def metadata(self, block: BlockId) -> Metadata:
        """Return the block's metadata, read from the disk itself.

        Raises:
            CorruptionError: it is damaged, or gone.
        """

        def read(row: Row) -> bytes:
            skipped = PLACE.size if row.finalized else 0
            return self.log.records.payload(row.said, self._disk.read_stored)[skipped:]

        return decode_metadata(self._where_it_is(block, read), block)

    def _where_it_is(self, block: BlockId, read: Callable[[Row], T], *, chunk: bool = False) -> T:
        """Return what `read` reads of the block's records, which `tidy` may move meanwhile."""
        before = NOWHERE
        while True:
            row = self._row(block)
            place = NOWHERE if row is None else row.chunk if chunk else row.said
            if row is None or place in (NOWHERE, before):
                raise CorruptionError(f"block {block} is not where the log has it", block=block)
            with contextlib.suppress(SegmentRemoved):
                return read(row)
            before = place

    # -- room -----------------------------------------------------------------------------------

    def tidy(self) -> None:
        """Mark what is durable, write an index, and win back some room if half of the log does not
        count.

        The oldest segment is removed when all that counts in it was copied to the end of the log.
        Each call copies only a part of it, so that the disk is not busy with it for long.

        Raises:
            NoSpaceError: there is no room for the copies.
            StorageError: as the disk says.
        """
        limits = self.log.limits
        self.log.records.mark()
        self.log.records.close_removed()
        whole = self.log.records.whole
        self._keep_index(whole)
        if self._stuck:
            return
        if self._moving is None:
            size_bytes = self.log.records.size_bytes
            lost_bytes = size_bytes - self._live_bytes
            if not whole or lost_bytes < max(limits.worth_bytes, limits.worth_share * size_bytes):
                return
            lost_some = self.forgot is not None and whole[0] <= self.forgot.through
            lost = (lambda _: None) if lost_some else None
            self._moving = whole[0], self.log.records_of(whole[0], lost)
        number, records = self._moving
        self.log.begin_segment()
        moved_bytes, more = 0, True
        try:
            while moved_bytes < limits.moved_bytes and more:
                record = next(records, None)
                more = record is not None
                if record is not None:
                    moved = self._move(RecordPosition(number, record.offset), record)
                    moved_bytes += max(moved, LOOKED_AT_BYTES)
        except NoSpaceError:
            self._moving = None  # a later call begins again, when there is room
            raise
        except CorruptionError as error:  # a reader or the scrubber finds it
            _log.warning("no room is won back", extra=facts(reason=error))
            self._stuck = True
            return
        self.log.records.sync()
        if not more:
            self._moving = None
            self.log.remove(number)

    def _keep_index(self, whole: list[int]) -> None:
        """Write the index of one segment that has none yet."""
        number = next((each for each in whole if each >= self._unindexed_from), None)
        if number is not None:
            self._unindexed_from = number + 1
            try:
                self.log.keep_index(number)
            except CorruptionError as error:  # memory has its rows as long as this process lives
                _log.error("segment is damaged", extra=facts(reason=error))

    def _move(self, at: RecordPosition, record: SmallRecord) -> int:
        """Copy a replica's records to the end if this one of them counts; return how many bytes
        that took.

        Records whose order matters are copied together: a chunk counts only behind the record that
        its replica was created.
        """
        block = record.block
        while True:
            before, row = self._rows.get(block), self._row(block)
            if row is None or at not in (row.said, row.chunk):
                return 0
            said, chunk = row.said, row.chunk
            data, frame = self.log.records.payload(said, self._disk.read), b""
            if at == chunk:
                assert record.payload is not None, "a chunk of an old segment is not checked"
                frame = bytes(record.payload)
            elif not row.finalized and chunk != NOWHERE:
                frame = self.log.records.payload(chunk, self._disk.read)
            with self._lock:
                if self._rows.get(block) != before:
                    continue  # a step or a vote came meanwhile
                if not row.finalized:
                    said = self.log.records.append(RecordKind.CREATED, block, data)
                if frame:
                    chunk = self.log.records.append(RecordKind.CHUNK, block, frame)
                if row.finalized:
                    data = PLACE.pack(*chunk) + data[PLACE.size :]
                    said = self.log.records.append(RecordKind.FINALIZED, block, data)
                # Only now: there may be no room for all.
                self._keep(block, replace(row, said=said, chunk=chunk))
            return len(frame) + len(data)


def _with_chunk(row: Row, at: RecordPosition, frame_bytes: int) -> Row:
    """Return the row with its chunk at `at`."""
    if row.finalized or row.chunk != NOWHERE:
        return replace(row, chunk=at)  # a copy
    return replace(row, chunk=at, live_bytes=row.live_bytes + RECORD_BYTES + frame_bytes)
