"""Times as users write them, and the paths at which the past is read."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import PurePosixPath

import pytest

from paxosblock.client.names.as_of import When, as_of, moment
from paxosblock.errors import InvalidRequestError

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
AT_NOON = f"/.snapshot/@t{NOON.timestamp():.3f}"


@pytest.mark.parametrize(
    ("path", "at", "read"),
    [
        ("/a/b", None, "/a/b"),
        ("/a/b", NOON, f"{AT_NOON}/a/b"),
        (PurePosixPath("/a"), NOON.timestamp(), f"{AT_NOON}/a"),
        ("/", "2026-03-01T12:00+00:00", AT_NOON),
        ("/a", datetime(2026, 3, 1, 12).astimezone().isoformat(), as_of("/a", "2026-03-01T12:00")),
        ("/a", "@4711", "/.snapshot/@4711/a"),
        ("/a", moment(NOON), f"{AT_NOON}/a"),
    ],
)
def test_a_time_is_a_path_below_which_the_past_is_read(
    path: str, at: When | None, read: str
) -> None:
    assert as_of(path, at) == read


def test_a_duration_counts_back_from_now() -> None:
    before_s = time.time()
    found_s = float(moment("2h").removeprefix("@t"))
    assert before_s - 0.001 <= found_s + 7200 <= time.time() + 0.001


@pytest.mark.parametrize(
    ("path", "at", "complaint"),
    [
        ("/a", "soon", "'soon': no time: write it as 2h"),
        ("/a", "", "'': no time"),
        ("/a", -1.0, "no time"),
        ("/a", float("nan"), "no time"),
        ("/a", 1e12, "in the future"),
        ("/a", "9999-01-01", "9999-01-01 is in the future"),
        ("a", "2h", "a path starts with '/'"),
        ("", "2h", "a path starts with '/'"),
    ],
)
def test_what_is_no_time_and_no_path_is_refused_in_one_line(
    path: str, at: When, complaint: str
) -> None:
    with pytest.raises(InvalidRequestError, match=complaint):
        as_of(path, at)
