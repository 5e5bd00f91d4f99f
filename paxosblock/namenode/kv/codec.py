"""Edits as msgpack; values of another type are refused."""

from __future__ import annotations

import msgspec

from paxosblock.base.encoding import msgpack_decoder
from paxosblock.base.units import KIB
from paxosblock.errors import CorruptionError, InvalidRequestError
from paxosblock.namenode.kv.interface import (
    COUNTERS,
    EDIT_BYTES_MAX,
    BeginCounter,
    Count,
    CounterChange,
    Edit,
    EndCounter,
    Expect,
    ExpectEmpty,
)

LONG_BYTES = 512 * KIB
"""Length from which encoding or decoding takes some milliseconds."""

_ENCODER = msgspec.msgpack.Encoder()
_EDIT = msgpack_decoder(Edit)


def encode_edit(edit: Edit) -> bytes:
    """Return the edit as a log entry's payload.

    Raises:
        InvalidRequestError: a field has the wrong type, or the whole is too long.
    """
    # Without counters it is what versions before them write, and read.
    shown = edit if edit.counts else (edit.expect, edit.puts, edit.deletes)
    try:
        payload = _ENCODER.encode(shown)
    except (msgspec.MsgspecError, TypeError, OverflowError) as error:
        raise InvalidRequestError(f"not an edit: {error}") from error
    if len(payload) > EDIT_BYTES_MAX:
        raise InvalidRequestError(
            f"an edit of {len(payload)} bytes is longer than {EDIT_BYTES_MAX}"
        )
    return payload


def prepare(edit: Edit) -> bytes:
    """Return the payload; a reader of the entry decodes it to this very edit.

    So the member that encoded it applies the edit itself.

    Raises:
        InvalidRequestError: a field has the wrong type, or the whole is too long.
    """
    payload = encode_edit(edit)
    # An entry that cannot be decoded would be durable before any check noticed, and stop every
    # later start; annotations alone do not keep a str out of a bytes field.
    try:
        typed = _is_typed(edit)
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(f"not an edit: {error}") from error
    if not typed:
        raise InvalidRequestError("not an edit: a field has the wrong type")
    return payload


def _is_typed(edit: Edit) -> bool:
    """True if what was encoded has the types of its annotations. Decoding it would take three times
    as long to tell."""
    for each in edit.expect:
        if type(each) is Expect:
            if type(each.key) is not bytes or type(each.revision) is not int:
                return False
        elif type(each) is not ExpectEmpty or not type(each.start) is type(each.end) is bytes:
            return False
    for key, value in edit.puts:
        if type(key) is not bytes or type(value) is not bytes:
            return False
    for key in edit.deletes:
        if type(key) is not bytes:
            return False
    return not edit.counts or all(map(_is_typed_counter, edit.counts))


def _is_typed_counter(change: CounterChange) -> bool:
    if type(change) is Count:
        numbers = [change.amount, change.most, *(factor for _, factor in change.of)]
        named = [change.key, *(key for key, _ in change.of)]
        if not all(type(number) is int for number in numbers):
            return False
    elif type(change) in (BeginCounter, EndCounter):
        named = [change.key]
    else:
        return False
    return all(type(key) is bytes and key.startswith(COUNTERS) for key in named)


def decode_edit(payload: bytes | memoryview) -> Edit:
    """Return the edit of a log entry; it shares no memory with `payload`.

    Raises:
        CorruptionError: the bytes are not an edit.
    """
    try:
        return _EDIT.decode(payload)
    except msgspec.MsgspecError as error:
        raise CorruptionError(f"not an edit: {error}") from error
