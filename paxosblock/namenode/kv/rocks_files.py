"""The files of a RocksDB database: copied while it is open, sent as a stream, and written again.

    stream = "PBKFILE1", length of the list u32, crc32c of these u32, list, crc32c of the list u32,
             the files one after the other        all integers big-endian
    list   = msgpack [[name, bytes], ...]

Files of keys (`*.sst`) never change, so a second name is a copy. The list of the files that count
(`MANIFEST-...`) grows before one of them is removed. So if it did not grow while the files got
their second names, all files that it names got one.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections import deque
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Final

import msgspec

from paxosblock.base.checksum import Buffer, crc32c
from paxosblock.base.encoding import msgpack_decoder
from paxosblock.base.formats import refuse_later_magic
from paxosblock.base.units import MIB
from paxosblock.errors import CorruptionError, StorageError
from paxosblock.host.disk import Disk, FileHandle, is_gone, opened, read_file
from paxosblock.namenode.kv.files import publish

_MAGIC: Final = b"PBKFILE1"
_HEAD = struct.Struct(">8sI")
_CRC = struct.Struct(">I")
_LIST_BYTES_MAX: Final = 16 * MIB
_NAME = re.compile(r"[A-Za-z0-9][-A-Za-z0-9.]*")
_CURRENT: Final = "CURRENT"
_IDENTITY: Final = "IDENTITY"

_List = list[tuple[str, int]]
_ENCODER = msgspec.msgpack.Encoder()
_LIST = msgpack_decoder(_List)


def make_empty(disk: Disk, path: Path) -> None:
    """Make `path` an empty folder."""
    remove_database(disk, path)
    disk.make_folder(path)


def remove_database(disk: Disk, path: Path) -> None:
    """Remove the folder `path` and what is in it, if it is there."""
    if path.name in disk.names(path.parent):
        for name in disk.names(path):
            disk.remove(path / name)
        disk.remove_folder(path)


def copy_files(disk: Disk, source: Path, target: Path) -> None:
    """Copy the database that is open in the folder `source`, as it is at one moment, to the folder
    `target` beside it. The copy is not synced as a whole."""
    while True:
        make_empty(disk, target)
        manifest = _manifest(disk, source)
        listed = read_file(disk, source / manifest)
        for name in disk.names(source):
            if name.endswith(".sst"):
                _link(disk, source / name, target / name)
        if (manifest, len(listed)) == _known(disk, source):
            break
    # An open that finds no name of the database would make one, with a sync.
    publish(disk, target / _IDENTITY, [read_file(disk, source / _IDENTITY)])
    publish(disk, target / manifest, [listed])
    publish(disk, target / _CURRENT, [f"{manifest}\n".encode()])


def _manifest(disk: Disk, source: Path) -> str:
    return read_file(disk, source / _CURRENT).decode(errors="replace").strip()


def _known(disk: Disk, source: Path) -> tuple[str, int]:
    manifest = _manifest(disk, source)
    return manifest, disk.size_of(source / manifest)


def _link(disk: Disk, source: Path, target: Path) -> None:
    try:
        disk.link(source, target)
    except StorageError as error:
        if not is_gone(error):  # a file that is gone no longer counted
            raise


class FileCheckpoint:
    """The copy of a database in a folder of its own, as a stream; see `Checkpoint`."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        """List the files. One that a compaction has only begun is empty, and does not count."""
        self._disk = disk
        self._folder = folder
        sizes = ((name, disk.size_of(folder / name)) for name in sorted(disk.names(folder)))
        self._files: _List = [(name, size) for name, size in sizes if size]
        listed = _ENCODER.encode(self._files)
        head = _HEAD.pack(_MAGIC, len(listed))
        self._head = head + _CRC.pack(crc32c(head)) + listed + _CRC.pack(crc32c(listed))
        self._begins = list(accumulate((size for _, size in self._files), initial=len(self._head)))

    @property
    def size_bytes(self) -> int:
        return self._begins[-1]

    def read(self, size_bytes: int, offset: int) -> bytes:
        if offset < len(self._head):
            return self._head[offset : offset + size_bytes]
        number = bisect_right(self._begins, offset) - 1
        left = min(size_bytes, self._begins[number + 1] - offset)
        path = self._folder / self._files[number][0]
        with opened(self._disk, path) as file:
            data = self._disk.read(file, left, offset - self._begins[number])
        if len(data) < left:
            raise StorageError(f"{path}: shorter than it was")
        return data

    def close(self) -> None:
        remove_database(self._disk, self._folder)


class FileReceiver:
    """Writes the files of a stream to a folder."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        """Make the folder, in place of a folder that was there."""
        self._disk = disk
        self.folder = folder
        self._head = bytearray()
        self._missing: deque[tuple[str, int]] | None = None
        self._file: FileHandle | None = None
        self._written = 0
        make_empty(disk, folder)

    def write(self, data: Buffer) -> None:
        """Write the next bytes of the stream; a file that is whole is durable."""
        rest = memoryview(data)
        if self._missing is None:
            self._head += rest
            self._missing = self._listed()
            if self._missing is None:
                return
            rest = memoryview(bytes(self._head))[self._list_end() :]
        while rest:
            if not self._missing:
                raise CorruptionError(f"{self.folder}: more came than the list of files tells")
            name, size = self._missing[0]
            if self._file is None:
                self._file, self._written = self._disk.create(self.folder / name), 0
            piece = rest[: size - self._written]
            self._disk.write(self._file, piece, self._written)
            self._written += len(piece)
            rest = rest[len(piece) :]
            if self._written == size:
                self._disk.sync(self._file)
                self._next_file()

    def finish(self) -> None:
        """Make the files durable under their names.

        Raises:
            CorruptionError: the stream is not complete.
        """
        if self._missing is None or self._missing:
            raise CorruptionError(f"{self.folder}: less came than the list of files tells")
        self._disk.sync_folder(self.folder)

    def discard(self) -> None:
        """Remove what came."""
        if self._file is not None:
            self._next_file()
        remove_database(self._disk, self.folder)

    def _next_file(self) -> None:
        assert self._file is not None, "a file is being written"
        assert self._missing, "it is the first of those that are missing"
        self._disk.close(self._file)
        self._file = None
        self._missing.popleft()

    def _list_end(self) -> int:
        _, length = _HEAD.unpack_from(self._head)
        return _HEAD.size + 2 * _CRC.size + int(length)

    def _listed(self) -> deque[tuple[str, int]] | None:
        """Return the list of files; None until all of it has come."""
        begin = _HEAD.size + _CRC.size
        if len(self._head) < begin:
            return None
        head = bytes(self._head[: _HEAD.size])
        magic, length = _HEAD.unpack(head)
        if bytes(self._head[_HEAD.size : begin]) != _CRC.pack(crc32c(head)):
            raise CorruptionError(f"{self.folder}: no checkpoint came")
        refuse_later_magic("what another NameNode sent", magic, _MAGIC)
        if magic != _MAGIC or length > _LIST_BYTES_MAX:
            raise CorruptionError(f"{self.folder}: no checkpoint came")
        end = self._list_end()
        if len(self._head) < end:
            return None
        listed = bytes(self._head[begin : end - _CRC.size])
        if bytes(self._head[end - _CRC.size : end]) == _CRC.pack(crc32c(listed)):
            with suppress(msgspec.MsgspecError):
                files = _LIST.decode(listed)
                if all(_NAME.fullmatch(name) and size > 0 for name, size in files):
                    return deque(files)
        raise CorruptionError(f"{self.folder}: the list of files that came is damaged")
