"""The error tree: what a caller can catch, what it may conclude, and what survives the way."""

from __future__ import annotations

import errno
import os
import pickle
import re
from pathlib import Path

import msgspec
import pytest

from paxosblock import errors
from paxosblock.errors import (
    AccessDeniedError,
    ConfigError,
    CorruptionError,
    DeadlineError,
    DirectoryNotEmptyError,
    ExistsError,
    FencedError,
    GapError,
    InvalidRequestError,
    IsDirectoryError,
    LeaseError,
    NameQuotaError,
    NoSpaceError,
    NotDirectoryError,
    NotFoundError,
    NotLeaderError,
    NotReadyError,
    Outcome,
    OutcomeUnknownError,
    PaxosBlockError,
    PermissionDeniedError,
    ProtocolError,
    QuotaExceededError,
    SafeModeError,
    SpaceQuotaError,
    StorageError,
    TruncatedError,
    UnavailableError,
)
from paxosblock.net.wire import decode_error, encode_error

NEVER, UNKNOWN = Outcome.NEVER, Outcome.UNKNOWN

KINDS: dict[type[PaxosBlockError], tuple[Outcome, bool, int, int | None]] = {
    # may it have been done, may it succeed later, HTTP status, errno
    PaxosBlockError: (UNKNOWN, False, 500, None),
    NotFoundError: (NEVER, False, 404, errno.ENOENT),
    ExistsError: (NEVER, False, 409, errno.EEXIST),
    IsDirectoryError: (NEVER, False, 409, errno.EISDIR),
    NotDirectoryError: (NEVER, False, 409, errno.ENOTDIR),
    DirectoryNotEmptyError: (NEVER, False, 409, errno.ENOTEMPTY),
    InvalidRequestError: (NEVER, False, 400, None),
    AccessDeniedError: (NEVER, False, 403, errno.EACCES),
    PermissionDeniedError: (NEVER, False, 403, errno.EACCES),
    LeaseError: (NEVER, False, 409, errno.EBUSY),
    TruncatedError: (NEVER, False, 409, errno.ESTALE),
    GapError: (NEVER, True, 410, errno.ESTALE),
    FencedError: (UNKNOWN, False, 409, errno.ESTALE),
    OutcomeUnknownError: (UNKNOWN, True, 503, errno.EIO),
    DeadlineError: (UNKNOWN, True, 504, errno.ETIMEDOUT),
    UnavailableError: (NEVER, True, 503, errno.ECONNREFUSED),
    NotReadyError: (NEVER, True, 503, errno.EBUSY),
    SafeModeError: (NEVER, True, 503, errno.EROFS),
    NotLeaderError: (NEVER, True, 421, errno.EREMOTE),
    NoSpaceError: (NEVER, True, 507, errno.ENOSPC),
    QuotaExceededError: (NEVER, False, 403, errno.EDQUOT),
    NameQuotaError: (NEVER, False, 403, errno.EDQUOT),
    SpaceQuotaError: (NEVER, False, 403, errno.EDQUOT),
    CorruptionError: (UNKNOWN, False, 500, errno.EBADMSG),
    StorageError: (UNKNOWN, False, 507, errno.EIO),
    ProtocolError: (UNKNOWN, False, 400, errno.EPROTO),
    ConfigError: (NEVER, False, 400, None),
}

DOCUMENT = Path(__file__).parents[1] / "docs" / "errors.md"


def of(error: PaxosBlockError) -> tuple[Outcome, bool, int, int | None]:
    return error.outcome, error.retriable, error.http_status, getattr(error, "errno", None)


def test_each_class_is_in_the_table() -> None:
    assert set(KINDS) == {
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, PaxosBlockError)
    }


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_tells_what_its_class_may_tell(kind: type[PaxosBlockError]) -> None:
    assert of(kind("what was wrong")) == KINDS[kind]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if issubclass(kind, OSError)])
def test_an_error_of_the_system_has_what_pythons_own_have(kind: type[PaxosBlockError]) -> None:
    error = kind("'/a': in our words", path="/a")
    assert isinstance(error, OSError)
    assert error.errno is not None
    assert (error.strerror, error.filename) == (os.strerror(error.errno), "/a")
    assert issubclass(kind, type(OSError(error.errno, ""))) or kind is UnavailableError
    assert str(error) == "'/a': in our words"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not PaxosBlockError])
