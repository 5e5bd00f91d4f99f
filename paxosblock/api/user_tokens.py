"""Tokens of users, which a NameNode signs and every node checks, and the calls about them. No I/O;
clocks are arguments.

Who brings one is its user, with the groups that it says and no more than its rights, until it ends.
A token is one word: `pb1.`, then in base64 (of URLs, without `=`) these bytes::

    [key id, serial, user, groups, rights, until]    msgpack; until: seconds since 1970
    16 bytes    HMAC-SHA256 of that by the key of NameNodes
    16 bytes    the same by the key of DataNodes

Both are made of one key, which all NameNodes have and replace. A DataNode is told the second of
them only: one that was broken into makes no token that a NameNode believes.
"""

from __future__ import annotations

import base64
import enum
import hmac
import time
from collections.abc import Callable
from typing import Final

import msgspec

from paxosblock.api.capability import MAC_BYTES, BlockKey
from paxosblock.api.methods import Done, Method
from paxosblock.base.encoding import MALFORMED, msgpack_decoder
from paxosblock.base.units import format_duration
from paxosblock.errors import AccessDeniedError, InvalidRequestError, NotReadyError

PREFIX: Final = "pb1."
TOKEN_CHARACTERS_MAX: Final = 8192
"""Longest token: it is a header of a request."""
LONGEST_S: Final = 7 * 24 * 3600
"""Seconds for which a token may be good, and after which another key signs."""
CLOCKS_S: Final = 15 * 60
"""Seconds by which the clocks of two NameNodes may differ."""
PURPOSE_CHARACTERS_MAX: Final = 200
ANOTHER: Final = "`paxosblock admin token issue` makes another one"

_HASH: Final = "sha256"


class SignedFor(enum.Enum):
    """The kind of node that checks a token; each has a signature of its own in it."""

    NAMENODE = "token at namenode"
    DATANODE = "token at datanode"


class TokenRight(enum.IntFlag):
    """The bits of `rights`."""

    NONE = 0
    READ = 1
    """Calls that change nothing, and the bytes of files."""
    WRITE = 2
    """Calls that change names and blocks."""
    BACKUP = 4
    """`GET /backup`, if the user is a superuser."""
    ADMIN = 8
    """Calls of operators, if the user is a superuser."""

    @property
    def names(self) -> tuple[str, ...]:
        """The words for these rights, as a person writes them."""
        return tuple(each.name.lower() for each in TokenRight if each & self and each.name)

    def __str__(self) -> str:
        return ",".join(self.names)


