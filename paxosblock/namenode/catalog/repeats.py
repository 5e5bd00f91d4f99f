"""Requests that are done once however often they are sent.

The edit of a request also records, under the name of the client's session, which request it
was and how it was answered; it expects that no other request was recorded meanwhile. So a copy that
comes later, even to another leader after a fail-over, finds the record and changes nothing. A
request that was refused, or had nothing to do, is not remembered: its copy is decided again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from msgspec import Raw, Struct

from paxosblock.api.methods import Once, encode
from paxosblock.base.decoders import msgpack_decoder
from paxosblock.errors import InvalidRequestError
from paxosblock.namenode.catalog import keys, records
from paxosblock.namenode.catalog.draft import Draft, Reads, Slices
from paxosblock.namenode.catalog.records import Answered, decode_answered

SESSION_CHARS_MAX: Final = 64
SEQUENCE_MAX: Final = (1 << 63) - 1
REMEMBERED_MS: Final = 10 * 60_000
"""A session is forgotten this long after its deadline was set; a request moves the deadline when
less than half of that is left."""

BINARY: Final = b"\xc4\xc5\xc6"
"""First bytes of an answer in a record of an earlier version, which wrapped its msgpack in a
binary. No answer is itself a binary."""

T = TypeVar("T")


class Decided(Struct, Generic[T], frozen=True):
    """The result of a decision, and what is sent of it: the msgpack that its record has, if any."""

    value: T
    sent: T | Raw


def decide_once(
    draft: Draft,
    once: Once | None,
    kind: type[T],
    now_ms: int,
    decide: Callable[[Draft], Slices[T]],
) -> Slices[Decided[T]]:
    """Decide a request; if one of this name was done before, return its first answer, a `kind`.

    Raises:
        InvalidRequestError: the session has made a later request since.
        PaxosBlockError: `decide` raises it.
    """
    if once is None:
        value = yield from decide(draft)
        return Decided(value, value)
    before = _latest(draft, once)
    if before is not None and once.sequence <= before.sequence:
        return _first_answer(before, once, kind)
    value = yield from decide(draft)
    if not draft.changes:
        return Decided(value, value)
    encoded = Raw(encode(value))
    _remember(draft, once, before, encoded, now_ms)
    return Decided(value, encoded)


def answered(reads: Reads, once: Once, kind: type[T]) -> T | None:
    """Return the first answer of a request, None if it was not done. Raises as `decide_once`."""
    before = _latest(reads, once)
    if before is None or before.sequence < once.sequence:
        return None
    return _first_answer(before, once, kind).value


def _latest(reads: Reads, once: Once) -> Answered | None:
    named = 0 < len(once.session) <= SESSION_CHARS_MAX and once.session.isascii()
    if not named or not 0 <= once.sequence <= SEQUENCE_MAX:
        raise InvalidRequestError(f"not the name of a request: {once}")
    found = reads.get(keys.session(once.session))
    return decode_answered(found.value) if found.exists else None


def _first_answer(before: Answered, once: Once, kind: type[T]) -> Decided[T]:
    if once.sequence < before.sequence:
        raise InvalidRequestError(
            f"request {once.sequence} comes late: session {once.session} has made "
            f"request {before.sequence} since"
        )
    encoded = before.answer
    if memoryview(encoded)[0] in BINARY:
        encoded = Raw(msgpack_decoder(bytes).decode(encoded))
    return Decided(msgpack_decoder(kind).decode(encoded), encoded)


def _remember(draft: Draft, once: Once, before: Answered | None, answer: Raw, now_ms: int) -> None:
    """Record the answer. The deadline is moved seldom, as that doubles what a request writes."""
    key = keys.session(once.session)
    expires_ms = before.expires_ms if before is not None else 0
    if expires_ms - now_ms < REMEMBERED_MS // 2:
        draft.move_deadline(key, expires_ms, now_ms + REMEMBERED_MS)
        expires_ms = now_ms + REMEMBERED_MS
    draft.put(key, records.encode(Answered(once.sequence, expires_ms, answer)))
