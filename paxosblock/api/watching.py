"""The change feed: what happened to the names below a path, in the order of the log."""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from paxosblock.api.methods import Method

POLL_S: Final = 5.0
"""Seconds that a NameNode waits for a change before it answers that there was none."""
POLL_MAX_S: Final = 60.0


class ChangeKind(enum.Enum):
    """The kind of a change."""

    CREATED = "created"
    OPENED = "opened"
    """A closed file is being appended to."""
    CLOSED = "closed"
    RESIZED = "resized"
    """A closed file became longer by a concat, or shorter by a truncate."""
    RENAMED = "renamed"
    REMOVED = "removed"
    CHANGED = "changed"
    """The `traits` of it are others than before."""
    LISTED = "listed"
    """No change: it is there when the watcher begins, or begins again."""
    GAP = "gap"
    """No change: those up to here are no longer known. What is there is listed next."""


class Trait(enum.Enum):
    """A part of what is known of a file or directory."""

    PERMISSION = "permission"
    OWNER = "owner"
    GROUP = "group"
    ACL = "acl"
    ATTRIBUTES = "attributes"
    REPLICATION = "replication"
    MODIFIED = "modified"
    EXPIRY = "expiry"


RIGHTS: Final = frozenset({Trait.PERMISSION, Trait.OWNER, Trait.GROUP, Trait.ACL})
"""Traits of a directory that decide who may see what is below it."""


class NameChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """A change of a file or directory. Changes with one `revision` happened at one moment.

    A rename goes from `source` to `path`; one of them is "" if the watcher may not see it. What is
    below a directory that is renamed or removed goes with it, without changes of its own. `size`
    is that of a file that is closed.

    A watcher who may not list a directory is not told what happens in it. But the rights of each
    directory above the watched path are told to all, so that they know when to look again.
    """

    revision: int
    kind: ChangeKind
    path: str
    file_id: int
    is_directory: bool = False
    size: int | None = None
    source: str = ""
    traits: tuple[Trait, ...] = ()

    @property
    def changes_rights(self) -> bool:
        """True if others than before may see what is below it."""
        return self.is_directory and not RIGHTS.isdisjoint(self.traits)

    @property
    def concerns_below(self) -> bool:
        """True if it concerns also who watches what is below it."""
        goes = self.kind in (ChangeKind.RENAMED, ChangeKind.REMOVED)
        return self.is_directory and (goes or self.changes_rights)


class WatchNames(msgspec.Struct, frozen=True):
    """Ask for changes of what is at `path` and below it, after the first `skip` ones behind
    revision `after`; if there are none yet, within `wait_s`. With `after` None only for the
    position behind all that were made.

    `timeline` is that of an earlier answer; 0: of none.
    """

    path: str
    after: int | None = None
    skip: int = 0
    wait_s: float = POLL_S
    timeline: int = 0


class NameChanges(msgspec.Struct, frozen=True):
    """Some changes; the next ones come behind `revision` and `skip`.

    Revisions of another `timeline` say nothing: a backup was brought back since.
    """

    revision: int
    timeline: int
    changes: tuple[NameChange, ...] = ()
    skip: int = 0


WATCH = Method("watch", WatchNames, NameChanges, any_namenode=True, waits_s=POLL_S)