class UserToken(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The fields of a token, none of them secret. `groups` empty: a NameNode looks them up."""

    key: int
    serial: int
    user: str
    groups: tuple[str, ...]
    rights: int
    until_s: int

    def demand(self, rights: TokenRight, what: str) -> None:
        """Check that the token has these rights.

        Raises:
            AccessDeniedError: it lacks one.
        """
        if rights & ~self.rights:
            raise AccessDeniedError(
                f"{what} takes the right {TokenRight(rights & ~self.rights)}, and the token of"
                f" {self.user} has {TokenRight(self.rights) or 'none'}: `paxosblock admin token"
                " issue --rights` makes one with other rights"
            )

    def check_end(self, now_s: float) -> None:
        """Raise AccessDeniedError if the token has ended, or ends later than any may."""
        if self.until_s <= now_s:
            ago = roughly(now_s - self.until_s)
            raise AccessDeniedError(
                f"the token of {self.user} ended {ago} ago: {ANOTHER}, if the clock of this node"
                f" is right ({shown_time(now_s)})"
            )
        if self.until_s > now_s + LONGEST_S + CLOCKS_S:
            raise AccessDeniedError(
                f"the token of {self.user} would be good for more than seven days: is the clock of"
                f" this node right? ({shown_time(now_s)})"
            )


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgpack_decoder(UserToken)


def shown_time(now_s: float) -> str:
    """Return a time, in seconds since 1970, as errors show it."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(now_s))


def roughly(seconds: float) -> str:
    """Return a time for people, in the unit that fits."""
    unit_s = next((each for each in (3600, 60) if seconds >= 2 * each), 1)
    return format_duration(max(1, round(seconds / unit_s)) * unit_s)


def key_at(key: BlockKey, place: SignedFor) -> BlockKey:
    """Return the key of one kind of nodes, made of that of all NameNodes."""
    return BlockKey(key.id, hmac.digest(key.key, place.value.encode(), _HASH))


def seal(token: UserToken, key: BlockKey) -> str:
    """Return the one word for a token, signed with `key`, whose id it has."""
    body = _encode(token)
    macs = (hmac.digest(key_at(key, place).key, body, _HASH)[:MAC_BYTES] for place in SignedFor)
    return PREFIX + base64.urlsafe_b64encode(body + b"".join(macs)).rstrip(b"=").decode()


def looks_like(word: str) -> bool:
    """True if a word is meant to be a token of a user."""
    return word.startswith(PREFIX)


def looks_foreign(word: str) -> bool:
    """True if a word is meant to be a token of an OpenID issuer, a JSON Web Token: the base64 of an
    object of JSON, and two parts more."""
    return word.startswith("eyJ") and word.count(".") == 2


def unsealed(word: str) -> tuple[UserToken, bytes, tuple[bytes, bytes]]:
    """Return the fields of a token, unchecked, then what is signed, and both signatures.

    Raises:
        AccessDeniedError: it cannot be read.
    """
    try:
        if not looks_like(word) or len(word) > TOKEN_CHARACTERS_MAX:
            raise ValueError
        text = word.removeprefix(PREFIX).encode("ascii")
        packed = base64.b64decode(text + b"=" * (-len(text) % 4), b"-_", validate=True)
        body, macs = packed[: -2 * MAC_BYTES], packed[-2 * MAC_BYTES :]
        return _decoder.decode(body), body, (macs[:MAC_BYTES], macs[MAC_BYTES:])
    except (ValueError, *MALFORMED):  # no `from`: the cause may show a part of it
        raise AccessDeniedError(
            f"this is no token, which is one word that begins with {PREFIX!r}, or only a part of"
            f" one: {ANOTHER}"
        ) from None


def check(
    word: str,
    place: SignedFor,
    key_of: Callable[[int], bytes | None],
    now_s: float,
) -> UserToken:
    """Return the token in a word of a stranger. `key_of` finds the key of this kind of nodes by its
    id, and raises what it does for one that is not known yet.

    Raises:
        AccessDeniedError: it is none, this cluster did not sign it, or it has ended.
    """
    token, body, macs = unsealed(word)
    key = key_of(token.key)
    mac = macs[list(SignedFor).index(place)]
    if key is None or not hmac.compare_digest(hmac.digest(key, body, _HASH)[:MAC_BYTES], mac):
        raise AccessDeniedError(
            f"this cluster did not sign the token, or its key is over: {ANOTHER}, at this cluster"
        )
    token.check_end(now_s)
    return token


def revoked(token: UserToken) -> AccessDeniedError:
    """Return the error of who brings a token that was revoked."""
    return AccessDeniedError(
        f"the token {serial_text(token.serial)} of {token.user} was revoked: {ANOTHER}"
    )


def not_told() -> NotReadyError:
    """Return the error of a node that has not heard of the key of a token."""
    return NotReadyError("this node has not been told the key of the token yet")


def serial_text(serial: int) -> str:
    """Return a serial as people read it."""
    return f"{serial:016x}"


def serial_of(text: str) -> int:
    """Return the serial that a person wrote. Raises InvalidRequestError if it is none."""
    try:
        if len(text) != 16:
            raise ValueError
        return int(text, 16)
    except ValueError:
        raise InvalidRequestError(
            f"{text[:40]!r} is no serial of a token, 16 digits that `paxosblock admin token list`"
            " shows"
        ) from None


# -- calls -----------------------------------------------------------------------------------------


class TokenNote(msgspec.Struct, frozen=True):
    """All that the cluster remembers of a token that was issued, beside its key.

    `until_s` and `issued_s` are in seconds since 1970; `purpose` is what the user said it is for.
    """

    key: int
    serial: int
    user: str
    groups: tuple[str, ...]
    rights: int
    until_s: int
    issued_s: int
    purpose: str = ""


def token_of(note: TokenNote) -> UserToken:
    """Return the fields of a token."""
    return UserToken(note.key, note.serial, note.user, note.groups, note.rights, note.until_s)


class IssueToken(msgspec.Struct, frozen=True):
    """Make a token of the caller, or of `user` for a superuser, that is good for `for_s`.

    It has the caller's proven groups, or of them only `groups`. Who brings a token gets none that
    ends later or has other groups or further rights. With `again` it is one that was issued before
    for the same purpose, with the same rights and groups, if that is good for half the time: many
    short programs then have one token.
    """

    for_s: float
    rights: int
    purpose: str = ""
    user: str = ""
    groups: tuple[str, ...] = ()
    again: bool = False


class TokenIssued(msgspec.Struct, frozen=True):
    """The token, and what is remembered of it."""

    token: str
    note: TokenNote

    def __repr__(self) -> str:
        return f"<TokenIssued {serial_text(self.note.serial)} of {self.note.user}>"


class ListTokens(msgspec.Struct, frozen=True):
    """Show the caller's tokens that have not ended; for a superuser those of all users."""


class ListedToken(msgspec.Struct, frozen=True):
    """A token that has not ended."""

    note: TokenNote
    revoked: bool


class TokenList(msgspec.Struct, frozen=True):
    """Tokens, those that end first before others."""

    tokens: tuple[ListedToken, ...]


class RevokeToken(msgspec.Struct, frozen=True):
    """Let no node believe a token any more: one of the caller, or any for a superuser."""

    serial: int


ISSUE_TOKEN = Method("issue_token", IssueToken, TokenIssued)
LIST_TOKENS = Method("list_tokens", ListTokens, TokenList)
REVOKE_TOKEN = Method("revoke_token", RevokeToken, Done)


# -- what DataNodes are told -----------------------------------------------------------------------


class TokenKeys(msgspec.Struct, frozen=True, omit_defaults=True):
    """The keys by which a DataNode checks tokens, oldest first, and the serials of those that were
    revoked and have not ended. Later ones have a greater number `at`."""

    at: int
    keys: tuple[BlockKey, ...]
    revoked: tuple[int, ...] = ()
