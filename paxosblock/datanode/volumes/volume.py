"""One volume: a folder with an identity, its store and its threads, used until it fails.

A volume that fails an operation is not used again: after a failed `fdatasync` the system may have
dropped what it could not write, and a second one would succeed. Only its own replicas are lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from paxosblock.api.reports import StorageReport
from paxosblock.datanode.store.disk_format import (
    SHIPPED,
    LoadedReplicas,
    ReplicaStore,
    SmallLimits,
    Stored,
)
from paxosblock.datanode.store.file_store import FileStore
from paxosblock.datanode.store.identity import (
    VERSION,
    Identity,
    begin_small,
    check_node_id,
    enter_cluster,
    give_identity,
    read_identity,
    take_in,
)
from paxosblock.datanode.store.layout import LOCK, SMALL, holds_blocks, make_folders
from paxosblock.datanode.store.open_file import OpenFile
from paxosblock.datanode.volumes.group_commit import Done, GroupCommit
from paxosblock.datanode.volumes.hung_disk import Standstill, answers, hangs
from paxosblock.datanode.volumes.volume_snapshot import is_kept, settle
from paxosblock.datanode.volumes.write_out import WriteOut
from paxosblock.errors import (
    ConfigError,
    CorruptionError,
    NoSpaceError,
    PaxosBlockError,
    StorageError,
)
from paxosblock.host.descriptors import scarce
from paxosblock.host.disk import Disk, FileHandle, Room, blamed, is_shortage
from paxosblock.host.logs import facts
from paxosblock.protocol.effects import Effect
from paxosblock.protocol.register import Replica
from paxosblock.protocol.types import BlockId, StorageId

P = ParamSpec("P")
T = TypeVar("T")

STEP_THREADS: Final = 16
"""Threads for control steps: so many steps of small replicas can share one sync of their log."""
PROBE: Final = "probe"
"""The temporary file that tests if the disk works."""
ASKED: Final = "asked"
"""The temporary file by which the disk is asked if it answers."""
QUIET_S: Final = 0.05
"""Seconds without use after which a volume is at rest."""
SERVED_S: Final = 1.0
"""Seconds after its last chunk for which a client still counts: a writer comes back with the next
block but one, and must not find copies at their full pace."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Scrubbed:
    """The scrubber's work on a volume since the process began, and when its last pass ended."""

    read_bytes: int = 0
    damaged: int = 0
    whole_ms: int = 0
    """Unix time in milliseconds at which every replica had been read; 0: never."""
    ends_ms: int = 0
    """Unix time in milliseconds at which the pass under way ends at its pace so far; 0: none is, or
    it has read nothing yet."""