def test_code_that_expects_pythons_files_catches_what_ours_raise(
    kind: type[PaxosBlockError],
) -> None:
    """A file raises OSError for what happens to it, ValueError where it is used wrongly."""
    assert issubclass(kind, OSError) != issubclass(kind, ValueError)


def test_a_storage_error_tells_which_system_call_failed_and_where() -> None:
    with pytest.raises(StorageError, match=r"^cannot open it: no such file") as caught:
        raise StorageError.of("cannot open it", FileNotFoundError(2, "no such file", "/gone"))
    assert (caught.value.errno, caught.value.filename) == (errno.ENOENT, "/gone")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("outcome", Outcome)
def test_an_error_arrives_as_what_it_was_sent_as(
    kind: type[PaxosBlockError], outcome: Outcome
) -> None:
    sent = kind("'/a': what was wrong", path="/a", block=7).with_outcome(outcome)
    for arrived in (decode_error(encode_error(sent)), pickle.loads(pickle.dumps(sent))):
        assert type(arrived) is kind
        assert (str(arrived), arrived.details) == (str(sent), sent.details)
        assert of(arrived) == of(sent)
        assert getattr(arrived, "filename", "/a") == "/a"
        assert arrived.args == sent.args


def test_an_error_in_other_words_leaves_the_same_open() -> None:
    error = StorageError("the disk failed", disk=1).with_outcome(NEVER).reworded("no disk is left")
    assert (str(error), error.details, error.outcome) == ("no disk is left", {"disk": 1}, NEVER)


@pytest.mark.parametrize("retriable", [True, False])
@pytest.mark.parametrize("outcome", ["never", "unknown"])
def test_an_error_of_a_newer_version_keeps_what_may_be_concluded(
    outcome: str, retriable: bool
) -> None:
    sent = {"code": "NewError", "message": "no idea", "outcome": outcome, "retriable": retriable}
    arrived = decode_error(msgspec.msgpack.encode(sent))
    assert type(arrived) is PaxosBlockError
    assert str(arrived) == "no idea"
    assert (arrived.outcome.value, arrived.retriable) == (outcome, retriable)


@pytest.mark.parametrize("outcome", [{}, {"outcome": "perhaps"}])
def test_what_a_newer_version_does_not_say_is_unknown(outcome: dict[str, str]) -> None:
    sent = {"code": "NewError", "message": "no idea", **outcome}
    arrived = decode_error(msgspec.msgpack.encode(sent))
    assert (arrived.outcome, arrived.retriable) == (UNKNOWN, False)


def test_of_an_older_version_the_class_tells() -> None:
    arrived = decode_error(msgspec.msgpack.encode({"code": "NotReadyError", "message": "not yet"}))
    assert type(arrived) is NotReadyError
    assert of(arrived) == KINDS[NotReadyError]


def test_no_peer_makes_an_error_that_only_this_process_raises() -> None:
    """`UserError` of the command line takes other arguments."""
    import paxosblock.cli.invocation  # noqa: F401, PLC0415 - defines it

    sent = {"code": "UserError", "message": "no", "details": {"path": "/a"}}
    assert type(decode_error(msgspec.msgpack.encode(sent))) is PaxosBlockError


def test_the_tree_in_the_docstring_is_the_tree_in_the_code() -> None:
    drawn = re.findall(r"[├└]── (\w+)", errors.__doc__ or "")
    assert sorted(drawn) == sorted(kind.__name__ for kind in KINDS if kind is not PaxosBlockError)


def test_the_document_says_what_the_code_does() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| ([^|]*) \| [^|]+ \| (no|perhaps) \| (yes|no)[^|]* \| (\d+) \|$",
        DOCUMENT.read_text(),
        re.MULTILINE,
    )
    told = {
        getattr(errors, name): (
            UNKNOWN if done == "perhaps" else NEVER,
            again == "yes",
            int(status),
            *re.findall(r"\bE[A-Z]+\b", also),
        )
        for name, also, done, again, status in rows
    }
    expected = {
        kind: (*rest, errno.errorcode[number]) if number else tuple(rest)
        for kind, (*rest, number) in KINDS.items()
    }
    assert told == expected
