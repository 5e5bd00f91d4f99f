"""The snapshot that `--upgrade` makes of a volume, and the ways to end it (FORMAT.md 7).

    previous/VERSION     identity of the volume then; while it is there, the snapshot is whole
    previous/ROLLBACK    the same file once a rollback was decided, which must then be finished
    previous/current/    the same files as those of current/, under second names
    previous/rbw/        copies

Changing that one file finishes each of the steps below, and a step can begin again from whatever an
interrupted one left. Finalized files are not changed in place while they have two names
(`open_alone` of host/disk.py). All functions block.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from paxosblock.datanode.store.damaged_file import DAMAGED
from paxosblock.datanode.store.identity import (
    VERSION,
    Identity,
    begin_timeline,
    decode_identity,
    return_to,
)
from paxosblock.datanode.store.layout import CURRENT, RBW, REPLICA_FOLDERS, SMALL, by_block
from paxosblock.datanode.store.layout import LOCK as VOLUME_LOCK
from paxosblock.datanode.store.small_records import segment_name, segment_numbers
from paxosblock.datanode.volumes.cursor import SCRUB
from paxosblock.errors import ConfigError, NoSpaceError, StorageError
from paxosblock.host.disk import Disk, copy_file, is_gone, opened, publish, read_file
from paxosblock.host.logs import facts
from paxosblock.journal.record_log import MARK_NAME

PREVIOUS: Final = "previous"
ROLLBACK: Final = "ROLLBACK"
LOCK: Final = "previous.lock"
"""The lock of a process that makes or removes a snapshot. A running node does not hold it, so that
another process can remove its snapshot."""

_log = logging.getLogger(__name__)


def saved_identity(disk: Disk, folder: Path) -> Identity | None:
    """Return the identity of the volume when its snapshot was made; None if it has no snapshot.

    Raises:
        ConfigError: a later version wrote it.
        CorruptionError: it is damaged.
    """
    return _identity(disk, folder, VERSION)


def is_kept(disk: Disk, folder: Path) -> bool:
    """True if the volume has a snapshot."""
    return VERSION in _names(disk, folder / PREVIOUS)


def marker(folder: Path) -> Path:
    """Return the file that makes the snapshot of a volume whole, whichever its name is now."""
    begun = folder / PREVIOUS / ROLLBACK
    return begun if begun.exists() else folder / PREVIOUS / VERSION


def refuse_half_rolled_back(disk: Disk, folder: Path) -> None:
    """Raise ConfigError if a rollback of the volume was begun and is not finished."""
    if ROLLBACK in _names(disk, folder / PREVIOUS):
        raise ConfigError(
            f"{folder}: a rollback was interrupted: start with --rollback, which goes on with it"
        )


def settle(disk: Disk, folder: Path, identity: Identity, *, upgrade: bool) -> Identity:
    """With `upgrade` make a snapshot of the locked volume `identity` unless it has one; remove what
    an interrupted step left.

    Returns:
        The identity of the volume from now on: beside a snapshot, in a timeline of its own.

    Raises:
        NoSpaceError: there is no room for the copies; no snapshot was made.
        StorageError: as the disk says.
        ConfigError: a rollback was interrupted, or the snapshot is just being removed.
    """
    refuse_half_rolled_back(disk, folder)
    saved = saved_identity(disk, folder)
    if saved is None and (upgrade or PREVIOUS in disk.names(folder)):
        with _locked(disk, folder / LOCK):
            _clear(disk, folder)
            if upgrade:
                _take(disk, folder)
                saved = identity
    if saved is None:
        return identity
    if saved.timeline == identity.timeline:
        identity = begin_timeline(disk, folder, identity)
    _log.warning(
        "a snapshot is kept until --rollback or --finalize-upgrade; files that are deleted or"
        " changed take room there as well",
        extra=facts(snapshot=folder / PREVIOUS),
    )
    return identity


def _take(disk: Disk, folder: Path) -> None:
    previous = folder / PREVIOUS
    try:
        parts = _parts(disk, folder)
        for part in parts:
            disk.make_folder(previous / part)
        for part in (CURRENT, SMALL):  # a later process changes no segment of the log
            for path in _replica_files(disk, folder / part):
                disk.link(path, previous / part / path.name)
        for path in _replica_files(disk, folder / RBW):
            with opened(disk, path) as source:
                disk.close(copy_file(disk, source, previous / RBW / path.name))
        for part in parts:
            disk.sync_folder(previous / part)
        whole = [read_file(disk, folder / VERSION)]
        publish(disk, previous / f"{VERSION}.new", previous / VERSION, whole)
    except NoSpaceError:
        _clear(disk, folder)
        raise


def finalize(disk: Disk, folders: Sequence[Path]) -> tuple[Path, ...]:
    """Remove the snapshots of a node's volumes for good; the node may run meanwhile.

    Returns:
        The volumes that had one.

    Raises:
        ConfigError: no volume has one, or a rollback of a volume was interrupted.
        StorageError: as the disk says.
    """
    for folder in folders:
        refuse_half_rolled_back(disk, folder)
    kept = tuple(folder for folder in folders if is_kept(disk, folder))
    if not kept:
        raise _without_snapshot(folders)
    for folder in kept:
        with _locked(disk, folder / LOCK):
            disk.remove(folder / PREVIOUS / VERSION)
            disk.sync_folder(folder / PREVIOUS)
            _clear(disk, folder)
    return kept


def check_rollback(disk: Disk, folders: Sequence[Path]) -> tuple[Identity, ...]:
    """Return the identities of the volumes of a node when their snapshots were made.

    A volume with an interrupted rollback counts, and with it volumes that have finished theirs.

    Raises:
        ConfigError: not all volumes have a snapshot, or a later version wrote one.
        CorruptionError: one is damaged.
    """
    begun = [each for folder in folders if (each := _identity(disk, folder, ROLLBACK))]
    saved = {folder: saved_identity(disk, folder) for folder in folders}
    lacking = [folder for folder, identity in saved.items() if identity is None]
    if lacking and not begun:
        raise _without_snapshot(lacking)
    return (*begun, *(identity for identity in saved.values() if identity is not None))


def roll_back(disk: Disk, folders: Sequence[Path]) -> None:
    """Make the volumes of a node what they were when their snapshots were made.

    Everything written since is gone, and every promise since is forgotten: until a NameNode has
    accepted the storage again, in its former timeline, nothing is promised or reported in its name.

    Raises:
        ConfigError: a process uses a volume; or as `check_rollback`, and nothing was changed.
        StorageError: as the disk says; a rollback goes on with what is left.
    """
    with contextlib.ExitStack() as stack:
        for folder in folders:
            stack.enter_context(_locked(disk, folder / VOLUME_LOCK))
            stack.enter_context(_locked(disk, folder / LOCK))
        check_rollback(disk, folders)
        for folder in folders:
            if is_kept(disk, folder):
                disk.rename(folder / PREVIOUS / VERSION, folder / PREVIOUS / ROLLBACK)
            if PREVIOUS in disk.names(folder):  # an earlier try may have ended before this sync
                disk.sync_folder(folder / PREVIOUS)
        # Mark all volumes before one is finished, so that an interruption leaves none out.
        for folder in folders:
            if (saved := _identity(disk, folder, ROLLBACK)) is not None:
                _put_back(disk, folder, saved)
            _clear(disk, folder)


def _put_back(disk: Disk, folder: Path, saved: Identity) -> None:
    """Give the files of the snapshot second names, so that it stays whole until the end."""
    previous = folder / PREVIOUS
    parts = _parts(disk, folder)
    for part in parts:
        for path in _replica_files(disk, folder / part):
            disk.remove(path)
    if SMALL in parts and MARK_NAME in _names(disk, folder / SMALL):
        disk.remove(folder / SMALL / MARK_NAME)  # it is ahead of the segments that come back
    for part in parts:
        for path in _replica_files(disk, previous / part):
            disk.link(path, folder / part / path.name)
        disk.sync_folder(folder / part)
    for name in (SCRUB, DAMAGED):  # they are about other replicas, maybe in a later format
        if name in disk.names(folder):
            disk.remove(folder / name)
    return_to(disk, folder, saved)
    disk.remove(previous / ROLLBACK)
    disk.sync_folder(previous)


# -- files -----------------------------------------------------------------------------------------


def _clear(disk: Disk, folder: Path) -> None:
    """Remove a snapshot that is not whole, or not to be kept."""
    previous = folder / PREVIOUS
    found = _names(disk, previous)
    assert not {VERSION, ROLLBACK} & set(found), "a whole snapshot is not removed"
    for name in found:
        if name not in REPLICA_FOLDERS:
            disk.remove(previous / name)
            continue
        for inner in disk.names(previous / name):
            disk.remove(previous / name / inner)
        disk.remove_folder(previous / name)
    if PREVIOUS in disk.names(folder):
        disk.remove_folder(previous)
        disk.sync_folder(folder)


def _identity(disk: Disk, folder: Path, name: str) -> Identity | None:
    path = folder / PREVIOUS / name
    if name not in _names(disk, path.parent):
        return None
    return decode_identity(read_file(disk, path), path)


def _names(disk: Disk, folder: Path) -> list[str]:
    """Return the names in a folder that may be missing, or be removed at this moment."""
    if folder.name not in disk.names(folder.parent):
        return []
    try:
        return disk.names(folder)
    except StorageError as error:
        if is_gone(error):
            return []
        raise


def _parts(disk: Disk, folder: Path) -> tuple[str, ...]:
    """Return the folders with replicas: an earlier version has no log, nor has its snapshot."""
    kept = SMALL in _names(disk, folder / PREVIOUS)
    small = kept or _replica_files(disk, folder / SMALL)
    return REPLICA_FOLDERS if small else (CURRENT, RBW)


def _replica_files(disk: Disk, folder: Path) -> list[Path]:
    if not _names(disk, folder):
        return []
    if folder.name == SMALL:
        return [folder / segment_name(each) for each in segment_numbers(_names(disk, folder))]
    return [path for each in by_block(disk, folder).values() for path in each.paths]


@contextlib.contextmanager
def _locked(disk: Disk, path: Path) -> Iterator[None]:
    lock = disk.lock(path)
    try:
        yield
    finally:
        disk.close(lock)


def _without_snapshot(folders: Sequence[Path]) -> ConfigError:
    listed = ", ".join(map(str, folders))
    return ConfigError(f"{listed}: no snapshot here; `datanode --upgrade` makes one")
