"""The errors, as one tree. Each class says what the caller may conclude.

::

    PaxosBlockError
    ├── NotFoundError (FileNotFoundError)         path or block does not exist
    ├── ExistsError (FileExistsError)             path exists already
    ├── IsDirectoryError (IsADirectoryError)      a directory where a file is meant
    ├── NotDirectoryError (NotADirectoryError)    a file where a directory is meant
    ├── DirectoryNotEmptyError (OSError)          delete without `recursive`
    ├── InvalidRequestError (ValueError)          the request makes no sense; do not repeat it
    ├── AccessDeniedError (PermissionError)       one end does not know the access secret
    ├── PermissionDeniedError (PermissionError)   the user may not do this with the path
    ├── LeaseError (OSError)                      another writer is writing the file
    ├── TruncatedError (OSError)                  the file was truncated after it was opened
    ├── GapError (OSError)                        changes that a watcher asks for are forgotten
    ├── FencedError (OSError)                     a newer generation took over: outcome UNKNOWN
    ├── OutcomeUnknownError (OSError)             no answer: it may or may not have happened
    ├── DeadlineError (TimeoutError)              time ran out: outcome UNKNOWN
    ├── UnavailableError (ConnectionError)        no node answers; nothing was done
    ├── NotReadyError (OSError)                   not yet (just started, not complete): try again
    ├── SafeModeError (OSError)                   an operator stopped changes of names: try again
    ├── NotLeaderError (OSError)                  another NameNode leads: ask that one
    ├── NoSpaceError (OSError)                    too few DataNodes with room, or a full disk
    ├── QuotaExceededError (OSError)              a directory would have more than its quota
    │   ├── NameQuotaError                        of files and directories
    │   └── SpaceQuotaError                       of bytes, with all replicas
    ├── CorruptionError (OSError)                 bytes do not match their checksum
    ├── StorageError (OSError)                    a volume refused a read or a write
    ├── ProtocolError (OSError)                   a peer said something that is not in the protocol
    └── ConfigError (ValueError)                  a setting is wrong

`outcome` is UNKNOWN unless it is certain that no reader will ever see an effect of the request. It
is certain for the classes that a node raises before it does anything, and for what is raised or
sent with `with_outcome(Outcome.NEVER)`. `retriable` says whether the same request may succeed
later. Both travel between processes, with `code` and `details`; `http_status` is that of a control
call. docs/errors.md has all of it in one table.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import os
from collections.abc import Iterator
from typing import Any, ClassVar, Final, Self, TypeVar

E = TypeVar("E", bound="PaxosBlockError")


class Outcome(enum.Enum):
    """The possible effect of a failed request."""

    NEVER = "never"
    UNKNOWN = "unknown"


class PaxosBlockError(Exception):
    """Root of every error this package raises on purpose.

    `str(error)` is one line that names what was wrong and, where there is something to do, what.
    `details` holds the facts (path, block, node) as plain values.
    """

    outcome: Outcome = Outcome.UNKNOWN
    retriable: bool = False
    http_status: ClassVar[int] = 500
    _number: ClassVar[int] = 0
    """`errno` of the classes that are an OSError."""

    def __init__(self, message: str, /, **details: str | int | bool) -> None:
        super().__init__(message)
        self.message = message
        self.details = details
        if isinstance(self, OSError):
            _describe(self, self._number, details.get("path"))

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # Spark's tasks send errors to the driver. OSError's own way would drop all that is ours.
        state = {**vars(self), "args": self.args}
        if isinstance(self, OSError):
            state |= {name: getattr(self, name) for name in ("errno", "strerror", "filename")}
        return _blank, (type(self),), state

    def with_outcome(self, outcome: Outcome) -> Self:
        """Return this error, whose raiser knows more about the outcome than its class says."""
        self.outcome = outcome
        return self

    def reworded(self, message: str) -> Self:
        """Return the same error in other words."""
        other = _blank(type(self))
        PaxosBlockError.__init__(other, message, **self.details)
        other.outcome, other.retriable = self.outcome, self.retriable
        return other

    @property
    def code(self) -> str:
        """Stable name of the error on the wire and in `--json`: the class name."""
        return type(self).__name__


def _blank(kind: type[E]) -> E:
    """Return an error of this class that has nothing yet, whatever its `__init__` wants."""
    return kind.__new__(kind)


class NotFoundError(PaxosBlockError, FileNotFoundError):
    """The path or block does not exist."""

    outcome = Outcome.NEVER
    http_status = 404
    _number = errno.ENOENT


class ExistsError(PaxosBlockError, FileExistsError):
    """The path exists already."""

    outcome = Outcome.NEVER
    http_status = 409
    _number = errno.EEXIST


class IsDirectoryError(PaxosBlockError, IsADirectoryError):
    """A directory stands where a file is meant."""

    outcome = Outcome.NEVER
    http_status = 409
    _number = errno.EISDIR


class NotDirectoryError(PaxosBlockError, NotADirectoryError):
    """A file stands where a directory is meant."""

    outcome = Outcome.NEVER
    http_status = 409
    _number = errno.ENOTDIR


class DirectoryNotEmptyError(PaxosBlockError, OSError):
    """The directory has entries; pass `recursive` to delete them too."""

    outcome = Outcome.NEVER
    http_status = 409
    _number = errno.ENOTEMPTY


class InvalidRequestError(PaxosBlockError, ValueError):
    """The request makes no sense as it stands; repeating it cannot help."""

    outcome = Outcome.NEVER
    http_status = 400


class AccessDeniedError(PaxosBlockError, PermissionError):
    """The node serves only callers that know the cluster's access secret, or does not know ours; or
    a DataNode was shown no capability that allows the request."""

    outcome = Outcome.NEVER
    http_status = 403
    _number = errno.EACCES


class PermissionDeniedError(PaxosBlockError, PermissionError):
    """The user may not do this: neither the owner and mode of the path nor their groups let them.
    It says so in HDFS's words.
    """

    outcome = Outcome.NEVER
    http_status = 403
    _number = errno.EACCES


class LeaseError(PaxosBlockError, OSError):
    """Another writer is writing the file. `take_over` ends its lease."""

    outcome = Outcome.NEVER
    http_status = 409
    _number = errno.EBUSY


class TruncatedError(PaxosBlockError, OSError):
    """The file was truncated after it was opened, or a recovery by force took back bytes that were
    read: some of the bytes that were read may be gone, so no more are read. Open it again.
    """

    outcome = Outcome.NEVER
    http_status = 409
    _number = errno.ESTALE


class GapError(PaxosBlockError, OSError):
    """The NameNode no longer knows all changes behind the revision that a watcher asks for; another
    one may. If none does: list what is there, and watch from that revision on.
    """

    outcome = Outcome.NEVER
    retriable = True
    http_status = 410
    _number = errno.ESTALE


class FencedError(PaxosBlockError, OSError):
    """A newer generation or writer took over. What was sent last may still be chosen."""

    http_status = 409
    _number = errno.ESTALE


class OutcomeUnknownError(PaxosBlockError, OSError):
    """The connection broke before an answer came; the request may have happened."""

    retriable = True
    http_status = 503
    _number = errno.EIO


class DeadlineError(PaxosBlockError, TimeoutError):
    """Time ran out before an answer came; the request may have happened."""

    retriable = True
    http_status = 504
    _number = errno.ETIMEDOUT


class UnavailableError(PaxosBlockError, ConnectionError):
    """No node could be reached, or the node that was reached refused before it did anything."""

    outcome = Outcome.NEVER
    retriable = True
    http_status = 503
    _number = errno.ECONNREFUSED


class NotReadyError(PaxosBlockError, OSError):
    """The node cannot do this yet; the same request will succeed later."""

    outcome = Outcome.NEVER
    retriable = True
    http_status = 503
    _number = errno.EBUSY


class SafeModeError(PaxosBlockError, OSError):
    """An operator entered safe mode: no name is changed until they leave it. Files that are open
    can be written and closed, and what is there can be read.
    """

    outcome = Outcome.NEVER
    retriable = True
    http_status = 503
    _number = errno.EROFS


class NotLeaderError(PaxosBlockError, OSError):
    """Another NameNode leads; nothing was done. `details["leader"]` is its host:port, "" while
    there is none.

    421 (misdirected request), not 503: this node is well, and a proxy in front of it must not take
    it out of service.
    """

    outcome = Outcome.NEVER
    retriable = True
    http_status = 421
    _number = errno.EREMOTE


class NoSpaceError(PaxosBlockError, OSError):
    """Too few live DataNodes with room for the block, or a node whose disk is full.

    It serves again by itself when there is room.
    """

    outcome = Outcome.NEVER
    retriable = True
    http_status = 507
    _number = errno.ENOSPC

    @property
    def of_namenode(self) -> bool:
        """True if it is the disk of a NameNode, whose `details["address"]` it is then."""
        return "address" in self.details


class QuotaExceededError(PaxosBlockError, OSError):
    """A directory would have more than its quota. It says so in HDFS's words."""

    outcome = Outcome.NEVER
    http_status = 403
    _number = errno.EDQUOT


