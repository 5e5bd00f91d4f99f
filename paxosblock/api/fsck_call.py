"""The call that looks for faults in the blocks of the files below a path."""

from __future__ import annotations

import enum

import msgspec

from paxosblock.api.methods import Method
from paxosblock.api.namenode import NO_BLOCK
from paxosblock.protocol.types import BlockId


class FsckCursor(msgspec.Struct, frozen=True):
    """The place a check has reached: `path` and, in the file there, the block at `place`."""

    path: str
    place: int = 0


class CheckFiles(msgspec.Struct, frozen=True):
    """Check some of the files at or below `path`, beginning behind `after`."""

    path: str
    after: FsckCursor | None = None


class Condition(enum.Enum):
    """The findings about a block or a file, the worst first."""

    MISSING = "missing"
    """No replica is left."""
    CORRUPT = "corrupt"
    """Each replica that is left is damaged."""
    UNCLEAR = "unclear"
    """No replica is known to be as it should be, but there are others, or may be: nothing is lost
    yet. So it is for a moment after a block has ended, and after a backup was brought back."""
    UNDER_REPLICATED = "under_replicated"
    OVER_REPLICATED = "over_replicated"
    MIS_REPLICATED = "mis_replicated"
    """The replicas are on fewer DataNodes or racks than they could be."""
    OPEN = "open"
    """The file is being written; its last block is not checked."""

    @property
    def lost(self) -> bool:
        """True if bytes cannot be read."""
        return self in (Condition.MISSING, Condition.CORRUPT)


class Finding(msgspec.Struct, frozen=True):
    """A block that is not as it should be, or an open file (then there is no block).

    `counted` replicas count towards the `wanted` ones; `sound` replicas can be read, and `damaged`
    ones are known to be damaged. If it is UNCLEAR, `elsewhere` storages have or may have a replica.
    """

    path: str
    file_id: int
    condition: Condition
    block: BlockId = NO_BLOCK
    size_bytes: int = 0
    wanted: int = 0
    counted: int = 0
    sound: int = 0
    damaged: int = 0
    elsewhere: int = 0


class Counts(msgspec.Struct):
    """The numbers of the files and blocks that were checked.

    Four are sums over the finalized blocks: `size_bytes` of their sizes, `asked_replicas` of the
    replicas they ask for, `replicas` of those that count, and `lacking_replicas` of those still to
    be made.
    """

    directories: int = 0
    files: int = 0
    blocks: int = 0
    size_bytes: int = 0
    asked_replicas: int = 0
    replicas: int = 0
    lacking_replicas: int = 0

    def count(self, other: Counts) -> None:
        """Add the numbers of another part."""
        for name in Counts.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def work(self) -> int:
        """Return the number of directories, files and blocks that were checked."""
        return self.directories + self.files + self.blocks


class CheckedFiles(Counts, kw_only=True):
    """The numbers and the findings of a part; the check goes on at `next`, None once it is done.

    A file of many blocks counts in the page of its first ones. In `safe_mode` reports may still be
    missing, and a block that was not reported looks lost.
    """

    findings: list[Finding] = []
    next: FsckCursor | None = None
    datanodes: int = 0
    racks: int = 0
    safe_mode: bool = False


CHECK_FILES = Method("check_files", CheckFiles, CheckedFiles)
