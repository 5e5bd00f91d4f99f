"""The replicas that a volume holds when its process starts (FORMAT.md 5, rule D8).

Whatever was interrupted is finished or undone here, and a replica that may have lost votes is
marked weak on disk before any node can ask it, unless the disk is full: a volume serves what it has
without needing room. Damage does not raise here: a replica that cannot be believed is dead, and
says so to every caller.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from paxosblock.datanode.store.chunk_records import scan
from paxosblock.datanode.store.damaged_file import read_damaged, write_damaged
from paxosblock.datanode.store.disk_format import Loaded, LoadedReplicas, Stored
from paxosblock.datanode.store.identity import VERSION, forget, read_identity
from paxosblock.datanode.store.layout import (
    CURRENT,
    RBW,
    REPLICA_FOLDERS,
    TEMPORARY,
    BlockFiles,
    FoundFile,
    ReplicaFiles,
    by_block,
    copy_of,
    data_name,
    home,
    meta_name,
    own_draft,
    pairs,
    sort_in,
)
from paxosblock.datanode.store.meta import Metadata, decode_metadata
from paxosblock.datanode.store.removals import Removals
from paxosblock.datanode.store.small_replicas import SmallLoaded, SmallPlace, SmallReplicas
from paxosblock.errors import ConfigError, CorruptionError, NoSpaceError, StorageError
from paxosblock.host.disk import Disk, is_shortage, open_alone, opened, read_file
from paxosblock.host.kept_room import KeptRoom
from paxosblock.host.logs import facts
from paxosblock.net.wire import record_start
from paxosblock.protocol.chunk_log import ChunkLog
from paxosblock.protocol.invariants import InvariantError
from paxosblock.protocol.register import Replica, restarted
from paxosblock.protocol.types import BlockId, Generation, ReplicaState

UNKNOWN_EPOCH: Final = Generation(2**63 - 1)
"""The epoch of a replica without metadata and block file: later than any decision."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a store that a start puts in order.

    `store_metadata` replaces the metadata of a replica durably, and returns its files.
    """

    disk: Disk
    folder: Path
    boot: str
    spare: KeptRoom
    small: SmallReplicas
    removals: Removals
    store_metadata: Callable[[Stored, Replica], ReplicaFiles]


def load(store: Parts) -> tuple[LoadedReplicas, dict[BlockId, str]]:
    """Load every replica of the volume, but leave those unread that are finalized, by the names of
    their files, and that nothing is known to have happened to; return these names, too.

    Raises:
        ConfigError: a later version wrote a meta file; nothing was changed.
        StorageError: the volume cannot be read or written; it has failed.
    """
    disk, folder = store.disk, store.folder
    # An earlier process may have been killed between a change of a name and its sync. Whatever is
    # found here is answered, and what it replaced removed, so it must not be taken back.
    for part in REPLICA_FOLDERS:
        disk.sync_folder(folder / part)
    alone, others = pairs(disk.names(folder / CURRENT))
    found = by_block(disk, folder / RBW)
    sort_in(found, folder / CURRENT, others)
    damaged = read_damaged(disk, folder)
    _join(found, (*found, *damaged), alone, folder / CURRENT)
    # This metadata is read before anything is changed: a later format must be left as it is.
    ruling = {block: _ruling(store, found[block]) for block in sorted(found)}
    small = _load_log(store)
    moved = [block for block in store.small if block in alone]
    _join(found, moved, alone, folder / CURRENT)
    ruling |= {block: _ruling(store, found[block]) for block in moved}
    store.spare.give_back()
    for name in disk.names(folder / TEMPORARY):
        if not store.removals.find(name):
            disk.remove(folder / TEMPORARY / name)
    loaded = [_load_block(store, found[block], ruling.pop(block)) for block in sorted(found)]
    for block in sorted(found):
        if found[block].metas and block in store.small:
            store.small.forget(block)  # it was moved to files of its own, and stays there
    loaded += [_load_small(store, each) for each in small if each.block in store.small]
    loaded += [wake(store.small, block) for block in sorted(damaged) if store.small.rests(block)]
    found_again = [_doubted(replica, damaged) for replica in loaded if replica is not None]
    _forget_replaced(store, damaged, found_again)
    awake = {each.block for each in found_again}
    resting = [block for block in store.small if block not in awake]
    size_bytes, forgot = store.small.frame_bytes(resting), store.small.forgot
    return LoadedReplicas(found_again, resting, size_bytes, sorted(alone), forgot), alone


def _load_log(store: Parts) -> list[SmallLoaded]:
    """Load the log of small replicas; note what it lost before anything is answered or written."""
    disk, folder = store.disk, store.folder
    identity = read_identity(disk, folder)
    known = None if identity is None else identity.forgot
    small = store.small.load(known)
    forgot = store.small.forgot
    if forgot is not None and forgot != known:
        if identity is None:
            raise StorageError(f"{folder / VERSION} is gone: what is forgotten cannot be noted")
        forget(disk, folder, identity, forgot)
        _log.error(
            "small replicas may be forgotten: what is left is used, and what is lost is copied from"
            " other DataNodes",
            extra=facts(folder=folder, blocks_up_to=forgot.up_to, reason=store.small.log.why_lost),
        )
    return small


def _join(
    found: dict[BlockId, BlockFiles],
    blocks: Iterable[BlockId],
    alone: dict[BlockId, str],
    folder: Path,
) -> None:
    """Move those of `blocks` that are in `alone` from there to `found`."""
    for block in blocks:
        if (name := alone.pop(block, None)) is not None:
            sort_in(found, folder, (meta_name(block), name))


def load_finalized(store: Parts, folder: Path, block: BlockId, name: str) -> Loaded:
    """Load a replica that `load` left unread, whose block file in `folder` has this name.

    Raises:
        ConfigError: a later version wrote its meta file.
        NoSpaceError: there is no room to finish what was interrupted.
        StorageError: the volume cannot be written, and has failed; or only no descriptor was left.
    """
    found: dict[BlockId, BlockFiles] = {}
    sort_in(found, folder, (meta_name(block), name))
    ruling = _ruling(store, found[block])
    loaded = store.spare.retried(lambda: _load_block(store, found[block], ruling))
    assert loaded is not None, "it has a meta file"
    return loaded


def wake(small: SmallReplicas, block: BlockId) -> Loaded:
    """Return a replica that rests in the log, without reading the disk."""
    return Loaded(block, small.at_rest(block), SmallPlace(None, block))


def _load_small(store: Parts, found: SmallLoaded) -> Loaded:
    """Move a replica that was being written to files: a recovery comes next in any case."""
    block, metadata, place = found.block, found.metadata, SmallPlace(None, found.block)
    if metadata is None:
        return _dead(block, None, None, found.corrupt)
    if found.corrupt:
        return _dead(block, metadata.replica(ChunkLog()), place, found.corrupt)
    try:
        log = store.small.log_of(block)
    except CorruptionError as error:  # a chunk of an earlier segment is not read before
        return _dead(block, metadata.replica(ChunkLog()), place, str(error))
    replica = metadata.replica(log)
    if contradiction := _contradiction(replica):
        return _dead(block, replica, place, contradiction)
    replica = restarted(replica, same_boot=metadata.boot == store.boot)
    try:
        store.small.log.begin_segment()  # there the log will say that the replica is gone
        files = store.store_metadata(place, replica)
    except NoSpaceError as error:
        _left_as_it_is(block, error)
        return Loaded(block, replica, place)
    if files.file is not None:
        files.file.retire()
    return Loaded(block, replica, replace(files, file=None))


def _left_as_it_is(block: BlockId, error: NoSpaceError) -> None:
    """A full disk takes no mark of a replica that was being written. Until something is stored in
    its name, and the mark with it, the next start concludes the same: its metadata is of an earlier
    boot. The volume serves what it has."""
    _log.warning("replica is left as it is", extra=facts(block=block, reason=error))


@dataclass(frozen=True, slots=True)
class _Ruling:
    """The metadata that counts, and its file."""

    metadata: Metadata
    file: FoundFile


def _load_block(store: Parts, found: BlockFiles, ruling: _Ruling | str) -> Loaded | None:
    if not found.metas:
        # The metadata is written last when a replica is made, and removed first.
        _remove(store, found.datas)
        return None
    if isinstance(ruling, str):
        # Votes leave only when the file's name has their epoch. Without a name nothing heals it.
        epoch = max((data.epoch for data in found.datas), default=UNKNOWN_EPOCH)
        return replace(_dead(found.block, None, None, ruling), epoch=epoch)
    metadata = ruling.metadata
    files = _tidied(store, found, metadata, ruling.file)
    if files is None:
        promised = metadata.replica(ChunkLog())
        return _dead(found.block, promised, None, "its block file is missing")
    loaded = _read_log(store, metadata, files)
    if loaded.corrupt or loaded.replica is None:
        return loaded
    return _settled(store, metadata, loaded.replica, files)


def _doubted(loaded: Loaded, damaged: Mapping[BlockId, int]) -> Loaded:
    """Return the replica, dead if it was found damaged before and was not replaced since."""
    files = loaded.files
    if loaded.corrupt or files is None:
        return loaded
    if damaged.get(loaded.block) != copy_of(files):
        return loaded
    return _dead(loaded.block, loaded.replica, files, "it was found damaged before this start")


def _forget_replaced(store: Parts, damaged: Mapping[BlockId, int], loaded: list[Loaded]) -> None:
    """Forget damage of replicas that are gone, or that show it by themselves: a copy may get the
    same number."""
    dead = {each.block: each.files for each in loaded if each.corrupt}
    kept = {block: files for block in damaged if (files := dead.get(block)) is not None}
    if kept.keys() != damaged.keys():
        with contextlib.suppress(NoSpaceError):  # at worst a sound copy is made once more
            write_damaged(
                store.disk, store.folder, {each: copy_of(at) for each, at in kept.items()}
            )


def _ruling(store: Parts, found: BlockFiles) -> _Ruling | str:
    """Return the metadata that counts, or the reason why none can be believed.

    Adopting a log raises the accepted generation, and a crash while a replica changes folders may
    leave both the earlier and the later metadata.
    """
    try:
        candidates = [
            _Ruling(_read_metadata(store.disk, found.block, file), file) for file in found.metas
        ]
    except (CorruptionError, StorageError) as error:
        if is_shortage(error):
            raise
        return str(error)
    if not candidates:
        return "there is none"
    newest = max(candidates, key=lambda each: each.metadata.registers.accepted_generation)
    state = newest.metadata.registers.state
    if newest.file.folder.name != home(state):
        return f"metadata of a {state.value} replica in {newest.file.folder.name}"
    return newest


def _read_metadata(disk: Disk, block: BlockId, file: FoundFile) -> Metadata:
    path = file.path
    return decode_metadata(read_file(disk, path), block, path)


def stored_metadata(disk: Disk, block: BlockId, path: Path) -> Metadata:
    """Return the metadata of a replica that this process wrote, from the disk itself.

    Raises:
        CorruptionError: these bytes are not what was written.
        StorageError: as the disk says.
    """
    with opened(disk, path) as handle:
        data = disk.read_stored(handle, disk.size(handle), 0)
    try:
        return decode_metadata(data, block)
    except ConfigError as error:  # no other process writes here
        raise CorruptionError(str(error), block=block) from error


def _tidied(
    store: Parts, found: BlockFiles, metadata: Metadata, meta: FoundFile
) -> ReplicaFiles | None:
    """Finish the change of folders that a crash interrupted; None if the block file is lost."""
    named = [data for data in found.datas if data.copy == metadata.copy]
    if not named:
        return None
    kept = next((data for data in named if data.folder is meta.folder), named[0])
    _remove(store, [file for file in found.metas if file is not meta])
    _remove(store, [data for data in found.datas if data is not kept])
    name = data_name(found.block, metadata.registers.epoch, metadata.copy)
    if kept.folder is not meta.folder or kept.name != name:
        store.disk.rename(kept.path, meta.folder / name)
        store.disk.sync_folder(meta.folder)
        store.disk.sync_folder(kept.folder)
    return ReplicaFiles(None, meta.folder, name, metadata.copy)


def _read_log(store: Parts, metadata: Metadata, files: ReplicaFiles) -> Loaded:
    """Find out which chunks the replica has, and cut off the bytes beyond them."""
    finalized = metadata.registers.state is ReplicaState.FINALIZED
    try:
        if finalized:
            size = store.disk.size_of(files.path)
            log, corrupt = _table(metadata, size)
        else:
            with opened(store.disk, files.path) as handle:
                size = store.disk.size(handle)
                found = scan(store.disk, handle, metadata, same_boot=metadata.boot == store.boot)
                log, corrupt = found.log, found.corrupt
        if not corrupt and size > record_start(log, len(log)):
            _cut(store, files, record_start(log, len(log)))
    except StorageError as error:
        # An unreadable file is not an empty one: absence is never concluded from an error.
        return _dead(metadata.block, metadata.replica(ChunkLog()), files, str(error))
    replica = metadata.replica(log)
    if not corrupt:
        corrupt = _contradiction(replica)
    if corrupt:
        return _dead(metadata.block, replica, files, corrupt)
    return Loaded(metadata.block, replica, files)


def _cut(store: Parts, files: ReplicaFiles, size_bytes: int) -> None:
    handle = open_alone(store.disk, files.path, own_draft(store.folder, files.path))
    try:
        store.disk.truncate(handle, size_bytes)
        store.disk.sync(handle)
    finally:
        store.disk.close(handle)


def _table(metadata: Metadata, size: int) -> tuple[ChunkLog, str]:
    """Return the log of a finalized replica, and why it is dead or "". Its bytes are checked
    whenever they are read."""
    try:
        log = ChunkLog.from_bytes(metadata.chunks)
    except ValueError as error:
        return ChunkLog(), f"its table of chunks is damaged: {error}"
    if size < record_start(log, len(log)):
        return log, "its block file is cut off"
    return log, ""


def _contradiction(replica: Replica) -> str:
    try:
        replica.check()
    except InvariantError as error:
        return f"its metadata contradicts itself: {error.rule}"
    if replica.registers.state is ReplicaState.TEMPORARY:
        return "its metadata calls it temporary"
    return ""


def _settled(store: Parts, metadata: Metadata, replica: Replica, files: ReplicaFiles) -> Loaded:
    """D8: make an rbw replica rwr; if it is weak, the disk says so before it answers anything,
    unless it is full."""
    replica = restarted(replica, same_boot=metadata.boot == store.boot)
    if replica.registers.state is ReplicaState.RBW and metadata.boot != store.boot:
        try:
            store.store_metadata(files, replica)
        except NoSpaceError as error:
            _left_as_it_is(replica.block, error)
    return Loaded(replica.block, replica, files)


def _dead(block: BlockId, replica: Replica | None, files: Stored | None, why: str) -> Loaded:
    _log.error("replica is dead", extra=facts(block=block, reason=why))
    return Loaded(block, replica, files, why)


def _remove(store: Parts, files: Sequence[FoundFile]) -> None:
    for file in files:
        _log.warning("removing what a crash left", extra=facts(path=file.path))
        store.disk.remove(file.path)
    for folder in sorted({file.folder for file in files}):
        store.disk.sync_folder(folder)
