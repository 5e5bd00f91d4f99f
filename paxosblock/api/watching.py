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


class NameChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """A change of a file or directory. Changes with one `revision` happened at one moment.

    A rename goes from `source` to `path`; one of them is "" if the watcher may not see it. What is
    below a directory that is renamed or removed goes with it, without changes of its own. `size`
    is that of a file that is closed.
    """

    revision: int
    kind: ChangeKind
    path: str
    file_id: int
    is_directory: bool = False
    size: int | None = None
    source: str = ""
    traits: tuple[Trait, ...] = ()


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
