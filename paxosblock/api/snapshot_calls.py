"""Snapshots of directories: read-only, below `.snapshot` in the directory."""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from paxosblock.api.methods import Method, Once
from paxosblock.api.namenode import FileStatus
from paxosblock.api.subtree import NO_MOMENT

SNAPSHOT_DIRECTORY: Final = ".snapshot"
REVISION: Final = "@"
"""The character before a revision of the catalog, in the window of history, in paths below
`/.snapshot`; with a `t` it is a time, in seconds since the epoch."""


def is_in_snapshot(path: str) -> bool:
    """True if a path leads through `.snapshot`."""
    return f"/{SNAPSHOT_DIRECTORY}/" in path


class CreateSnapshot(msgspec.Struct, frozen=True):
    """Take a snapshot of the directory at `path`; "" lets the NameNode give it HDFS's name."""

    path: str
    name: str = ""
    once: Once | None = None


class DeleteSnapshot(msgspec.Struct, frozen=True):
    """End a snapshot."""

    path: str
    name: str
    once: Once | None = None


class RenameSnapshot(msgspec.Struct, frozen=True):
    """Give a snapshot another name."""

    path: str
    name: str
    new_name: str
    once: Once | None = None


class SnapshotStatus(msgspec.Struct, frozen=True):
    """A snapshot, and the path at which it is read."""

    path: str
    name: str
    number: int
    created_s: float
    owner: str


class ListSnapshots(msgspec.Struct, frozen=True):
    """Ask for the snapshots of the directory at `path`."""

    path: str


class SnapshotList(msgspec.Struct, frozen=True):
    """The snapshots of a directory, the oldest first."""

    snapshots: tuple[SnapshotStatus, ...]


class AskKeptRoom(msgspec.Struct, frozen=True):
    """Ask what a snapshot keeps, from this block of the files that wait for its end on."""

    path: str
    name: str
    file: int = 0
    place: int = 0


class SnapshotRoom(msgspec.Struct, frozen=True):
    """Bytes that replicas take of blocks which only this snapshot keeps: they go with it. The next
    part begins at a block, which None says after the last part."""

    size_bytes: int
    following: tuple[int, int] | None = None


class Difference(enum.Enum):
    """The kinds of differences between two states of a directory, by the names that HDFS has."""

    CREATE = "CREATE"
    MODIFY = "MODIFY"
    DELETE = "DELETE"
    RENAME = "RENAME"


class SnapshotDifference(msgspec.Struct, frozen=True, omit_defaults=True):
    """One difference. Both paths begin at the directory that is compared, without a `/`; "" is the
    directory itself. `source` is the path in the older state (of a new entry: that of its directory
    there, and its name). Of a rename it is the path before it, and `target` that behind it."""

    kind: Difference
    source: str
    target: str = ""


class DiffSnapshots(msgspec.Struct, frozen=True):
    """Ask what differs in the directory at `path` between two of its snapshots; "" is what is there
    now. The rest is as in `SumSubtree`, but `after` is no path."""

    path: str
    before: str
    later: str
    moment: str = NO_MOMENT
    after: str = ""


class SnapshotDifferences(msgspec.Struct, frozen=True):
    """A part of what differs; `moment`, `after` and `gone` are as in `SubtreeSums`."""

    differences: tuple[SnapshotDifference, ...] = ()
    moment: str = NO_MOMENT
    after: str = ""
    gone: bool = False


class Undelete(msgspec.Struct, frozen=True):
    """Bring back what was removed last under `path`, with all that was below it."""

    path: str
    once: Once | None = None


CREATE_SNAPSHOT = Method("create_snapshot", CreateSnapshot, SnapshotStatus)
DELETE_SNAPSHOT = Method("delete_snapshot", DeleteSnapshot, SnapshotStatus)
RENAME_SNAPSHOT = Method("rename_snapshot", RenameSnapshot, SnapshotStatus)
LIST_SNAPSHOTS = Method("list_snapshots", ListSnapshots, SnapshotList, any_namenode=True)
KEPT_ROOM = Method("kept_room", AskKeptRoom, SnapshotRoom, any_namenode=True)
DIFF_SNAPSHOTS = Method("diff_snapshots", DiffSnapshots, SnapshotDifferences)
UNDELETE = Method("undelete", Undelete, FileStatus)
