"""The operating system's files as the store uses them: the seam at which tests cut the power.

The one place of the DataNode that sees `OSError`. Methods block: all but `write` and `read_cached`
run in threads.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NewType, Protocol

from paxosblock import descriptors, folders
from paxosblock.descriptors import opening
from paxosblock.errors import ConfigError, NoSpaceError, PaxosBlockError, StorageError
from paxosblock.net.wire import Buffer

FileHandle = NewType("FileHandle", int)

_BROKEN = (errno.EIO, errno.EROFS, errno.ENODEV, errno.ENXIO, errno.EUCLEAN, errno.ESTALE)
"""What a disk answers that is dead, gone, damaged, or set read-only by the system for that."""
_NO_WAIT: Final[int | None] = getattr(os, "RWF_NOWAIT", None)  # Linux has it


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes of the file system that a folder is on."""

    capacity_bytes: int
    free_bytes: int


class Disk(Protocol):
    """Files and folders. Every method raises StorageError when the system refuses.

    Only `create` and `write` raise NoSpaceError: what else fails for lack of room leaves it open
    what is on the disk, and counts as a failure of the disk.
    """

    def make_folder(self, folder: Path) -> None:
        """Create the folder, durably, unless it is there."""

    def names(self, folder: Path) -> list[str]:
        """Return the names in the folder."""

    def create(self, path: Path) -> FileHandle:
        """Open a new file to read and write; an old one of this name is emptied."""

    def open(self, path: Path) -> FileHandle:
        """Open an existing file to read and write."""

    def close(self, file: FileHandle) -> None:
        """Release the handle (a lock with it); does not sync."""

    def size(self, file: FileHandle) -> int:
        """Return the length of the file in bytes."""

    def write(self, file: FileHandle, data: Buffer, offset: int) -> None:
        """Hand all of `data` to the operating system; when it fails, a part may be in the file."""

    def read(self, file: FileHandle, size_bytes: int, offset: int) -> bytes:
        """Return up to `size_bytes` from `offset` on, fewer only at the end of the file."""

    def read_cached(self, file: FileHandle, into: memoryview, offset: int) -> bool:
        """Fill `into` from `offset` on if the system has all of it in memory; does not block.

        False says that `read` must do it, and that `into` holds anything.
        """

    def truncate(self, file: FileHandle, size_bytes: int) -> None:
        """Cut the file; does not sync."""

    def sync(self, file: FileHandle) -> None:
        """Return once the file's bytes and its length are on stable storage."""

    def rename(self, source: Path, target: Path) -> None:
        """Give the file another name at once, replacing the file that had it."""

    def remove(self, path: Path) -> None:
        """Remove the name."""

    def sync_folder(self, folder: Path) -> None:
        """Return once all creations, renames and removals in the folder are durable."""

    def lock(self, path: Path) -> FileHandle:
        """Lock the file until `close` or the end of the process; ConfigError when it is taken."""

    def room(self, folder: Path) -> Room:
        """Return how much room there is."""


class OsDisk:
    """`Disk` on a local file system."""

    def make_folder(self, folder: Path) -> None:
        with _translated(f"cannot make {folder}"):
            folders.make_folder(folder)

    def names(self, folder: Path) -> list[str]:
        with _translated(f"cannot list {folder}"):
            return opening(os.listdir, folder)

    def create(self, path: Path) -> FileHandle:
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        try:
            return FileHandle(opening(os.open, path, flags, 0o600))
        except OSError as error:
            raise _refused(f"cannot create {path}", error) from error

    def open(self, path: Path) -> FileHandle:
        with _translated(f"cannot open {path}"):
            return FileHandle(opening(os.open, path, os.O_RDWR | os.O_CLOEXEC))

    def close(self, file: FileHandle) -> None:
        with _translated("cannot close a file"):
            descriptors.close(file)

    def size(self, file: FileHandle) -> int:
        with _translated("cannot tell the size of a file"):
            return os.fstat(file).st_size

    def write(self, file: FileHandle, data: Buffer, offset: int) -> None:
        # On the way of every chunk, so without the context manager.
        try:
            written = os.pwrite(file, data, offset)
            while written < len(data):
                written += os.pwrite(file, memoryview(data)[written:], offset + written)
        except OSError as error:
            raise _refused("cannot write", error) from error

    def read(self, file: FileHandle, size_bytes: int, offset: int) -> bytes:
        with _translated("cannot read"):
            data = os.pread(file, size_bytes, offset)
            while len(data) < size_bytes:
                more = os.pread(file, size_bytes - len(data), offset + len(data))
                if not more:
                    break
                data += more
            return data

    def read_cached(self, file: FileHandle, into: memoryview, offset: int) -> bool:
        if _NO_WAIT is None:
            return False
        try:
            return os.preadv(file, [into], offset, _NO_WAIT) == len(into)
        except OSError:  # it would wait, or the file system cannot tell; an error comes from `read`
            return False

    def truncate(self, file: FileHandle, size_bytes: int) -> None:
        with _translated("cannot truncate"):
            os.ftruncate(file, size_bytes)

    def sync(self, file: FileHandle) -> None:
        with _translated("cannot sync"):
            os.fdatasync(file)

    def rename(self, source: Path, target: Path) -> None:
        with _translated(f"cannot rename {source} to {target}"):
            os.rename(source, target)

    def remove(self, path: Path) -> None:
        with _translated(f"cannot remove {path}"):
            os.unlink(path)

    def sync_folder(self, folder: Path) -> None:
        with _translated(f"cannot sync {folder}"):
            folders.sync_folder(folder)

    def lock(self, path: Path) -> FileHandle:
        try:
            return FileHandle(folders.lock(path))
        except BlockingIOError as error:
            raise ConfigError(f"{path} is locked by another process") from error
        except OSError as error:
            raise StorageError.of(f"cannot lock {path}", error) from error

    def room(self, folder: Path) -> Room:
        with _translated(f"cannot tell the room of {folder}"):
            found = os.statvfs(folder)
            return Room(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


def is_broken(error: StorageError) -> bool:
    """True if the disk itself failed, and nobody's mistake, such as a wrong path, is the cause."""
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in _BROKEN


def _refused(what: str, error: OSError) -> PaxosBlockError:
    if folders.lacks_room(error):
        return NoSpaceError(f"{what}: {error.strerror}")
    return StorageError.of(what, error)


@contextlib.contextmanager
def _translated(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError.of(what, error) from error


@contextlib.contextmanager
def opened(disk: Disk, path: Path) -> Iterator[FileHandle]:
    """The existing file `path`, closed again at the end."""
    file = disk.open(path)
    try:
        yield file
    finally:
        disk.close(file)


def read_file(disk: Disk, path: Path) -> bytes:
    """The whole file."""
    with opened(disk, path) as file:
        return disk.read(file, disk.size(file), 0)


def publish(disk: Disk, draft: Path, path: Path, data: bytes) -> None:
    """Make `path` hold `data`, durably: after a crash it is the old file or the new one.

    Raises:
        NoSpaceError: nothing was changed.
        StorageError: it is open which of the two files is there after a crash.
    """
    file = disk.create(draft)
    try:
        disk.write(file, data, 0)
        disk.sync(file)
    except NoSpaceError:
        disk.remove(draft)
        raise
    finally:
        disk.close(file)
    disk.rename(draft, path)
    disk.sync_folder(path.parent)
