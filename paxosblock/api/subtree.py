"""Calls about all that is below a path, answered a part at a time from one moment.

The first part names a moment: the NameNode that leads keeps the catalog as it was then, and later
parts ask for the same moment. It is forgotten after the last part, `KEPT_S` seconds after the last
request for it, or when another NameNode takes the lead: a part then says `gone`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from paxosblock.api.methods import Method
from paxosblock.api.namenode import FileStatus

KEPT_S: Final = 30.0
KEYS_MAX: Final = 1000
"""Keys and groups of keys of one answer, as of a store of objects."""
NO_MOMENT: Final = ""


class ContentSummary(msgspec.Struct, frozen=True):
    """The count of a file or directory, with all that is below it and the directory itself.

    `size` is the bytes of the files (of a file that is being written, as its status says), `space`
    the same with each file counted as often as it has replicas.
    """

    files: int = 0
    directories: int = 0
    size: int = 0
    space: int = 0

    def plus(self, other: ContentSummary) -> ContentSummary:
        """Return the summary of both."""
        return ContentSummary(
            self.files + other.files,
            self.directories + other.directories,
            self.size + other.size,
            self.space + other.space,
        )


class SumSubtree(msgspec.Struct, frozen=True):
    """Sum up what is at `path`; with `each`, every entry of that directory by itself.

    The sum goes on behind the path `after` at `moment`, as the part before said.
    """

    path: str
    each: bool = False
    moment: str = NO_MOMENT
    after: str = ""


class Summed(msgspec.Struct, frozen=True):
    """The sum, in one part, of a file or directory."""

    status: FileStatus
    summary: ContentSummary


class SubtreeSums(msgspec.Struct, frozen=True):
    """A part of the sums; the next one goes on behind `after`, "" after the last.

    The first of `sums` may go on with the last one of the part before.
    """

    sums: tuple[Summed, ...] = ()
    moment: str = NO_MOMENT
    after: str = ""
    gone: bool = False


class ListSubtree(msgspec.Struct, frozen=True):
    """Ask for what is below `path`, a directory before what is in it, in order of name; the rest is
    as in `SumSubtree`."""

    path: str
    moment: str = NO_MOMENT
    after: str = ""


class Unread(msgspec.Struct, frozen=True):
    """A directory that the caller may not read, and the words of that."""

    path: str
    reason: str


class SubtreeListing(msgspec.Struct, frozen=True):
    """A part of what is below a path; `moment`, `after` and `gone` are as in `SubtreeSums`.

    Nothing in the directories that are `unread` was listed. A watcher that begins behind
    `revision` hears of all changes since.
    """

    entries: tuple[FileStatus, ...] = ()
    unread: tuple[Unread, ...] = ()
    moment: str = NO_MOMENT
    after: str = ""
    gone: bool = False
    revision: int = 0


class ListKeys(msgspec.Struct, frozen=True):
    """Ask for what is below the directory `path` as keys, in the order of their bytes: the paths
    from there on, without the first `/`. A directory that was asked for (`MakeDirectory`) has a
    key that ends with `/`; others are seen only by what is in them.

    Those that begin with `prefix` and are greater than `after`. With a `delimiter`, keys in which
    it follows the prefix are shown as one that ends with it, unless `after` begins with that.
    """

    path: str
    prefix: str = ""
    after: str = ""
    delimiter: str = ""
    limit: int = KEYS_MAX


class ListedKey(msgspec.Struct, frozen=True):
    """A key, and the file or directory there; None for a group of keys that begin so."""

    key: str
    status: FileStatus | None = None


class KeyListing(msgspec.Struct, frozen=True):
    """Some keys, as they were after `revision`; the rest is behind `after`, "" if there is none."""

    keys: tuple[ListedKey, ...] = ()
    after: str = ""
    revision: int = 0


LIST_KEYS = Method("list_keys", ListKeys, KeyListing, any_namenode=True)
SUM_SUBTREE = Method("sum_subtree", SumSubtree, SubtreeSums)
LIST_SUBTREE = Method("list_subtree", ListSubtree, SubtreeListing)
