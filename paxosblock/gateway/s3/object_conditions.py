"""Conditions of requests: what must be true of an object before it is sent, replaced or deleted."""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Final

from paxosblock.api.namenode import FileStatus
from paxosblock.api.transaction import AssertAbsent, AssertFile
from paxosblock.gateway.s3.object_facts import etag_of, state_of
from paxosblock.gateway.s3.s3_errors import (
    S3Code,
    S3Error,
    no_such_key,
    not_implemented,
    precondition_failed,
)

IF_MATCH: Final = "if-match"
IF_NONE_MATCH: Final = "if-none-match"
IF_MODIFIED: Final = "if-modified-since"
IF_UNMODIFIED: Final = "if-unmodified-since"
OF_SOURCE: Final = "x-amz-copy-source-"


def is_unchanged(headers: Mapping[str, str], status: FileStatus, before: str = "") -> bool:
    """True if the program has what it asks for already, in RFC 9110's order of conditions.

    Args:
        before: the words that stand before the names of the headers.

    Raises:
        S3Error: another condition is not met.
    """
    etag, modified_s = etag_of(status), int(status.modified_s)
    match, none_match = headers.get(before + IF_MATCH), headers.get(before + IF_NONE_MATCH)
    since, until = headers.get(before + IF_MODIFIED), headers.get(before + IF_UNMODIFIED)
    if match is not None:
        if not _names(match, etag):
            raise precondition_failed(before + IF_MATCH)
    elif (time_s := _time(until)) is not None and modified_s > time_s:
        raise precondition_failed(before + IF_UNMODIFIED)
    if none_match is not None:
        return _names(none_match, etag)
    return (time_s := _time(since)) is not None and modified_s <= time_s


def _names(tags: str, etag: str) -> bool:
    found = {tag.strip().removeprefix("W/").strip('"') for tag in tags.split(",")}
    return bool(found & {"*", etag.strip('"')})


def _time(text: str | None) -> float | None:
    """Return a time of a header; None if there is none, or none that makes sense."""
    try:
        return parsedate_to_datetime(text).timestamp() if text else None
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def asserted(
    headers: Mapping[str, str], path: str, present: FileStatus | None
) -> AssertAbsent | AssertFile | None:
    """Return the condition under which an object may be made, as a part of the same change; None if
    there is none.

    Args:
        present: the file that is there now.

    Raises:
        S3Error: it is not met already, or is none that S3 has.
    """
    match, none_match = headers.get(IF_MATCH), headers.get(IF_NONE_MATCH)
    if match is not None and none_match is not None:
        words = "Specifying both If-Match and If-None-Match is not allowed"
        raise S3Error(S3Code.INVALID_REQUEST, words)
    if none_match is not None:
        if none_match.strip() != "*":
            raise not_implemented("If-None-Match of a write, but for *")
        if present is not None:
            raise precondition_failed(IF_NONE_MATCH)
        return AssertAbsent(path)
    if match is None:
        return None
    if present is None:
        raise no_such_key()
    if match.strip() == "*":
        return AssertFile(path)
    state = state_of(match)
    if state is None or etag_of(present).strip('"') != match.strip().strip('"'):
        raise precondition_failed(IF_MATCH)
    return AssertFile(path, state.file_id, state.size, state.truncations)
