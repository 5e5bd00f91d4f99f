"""Paths below which the past is read, `/.snapshot/@...`, for a time as users write it."""

from __future__ import annotations

import time
from datetime import datetime

from paxosblock.api.snapshot_calls import REVISION, SNAPSHOT_DIRECTORY
from paxosblock.base.paths import ROOT, AnyPath, not_absolute, shown, text_of
from paxosblock.base.units import parse_duration
from paxosblock.errors import ConfigError, InvalidRequestError

When = str | float | datetime
"""A time in the past: seconds since the epoch, a `datetime` (local, if it has no zone), one such as
"2026-03-01T12:00", so long ago, as "2h", or a revision of the catalog, as "@4711"."""


def as_of(path: AnyPath, at: When | None) -> str:
    """Return the path at which is read what was at `path` at a time; None: the path itself.

    Raises:
        InvalidRequestError: the time is none, or has not come yet; or neither is the path one.
    """
    text = text_of(path)
    if at is None:
        return text
    if not text.startswith(ROOT):
        raise not_absolute(text)
    return f"/{SNAPSHOT_DIRECTORY}/{moment(at)}{text if text != ROOT else ''}"


def moment(at: When) -> str:
    """Return a time as the name that paths have for it, which stays the same as time goes on.

    Raises:
        InvalidRequestError: it is none, or has not come yet.
    """
    if isinstance(at, str) and at.startswith(REVISION):
        return at
    now_s = time.time()
    at_s = at if isinstance(at, int | float) else _seconds(at, now_s)
    if not 0 <= at_s <= now_s:
        raise InvalidRequestError(f"{at!s} is in the future" if at_s > now_s else f"{at!s}: {_HOW}")
    return f"{REVISION}t{at_s:.3f}"


_HOW = "no time: write it as 2h, or as 2026-03-01T12:00"


def _seconds(at: str | datetime, now_s: float) -> float:
    if isinstance(at, datetime):
        return at.timestamp()
    try:
        return now_s - parse_duration(at)
    except ConfigError:
        pass
    try:
        return datetime.fromisoformat(at).timestamp()
    except (ValueError, OverflowError):
        raise InvalidRequestError(f"{shown(at)}: {_HOW}") from None
