"""The call that looks over the files below a path, and what is wrong with their blocks."""

from __future__ import annotations

import enum

import msgspec

from paxosblock.api.methods import Method
from paxosblock.api.namenode import NO_BLOCK
from paxosblock.protocol.types import BlockId


class Cursor(msgspec.Struct, frozen=True):
    """Everything up to `path` was looked at, and of the file there the blocks before `place`."""

    path: str
    place: int = 0


class CheckFiles(msgspec.Struct, frozen=True):
    """Look over some of the files at or below `path`, those behind `after`."""

    path: str
    after: Cursor | None = None


class Condition(enum.Enum):
    """The findings about a block or a file, the worst first."""

    MISSING = "missing"
    """No replica of it is left."""
    CORRUPT = "corrupt"
    """Each replica that is left is damaged."""
    UNDER_REPLICATED = "under_replicated"
    OVER_REPLICATED = "over_replicated"
    MIS_REPLICATED = "mis_replicated"
    """On fewer DataNodes or racks than there might be."""
    OPEN = "open"
    """The file is being written; its last block is not looked at."""

    @property
    def lost(self) -> bool:
        """True if bytes cannot be read."""
        return self in (Condition.MISSING, Condition.CORRUPT)


class Finding(msgspec.Struct, frozen=True):
    """A block that is not as it should be, or a file that is open (then without a block).

    `counted` replicas count of the `wanted`; `sound` can be read, and `damaged` are known to be.
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


class Counts(msgspec.Struct):
    """The numbers of what was looked at.

    For finalized blocks `size_bytes` is the sum of their sizes, `asked_replicas` of the replicas
    that they ask for, `replicas` of those that count, and `lacking_replicas` of those to be made.
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
        """Return how much was looked at."""
        return self.directories + self.files + self.blocks


class CheckedFiles(Counts, kw_only=True):
    """The numbers of a part, and all that was found there; `next` is where to go on, None: done.

    A file of many blocks counts in the page of its first ones. `safe_mode`: reports may still be
    missing, and what was not reported looks missing.
    """

    findings: list[Finding] = []
    next: Cursor | None = None
    datanodes: int = 0
    racks: int = 0
    safe_mode: bool = False


CHECK_FILES = Method("check_files", CheckFiles, CheckedFiles)
