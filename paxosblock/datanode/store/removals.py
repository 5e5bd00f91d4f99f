"""The files of deleted replicas: they are removed one after the other, at a bounded rate.

A replica is gone when its metadata is (D7). Its bytes go back to the file system later, because
that is work for the journal, and on a disk mounted `discard` for the disk itself, and every
`fdatasync` waits for it. Until then the file is in `tmp/`, and a restart finds it there.
"""

from __future__ import annotations

import threading
from collections import deque
from pathlib import Path
from typing import Final

from paxosblock.errors import StorageError
from paxosblock.host.disk import Disk, is_gone, opened

DELETED: Final = "deleted-"
"""Each name is this and a number."""


class Removals:
    """The files of one volume that will be removed. Any thread may call; all methods block."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        """The files wait in `folder`."""
        self._disk = disk
        self._folder = folder
        self._waiting: deque[tuple[Path, int]] = deque()
        self._changing = threading.Lock()
        self._last = 0
        self.waiting_bytes = 0
        """Bytes that are not given back yet."""

    def find(self, name: str) -> bool:
        """Take over the file `name` of the folder if an earlier process left it to be removed."""
        number = name.removeprefix(DELETED)
        if number == name or not number.isdecimal():
            return False
        self._last = max(self._last, int(number))
        path = self._folder / name
        with opened(self._disk, path) as file:
            self._add(path, self._disk.size(file))
        return True

    def take(self, path: Path, size_bytes: int) -> None:
        """Give the file another name, under which it waits. A file that is gone is no error."""
        with self._changing:
            self._last += 1
            name = self._folder / f"{DELETED}{self._last}"
        try:
            self._disk.rename(path, name)
        except StorageError as error:
            if not is_gone(error):
                raise
            return
        self._add(name, size_bytes)

    def remove_next(self) -> int | None:
        """Remove the file that waits longest; return its bytes, None if there is none."""
        with self._changing:
            if not self._waiting:
                return None
            path, size_bytes = self._waiting.popleft()
        try:
            self._disk.remove(path)
        except StorageError as error:
            if not is_gone(error):
                raise
        with self._changing:
            self.waiting_bytes -= size_bytes
        return size_bytes

    def remove_all(self) -> None:
        """Remove everything at once, because a request needs the room."""
        while self.remove_next() is not None:
            pass

    def _add(self, path: Path, size_bytes: int) -> None:
        with self._changing:
            self._waiting.append((path, size_bytes))
            self.waiting_bytes += size_bytes
