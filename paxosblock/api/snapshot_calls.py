"""Snapshots of directories: read-only, below `.snapshot` in the directory."""

from __future__ import annotations

from typing import Final

import msgspec

from paxosblock.api.methods import Once

SNAPSHOT_DIRECTORY: Final = ".snapshot"


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
