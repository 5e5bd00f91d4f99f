"""The metadata of a volume's replicas is replaced, and the replaced files are written again.

A new file makes the file system commit twice, once for its place and length and once for its name;
and to give the old one back is work as well. Files that are kept in `tmp/` and written over need
neither: bytes as many as before are on the disk without a commit.

A file is written again only when no power cut can bring back the name that it had, so not before
the folder of that name was synced.
"""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from paxosblock.base.checksum import Buffer
from paxosblock.errors import NoSpaceError, StorageError
from paxosblock.host.disk import Disk, FileHandle, is_gone, publish_open

KEPT_MAX: Final = 8
"""Files that are kept of one folder; others are removed."""


@dataclass(slots=True)
class _FolderFiles:
    """The files whose names one folder had."""

    gone: list[Path] = field(default_factory=list)
    """After a power cut the folder may have their names again."""
    free: list[Path] = field(default_factory=list)
    """They have no other name, and may be written."""


class Drafts:
    """The files of one volume that may become metadata. Any thread may call; all methods block."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        """Keep the files in `folder`, which every start empties."""
        self._disk = disk
        self._folder = folder
        self._kept: defaultdict[Path, _FolderFiles] = defaultdict(_FolderFiles)
        self._numbers = itertools.count(1)
        self._changing = threading.Lock()

    def publish(self, path: Path, data: Buffer, moves: tuple[Path, Path] | None = None) -> None:
        """Make `path` hold `data`; `moves` and all that is raised are as of `disk.publish`."""
        with self._changing:
            kept = self._kept[path.parent]
            gone, kept.gone = kept.gone, []
        comes = moves is not None and moves[0].parent != path.parent  # it replaces none here
        replaced = None if comes else self._second_name(path, kept, len(gone))
        draft, file = self._draft(kept, len(data))
        try:
            done = publish_open(self._disk, draft, path, [data], moves, opened_draft=file)
        except NoSpaceError:
            if replaced is not None:
                self._disk.remove(replaced)
            with self._changing:
                kept.gone += gone
            raise
        self._disk.close(done)
        with self._changing:  # `publish_open` has synced the folder
            kept.free += gone if replaced is None else [*gone, replaced]

    def take(self, path: Path) -> None:
        """Take the name `path` from a file; that is not durable. It need not be there."""
        kept = self._kept[path.parent]
        try:
            if self._has_room(kept):
                name = self._new_name()
                self._disk.rename(path, name)
                with self._changing:
                    kept.gone.append(name)
            else:
                self._disk.remove(path)
        except StorageError as error:
            if not is_gone(error):
                raise

    def _second_name(self, path: Path, kept: _FolderFiles, others: int) -> Path | None:
        """Give the file that will be replaced another name; None: there is none, or nothing is kept
        of it. `others` are counted with those of `kept`."""
        if not self._has_room(kept, others):
            return None
        name = self._new_name()
        try:
            self._disk.link(path, name)
        except StorageError:  # not every file system gives second names
            return None
        return name

    def _draft(self, kept: _FolderFiles, size_bytes: int) -> tuple[Path, FileHandle | None]:
        """Return a file to write `size_bytes` to; it is open if it is there already."""
        while True:
            with self._changing:
                path = kept.free.pop() if kept.free else None
            if path is None:
                return self._new_name(), None
            file = self._opened(path, size_bytes)
            if file is not None:
                return path, file

    def _opened(self, path: Path, size_bytes: int) -> FileHandle | None:
        """Open a kept file, no longer than `size_bytes`; None: it cannot be used, and is gone."""
        try:
            file = self._disk.open(path)
        except StorageError:  # for lack of a descriptor: then `create` refuses without harm
            file = None
        if file is not None and self._disk.link_count(file) == 1:
            if self._disk.size(file) > size_bytes:
                self._disk.truncate(file, size_bytes)
            return file
        if file is not None:  # a snapshot shares it
            self._disk.close(file)
        with suppress(StorageError):
            self._disk.remove(path)
        return None

    def _has_room(self, kept: _FolderFiles, others: int = 0) -> bool:
        return others + len(kept.gone) + len(kept.free) < KEPT_MAX

    def _new_name(self) -> Path:
        return self._folder / f"{next(self._numbers)}.meta"
