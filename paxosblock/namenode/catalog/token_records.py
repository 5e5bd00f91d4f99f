"""The tokens of users that were issued and have not ended, and those of them that were revoked.

They stand in the order of their ends, so that a token that is issued sweeps away those that ended.
An index finds those of a user, and another one that with a serial: however many tokens there are,
issuing and revoking look at those of one user alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from msgspec.structs import replace

from paxosblock.api.capability import BlockKey
from paxosblock.api.user_tokens import (
    LONGEST_S,
    ListedToken,
    TokenNote,
    serial_text,
)
from paxosblock.errors import InvalidRequestError, NotFoundError
from paxosblock.namenode.catalog import block_keys, keys
from paxosblock.namenode.catalog.draft import Draft, Reads
from paxosblock.namenode.catalog.records import decode_token, encode

PER_USER_MAX: Final = 1000
"""Tokens of one user that have not ended."""
SWEPT_MAX: Final = 100
"""Tokens that ended and are forgotten when another one is issued."""


def issue(draft: Draft, note: TokenNote) -> tuple[TokenNote, BlockKey]:
    """Remember a token that is about to be signed; return it with the key that signs it. Another
    key is made once that is due.

    Raises:
        InvalidRequestError: the user has too many.
    """
    ended = islice(draft.scan(keys.TOKENS[0], keys.token(note.issued_s, 0)), SWEPT_MAX)
    for key, found in tuple(ended):
        over = decode_token(found.value)
        draft.delete(key)
        draft.delete(keys.token_of(over.user, over.until_s, over.serial))
        draft.delete(keys.token_end(over.serial))
        draft.delete(keys.revoked_token(over.serial))
    of_user = sum(1 for _ in draft.scan(*keys.tokens_of(note.user, note.issued_s)))
    if of_user >= PER_USER_MAX:
        raise InvalidRequestError(
            f"the user {note.user} has {of_user} tokens that have not ended, and may have no more:"
            " let programs take one for all that they do"
        )
    before = block_keys.find(draft, keys.TOKEN_KEYS)
    now_ms = note.issued_s * 1000
    rolled = block_keys.roll(draft, now_ms, LONGEST_S * 1000, keys.TOKEN_KEYS)
    if rolled != before:
        _tell(draft, now_ms)
    # Not every node knows the newest key yet: the one before it signs.
    signing = rolled.keys[-2]
    known = replace(note, key=signing.id)
    draft.put(keys.token(note.until_s, note.serial), encode(known))
    draft.put(keys.token_of(note.user, note.until_s, note.serial), b"")
    draft.put(keys.token_end(note.serial), keys.pack_number(note.until_s))
    return known, signing


def issued_before(reads: Reads, wanted: TokenNote) -> TokenNote | None:
    """Return a token of the same user, purpose, rights and groups that is good for at least half of
    the time, and no longer."""
    now_s = wanted.issued_s
    for note in _of_user(reads, wanted.user, now_s + (wanted.until_s - now_s) // 2):
        same = replace(
            note, key=0, serial=wanted.serial, until_s=wanted.until_s, issued_s=wanted.issued_s
        )
        if same == wanted and note.until_s <= wanted.until_s and not is_revoked(reads, note.serial):
            return note
    return None


def revoke(draft: Draft, serial: int, now_s: int, user: str | None) -> TokenNote:
    """Let no node believe a token from now on; that is no change if none does already.

    Raises:
        NotFoundError: there is none, it has ended, or it is of another `user` (None: of any).
    """
    end = draft.peek(keys.token_end(serial))
    until_s = keys.unpack_number(end.value) if end.exists else 0
    found = draft.get(keys.token(until_s, serial))
    if until_s > now_s and found.exists:
        note = decode_token(found.value)
        if user in (None, note.user):
            key = keys.revoked_token(serial)
            if not draft.get(key).exists:
                draft.put(key, b"")
                _tell(draft, now_s * 1000)
            return note
    raise NotFoundError(
        f"no token {serial_text(serial)} of {user or 'any user'} that has not ended"
    )


def is_revoked(reads: Reads, serial: int) -> bool:
    """True if a token that has not ended was revoked."""
    return reads.get(keys.revoked_token(serial)).exists


def _of_user(reads: Reads, user: str, after_s: int) -> Iterator[TokenNote]:
    """Yield the tokens of a user that end after that second, those first that end first."""
    for key, _ in reads.scan(*keys.tokens_of(user, after_s)):
        yield decode_token(reads.get(keys.token_in(key)).value)


def _every(reads: Reads, after_s: int) -> Iterator[TokenNote]:
    """Yield the tokens that end after that second, those first that end first."""
    for _, found in reads.scan(keys.token(after_s + 1, 0), keys.TOKENS[1]):
        yield decode_token(found.value)


def listed(reads: Reads, now_s: int, user: str | None) -> Iterator[ListedToken]:
    """Yield the tokens of a user (None: of all) that have not ended, those first that end first."""
    for note in _every(reads, now_s) if user is None else _of_user(reads, user, now_s):
        yield ListedToken(note, is_revoked(reads, note.serial))


def told_at(reads: Reads) -> int:
    """Return the number of what DataNodes are told: it grows with each change of that."""
    found = reads.get(keys.TOKENS_AT)
    return keys.unpack_number(found.value) if found.exists else 0


def revoked_serials(reads: Reads) -> tuple[int, ...]:
    """Return the tokens that were revoked; some may have ended."""
    return tuple(keys.number_of(key) for key, _ in reads.scan(*keys.REVOKED))


def _tell(draft: Draft, now_ms: int) -> None:
    # Greater than in a backup that was brought back, too: DataNodes go by that.
    draft.put(keys.TOKENS_AT, keys.pack_number(max(told_at(draft) + 1, now_ms)))
