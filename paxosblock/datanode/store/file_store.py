"""The replicas of one volume as files: `current/`, `rbw/`, `tmp/` (FORMAT.md).

The meta file is the truth about a replica, and a change happens at the instant at which it is
replaced: all that the new one needs is on stable storage before, and is removed after if the new
one does not need it. All methods block; `load.py` understands the files after any interruption.

Every method raises StorageError, after which nothing is known about the volume. NoSpaceError says
that nothing was changed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from paxosblock.base.checksum import Buffer
from paxosblock.base.units import KIB, MIB
from paxosblock.datanode.store.chunk_records import checked
from paxosblock.datanode.store.damaged_file import write_damaged
from paxosblock.datanode.store.disk_format import (
    SHIPPED,
    FetchedChunks,
    Loaded,
    LoadedReplicas,
    Records,
    SmallLimits,
    Stored,
)
from paxosblock.datanode.store.drafts import Drafts
from paxosblock.datanode.store.fetched import FetchedFile
from paxosblock.datanode.store.files_at_rest import FilesAtRest
from paxosblock.datanode.store.layout import (
    CURRENT,
    RBW,
    SPARE,
    TEMPORARY,
    ReplicaFiles,
    by_block,
    copy_of,
    data_name,
    home,
    meta_name,
    own_draft,
)
from paxosblock.datanode.store.load import Parts, load, load_finalized, stored_metadata, wake
from paxosblock.datanode.store.meta import describe
from paxosblock.datanode.store.open_file import OpenFile
from paxosblock.datanode.store.removals import Removals
from paxosblock.datanode.store.small_replicas import SmallPlace, SmallReplicas
from paxosblock.errors import CorruptionError, NoSpaceError, StorageError
from paxosblock.host.disk import (
    Disk,
    FileHandle,
    Room,
    is_gone,
    open_alone,
    opened,
    prove,
    publish_open,
)
from paxosblock.host.kept_room import KeptRoom
from paxosblock.net.wire import HEADER_BYTES, record_start
from paxosblock.protocol.chunk_log import ChunkLog
from paxosblock.protocol.effects import AdoptLog, Effect
from paxosblock.protocol.register import Replica
from paxosblock.protocol.types import FIRST_GENERATION, BlockId, ReplicaState

T = TypeVar("T")

SPARE_BYTES: Final = 8 * MIB
"""Room for two windows of chunks of the default size: one in a draft, one in its block file."""
SPARE_PIECE_BYTES: Final = 256 * KIB


class FileStore:
    """A `ReplicaStore`: the files of one volume's replicas."""

    def __init__(self, disk: Disk, folder: Path, boot: str, limits: SmallLimits = SHIPPED) -> None:
        """`folder` has its sub-folders already; `boot` is the boot id of the machine."""
        self.disk = disk
        self.folder = folder
        self.boot = boot
        self.spare = KeptRoom(disk, folder / SPARE, SPARE_BYTES, SPARE_PIECE_BYTES)
        self.small = SmallReplicas(disk, folder, boot, limits)
        self._homes = {state: folder / home(state) for state in ReplicaState}
        self._temporary = folder / TEMPORARY
        self.removals = Removals(disk, self._temporary)
        self._drafts = Drafts(disk, self._temporary)
        small, removals = self.small, self.removals
        self._parts = Parts(disk, folder, boot, self.spare, small, removals, self.store_metadata)
        self.finalized = FilesAtRest(folder / CURRENT, partial(load_finalized, self._parts))
        self._left: set[Path] = set()
        """Folders in which a power cut may bring back files that `_leave` removed."""
        self._settling = threading.Lock()

    def load(self) -> LoadedReplicas:
        found, alone = load(self._parts)
        self.finalized.expect(alone)
        return found

    def is_unread(self, block: BlockId) -> bool:
        return self.finalized.is_unread(block)

    def first_read(self, blocks: Sequence[BlockId]) -> None:
        self.finalized.read(blocks)

    def take_read_bytes(self) -> int:
        return self.finalized.take_read_bytes()

    def rests(self, block: BlockId, files: Stored) -> bool:
        small = isinstance(files, SmallPlace)
        return self.small.rests(block) if small else self.finalized.rests(block)

    def wake(self, block: BlockId) -> Loaded:
        return wake(self.small, block) if self.small.rests(block) else self.finalized.wake(block)

    def tidy(self) -> None:
        self.small.tidy()

    def close(self) -> None:
        self.small.log.records.close()

    def room(self) -> Room:
        self.spare.keep()
        return self.disk.room(self.folder)

    def keep_damaged(self, damaged: Mapping[BlockId, Stored]) -> None:
        write_damaged(self.disk, self.folder, {each: copy_of(at) for each, at in damaged.items()})

    def prove(self, name: str) -> None:
        prove(self.disk, self._temporary / name)

    def with_spare(self, step: Callable[[], T]) -> T:
        return self.spare.retried(step)

    def size_bytes(self, log: ChunkLog) -> int:
        return log.size_bytes + len(log) * HEADER_BYTES

    def draft(self, block: BlockId, first: int) -> FetchedFile:
        return FetchedFile(self.disk, self._temporary, block, first)

    def say(self, files: Stored | None, effect: Effect, after: Replica) -> Stored | None:
        return self.small.say(files, effect, after)

    def create(self, replica: Replica, *, small: bool = False) -> Stored:
        """Make an empty replica, durably: a new one (D1), or a promise (D3)."""
        if small:
            return self.small.create(replica)
        if replica.registers.max_generation == FIRST_GENERATION:
            return self._create(replica)
        return self.spare.retried(lambda: self._create(replica))

    def _create(self, replica: Replica) -> ReplicaFiles:
        path = self._data_path(replica, 0)
        handle = self.disk.create(path)
        try:
            # Its name first: a meta file without a block file means that data was lost.
            self.disk.sync_folder(path.parent)
            self._publish(replica, 0)
        except NoSpaceError:
            self.disk.close(handle)
            self.disk.remove(path)
            raise
        return ReplicaFiles(OpenFile(self.disk, handle), path.parent, path.name, 0)

    def append(self, files: Stored, log: ChunkLog, frame: Buffer) -> None:
        if isinstance(files, SmallPlace):
            self.small.append(files.block, log, frame)
            return
        file, position = files.file, self.size_bytes(log)
        assert file is not None, "a replica that takes writes has its file open"
        try:
            file.write(frame, position)
        except NoSpaceError:
            self.disk.truncate(file.handle, position)
            raise

    def sync(self, files: Stored) -> None:
        if files.file is not None:
            files.file.sync()
            return
        if isinstance(files, SmallPlace):
            self.small.log.sync()
            return
        with opened(self.disk, _ours(files).path) as handle:
            self.disk.sync(handle)

    def store_metadata(self, files: Stored, replica: Replica) -> ReplicaFiles:
        """Replace the metadata, durably; on a full disk the spare gives its room."""
        if isinstance(files, SmallPlace):
            place = files
            return self.spare.retried(lambda: self._move_out(place, replica))
        ours = _ours(files)
        self.spare.retried(lambda: self._publish(replica, ours.copy))
        return ours

    def _move_out(self, place: SmallPlace, replica: Replica) -> ReplicaFiles:
        files = self._unpacked(place, replica.log, replica)
        try:
            self._publish(replica, files.copy)
        except NoSpaceError:
            self._discard(files)
            raise
        self._forget(place.block)
        if _writable(replica) or files.file is None:
            return files
        files.file.retire()
        return replace(files, file=None)

    def _unpacked(self, place: SmallPlace, log: ChunkLog, after: Replica) -> ReplicaFiles:
        """Give a small replica with `log` a block file, durably, in the place of `after`.

        The file counts once there is metadata beside it; until then the log counts (`load.py`).
        """
        block = place.block
        frame = self.small.frame(block) if len(log) else b""
        checked(block, log, range(len(log)), frame)
        path = self._data_path(after, 0)
        handle = publish_open(self.disk, own_draft(self.folder, path), path, [frame])
        return ReplicaFiles(OpenFile(self.disk, handle), path.parent, path.name, 0)

    def _discard(self, files: ReplicaFiles) -> None:
        """Remove a block file that no metadata names."""
        assert files.file is not None, "it was just made"
        files.file.retire()
        self.disk.remove(files.path)

    def _forget(self, block: BlockId) -> None:
        """Remove a replica from the log, before its files are removed: they count until then.

        Raises:
            StorageError: not even the spare had the room; its files are there already.
        """
        try:
            self.spare.retried(lambda: self.small.forget(block))
        except NoSpaceError as error:
            raise StorageError(f"cannot move block {block}: {error}") from error

    def adopt(
        self, files: Stored | None, after: Replica, effect: AdoptLog, draft: FetchedChunks | None
    ) -> Stored:
        assert draft is None or isinstance(draft, FetchedFile), "it is one of this store"
        if isinstance(files, SmallPlace):
            return self._adopt_small(files, after, effect, draft)
        if files is None or (effect.keep == 0 and effect.append):
            old = None if files is None else _ours(files)
            return self._adopt_copy(old, after, draft, 0 if old is None else old.copy + 1)
        ours = _ours(files)
        return self.spare.retried(lambda: self._adopt_in_place(ours, after, effect, draft))

    def drop(self, files: Stored, replica: Replica) -> None:
        if isinstance(files, SmallPlace):
            self.spare.retried(lambda: self.small.forget(replica.block))
            return
        path = _ours(files).path
        self.finalized.forget(replica.block)
        # The meta file first: a start removes a block file without one.
        self._remove(self._meta_path(replica))
        self._settle(self._meta_path(replica).parent)
        self.removals.take(path, self.size_bytes(replica.log))

    def purge(self, block: BlockId, kept: Stored | None = None) -> None:
        if block in self.small and not isinstance(kept, SmallPlace):
            self.spare.retried(lambda: self.small.forget(block))
        if kept is None:
            self.finalized.forget(block)
        own = kept.path if isinstance(kept, ReplicaFiles) else None
        copy = () if own is None else (own, own.parent / meta_name(block))
        for folder in (self.folder / RBW, self.folder / CURRENT):
            found = by_block(self.disk, folder).get(block)
            if found is not None:
                for path in found.paths:
                    if path not in copy:
                        self.disk.remove(path)
                self.disk.sync_folder(folder)
        self._settle()

    def open(self, files: Stored) -> OpenFile:
        if isinstance(files, SmallPlace):
            return self.small.log
        return OpenFile(self.disk, self.disk.open(_ours(files).path))

    def lend(self, files: Stored) -> FileHandle | None:
        if isinstance(files, SmallPlace):
            return None
        return self.disk.open_to_read(_ours(files).path)

    def take_back(self, file: FileHandle) -> None:
        self.disk.close(file)

    def read(
        self, file: OpenFile, block: BlockId, log: ChunkLog, chunks: range, into: memoryview
    ) -> Records:
        def how(handle: FileHandle, _: int, position: int) -> int:
            return self.disk.read_into(handle, into, position)

        return checked(block, log, chunks, into[: self._read(how, file, block, log, chunks)])

    def read_cached(
        self, file: OpenFile, block: BlockId, log: ChunkLog, chunks: range, into: memoryview
    ) -> Records | None:
        def how(handle: FileHandle, _: int, position: int) -> bool:
            return self.disk.read_cached(handle, into, position)

        is_whole = self._read(how, file, block, log, chunks)
        return checked(block, log, chunks, into) if is_whole else None

    def read_stored(self, file: OpenFile, block: BlockId, log: ChunkLog, chunks: range) -> Records:
        records = self._read(self.disk.read_stored, file, block, log, chunks)
        return checked(block, log, chunks, records)

    def _read(
        self,
        how: Callable[[FileHandle, int, int], T],
        file: OpenFile,
        block: BlockId,
        log: ChunkLog,
        chunks: range,
    ) -> T:
        """Return what `how`, a method of the disk, makes of the records of `chunks`."""
        size_bytes, start = self.size_of(log, chunks), record_start(log, chunks.start)
        if file is self.small.log:
            return self.small.read(block, size_bytes, how)
        return how(file.handle, size_bytes, start)

    def check_metadata(self, files: Stored, replica: Replica) -> None:
        if isinstance(files, SmallPlace):
            found = self.small.metadata(replica.block)
        else:
            found = stored_metadata(self.disk, replica.block, self._meta_path(replica))
        if found != describe(replica, found.boot, copy_of(files)):
            what = f"metadata of block {replica.block} is not what was written"
            raise CorruptionError(what, block=replica.block)

    def read_part(
        self, file: OpenFile, log: ChunkLog, index: int, start: int, into: memoryview
    ) -> bool:
        position = record_start(log, index) + HEADER_BYTES + start
        return file is not self.small.log and self.disk.read_cached(file.handle, into, position)

    def size_of(self, log: ChunkLog, chunks: range) -> int:
        return record_start(log, chunks.stop) - record_start(log, chunks.start)

    # -- adopting -------------------------------------------------------------------------------

    def _adopt_small(
        self, place: SmallPlace, after: Replica, effect: AdoptLog, draft: FetchedFile | None
    ) -> Stored:
        """Keep a small replica that is finalized as it is in the log; move any other to files."""
        if self.small.stays(place, after, effect):
            return self.spare.retried(lambda: self.small.finalize(after))
        if effect.keep == 0 and effect.append:
            copied = self._adopt_copy(None, after, draft, copy_of(place) + 1)
            self._forget(place.block)
            return copied

        def move_out() -> ReplicaFiles:
            files = self._unpacked(place, after.log.truncate(effect.keep), after)
            try:
                return self._adopt_in_place(files, after, effect, draft)
            except NoSpaceError:
                self._discard(files)
                raise

        moved = self.spare.retried(move_out)
        self._forget(place.block)
        return moved

    def _adopt_copy(
        self, files: ReplicaFiles | None, after: Replica, draft: FetchedFile | None, copy: int
    ) -> ReplicaFiles:
        """Adopt a full copy: a new block file beside the old one, until the metadata names it."""
        path = self._data_path(after, copy)
        # By a rename: a dead replica's file may have this name, and a snapshot may share it.
        handle = (draft or self.draft(after.block, 0)).become(path)
        self.disk.sync_folder(path.parent)
        try:
            self._publish(after, copy)
        except NoSpaceError:
            self.disk.close(handle)
            self.disk.remove(path)
            raise
        if files is not None:
            self._remove(files.path)
            self._leave(files.path.parent, after)
        kept = self._kept_open(after, OpenFile(self.disk, handle))
        return ReplicaFiles(kept, path.parent, path.name, copy)

    def _adopt_in_place(
        self, files: ReplicaFiles, after: Replica, effect: AdoptLog, draft: FetchedFile | None
    ) -> ReplicaFiles:
        before, path = files.path, self._data_path(after, files.copy)
        file = files.file or self._existing(before)
        own, moves = file is not files.file, before != path
        try:
            self._extend(file, after, effect, draft)
            if files.folder.name == RBW:  # a finalized file is on the disk
                file.sync()
            self._publish(after, files.copy, (before, path) if moves else None)
        except NoSpaceError:
            if effect.append:
                self.disk.truncate(file.handle, record_start(after.log, effect.keep))
            if own:
                file.retire()
            raise
        # Only now: the chunks beyond may be acknowledged ones until this log is accepted.
        end = record_start(after.log, after.length)
        if self.disk.size(file.handle) != end:
            self.disk.truncate(file.handle, end)
        if moves:
            self._leave(files.folder, after)
        kept = self._kept_open(after, file) if own else file if _writable(after) else None
        return ReplicaFiles(kept, path.parent, path.name, files.copy)

    def _existing(self, path: Path) -> OpenFile:
        try:
            return OpenFile(self.disk, open_alone(self.disk, path, own_draft(self.folder, path)))
        except StorageError as error:
            if is_gone(error):
                raise CorruptionError(str(error)) from error
            raise

    def _extend(
        self, file: OpenFile, after: Replica, effect: AdoptLog, draft: FetchedFile | None
    ) -> None:
        """Append the draft's chunks from `keep` on, at most a window of them unsynced.

        They are beyond the chunks that the metadata counts as stored, so a torn one must look like
        a torn write of the writer (`records.scan`).
        """
        if not effect.append:
            return
        assert draft is not None, "chunks are adopted from a draft"
        step = max(after.registers.window, 1)
        for start in range(effect.keep, after.length, step):
            records = draft.read(start, min(start + step, after.length))
            file.write(records, record_start(after.log, start))
            file.sync()

    def _leave(self, folder: Path, after: Replica) -> None:
        """Remove the replica's files from the folder it was in.

        No step waits for that: if a power cut brings them back, the later metadata counts.
        """
        if folder != self._homes[after.registers.state]:
            self._drafts.take(folder / meta_name(after.block))
        self._left.add(folder)

    def _settle(self, *folders: Path) -> None:
        """Make removals in `folders` durable, and those of `_leave` in any folder: a replica that
        is deleted has no later metadata."""
        with self._settling:
            for folder in tuple(self._left):
                self._left.discard(folder)  # before the sync: `_leave` may add it again meanwhile
                self.disk.sync_folder(folder)
        for folder in folders:
            self.disk.sync_folder(folder)

    def _kept_open(self, after: Replica, file: OpenFile) -> OpenFile | None:
        if _writable(after):
            return file
        file.retire()
        return None

    def _remove(self, path: Path) -> None:
        """Remove the name, unless it is gone already: a replica may be dead because of that."""
        try:
            self.disk.remove(path)
        except StorageError as error:
            if not is_gone(error):
                raise

    # -- names ----------------------------------------------------------------------------------

    def _publish(self, replica: Replica, copy: int, moves: tuple[Path, Path] | None = None) -> None:
        """Replace the metadata, durably: the instant at which a change has happened.

        `moves` of a block file is as in `disk.publish`; a start finds it wherever a crash left it.
        """
        data = describe(replica, self.boot, copy).encode()
        self._drafts.publish(self._meta_path(replica), data, moves)
        self.finalized.note(replica, copy)

    def _meta_path(self, replica: Replica) -> Path:
        return self._homes[replica.registers.state] / meta_name(replica.block)

    def _data_path(self, replica: Replica, copy: int) -> Path:
        now = replica.registers
        return self._homes[now.state] / data_name(replica.block, now.epoch, copy)


def _ours(files: Stored) -> ReplicaFiles:
    assert isinstance(files, ReplicaFiles), "it is one of this store"
    return files


def _writable(replica: Replica) -> bool:
    return home(replica.registers.state) == RBW
