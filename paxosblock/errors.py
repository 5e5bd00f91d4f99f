"""What can go wrong, as one tree. Each class says what the caller may conclude.

::

    PaxosBlockError
    ├── NotFoundError (FileNotFoundError)         path or block does not exist
    ├── ExistsError (FileExistsError)             path exists already
    ├── IsDirectoryError (IsADirectoryError)      a directory where a file is meant
    ├── NotDirectoryError (NotADirectoryError)    a file where a directory is meant
    ├── DirectoryNotEmptyError (OSError)          delete without `recursive`
    ├── InvalidRequestError (ValueError)          the request makes no sense; do not repeat it
    ├── LeaseError                                the file is being written by somebody else
    ├── FencedError                               a newer generation took over: outcome UNKNOWN
    ├── OutcomeUnknownError                       no answer: it may or may not have happened
    ├── DeadlineError (TimeoutError)              time ran out: outcome UNKNOWN
    ├── UnavailableError (ConnectionError)        no node answers; nothing was done
    ├── NotReadyError                             not yet (just started, not complete): try again
    ├── NotLeaderError                            another NameNode leads: ask that one
    ├── NoSpaceError (OSError)                    too few DataNodes with room, or a full disk
    ├── CorruptionError                           bytes do not match their checksum
    ├── StorageError (OSError)                    a volume refused a read or a write
    ├── ProtocolError                             a peer said something that is not in the protocol
    └── ConfigError (ValueError)                  a setting is wrong

`outcome` is NEVER when no reader will ever see an effect of the refused request, UNKNOWN when a
recovery may still choose it. `retriable` says whether the same request may succeed later.
`http_status` is how the error travels between processes, together with `code` and `details`.
"""

from __future__ import annotations

import enum
from typing import ClassVar


class Outcome(enum.Enum):
    """What a failed request may have done."""

    NEVER = "never"
    UNKNOWN = "unknown"


class PaxosBlockError(Exception):
    """Root of every error this package raises on purpose.

    `str(error)` is one line that names what was wrong and, where there is something to do, what.
    `details` holds the facts (path, block, node) as plain values.
    """

    outcome: ClassVar[Outcome] = Outcome.NEVER
    retriable: ClassVar[bool] = False
    http_status: ClassVar[int] = 500

    def __init__(self, message: str, /, **details: str | int | bool) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def __str__(self) -> str:
        return self.message

    @property
    def code(self) -> str:
        """Stable name of the error on the wire and in `--json`: the class name."""
        return type(self).__name__


class NotFoundError(PaxosBlockError, FileNotFoundError):
    """The path or block does not exist."""

    http_status = 404


class ExistsError(PaxosBlockError, FileExistsError):
    """The path exists already."""

    http_status = 409


class IsDirectoryError(PaxosBlockError, IsADirectoryError):
    """A directory stands where a file is meant."""

    http_status = 409


class NotDirectoryError(PaxosBlockError, NotADirectoryError):
    """A file stands where a directory is meant."""

    http_status = 409


class DirectoryNotEmptyError(PaxosBlockError, OSError):
    """The directory has entries; pass `recursive` to delete them too."""

    http_status = 409


class InvalidRequestError(PaxosBlockError, ValueError):
    """The request makes no sense as it stands; repeating it cannot help."""

    http_status = 400


class LeaseError(PaxosBlockError):
    """Somebody else is writing the file. `take_over` ends their lease."""

    http_status = 409


class FencedError(PaxosBlockError):
    """A newer generation or writer took over. What was sent last may still be chosen."""

    outcome = Outcome.UNKNOWN
    http_status = 409


class OutcomeUnknownError(PaxosBlockError):
    """The connection broke before an answer came; the request may have happened."""

    outcome = Outcome.UNKNOWN
    retriable = True
    http_status = 503


class DeadlineError(PaxosBlockError, TimeoutError):
    """Time ran out before an answer came; the request may have happened."""

    outcome = Outcome.UNKNOWN
    retriable = True
    http_status = 504


class UnavailableError(PaxosBlockError, ConnectionError):
    """Nobody could be reached; nothing was done."""

    retriable = True
    http_status = 503


class NotReadyError(PaxosBlockError):
    """The node cannot do this yet; the same request will succeed later."""

    retriable = True
    http_status = 503


class NotLeaderError(PaxosBlockError):
    """Another NameNode leads; nothing was done. `details["leader"]` is its host:port, "" while
    there is none.

    421 (misdirected request), not 503: this node is well, and what is in front of it must not take
    it out of service.
    """

    retriable = True
    http_status = 421


class NoSpaceError(PaxosBlockError, OSError):
    """Too few live DataNodes with room for the block, or a node whose disk is full.

    It serves again by itself when there is room.
    """

    retriable = True
    http_status = 507


class CorruptionError(PaxosBlockError):
    """Stored or received bytes do not match their checksum. They were not served."""

    http_status = 500


class StorageError(PaxosBlockError, OSError):
    """A volume refused a read or a write (the cause is the operating system's error)."""

    http_status = 507


class ProtocolError(PaxosBlockError):
    """A peer said something the protocol does not allow, or not in our version of it."""

    http_status = 400


class ConfigError(PaxosBlockError, ValueError):
    """A setting is unknown or its value is wrong."""

    http_status = 400


def _tree(root: type[PaxosBlockError]) -> dict[str, type[PaxosBlockError]]:
    found = {root.__name__: root}
    for child in root.__subclasses__():
        found |= _tree(child)
    return found


def from_wire(code: str, message: str, details: dict[str, str | int | bool]) -> PaxosBlockError:
    """Build the error a peer reported; an unknown code becomes a plain `PaxosBlockError`."""
    kind = _tree(PaxosBlockError).get(code, PaxosBlockError)
    return kind(message, **details)
