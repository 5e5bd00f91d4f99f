"""The names below a path as a watcher knows them: by a list, and by the changes since."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import groupby
from typing import Final, NamedTuple

from paxosblock.api.watching import ChangeKind, NameChange
from paxosblock.base.paths import is_below
from paxosblock.namenode.catalog import keys
from paxosblock.namenode.catalog.draft import inode_of
from paxosblock.namenode.catalog.records import FileInode
from paxosblock.namenode.catalog.subtree_walk import walk
from paxosblock.namenode.kv.interface import View


class Known(NamedTuple):
    """A file or directory; `size` is that of a closed file."""

    file_id: int
    is_directory: bool
    size: int | None


Names = dict[str, Known]

_OF_BYTES: Final = (ChangeKind.OPENED, ChangeKind.CLOSED, ChangeKind.RESIZED)


def names_in(view: View) -> Names:
    """All names of a catalog but that of the root, by the walk that lists them."""
    found: Names = {"/": Known(1, True, None)}
    if not view.get(keys.inode(1)).exists:
        return {}
    for step in walk(view, "/"):
        inode = inode_of(view, step.target.number)
        assert inode is not None
        is_file = isinstance(inode, FileInode)
        size = inode.length if isinstance(inode, FileInode) and not inode.open else None
        found[step.path] = Known(inode.number, not is_file, size)
    del found["/"]
    return found


def below(names: Names, path: str) -> Names:
    """Those at `path` and below it."""
    return {each: known for each, known in names.items() if is_below(each, path)}


class WatchedNames:
    """Follows the changes of one path as the documents tell a watcher to."""

    def __init__(self, path: str, names: Names, revision: int) -> None:
        self.path = path
        self.names = below(names, path)
        self.revision = revision

    def take(self, changes: Iterable[NameChange], listed: Callable[[int, str], Names]) -> None:
        """Apply changes; `listed` lists what came in from elsewhere, at that revision."""
        for revision, at_once in groupby(changes, lambda change: change.revision):
            assert revision > self.revision, "each change comes once, and in order"
            self.revision = revision
            self._take_moment(list(at_once), partial(listed, revision))

    def _take_moment(self, changes: list[NameChange], listed: Callable[[str], Names]) -> None:
        moved: dict[int, dict[str, Known]] = {}
        # The deepest first: a directory may go out of which something is moved in the same moment.
        for change in sorted(changes, key=lambda each: -(each.source or each.path).count("/")):
            if change.kind is ChangeKind.REMOVED:
                self._away(change.path)
            elif change.kind is ChangeKind.RENAMED and change.source:
                gone = self._away(change.source)
                if change.source in gone:
                    stem = len(change.source)
                    moved[change.file_id] = {path[stem:]: each for path, each in gone.items()}
        for change in sorted(changes, key=lambda each: each.path.count("/")):
            if change.kind is ChangeKind.CREATED:
                known = Known(change.file_id, change.is_directory, change.size)
                assert change.path not in self.names, "what is created was not there"
                self.names[change.path] = known
            elif change.kind is ChangeKind.RENAMED and change.path:
                self._here(change.path, moved.get(change.file_id), listed)
        for change in changes:
            if change.kind in _OF_BYTES:
                assert self.names[change.path].file_id == change.file_id
                self.names[change.path] = Known(change.file_id, False, change.size)

    def _here(
        self, path: str, moved: dict[str, Known] | None, listed: Callable[[str], Names]
    ) -> None:
        """Something has come to `path`: it was `moved` within what is watched, or is listed."""
        if is_below(path, self.path):
            came = listed(path) if moved is None else {path + rest: moved[rest] for rest in moved}
            self.names |= came
        elif is_below(self.path, path):
            self.names |= listed(self.path)

    def _away(self, path: str) -> Names:
        gone = below(self.names, path)
        for each in gone:
            del self.names[each]
        return gone
