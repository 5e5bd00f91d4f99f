"""Remembers ways through directories, so that the next one who goes there need not be checked again
at each of them.

A trail keeps the very values that a walk read, and is good as long as each of their keys gives the
same object again: then no edit has changed one of them, so a walk would end where it ended before.
A user's trail has the inodes of all directories that the user passed. It needs no entries, as an
edit that changes the entry of a directory changes its inode, too. A superuser's walk reads no
inode, so that trail has the entries.
"""

from __future__ import annotations

from typing import Final

import msgspec

from paxosblock.namenode.catalog.draft import Draft, Reads, are_still
from paxosblock.namenode.catalog.permissions import Actor
from paxosblock.namenode.kv.interface import Versioned

TRAILS_KEPT: Final = 4096
"""Trails that are remembered; all are forgotten before there are more."""
TRAIL_NAMES_MAX: Final = 16
"""Names of the longest trail that is remembered, so that all together take some 10 MiB at most."""

Names = tuple[str, ...]


class Trail(msgspec.Struct, frozen=True, gc=False):
    """A way from the root to a directory through which an actor may go on."""

    directory: int
    read: dict[bytes, Versioned]
    """The values that were read on the way."""


TRAILS: Final[dict[tuple[Names, Actor], Trail]] = {}
"""Of all catalogs of the process: no two of them have a value in common."""


def follow(reads: Reads, names: Names, actor: Actor) -> int | None:
    """Return the directory that `names` lead to, if `actor` may pass it and all before it; None if
    that is not known without a walk. A draft expects that it stays so."""
    trail = TRAILS.get((names, actor))
    if trail is None:
        return None
    read = trail.read
    good = reads.stands_on(read) if type(reads) is Draft else are_still(reads.get, read)
    return trail.directory if good else None


def remember(names: Names, actor: Actor, directory: int, read: dict[bytes, Versioned]) -> None:
    """Keep what a walk has read on the way to a directory."""
    if len(names) > TRAIL_NAMES_MAX:
        return
    if len(TRAILS) >= TRAILS_KEPT:
        TRAILS.clear()
    TRAILS[names, actor] = Trail(directory, read)
