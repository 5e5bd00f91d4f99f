"""The operating system's files as every node uses them: the seam at which tests cut the power.

Everything that a node must find again goes through `Disk`, the one place that sees the system's own
errors. Methods block: all but `write` and `read_cached` run in threads.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NewType, Protocol

from paxosblock.base.checksum import Buffer
from paxosblock.base.units import MIB
from paxosblock.errors import ConfigError, NoSpaceError, PaxosBlockError, StorageError
from paxosblock.host import descriptors
from paxosblock.host.descriptors import opening

if TYPE_CHECKING:
    from paxosblock.host.kernel_syncs import KernelSyncs

FileHandle = NewType("FileHandle", int)

OF_A_NAMENODE: Final = ("kv", "raft")
OF_A_VOLUME: Final = ("VERSION", "current", "rbw")
"""Names that tell which role a folder belongs to: the other role must not write into it."""

COPIED_BYTES: Final = 4 * MIB
"""Bytes of a file that are copied at a time."""

_BROKEN = (errno.EIO, errno.EROFS, errno.ENODEV, errno.ENXIO, errno.EUCLEAN, errno.ESTALE)
"""Answers of a disk that is dead, gone, damaged, or that the system made read-only for that."""
_NO_WAIT: Final[int | None] = getattr(os, "RWF_NOWAIT", None)  # Linux has it


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes of the file system that a folder is on."""

    capacity_bytes: int
    free_bytes: int


class Disk(Protocol):
    """Files and folders. Every method raises StorageError when the system refuses.

    Only `create` and `write` raise NoSpaceError: any other failure for lack of room leaves the
    state of the disk open, and counts as a failure of the disk.
    """

    def make_folder(self, folder: Path) -> None:
        """Create the folder and those above it, each durably, unless they are there.

        A folder that vanished with the power would come back as another, empty one.
        """

    def names(self, folder: Path) -> list[str]:
        """Return the names in the folder."""

    def create(self, path: Path) -> FileHandle:
        """Open a new file to read and write; an old one of this name is emptied."""

    def open(self, path: Path) -> FileHandle:
        """Open an existing file to read and write."""

    def open_to_read(self, path: Path) -> FileHandle:
        """Open an existing file to read; no caller can write with this handle."""

    def close(self, file: FileHandle) -> None:
        """Release the handle (a lock with it); does not sync."""

    def size(self, file: FileHandle) -> int:
        """Return the length of the file in bytes."""

    def size_of(self, path: Path) -> int:
        """Return the length of an existing file in bytes, without opening it."""

    def write(self, file: FileHandle, data: Buffer, offset: int) -> None:
        """Hand all of `data` to the operating system; when it fails, a part may be in the file.

        Until the next `sync`, a power cut leaves any mixture of this and what was there.
        """

    def read(self, file: FileHandle, size_bytes: int, offset: int) -> bytes:
        """Return up to `size_bytes` from `offset` on, fewer only at the end of the file."""

    def read_into(self, file: FileHandle, into: memoryview, offset: int) -> int:
        """Fill `into` from `offset` on; return how many bytes, fewer only at the end of the file.

        As `read`, but into memory that is there: new memory costs as much as reading into it.
        """

    def read_cached(self, file: FileHandle, into: memoryview, offset: int) -> bool:
        """Fill `into` from `offset` on if the system has all of it in memory; this does not block.

        False says that `read_into` must do it, and that `into` holds anything.
        """

    def read_stored(self, file: FileHandle, size_bytes: int, offset: int) -> bytes:
        """As `read`, but from the disk itself where the system can: not from memory, and without
        keeping it in memory afterwards.
        """

    def truncate(self, file: FileHandle, size_bytes: int) -> None:
        """Cut the file; does not sync."""

    def sync(self, file: FileHandle) -> None:
        """Return once the file's bytes and its length are on stable storage."""

    def write_out(self, file: FileHandle) -> None:
        """Return once the disk has the file's bytes, which a power cut may still take."""

    def kernel_syncs(self) -> KernelSyncs | None:
        """Return what syncs the disk's files without a thread, on the running event loop; None:
        nothing does.
        """

    def rename(self, source: Path, target: Path) -> None:
        """Give the file another name at once, replacing the file that had it."""

    def remove(self, path: Path) -> None:
        """Remove the name."""

    def link(self, source: Path, target: Path) -> None:
        """Give the file a second name, which must be free."""

    def link_count(self, file: FileHandle) -> int:
        """Return how many names the file has."""

    def remove_folder(self, folder: Path) -> None:
        """Remove the folder, which is empty."""

    def sync_folder(self, folder: Path) -> None:
        """Return once all creations, renames and removals in the folder are durable."""

    def lock(self, path: Path) -> FileHandle:
        """Lock the file, made if it is not there, until `close` or the end of the process.

        Raises:
            ConfigError: another process uses the folder it is in.
        """

    def room(self, folder: Path) -> Room:
        """Return how much room there is. A file system that takes no writes refuses to tell."""


