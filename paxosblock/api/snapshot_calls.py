"""Snapshots of directories: read-only, below `.snapshot` in the directory."""

from __future__ import annotations

from typing import Final

import msgspec

from paxosblock.api.methods import Method, Once

SNAPSHOT_DIRECTORY: Final = ".snapshot"


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


CREATE_SNAPSHOT = Method("create_snapshot", CreateSnapshot, SnapshotStatus)
DELETE_SNAPSHOT = Method("delete_snapshot", DeleteSnapshot, SnapshotStatus)
RENAME_SNAPSHOT = Method("rename_snapshot", RenameSnapshot, SnapshotStatus)
LIST_SNAPSHOTS = Method("list_snapshots", ListSnapshots, SnapshotList, any_namenode=True)
