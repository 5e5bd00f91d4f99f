"""The files at a path that a stream did not read yet, kept up to date by the change feed.

A directory is listed when a query starts; from then on the feed tells which names changed, and only
these are looked at. So what a poll costs does not grow with the directory. A query that starts
again goes on behind the place in the log that its offset tells, and lists only if the NameNodes no
longer know all changes since.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from paxosblock.api.namenode import FileStatus, Kind
from paxosblock.api.watching import ChangeKind, NameChange, NameChanges
from paxosblock.base.paths import is_below
from paxosblock.client.blocking.sync import Client
from paxosblock.client.spark.listing import (
    ListedFile,
    ResolvedPath,
    base_of,
    files_below,
    find,
    left_below,
)
from paxosblock.errors import GapError, InvalidRequestError, NotFoundError

PAUSE_S: Final = 0.2
"""Seconds until the feed is asked again if it told only of names that are not of the stream, such
as those below `_temporary`."""
LAG_S: Final = 0.05
"""Seconds that a NameNode may wait for changes that another one knows already."""
LOOKS_AT_ONCE: Final = 8
"""Names that are looked at side by side."""

_APPEARS: Final = frozenset({ChangeKind.CREATED, ChangeKind.RENAMED})


@dataclass(frozen=True, slots=True)
class _Name:
    """A file that changed, and the change that put it where it is."""

    file_id: int
    linked: int


class NewFiles:
    """Files that a stream did not read, by their paths, as they are after a change."""

    def __init__(self, fs: Client, path: str) -> None:
        """Know nothing of `path`, a directory or a pattern, before it is asked for."""
        self._fs = fs
        self._path = path
        self._base, self._names = base_of(path)
        self._files: dict[str, ListedFile] = {}
        self._changed: dict[str, _Name] = {}
        """Files whose facts have changed, or are not known yet."""
        self._place: NameChanges | None = None
        """All changes up to here are known; None: a listing comes next."""

    def begin(self, after: int) -> None:
        """Begin with what appeared behind the revision `after`, if that is still known: else with
        all that is there."""
        self._files, self._place = {}, NameChanges(after, 0)
        try:
            self._ask()
        except InvalidRequestError:  # of a time before a backup was restored
            self._place = None

    def now(self) -> ResolvedPath:
        """Return what was not read, with all changes that were made before this call.

        Raises:
            NotFoundError: there is no such directory.
        """
        goal, wait_s = self._fs.changes(self._base).revision, 0.0
        while True:
            if self._place is None:
                finding = find(self._fs, self._path)
                self._files = dict(finding.files)
                self._place = NameChanges(finding.revision, 0)
            if self._place.revision >= goal:
                return ResolvedPath(self._files, self._place.revision, bool(self._names))
            before = self._place
            self._ask(wait_s)
            wait_s = LAG_S if self._place == before else 0.0

    def wait(self, seconds: float) -> None:
        """Wait until the feed tells something that may be of the stream, at most so long."""
        deadline = time.monotonic() + seconds
        while (left_s := deadline - time.monotonic()) > 0 and not self._ask(left_s):
            time.sleep(max(0.0, min(PAUSE_S, deadline - time.monotonic())))

    def keep(self, lacks: Callable[[ListedFile], bool]) -> None:
        """Forget the files that were read."""
        self._files = {path: each for path, each in self._files.items() if lacks(each)}

    def _ask(self, wait_s: float = 0.0) -> bool:
        """Ask once for what comes next; return whether more files may be there now."""
        try:
            told = self._fs.changes(self._base, self._place, wait_s=wait_s)
        except GapError:
            self._place = None
            return True
        self._place = None  # unless all of it is understood
        if any(self._needs_list(change) for change in told.changes):
            return True
        came = [self._take(change) for change in told.changes]
        self._inspect()
        self._place = told
        return any(came)

    def _needs_list(self, change: NameChange) -> bool:
        """True if the user may list others than before, or the directory of the stream moved."""
        if not change.is_directory:
            return False
        if change.kind is ChangeKind.CHANGED:
            return change.changes_rights
        return any(path and is_below(self._base, path) for path in (change.path, change.source))

    def _take(self, change: NameChange) -> bool:
        """Note what a change means; return whether a file may be new by it."""
        appears = change.kind in _APPEARS and bool(change.path)
        gone = change.path if change.kind is ChangeKind.REMOVED else change.source
        if change.is_directory:
            self._inspect()  # the names that changed before it are of the directory that was there
            if gone:
                self._drop_below(gone, change.revision)
            return appears and self._enter(change)
        if gone in self._files and self._files[gone].status.file_id == change.file_id:
            del self._files[gone]
        if appears and () in left_below(self._base, self._names, change.path):
            self._changed[change.path] = _Name(change.file_id, change.revision)
        elif change.path in self._files:
            name = _Name(change.file_id, self._files[change.path].linked)
            self._changed.setdefault(change.path, name)
        return change.path in self._changed

    def _drop_below(self, directory: str, revision: int) -> None:
        self.keep(lambda each: each.linked >= revision or not is_below(each.status.path, directory))

    def _enter(self, change: NameChange) -> bool:
        """Find the files that came with a directory; return whether there are any."""
        found: dict[str, ListedFile] = {}
        for names in left_below(self._base, self._names, change.path):
            found |= files_below(self._fs, change.path, change.file_id, names, change.revision)
        self._files |= found
        return bool(found)

    def _inspect(self) -> None:
        """Ask for the facts of files that changed: how long they are, whether they are complete."""
        changed, self._changed = self._changed, {}
        if not changed:
            return
        with ThreadPoolExecutor(LOOKS_AT_ONCE) as pool:
            for path, status in zip(changed, pool.map(self._stat, changed), strict=True):
                # Of another file that took its place the feed tells next.
                if status is None or status.file_id != changed[path].file_id:
                    self._files.pop(path, None)
                elif status.kind is Kind.FILE:
                    self._files[path] = ListedFile(status, changed[path].linked)

    def _stat(self, path: str) -> FileStatus | None:
        try:
            return self._fs.stat(path)
        except NotFoundError:
            return None