class OsDisk:
    """`Disk` on a local file system."""

    def make_folder(self, folder: Path) -> None:
        with _translated("cannot make", folder):
            _make_folder(folder)

    def names(self, folder: Path) -> list[str]:
        with _translated("cannot list", folder):
            return opening(os.listdir, folder)

    def create(self, path: Path) -> FileHandle:
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        try:
            return FileHandle(opening(os.open, path, flags, 0o600))
        except OSError as error:
            raise _refused(f"cannot create {path}", error) from error

    def open(self, path: Path) -> FileHandle:
        with _translated("cannot open", path):
            return FileHandle(opening(os.open, path, os.O_RDWR | os.O_CLOEXEC))

    def open_to_read(self, path: Path) -> FileHandle:
        with _translated("cannot open", path):
            return FileHandle(opening(os.open, path, os.O_RDONLY | os.O_CLOEXEC))

    def close(self, file: FileHandle) -> None:
        with _translated("cannot close a file"):
            descriptors.close(file)

    def size(self, file: FileHandle) -> int:
        with _translated("cannot tell the size of a file"):
            return os.fstat(file).st_size

    def size_of(self, path: Path) -> int:
        with _translated("cannot look at", path):
            return os.stat(path).st_size

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

    def read_into(self, file: FileHandle, into: memoryview, offset: int) -> int:
        with _translated("cannot read"):
            done = 0
            while done < len(into):
                more = os.preadv(file, [into[done:]], offset + done)
                if not more:
                    break
                done += more
            return done

    def read_cached(self, file: FileHandle, into: memoryview, offset: int) -> bool:
        if _NO_WAIT is None:
            return False
        try:
            return os.preadv(file, [into], offset, _NO_WAIT) == len(into)
        except OSError:  # it would wait, or the file system cannot tell; `read_into` says which
            return False

    def read_stored(self, file: FileHandle, size_bytes: int, offset: int) -> bytes:
        with _translated("cannot read"):
            os.posix_fadvise(file, offset, size_bytes, os.POSIX_FADV_DONTNEED)
            data = self.read(file, size_bytes, offset)
            os.posix_fadvise(file, offset, size_bytes, os.POSIX_FADV_DONTNEED)
            return data

    def truncate(self, file: FileHandle, size_bytes: int) -> None:
        with _translated("cannot truncate"):
            os.ftruncate(file, size_bytes)

    def sync(self, file: FileHandle) -> None:
        with _translated("cannot sync"):
            os.fdatasync(file)

    def write_out(self, file: FileHandle) -> None:
        from paxosblock.host.kernel_syncs import write_out  # noqa: PLC0415 - ctypes: 10 ms

        with _translated("cannot write out"):
            write_out(file)

    def kernel_syncs(self) -> KernelSyncs | None:
        from paxosblock.host.kernel_syncs import KernelSyncs  # noqa: PLC0415 - ctypes: 10 ms

        try:
            return KernelSyncs()
        except OSError:  # threads do it
            return None

    def rename(self, source: Path, target: Path) -> None:
        with _translated("cannot rename", source, "to", target):
            os.rename(source, target)

    def remove(self, path: Path) -> None:
        with _translated("cannot remove", path):
            os.unlink(path)

    def link(self, source: Path, target: Path) -> None:
        with _translated("cannot link", source, "to", target):
            os.link(source, target)

    def link_count(self, file: FileHandle) -> int:
        with _translated("cannot tell how many names a file has"):
            return os.fstat(file).st_nlink

    def remove_folder(self, folder: Path) -> None:
        with _translated("cannot remove", folder):
            os.rmdir(folder)

    def sync_folder(self, folder: Path) -> None:
        with _translated("cannot sync", folder):
            _sync_folder(folder)

    def lock(self, path: Path) -> FileHandle:
        with _translated("cannot lock", path):
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(file)
                if not isinstance(error, BlockingIOError):
                    raise
                raise ConfigError(f"{path.parent} is in use by another process") from error
            return FileHandle(file)

    def room(self, folder: Path) -> Room:
        with _translated("cannot tell the room of", folder):
            found = os.statvfs(folder)
            if found.f_flag & os.ST_RDONLY:
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(folder))
            return Room(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


def _make_folder(folder: Path) -> None:
    if not folder.is_dir():
        if not folder.parent.exists():
            _make_folder(folder.parent)
        folder.mkdir(0o700, exist_ok=True)
        _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    file = opening(os.open, folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        descriptors.close(file)


def _refused(what: str, error: OSError) -> PaxosBlockError:
    """Return the error for a step that changes nothing without room: on the disk, in a quota, or
    for one more open file. Nothing is wrong with the disk then.
    """
    if error.errno in (errno.ENOSPC, errno.EDQUOT) or descriptors.is_shortage(error):
        return NoSpaceError(f"{what}: {error.strerror}")
    return StorageError.of(what, error)


class _translated:
    """Raise StorageError instead of the system's error about `what`, whose text is made only then:
    a start looks at very many files.
    """

    __slots__ = ("_what",)

    def __init__(self, *what: object) -> None:
        self._what = what

    def __enter__(self) -> None:
        """Do nothing: only errors matter."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise StorageError.of(" ".join(map(str, self._what)), error) from error


# -- what is said of an error ----------------------------------------------------------------------


def is_broken(error: StorageError) -> bool:
    """True if the disk itself failed, and the cause is not a mistake such as a wrong path."""
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in _BROKEN


def is_gone(error: StorageError) -> bool:
    """True if a file is not there, and nothing else is known to be wrong."""
    return isinstance(error.__cause__, FileNotFoundError)


def is_shortage(error: Exception) -> bool:
    """True if the cause is only that no file descriptor was left: it may succeed later."""
    cause = error.__cause__
    return isinstance(cause, OSError) and descriptors.is_shortage(cause)


def blamed(folder: Path, error: Exception) -> str:
    """Return the error with the folder that it is about."""
    what = str(error) if isinstance(error, PaxosBlockError) else repr(error)
    return what if str(folder) in what else f"{folder}: {what}"


# -- whole files -----------------------------------------------------------------------------------


@contextlib.contextmanager
def opened(disk: Disk, path: Path) -> Iterator[FileHandle]:
    """Yield the existing file `path`, closed again at the end."""
    file = disk.open(path)
    try:
        yield file
    finally:
        disk.close(file)


def read_file(disk: Disk, path: Path) -> bytes:
    """Return the whole file."""
    file = disk.open(path)
    try:
        return disk.read(file, disk.size(file), 0)
    finally:
        disk.close(file)


def copy_file(disk: Disk, source: FileHandle, target: Path) -> FileHandle:
    """Copy the bytes of `source` to a new file `target`, durably; return it, open.

    Raises:
        NoSpaceError: there is no new file.
        StorageError: as the disk says.
    """
    copy = disk.create(target)
    try:
        size = disk.size(source)
        for position in range(0, size, COPIED_BYTES):
            disk.write(copy, disk.read(source, COPIED_BYTES, position), position)
        disk.sync(copy)
    except (NoSpaceError, StorageError):
        with contextlib.suppress(StorageError):
            disk.close(copy)
        with contextlib.suppress(StorageError):
            disk.remove(target)
        raise
    return copy


def open_alone(disk: Disk, path: Path, draft: Path) -> FileHandle:
    """Open a file to change it; if it has another name, a copy takes its place first, by way of
    `draft`, and the other name keeps the bytes.

    Raises:
        NoSpaceError: there is no room for a copy; nothing was changed.
        StorageError: as the disk says.
    """
    shared = disk.open(path)
    if disk.link_count(shared) == 1:
        return shared
    try:
        own = copy_file(disk, shared, draft)
    finally:
        disk.close(shared)
    disk.rename(draft, path)
    disk.sync_folder(path.parent)
    return own


def cut_file(disk: Disk, path: Path, size_bytes: int) -> None:
    """Shorten the file to `size_bytes`, and make what remains durable."""
    with opened(disk, path) as file:
        disk.truncate(file, size_bytes)
        disk.sync(file)


def prove(disk: Disk, path: Path) -> None:
    """Write a few bytes to a new file `path`, sync and read them back, and remove it.

    Raises:
        NoSpaceError: there is no room for them.
        StorageError: the disk does not work.
    """
    content, file = path.name.encode(), disk.create(path)
    try:
        disk.write(file, content, 0)
        disk.sync(file)
        if disk.read_stored(file, len(content), 0) != content:
            raise StorageError("the disk does not return what was written")
    finally:
        disk.close(file)
        disk.remove(path)


def publish(
    disk: Disk,
    draft: Path,
    path: Path,
    pieces: Iterable[Buffer],
    moves: tuple[Path, Path] | None = None,
) -> int:
    """Make `path` hold `pieces`, durably: after a crash it is the old file or the new one.

    Args:
        draft: the name of the new file until it is whole.
        moves: another file, and its new name in the folder of `path`, durable with that. After a
            crash in between each of the two changes may have happened without the other.

    Returns:
        The size of the file in bytes.

    Raises:
        NoSpaceError: nothing was changed.
        StorageError: either of the two files may be there after a crash.
    """
    file = publish_open(disk, draft, path, pieces, moves)
    try:
        return disk.size(file)
    finally:
        disk.close(file)


def publish_open(
    disk: Disk,
    draft: Path,
    path: Path,
    pieces: Iterable[Buffer],
    moves: tuple[Path, Path] | None = None,
    *,
    opened_draft: FileHandle | None = None,
) -> FileHandle:
    """As `publish`; return the open file, for what will follow the pieces.

    `opened_draft` is `draft` if that is there already; it has no other name, and is not longer.
    """
    file = disk.create(draft) if opened_draft is None else opened_draft
    try:
        size = 0
        for piece in pieces:
            disk.write(file, piece, size)
            size += len(piece)
        disk.sync(file)
        disk.rename(draft, path)
        if moves is not None:
            disk.rename(*moves)
        disk.sync_folder(path.parent)
    except (NoSpaceError, StorageError):
        with contextlib.suppress(StorageError):
            disk.close(file)
        with contextlib.suppress(StorageError):  # `draft` may have its name already
            disk.remove(draft)  # a full disk gets its room back
        raise
    return file
