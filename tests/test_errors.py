"""The error tree: what a caller can catch, and what survives the way between processes."""

from __future__ import annotations

import re

import pytest

from paxosblock import errors
from paxosblock.errors import FencedError, NotFoundError, Outcome, PaxosBlockError, from_wire

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, PaxosBlockError)
]


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_arrives_as_what_it_was_sent_as(kind: type[PaxosBlockError]) -> None:
    sent = kind("'/a': what was wrong", path="/a", block=7)
    arrived = from_wire(sent.code, sent.message, sent.details)
    assert type(arrived) is kind
    assert (str(arrived), arrived.details) == (str(sent), sent.details)


def test_an_error_of_a_newer_version_arrives_as_the_root_of_the_tree() -> None:
    arrived = from_wire("FromTheFutureError", "no idea", {})
    assert type(arrived) is PaxosBlockError
    assert str(arrived) == "no idea"


def test_a_missing_path_is_caught_as_the_builtin_error() -> None:
    with pytest.raises(FileNotFoundError, match=r"^'/a': no such file$"):
        raise NotFoundError("'/a': no such file", path="/a")


def test_being_fenced_leaves_the_outcome_unknown() -> None:
    assert FencedError.outcome is Outcome.UNKNOWN


@pytest.mark.parametrize("kind", [kind for kind in KINDS if issubclass(kind, TimeoutError)])
def test_a_timeout_leaves_the_outcome_unknown(kind: type[PaxosBlockError]) -> None:
    assert kind.outcome is Outcome.UNKNOWN


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_travels_as_a_failure(kind: type[PaxosBlockError]) -> None:
    assert 400 <= kind.http_status <= 599


def test_the_tree_in_the_docstring_is_the_tree_in_the_code() -> None:
    drawn = re.findall(r"[├└]── (\w+)", errors.__doc__ or "")
    assert sorted(drawn) == sorted(kind.__name__ for kind in KINDS if kind is not PaxosBlockError)
