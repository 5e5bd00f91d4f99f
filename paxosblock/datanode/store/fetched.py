"""Chunks that were fetched for a recovery, in a file of `tmp/` until the replica adopts them."""

from __future__ import annotations

import itertools
from pathlib import Path

from paxosblock.base.checksum import Buffer
from paxosblock.datanode.store.chunk_records import check_records
from paxosblock.host.disk import Disk, FileHandle
from paxosblock.net.wire import HEADER_BYTES
from paxosblock.protocol.types import BlockId, ChunkName

_numbers = itertools.count()


class FetchedFile:
    """Records of successive chunks from `first` on. All methods block."""

    def __init__(self, disk: Disk, folder: Path, block: BlockId, first: int) -> None:
        """Makes a new file in `folder`."""
        self.block = block
        self.first = first
        self.path = folder / f"blk_{block}.draft{next(_numbers)}"
        self.names: tuple[ChunkName, ...] = ()
        self._disk = disk
        self._starts = [0]
        self._file: FileHandle | None = disk.create(self.path)

    @property
    def handle(self) -> FileHandle:
        """The open file."""
        assert self._file is not None, "it was adopted or discarded"
        return self._file

    @property
    def stop(self) -> int:
        """Index of the chunk that comes next."""
        return self.first + len(self.names)

    def append(self, names: tuple[ChunkName, ...], records: Buffer) -> None:
        """Add the records of `names`.

        Raises:
            CorruptionError: the records are not those of `names`; nothing was added.
            NoSpaceError, StorageError: as the disk says.
        """
        check_records(self.block, names, records)
        self._disk.write(self.handle, records, self._starts[-1])
        for name in names:
            self._starts.append(self._starts[-1] + HEADER_BYTES + name.size_bytes)
        self.names += names

    def read(self, start: int, stop: int) -> bytes:
        """Return the records of chunks `start` to `stop - 1`."""
        begin, end = self._starts[start - self.first], self._starts[stop - self.first]
        return self._disk.read(self.handle, end - begin, begin)

    def become(self, path: Path) -> FileHandle:
        """Sync it and give it this name; the caller owns the file from here on."""
        file = self.handle
        self._disk.sync(file)
        self._disk.rename(self.path, path)
        self._file = None
        return file

    def discard(self) -> None:
        """Remove it, unless it became a replica's file."""
        if self._file is not None:
            self._disk.close(self._file)
            self._file = None
            self._disk.remove(self.path)
