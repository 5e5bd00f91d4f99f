"""The files that a path means: one file, those below a directory, or those that a pattern names."""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from paxosblock.api.namenode import FileStatus, Kind
from paxosblock.base.paths import is_below
from paxosblock.client.blocking.sync import Client
from paxosblock.errors import NotFoundError

HIDDEN: Final = ("_", ".")
"""Names that begin so are skipped, like everywhere in Spark: `_SUCCESS`, `_temporary`."""
_WILDCARDS: Final = "*?[{"
_BRACES: Final = re.compile(r"\{([^{}]*)\}")
_ANY_DEPTH: Final = "**"

Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file, and the change of the namespace that put it where it is: since then the file, and
    each listed directory above it, has had its name.
    """

    status: FileStatus
    linked: int

    @property
    def key(self) -> tuple[int, str]:
        """Return its place among all files that are, were and will be found. One that is made or
        moved here later stands behind all that were found before."""
        return self.linked, self.status.path


@dataclass(frozen=True, slots=True)
class ResolvedPath:
    """The meaning of a path at one time.

    `revision` is a change of the namespace: all files with a `linked` up to it were seen. Some
    later ones may be missing, because they came while the directories were being read.
    """

    files: Mapping[str, ListedFile]
    revision: int
    is_pattern: bool


@dataclass(slots=True)
class _Walk:
    """Collects files, and the revision of the first page.

    `one_state`: see a directory as it was at one time, however many pages it has. If files are
    replaced by others in one step, a mixture of both would be wrong.
    """

    fs: Client
    one_state: bool
    files: dict[str, ListedFile] = field(default_factory=dict)
    revision: int = -1
    base: int = -1
    """The id of the directory where it began."""
    descended: bool = False

    def below(
        self, directory: str, names: Names, since: int = 0, file_id: int | None = None
    ) -> None:
        """Collect the files below a directory whose paths match `names`, all of them if empty.

        With `file_id` another directory that has taken its place meanwhile is not entered, unless
        in `one_state`: who follows changes hears of it, and since when it has its name.
        """
        for entry, linked in self._entries(directory, file_id):
            for left in left_behind(entry.name, names):
                if entry.kind is Kind.DIRECTORY:
                    self._enter(entry, left, max(since, linked))
                elif not left:
                    self.files[entry.path] = ListedFile(entry, max(since, linked))

    def _enter(self, directory: FileStatus, names: Names, since: int) -> None:
        self.descended = True
        with contextlib.suppress(NotFoundError):  # deleted since it was listed
            self.below(directory.path, names, since, directory.file_id)

    def _entries(self, directory: str, file_id: int | None) -> Iterator[tuple[FileStatus, int]]:
        pages = list(self.fs.pages(directory, one_state=self.one_state))
        if self.base < 0:
            self.base, self.revision = pages[0].directory, pages[0].revision
        if not self.one_state and file_id not in (None, pages[0].directory):
            return
        for page in pages:
            for entry, linked in zip(page.entries, page.linked, strict=True):
                if not self.one_state or linked <= pages[0].revision:
                    yield entry, linked


def left_behind(name: str, names: Names) -> list[Names]:
    """Return what may be left of a pattern behind a name that fits its beginning; nothing if it
    does not. A file matches if () is left, and all below a directory then does."""
    if name.startswith(HIDDEN) and names[:1] != (name,):
        return []
    if not names:
        return [()]
    if names[0] == _ANY_DEPTH:
        return [*left_behind(name, names[1:]), names]
    return [names[1:]] if _matches(name, names[0]) else []


def _matches(name: str, pattern: str) -> bool:
    return any(fnmatch.fnmatchcase(name, each) for each in _alternatives(pattern))


@functools.lru_cache
def _alternatives(pattern: str) -> tuple[str, ...]:
    """Return the patterns that `pattern` means, its `{a,b}` in full. A lone brace is a letter."""
    braces = _BRACES.search(pattern)
    if braces is None:
        return (pattern,)
    head, tail = pattern[: braces.start()], pattern[braces.end() :]
    chosen = (_alternatives(f"{head}{each}{tail}") for each in braces[1].split(","))
    return tuple(itertools.chain.from_iterable(chosen))


def base_of(path: str) -> tuple[str, Names]:
    """Split a path: the part before the first name with a wildcard, and the names from there on."""
    names = tuple(name for name in path.split("/") if name)
    literal = 0
    while literal < len(names) and not any(sign in names[literal] for sign in _WILDCARDS):
        literal += 1
    return "/" + "/".join(names[:literal]), names[literal:]


def left_below(base: str, names: Names, path: str) -> list[Names]:
    """Return what may be left of the pattern `names` in `base` behind `path`; nothing if that does
    not fit."""
    left = [names] if is_below(path, base) else []
    for name in path.removeprefix(base).strip("/").split("/"):
        left = [each for before in left for each in left_behind(name, before)]
    return left


def files_below(
    fs: Client, directory: str, file_id: int, names: Names, since: int
) -> Mapping[str, ListedFile]:
    """Return the files below a directory that match `names`, none if it is not there any more.

    Args:
        since: the change that gave the directory its name.
    """
    walk = _Walk(fs, one_state=False)
    with contextlib.suppress(NotFoundError):
        walk.below(directory, names, since, file_id)
    return walk.files


def find(fs: Client, path: str, *, one_state: bool = False) -> ResolvedPath:
    """Find everything that `path` means, open files too.

    Args:
        one_state: see all files that one transaction publishes in a directory, or none; and of
            files that it replaces either the old or the new ones. A directory that changes faster
            than it can be listed is taken as it was when that began, but for what left it
            meanwhile.

    Raises:
        NotFoundError: there is no such file or directory, or none that a pattern could begin in.
    """
    base, names = base_of(path)
    while True:
        walk = _Walk(fs, one_state)
        walk.below(base, names)
        # Otherwise another directory has taken the place of the one that was just walked through.
        if not one_state or not walk.descended or fs.stat(base).file_id == walk.base:
            return ResolvedPath(walk.files, walk.revision, bool(names))
