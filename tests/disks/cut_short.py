"""A real disk in a process that ends at one of its changes."""

from __future__ import annotations

from pathlib import Path

from paxosblock.base.checksum import Buffer
from paxosblock.errors import StorageError
from paxosblock.host.disk import FileHandle, OsDisk


class CutShort(OsDisk):
    """The process ends at the n-th change of a file or a name."""

    def __init__(self, steps: int = 1 << 30) -> None:
        self.left = steps

    def _step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise StorageError("cut short")

    def make_folder(self, folder: Path) -> None:
        self._step()
        super().make_folder(folder)

    def create(self, path: Path) -> FileHandle:
        self._step()
        return super().create(path)

    def write(self, file: FileHandle, data: Buffer, offset: int) -> None:
        self._step()
        super().write(file, data, offset)

    def sync(self, file: FileHandle) -> None:
        self._step()
        super().sync(file)

    def rename(self, source: Path, target: Path) -> None:
        self._step()
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        self._step()
        super().remove(path)

    def remove_folder(self, folder: Path) -> None:
        self._step()
        super().remove_folder(folder)

    def sync_folder(self, folder: Path) -> None:
        self._step()
        super().sync_folder(folder)
