"""Tokens of users (`api/user_tokens.py`) on their way: a program reads its own from a file, and a
node finds those of its callers in the header `Authorization: Bearer` of an Upgrade, or of a request
that is none.

A token that is heard on the way can be used until it ends. So a program sends its own where the
connection has TLS or stays on this machine, or where it was told that the way there is safe.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from pathlib import Path
from time import monotonic, time
from typing import Final, Protocol

from paxosblock.api.user_tokens import (
    TokenRight,
    UserToken,
    looks_foreign,
    looks_like,
    unsealed,
)
from paxosblock.errors import AccessDeniedError, ConfigError

AUTHORIZATION: Final = "Authorization"
SCHEME: Final = "Bearer "
ENDS_SOON_S: Final = 60.0
"""A token that ends within so many seconds is exchanged for another one."""
LOOKS_EVERY_S: Final = 1.0
"""A file is looked at again after so many seconds at the earliest."""


class OwnToken:
    """The token that a program sends, as its file has it now, or as it was given."""

    def __init__(
        self,
        file: str = "",
        word: str = "",
        *,
        over_plain: bool = False,
        looks_every_s: float = LOOKS_EVERY_S,
    ) -> None:
        """`over_plain`: send it where no TLS hides it, too. The file is looked at every so often.

        Raises:
            ConfigError: the file cannot be read, everybody may read it, or it holds no token; or
                `word` is none.
        """
        self._file, self._over_plain = file, over_plain
        self._stamp: tuple[int, ...] = ()
        self._looked_s, self._looks_every_s = monotonic(), looks_every_s
        self._word = word or self._read()
        self._ours: tuple[str, str] = ("", "")
        """A token of an issuer, and that of the cluster which it was exchanged for."""
        _check(f"token_file {file}" if file else "token", self._word)

    def __repr__(self) -> str:
        return f"<OwnToken of {self._file or 'this program'}>"

    @property
    def word(self) -> str:
        """The token as it is now: a file that was replaced counts from then on."""
        now_s = monotonic()
        if self._file and now_s - self._looked_s >= self._looks_every_s:
            self._looked_s = now_s
            try:
                if stamp_of(self._file) != self._stamp:
                    word = self._read()
                    _check("", word)
                    self._word = word
            except (OSError, ConfigError):
                pass  # it is being replaced; the one before may still be good
        return self._word

    @property
    def wants_ours(self) -> bool:
        """True if it is a token of an issuer, which only NameNodes take, and none of the cluster is
        here that DataNodes would take in its place, or that is about to end."""
        word = self.word
        if not looks_foreign(word):
            return False
        foreign, ours = self._ours
        return foreign != word or unsealed(ours)[0].until_s < time() + ENDS_SOON_S

    def exchange(self, foreign: str, ours: str) -> None:
        """Remember a token of the cluster that came for one of an issuer."""
        self._ours = (foreign, ours)

    @property
    def word_for_datanodes(self) -> str:
        """The token that DataNodes take."""
        word = self.word
        return self._ours[1] if looks_foreign(word) else word

    def header(self, peer: str, *, hidden: bool) -> dict[str, str]:
        """Return the header with it, for a connection to `peer`, an address; `hidden`: with TLS.

        Raises:
            AccessDeniedError: others on the way could hear it.
        """
        if not (hidden or self._over_plain or is_here(peer)):
            raise AccessDeniedError(
                f"the token is not sent to {peer} without TLS, as others could hear it and use it:"
                " name the cluster's authority with PAXOSBLOCK_TLS_CA, or set token_over_plain if"
                " the way there is safe"
            )
        return {AUTHORIZATION: SCHEME + self.word}

    def for_datanodes(self) -> OwnToken:
        """Return the same, as DataNodes are shown it."""
        return _ForDataNodes(self)

    def _read(self) -> str:
        where = f"token_file {self._file}"
        try:
            for_everybody = Path(self._file).stat().st_mode & 0o007
            self._stamp = stamp_of(self._file)
            text = Path(self._file).read_bytes().decode("ascii", "replace").strip()
        except (OSError, ValueError) as error:
            words = getattr(error, "strerror", None) or str(error)
            raise ConfigError(f"{where}: {words}") from error
        if for_everybody:
            raise ConfigError(f"{where}: everybody may read the token: chmod o= it")
        return text


class _ForDataNodes(OwnToken):
    def __init__(self, own: OwnToken) -> None:
        self._own = own
        self._file, self._over_plain = own._file, own._over_plain

    @property
    def word(self) -> str:
        return self._own.word_for_datanodes


def _check(where: str, word: str) -> None:
    if looks_foreign(word):
        return  # the NameNode that is asked knows more of it
    try:
        unsealed(word)
    except AccessDeniedError as error:
        raise ConfigError(f"{where}: {error}") from None


def stamp_of(file: str) -> tuple[int, ...]:
    """Return what tells whether a file was replaced. Raises OSError."""
    seen = os.stat(file)
    return seen.st_mtime_ns, seen.st_size, seen.st_ino


def is_here(address: str | None) -> bool:
    """True for an address of this machine alone: what is sent to it, or comes from it, stays."""
    try:
        found = ipaddress.ip_address((address or "").partition("%")[0])
    except ValueError:
        return False
    return (getattr(found, "ipv4_mapped", None) or found).is_loopback


# -- at a node -------------------------------------------------------------------------------------


class TokenChecks(Protocol):
    """A node's check of the tokens that callers bring."""

    async def check(self, word: str) -> UserToken:
        """Return the token in this word.

        Raises:
            AccessDeniedError: it is none of this cluster, has ended, or was revoked.
            PaxosBlockError: the node cannot tell.
        """

    def allow(self, token: UserToken, right: TokenRight, what: str) -> None:
        """Check a request on a connection that began with a token.

        Raises:
            AccessDeniedError: it lacks this right, or was revoked.
        """


class ForeignChecks(Protocol):
    """A NameNode's check of the tokens of an issuer."""

    async def check(self, word: str) -> UserToken:
        """Return what the token in this word says, as a token of ours. Raises as `TokenChecks`."""


def word_in(headers: Mapping[str, str]) -> str:
    """Return what came in the place of a token in these headers; "" if nothing did."""
    return headers.get(AUTHORIZATION, "").removeprefix(SCHEME).strip()


class TokenDoor:
    """The place where a node's checks stand as soon as it has them."""

    def __init__(self) -> None:
        self.checks: TokenChecks | None = None
        self.issuer: ForeignChecks | None = None

    async def shown(self, headers: Mapping[str, str]) -> UserToken | None:
        """Return the token in the headers of a request; None if they bring none.

        Raises:
            AccessDeniedError: it is no good one, or this node knows none.
            PaxosBlockError: the node cannot tell.
        """
        word = word_in(headers)
        if looks_foreign(word):
            if self.issuer is None:
                raise AccessDeniedError(
                    "this node takes no token of an issuer: a NameNode does that has oidc_issuer"
                    " set, and `paxosblock admin token issue` gets one of the cluster for it"
                )
            return await self.issuer.check(word)
        if not looks_like(word):
            return None
        if self.checks is None:
            raise AccessDeniedError("this node takes no token of a user")
        return await self.checks.check(word)
