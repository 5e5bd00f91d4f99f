"""The operating system's files as the store uses them: the seam at which tests cut the power.

Every method blocks; the engine calls them in threads. They raise `OSError`, which `engine.py`
translates. Only `create` and `append` raise NoSpaceError: what else fails for lack of room leaves
open what is on the disk, and counts as a failure of the disk.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NewType, Protocol

from paxosblock import descriptors, folders
from paxosblock.descriptors import opening
from paxosblock.errors import NoSpaceError

FileHandle = NewType("FileHandle", int)


class Disk(Protocol):
    """Files that are written once, from beginning to end, and folders of them; and short ones
    that are written over."""

    def make_folder(self, folder: Path) -> None:
        """Create the folder, durably, unless it is there."""

    def names(self, folder: Path) -> list[str]:
        """Return the names in the folder."""

    def read(self, path: Path) -> bytes:
        """Return the whole file."""

    def create(self, path: Path) -> FileHandle:
        """Open a new file for `append`; an old one of this name is emptied."""

    def append(self, file: FileHandle, data: bytes) -> None:
        """Write all of `data` at the end; when it fails, a part may be there."""

    def free_bytes(self, folder: Path) -> int:
        """Return the room that there is for the files of the folder."""

    def open(self, path: Path) -> FileHandle:
        """Open a file that is there for `overwrite`."""

    def overwrite(self, file: FileHandle, data: bytes) -> None:
        """Write `data` over the beginning. Until the next `sync`, a power cut leaves any mixture
        of this and what was there."""

    def sync(self, file: FileHandle) -> None:
        """Return once what was appended, and the file's length, are on stable storage."""

    def close(self, file: FileHandle) -> None:
        """Release the handle (a lock with it); does not sync."""

    def cut(self, path: Path, size_bytes: int) -> None:
        """Shorten the file to `size_bytes` and sync what remains."""

    def rename(self, source: Path, target: Path) -> None:
        """Give the file another name at once, replacing the file that had it."""

    def remove(self, path: Path) -> None:
        """Remove the name."""

    def sync_folder(self, folder: Path) -> None:
        """Return once all creations, renames and removals in the folder are durable."""

    def lock(self, path: Path) -> FileHandle:
        """Lock the file until `close` or the end of the process; BlockingIOError when taken."""


class OsDisk:
    """`Disk` on a local file system."""

    def make_folder(self, folder: Path) -> None:
        folders.make_folder(folder)

    def names(self, folder: Path) -> list[str]:
        return opening(os.listdir, folder)

    def read(self, path: Path) -> bytes:
        return opening(path.read_bytes)

    def create(self, path: Path) -> FileHandle:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        with _telling_room():
            return FileHandle(opening(os.open, path, flags, 0o600))

    def append(self, file: FileHandle, data: bytes) -> None:
        rest = memoryview(data)
        with _telling_room():
            while rest:
                rest = rest[os.write(file, rest) :]

    def free_bytes(self, folder: Path) -> int:
        found = os.statvfs(folder)
        return found.f_bavail * found.f_frsize

    def open(self, path: Path) -> FileHandle:
        return FileHandle(opening(os.open, path, os.O_WRONLY))

    def overwrite(self, file: FileHandle, data: bytes) -> None:
        os.pwrite(file, data, 0)

    def sync(self, file: FileHandle) -> None:
        os.fdatasync(file)

    def close(self, file: FileHandle) -> None:
        descriptors.close(file)

    def cut(self, path: Path, size_bytes: int) -> None:
        file = opening(os.open, path, os.O_WRONLY)
        try:
            os.ftruncate(file, size_bytes)
            os.fsync(file)
        finally:
            os.close(file)

    def rename(self, source: Path, target: Path) -> None:
        os.rename(source, target)

    def remove(self, path: Path) -> None:
        os.unlink(path)

    def sync_folder(self, folder: Path) -> None:
        folders.sync_folder(folder)

    def lock(self, path: Path) -> FileHandle:
        return FileHandle(folders.lock(path))


@contextmanager
def _telling_room() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if folders.lacks_room(error):
            raise NoSpaceError(os.strerror(error.errno or 0)) from error
        raise


def numbered(folder: Path, kind: str, index: int) -> Path:
    """Return the path of the `kind` file that begins, or ends, with log entry `index`."""
    return folder / f"{kind}-{index:020d}"


def numbers(names: Iterable[str], kind: str) -> list[int]:
    """Return the indexes of the `kind` files among `names`, in order; other names are ignored."""
    stem = f"{kind}-"
    tails = (name.removeprefix(stem) for name in names if name.startswith(stem))
    return sorted(int(tail) for tail in tails if len(tail) == 20 and tail.isdecimal())


TEMPORARY = ".tmp"


def publish(disk: Disk, path: Path, chunks: Iterable[bytes]) -> FileHandle:
    """Create the file `path` with these bytes: after a crash it is there as a whole or not.

    Returns:
        The open file, for what is to be appended.
    """
    draft = path.with_name(path.name + TEMPORARY)
    file = disk.create(draft)
    try:
        for chunk in chunks:
            disk.append(file, chunk)
        disk.sync(file)
        disk.rename(draft, path)
        disk.sync_folder(path.parent)
    except OSError:
        disk.close(file)
        with suppress(OSError):  # a full disk gets its room back; or `draft` has its name already
            disk.remove(draft)
        raise
    return file


def store(disk: Disk, path: Path, chunks: Iterable[bytes]) -> int:
    """As `publish`, for a file that is complete with these bytes; return how many they are."""
    size = 0

    def counted() -> Iterator[bytes]:
        nonlocal size
        for chunk in chunks:
            size += len(chunk)
            yield chunk

    disk.close(publish(disk, path, counted()))
    return size


def remove_drafts(disk: Disk, folder: Path) -> None:
    """Remove what a crash left half written."""
    for name in disk.names(folder):
        if name.endswith(TEMPORARY):
            disk.remove(folder / name)
