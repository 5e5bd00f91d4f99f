"""The options of a copy, and the outcome for each file and directory."""

from __future__ import annotations

import enum
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from paxosblock.api.namenode import FileStatus
from paxosblock.base.replacement import WriteOptions
from paxosblock.errors import PaxosBlockError
from paxosblock.protocol.types import Durability

AT_ONCE: Final = 8
"""Files that are copied at once: each waits for the cluster most of its time."""


@dataclass(frozen=True, slots=True)
class Sync:
    """Let a copy leave alone what is the same at its target, in length and bytes.

    Args:
        delete: delete what is at the target and not at the source, when all has been copied; and
            replace a directory by a file, or a file by a directory. A run in which something
            failed deletes nothing.
        dry_run: change nothing, only tell what would be done.
        by_time: take files of the same length and time of change for the same; `preserve="t"` gives
            copies the time of their originals.
    """

    delete: bool = False
    dry_run: bool = False
    by_time: bool = False


class CopyAction(enum.Enum):
    """The thing that was done for a file or directory."""

    COPIED = "copied"
    SAME = "same"
    """The file was there, with the same bytes."""
    MADE = "made"
    """The directory was made."""
    KEPT = "kept"
    """The directory was there."""
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class CopyStep:
    """A file or directory with which a copy is done.

    `source` is "" for what was deleted. With an `error` it was not done. `original` is what was
    known of a file when it was opened. `replicas` are those of the block that has the fewest, where
    that are fewer than `replication`, for the reason `shortfall`.
    """

    action: CopyAction
    source: str
    path: str
    size: int = 0
    error: PaxosBlockError | OSError | None = None
    original: FileStatus | os.stat_result | None = None
    replicas: int = 0
    replication: int = 0
    shortfall: str = ""


@dataclass(slots=True)
class CopySummary:
    """The numbers of files that a copy is done with, and the bytes that it copied."""

    copied: int = 0
    same: int = 0
    deleted: int = 0
    failed: int = 0
    size: int = 0


Told = Callable[[CopyStep], None]
Progress = Callable[[int], None]
"""Hears of bytes that were copied; 0 when something else was done."""


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """The options of `AsyncClient.upload`. None for one of the last four: as the original."""

    overwrite: bool = False
    directly: bool = False
    preserve: str = ""
    parents: bool = True
    at_once: int = AT_ONCE
    sync: Sync | None = None
    replication: int | None = None
    block_size: int | None = None
    durability: Durability | str | None = None
    options: WriteOptions | None = None

    def as_original(self, facts: FileStatus | os.stat_result | None) -> CopyOptions:
        """Return these options for a copy of a file of the cluster, or of another."""
        if not isinstance(facts, FileStatus):
            return self
        return replace(
            self,
            replication=self.replication or facts.replication,
            block_size=self.block_size or facts.block_size,
            durability=self.durability or facts.durability,
        )

    @property
    def deletes(self) -> bool:
        """True if what is only at the target goes."""
        return self.sync is not None and self.sync.delete

    @property
    def dry_run(self) -> bool:
        """True if nothing is changed."""
        return self.sync is not None and self.sync.dry_run
