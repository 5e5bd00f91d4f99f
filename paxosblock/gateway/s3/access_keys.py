"""Access keys of S3, which need no list of them.

The id of a key says whose it is, until when it is good, and what it may; the secret is an HMAC of
the id by the access secret of the cluster. So each gateway that has the access secret finds out the
secret of every key, and an id that was changed has another one. Who has the access secret may act
as any user, and so may make a key of any user: `paxosblock admin s3-key` asks no node.

Where nothing proves who calls the cluster, there is no secret to make one from. The id is the name
of the user there, who is believed as everywhere in such a cluster, and the secret is a word that
all know: programs of S3 want one.
"""

from __future__ import annotations

import base64
import hmac
import secrets
from dataclasses import dataclass, field
from typing import Final

import msgspec

from paxosblock.base.encoding import MALFORMED, msgpack_decoder
from paxosblock.errors import InvalidRequestError
from paxosblock.net.port.caller import NOBODY, checked

PREFIX: Final = "PXB"
OPEN_SECRET: Final = "paxosblock"
"""The secret of every key where nothing proves who calls the cluster."""
ID_CHARACTERS_MAX: Final = 128
"""Longest id that programs of S3 take."""
REVOKED: Final = "/.s3/revoked"
"""The directory with an entry for each key that was revoked, until its end."""

_PURPOSE: Final = b"s3 key "
_NONCE_BYTES: Final = 5
_SECRET_BYTES: Final = 30


class _Said(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """All that an id says."""

    user: str
    until_s: int
    bucket: str
    read_only: bool
    nonce: bytes


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgpack_decoder(_Said)


@dataclass(frozen=True, slots=True)
class AccessKey:
    """A key, and what it may."""

    id: str
    user: str
    secrets: tuple[str, ...] = field(repr=False)
    """The secrets with which a request may be signed: one for each access secret of the cluster."""
    until_s: int | None = None
    """The time in seconds since 1970 at which it ends; None: it does not."""
    bucket: str = ""
    """The one bucket for which it is good; "": all."""
    read_only: bool = False


ANONYMOUS: Final = AccessKey("", NOBODY, ())
"""The key of a request that is not signed."""


class NoKeyError(Exception):
    """There is no key with this id."""


@dataclass(frozen=True, slots=True)
class KeyMaker:
    """Makes keys, and finds their secrets, with the access secrets of a cluster; none: with the
    word that all know."""

    access_secrets: tuple[bytes, ...] = field(default=(), repr=False)

    def make(self, user: str, until_s: int, bucket: str = "", *, read_only: bool) -> AccessKey:
        """Make a key, which differs from all others.

        Raises:
            InvalidRequestError: no user can be called so, or its id would be too long.
        """
        if not self.access_secrets:
            return AccessKey(checked(user), user, (OPEN_SECRET,))
        nonce = secrets.token_bytes(_NONCE_BYTES)
        packed = _encode(_Said(checked(user), until_s, bucket, read_only, nonce))
        made = PREFIX + base64.b32encode(packed).rstrip(b"=").decode()
        if len(made) > ID_CHARACTERS_MAX:
            raise InvalidRequestError(
                f"the names of the user and the bucket are too long for a key of S3, whose id has "
                f"{ID_CHARACTERS_MAX} characters"
            )
        return self.find(made)

    def find(self, key_id: str) -> AccessKey:
        """Return the key with this id, which may have ended.

        Raises:
            NoKeyError: it is the id of none.
        """
        try:
            if not self.access_secrets:
                return AccessKey(key_id, checked(key_id), (OPEN_SECRET,))
            said = _said(key_id)
            found = tuple(_secret(each, key_id) for each in self.access_secrets)
            return AccessKey(
                key_id, checked(said.user), found, said.until_s, said.bucket, said.read_only
            )
        except (InvalidRequestError, ValueError, *MALFORMED):
            raise NoKeyError from None


def _said(key_id: str) -> _Said:
    if not key_id.startswith(PREFIX) or len(key_id) > ID_CHARACTERS_MAX:
        raise ValueError
    text = key_id.removeprefix(PREFIX)
    return _decoder.decode(base64.b32decode(text + "=" * (-len(text) % 8)))


def _secret(access_secret: bytes, key_id: str) -> str:
    made = hmac.digest(access_secret, _PURPOSE + key_id.encode(), "sha256")[:_SECRET_BYTES]
    return base64.urlsafe_b64encode(made).decode()


def revoked_path(key_id: str) -> str:
    """Return the path at which there is something if this key was revoked."""
    return f"{REVOKED}/{key_id}"
