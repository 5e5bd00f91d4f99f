"""DataNodes that fail under a writer: HDFS's replacement policies, as seed 004 tells them.

*r* is the replication that was asked for, *n* the members of a block that did not fail. The
NameNode decides by these rules where members come from (`namenode/blocks/replacing.py`), and a
writer decides whether its block has fewer than it should.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from paxosblock.errors import InvalidRequestError
from paxosblock.protocol.types import StorageId


class OnFailure(enum.Enum):
    """The fate of a block when one of its DataNodes fails while it is written."""

    SEAL = "seal"
    """It ends with what was acknowledged at least, and the file goes on in another block."""
    REBUILD = "rebuild"
    """It goes on with other members (HDFS: pipeline recovery)."""


class Replacement(enum.Enum):
    """The cases in which a DataNode takes the place of one that failed."""

    DISABLE = "disable"
    """Never. A request to replace one is an error at the NameNode; a writer acts as by NEVER."""
    NEVER = "never"
    """Never: the writer goes on with those that are left."""
    DEFAULT = "default"
    """If r >= 3, and floor(r/2) >= n, or r > n and the block was flushed or appended to."""
    ALWAYS = "always"
    """As many as failed; without them the writer does not go on."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """HDFS's policies for a file that loses a DataNode while it is written.

    What is None is taken from the client's settings. Raises InvalidRequestError for a name that
    does not exist.
    """

    on_failure: OnFailure | str | None = None
    """The block ends ("seal"), or goes on with other members ("rebuild")."""
    replace_on_failure: Replacement | str | None = None
    """Another DataNode takes the place of one that failed: "disable", "never", "default" or
    "always"."""
    best_effort: bool | None = None
    """True: go on with too few DataNodes, rather than fail."""

    def __post_init__(self) -> None:
        for name, kind in (("on_failure", OnFailure), ("replace_on_failure", Replacement)):
            written = getattr(self, name)
            if written is None:
                continue
            try:
                object.__setattr__(self, name, kind(written))
            except ValueError:
                *most, last = (repr(each.value) for each in kind)
                words = f"{name} {written!r}: write {', '.join(most)} or {last}"
                raise InvalidRequestError(words) from None


@dataclass(frozen=True, slots=True)
class Policy:
    """Replace DataNodes that fail by this rule; go on with too few only if `best_effort`."""

    replacement: Replacement = Replacement.DEFAULT
    best_effort: bool = False

    def missing(self, replication: int, left: int, *, flushed: bool) -> int:
        """Return how many DataNodes are added to the `left` (n) members of a block.

        `flushed`: an application flushed it, or it was opened again to append to it.
        """
        count = left
        while self._adds(replication, count, flushed):
            count += 1
        return count - left

    def _adds(self, r: int, n: int, flushed: bool) -> bool:
        match self.replacement:
            case Replacement.DISABLE | Replacement.NEVER:
                return False
            case Replacement.DEFAULT:
                return r >= 3 and (r // 2 >= n or (r > n and flushed))
            case Replacement.ALWAYS:
                return r > n

    def needed(self, replication: int, before: int) -> int:
        """Return how many members a writer that had `before` of them needs in order to go on.

        ALWAYS fails if a DataNode cannot be replaced; DEFAULT if half of the replicas or fewer are
        left; with best effort only the lack of any member fails.
        """
        if self.best_effort:
            return 1
        if self.replacement is Replacement.ALWAYS:
            return min(before, replication)
        halves = self.replacement is Replacement.DEFAULT and replication >= 3
        return replication // 2 + 1 if halves else 1


@dataclass(frozen=True, slots=True)
class Failed:
    """A block whose writer goes on without some of its members, and by which policy.

    `before` is how many members it had, `left` are those that did not fail; `flushed` as above.
    """

    policy: Policy
    before: int
    left: tuple[StorageId, ...]
    flushed: bool