class Volume:
    """A storage that is open: locked, identified and, until it fails, used."""

    def __init__(
        self,
        disk: Disk,
        folder: Path,
        identity: Identity,
        lock: FileHandle,
        *,
        boot: str,
        sync_threads: int,
        limits: SmallLimits,
    ) -> None:
        """Use `open_volume`."""
        self.disk = disk
        self.folder = folder
        self.identity = identity
        self.storage: StorageId = identity.storage
        self.store: ReplicaStore = FileStore(disk, folder, boot, limits)
        self.failed = ""
        """The reason why it is no longer used, with its folder; "" while it is used."""
        self.over = asyncio.Event()
        """Set when it has failed."""
        self.deleted = asyncio.Event()
        """Set when a replica was deleted, so that the remover gives its room back."""
        self.unread: Sequence[BlockId] = ()
        """Replicas that the start found without reading them, until all were read."""
        self.all_read = asyncio.Event()
        """Set when that is so, or it has failed."""
        self.used_bytes = 0
        """Bytes that the block files of replicas that were read take; the blocks keep it right
        (`Block.changed`)."""
        self.open_count = 0
        """Replicas that are being written; the blocks keep it right, too."""
        self.hung = ""
        """The reason why the heartbeat calls it failed while it does not answer; "" while it does.
        Kept by `DiskProbe`."""
        self.doubted = False
        """True if something on it could not be read: the next look tests if it still works."""
        self.scrubbed = Scrubbed()
        """Kept by the scrubber."""
        self.on_failure: Callable[[Volume], None] = lambda _: None
        self._has_snapshot = False
        self._closing = False
        self._lock = lock
        self._loop = asyncio.get_running_loop()
        self._damaged: dict[BlockId, Stored] = {}
        self._damaged_kept: dict[BlockId, Stored] = {}
        self._keeping_damaged = threading.Lock()
        self._under_way = 0
        self._touched_s = -QUIET_S
        self._served_s = -SERVED_S
        # Besides the syncs there must be threads for control steps, reads, the scrubber, write-out.
        threads = sync_threads + STEP_THREADS
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=folder.name)
        self._kernel = disk.kernel_syncs()
        self.commit = GroupCommit(self._threads, sync_threads, self._kernel)
        self._writing_out = GroupCommit(self._threads, 1, step=OpenFile.write_out)
        self.write_out = WriteOut(self._writing_out, self.fail)
        self._asking = ThreadPoolExecutor(1, thread_name_prefix=f"ask-{folder.name}")
        self._standstill = Standstill(self._loop.time, self._ended_syncs, self._ask)

    def __repr__(self) -> str:
        return f"<Volume {self.folder} {self.storage}{' failed' if self.failed else ''}>"

    async def run(self, step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking step in a thread of this volume.

        Raises:
            NoSpaceError: the volume is full, but still used.
            StorageError: the volume has failed, now or before.
            Anything else that `step` raises.
        """
        try:
            done = await self.run_read(step, *args, **kwargs)
        except NoSpaceError:
            raise
        except StorageError as error:
            self.fail(error)
            raise
        # After a failed sync that of this step succeeds, without the bytes that the first dropped.
        self.check()
        return done

    async def run_read(self, step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Like `run` for a step that only reads: one unreadable file does not fail the volume.

        Raises:
            StorageError: the volume had failed before.
            Anything that `step` raises.
        """
        self._under_way += 1
        try:
            return await self.run_read_quietly(step, *args, **kwargs)
        finally:
            self._under_way -= 1
            self.touch()

    async def run_read_quietly(self, step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Like `run_read`, for work that gives way to all other: the volume is not `busy`."""
        self.check()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: step(*args, **kwargs))

    def say(
        self, files: Stored | None, effect: Effect, after: Replica, room_bytes: int | None
    ) -> Stored | None:
        """As `ReplicaStore.say`; None also if no more than `room_bytes` are free, or the volume has
        failed. What may use up the disk, as it ends something begun, has None.

        All records that are appended until the next sync share it.
        """
        if self.failed:
            return None
        try:
            has_room = room_bytes is None or self._has_room(room_bytes)
            return self.store.say(files, effect, after) if has_room else None
        except StorageError as error:
            self.fail(error)
            return None

    def when_committed(self, file: OpenFile, done: Done) -> None:
        """Call `done` when all that was written to `file` is on stable storage, or with the error
        of the volume, after which it may not be."""

        def synced(error: PaxosBlockError | None) -> None:
            if error is not None:
                self.fail(error)
            # After a failed sync this one succeeds, without the bytes that the first dropped.
            done(self.failure)

        self.touch()
        self.commit.wait(file, synced)

    async def committed(self, file: OpenFile) -> None:
        """Wait until all that was written to `file` is on stable storage.

        Raises:
            StorageError: the volume has failed, now or before.
        """
        durable: asyncio.Future[None] = self._loop.create_future()

        def done(_: PaxosBlockError | None) -> None:
            if not durable.done():
                durable.set_result(None)

        self.when_committed(file, done)
        await durable
        self.check()

    def note_damaged(self, block: BlockId, files: Stored | None) -> None:
        """Remember beyond the end of the process that the replica in `files` is dead. None: it is
        not dead, is gone, or its files on the disk show it by themselves.
        """
        if files is not None and self._damaged.get(block) != files:
            self._damaged[block] = files
        elif files is not None or self._damaged.pop(block, None) is None:
            return
        if not self.failed:
            self._threads.submit(self._keep_damaged)

    def _keep_damaged(self) -> None:
        with self._keeping_damaged:
            damaged = dict(self._damaged)
            if damaged == self._damaged_kept:
                return
            try:
                self.store.keep_damaged(damaged)
                self._damaged_kept = damaged
            except NoSpaceError as error:  # it is known as long as this process lives
                _log.warning("damage not kept", extra=facts(folder=self.folder, reason=error))
            except StorageError as error:
                self._loop.call_soon_threadsafe(self.fail, error)

    def touch(self) -> None:
        """Note that it is used at this moment."""
        self._touched_s = time.monotonic()

    def serve(self) -> None:
        """Note that a client's chunk is written or read at this moment."""
        self._touched_s = self._served_s = time.monotonic()

    @property
    def serves_clients(self) -> bool:
        """True if a client writes or reads here, or did a moment ago and may go on."""
        return time.monotonic() - self._served_s < SERVED_S

    @property
    def working(self) -> bool:
        """True if a step is under way, or `close` waits for one to end."""
        return bool(self._under_way or self.commit.waiting_count or self._closing)

    @property
    def busy(self) -> bool:
        """True if anything but the scrubber uses it, or did a moment ago."""
        in_use = self._under_way or self.commit.waiting_count
        return bool(in_use) or time.monotonic() - self._touched_s < QUIET_S

    def stands_s(self) -> float:
        """Return the seconds for which nothing has come back from the disk, though a caller waits
        for it (`Standstill.measure`)."""
        in_use = self._under_way or self.commit.waiting_count or self._writing_out.waiting_count
        return self._standstill.measure(waiting=bool(in_use) and not self.failed)

    def _ended_syncs(self) -> int:
        return self.commit.ended_count + self._writing_out.ended_count

    def _ask(self) -> None:
        self._asking.submit(self._prove)

    def _prove(self) -> None:
        """Ask the disk for the standstill, in a thread of its own: all others may wait for it."""
        try:
            self.store.prove(ASKED)
        except PaxosBlockError:
            self.doubted = True  # it answers, and the next look finds out what is wrong
        self._loop.call_soon_threadsafe(self._standstill.answered)

    async def load(self, hung_after_s: float) -> LoadedReplicas:
        """Load the replicas; none if the volume fails meanwhile, or hangs for `hung_after_s`.

        Wait for it as long as the disk answers, however much there is to load. Whatever else goes
        wrong is an error of this volume, and the others go on.

        Raises:
            ConfigError: a later version wrote a file of it.
        """
        loading = asyncio.ensure_future(self.run(self.store.load))
        while not (await asyncio.wait((loading,), timeout=hung_after_s))[0]:
            if not await answers(self.disk, self.folder, hung_after_s):
                loading.add_done_callback(lambda late: late.cancelled() or late.exception())
                self.fail(hangs(self.folder, hung_after_s))
                return LoadedReplicas()
        try:
            found = loading.result()
        except ConfigError:
            raise
        except Exception as error:
            if not isinstance(error, PaxosBlockError):
                _log.exception("volume cannot be loaded", extra=facts(folder=self.folder))
            self.fail(error)
            return LoadedReplicas()
        self.identity = replace(self.identity, forgot=found.forgot)
        self.used_bytes += found.resting_bytes
        self.unread = found.unread
        if not found.unread:
            self.all_read.set()
        return found

    async def enter(self, cluster: str) -> None:
        """Belong to `cluster` from now on, unless it already does. Raises as `run`."""
        if not self.identity.cluster:
            self.identity = await self.run(
                enter_cluster, self.disk, self.folder, self.identity, cluster
            )

    @property
    def outside(self) -> bool:
        """True while no NameNode has said that it knows the storage in its timeline: until then
        nothing may be promised or reported in its name. In that of one that failed nothing is."""
        return bool(self.identity.before) and not self.failed

    async def be_taken_in(self) -> None:
        """Note that the cluster knows the storage as it is. Raises as `run`."""
        if self.outside:
            self.identity = await self.run(take_in, self.disk, self.folder, self.identity)

    def check(self) -> None:
        """Raise StorageError when the volume has failed."""
        if (failure := self.failure) is not None:
            raise failure

    @property
    def failure(self) -> StorageError | None:
        """The error for using a volume that has failed; None while it works."""
        if not self.failed:
            return None
        return StorageError(
            f"storage {self.storage} has failed: {self.failed}", storage=self.storage
        )

    def fail(self, error: Exception) -> None:
        """Stop using the volume."""
        if not self.failed:
            self.failed = blamed(self.folder, error)
            self.over.set()
            # Nothing more will be read: tasks that wait for it would wait for ever.
            self.all_read.set()
            _log.error("volume failed", extra=facts(folder=self.folder, reason=error))
            self.on_failure(self)

    def report(self, reserved_bytes: int) -> StorageReport:
        """Return its state for the NameNode; `free_bytes` leaves out `reserved_bytes`. Blocks.

        The spare is filled up here, so that it gets room before others do. This also finds out that
        the folder was removed, or that its disk went away.
        """
        room, failed = Room(0, 0), self.failed
        if not failed:
            try:
                room = self._checked_room()
                self._has_snapshot = is_kept(self.disk, self.folder)
            except (StorageError, CorruptionError, ConfigError) as error:
                if not is_shortage(error):
                    failed = blamed(self.folder, error)
                    self._loop.call_soon_threadsafe(self.fail, error)
        deleted_bytes = self.store.removals.waiting_bytes
        return StorageReport(
            storage=self.storage,
            capacity_bytes=room.capacity_bytes,
            free_bytes=max(room.free_bytes - reserved_bytes, 0),
            used_bytes=self.used_bytes + deleted_bytes,
            failed=failed,
            scrubbed_ms=self.scrubbed.whole_ms,
            scrub_ends_ms=self.scrubbed.ends_ms,
            snapshot=self._has_snapshot,
            deleted_bytes=deleted_bytes,
        )

    def _checked_room(self) -> Room:
        identity = read_identity(self.disk, self.folder)
        if identity is None or identity.storage != self.storage:
            raise StorageError(f"{self.folder / VERSION} is gone: this is not its storage any more")
        if self.doubted:
            self.doubted = False
            with contextlib.suppress(NoSpaceError):  # a full disk still works
                self.store.prove(PROBE)
        with contextlib.suppress(NoSpaceError):
            self.store.tidy()
        return self.store.room()

    def check_room(self, reserved_bytes: int, needed_bytes: int = 0) -> None:
        """Raise NoSpaceError if `needed_bytes` of a new replica would use up the reserve.

        The reserve is of bytes and of files that may be open: older replicas need both to be
        finalized.
        """
        if scarce():
            raise NoSpaceError(
                f"storage {self.storage} has no room: too many files and connections are open",
                storage=self.storage,
            )
        if not self._has_room(reserved_bytes + needed_bytes):
            self.store.removals.remove_all()
        if not self._has_room(reserved_bytes + needed_bytes):
            raise NoSpaceError(f"storage {self.storage} has no room", storage=self.storage)

    def _has_room(self, size_bytes: int) -> bool:
        return self.disk.room(self.folder).free_bytes > size_bytes

    def close(self) -> None:
        """Let running steps end and release the folder."""
        self._closing = True
        if self._kernel is not None:
            self._loop.call_soon_threadsafe(self._kernel.close)
        self._asking.shutdown()
        self._threads.shutdown()
        with contextlib.suppress(StorageError):
            self.store.close()
        # The lock goes last: another process may use the folder as soon as it is free.
        with contextlib.suppress(StorageError):
            self.disk.close(self._lock)
        self._closing = False


def open_volume(
    disk: Disk,
    folder: Path,
    node: str,
    *,
    boot: str,
    sync_threads: int,
    upgrade: bool = False,
    limits: SmallLimits = SHIPPED,
) -> Volume:
    """Open the storage at `folder` for `node`, or make an empty folder one. Blocks.

    Must be called on the event loop's thread. With `upgrade` it gets a snapshot unless it has one.
    The log of its small replicas has these `limits`.

    Raises:
        StorageError: the folder cannot be used.
        ConfigError: another process uses it, it belongs to another node, or it holds blocks but no
            identity.
        CorruptionError: its identity is damaged.
    """
    disk.make_folder(folder)
    # Before the identity is read: another process may be about to give the empty folder one.
    lock = disk.lock(folder / LOCK)
    try:
        identity = _identify(disk, folder, node)
        make_folders(disk, folder)
        identity = settle(disk, folder, identity, upgrade=upgrade)
        identity = begin_small(disk, folder, identity)
    except (StorageError, ConfigError, CorruptionError, NoSpaceError):
        disk.close(lock)
        raise
    return Volume(disk, folder, identity, lock, boot=boot, sync_threads=sync_threads, limits=limits)


def _identify(disk: Disk, folder: Path, node: str) -> Identity:
    identity = read_identity(disk, folder)
    if identity is None:
        if holds_blocks(disk, folder):
            raise ConfigError(
                f"{folder} holds blocks but no VERSION file; it is not used, for nobody knows what"
                " it promised"
            )
        check_node_id(node)
        identity = give_identity(disk, folder, node)
    elif identity.node != node:
        # One that no cluster ever took has promised nothing: its node was refused, for its name.
        small = SMALL in disk.names(folder) and disk.names(folder / SMALL)
        if identity.cluster or small or holds_blocks(disk, folder):
            raise ConfigError(f"{folder} belongs to node {identity.node}, not {node}")
        check_node_id(node)
        identity = give_identity(disk, folder, node)
    return identity