class NameQuotaError(QuotaExceededError):
    """A directory would have more files and directories, itself included, than its quota."""


class SpaceQuotaError(QuotaExceededError):
    """The replicas of the files below a directory would take more room than its quota."""


class CorruptionError(PaxosBlockError, OSError):
    """Stored or received bytes do not match their checksum. They were not served."""

    http_status = 500
    _number = errno.EBADMSG


class StorageError(PaxosBlockError, OSError):
    """A volume refused a read or a write (the cause is the operating system's error).

    It is unknown what a refused write left on the disk.
    """

    http_status = 507
    _number = errno.EIO

    @classmethod
    def of(cls, what: object, error: OSError) -> Self:
        """Return the error for a system call that failed: `what` was to be done, or the file."""
        made = cls(f"{what}: {error.strerror or error}")
        _describe(made, error.errno or errno.EIO, error.filename)
        return made


class ProtocolError(PaxosBlockError, OSError):
    """A peer said something the protocol does not allow, or not in our version of it."""

    http_status = 400
    _number = errno.EPROTO


class ConfigError(PaxosBlockError, ValueError):
    """A setting is unknown or its value is wrong."""

    outcome = Outcome.NEVER
    http_status = 400


def _describe(error: OSError, number: int, filename: object) -> None:
    """Give `error` the attributes of Python's own errors."""
    error.errno, error.strerror, error.filename = number, os.strerror(number), filename


_BY_CODE: Final = {
    kind.__name__: kind
    for kind in tuple(globals().values())
    if isinstance(kind, type) and issubclass(kind, PaxosBlockError)
}


@contextlib.contextmanager
def in_doubt() -> Iterator[None]:
    """Make every error within say UNKNOWN: something had already begun before."""
    try:
        yield
    except PaxosBlockError as error:
        error.with_outcome(Outcome.UNKNOWN)
        raise


def from_wire(
    code: str,
    message: str,
    details: dict[str, str | int | bool],
    outcome: str | None = None,
    retriable: bool | None = None,
) -> PaxosBlockError:
    """Build the error a peer reported; an unknown code becomes a plain `PaxosBlockError`.

    `outcome` and `retriable` are the peer's own; None from a peer too old to say, then the class
    decides.
    """
    error = _BY_CODE.get(code, PaxosBlockError)(message, **details)
    if outcome is not None:
        never = outcome == Outcome.NEVER.value
        error.outcome = Outcome.NEVER if never else Outcome.UNKNOWN
    if retriable is not None:
        error.retriable = retriable
    return error
