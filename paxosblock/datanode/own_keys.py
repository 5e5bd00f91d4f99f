"""The keys of this DataNode, by which it knows what a NameNode signed for it: capabilities, and
tokens of users."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from paxosblock.api import user_tokens
from paxosblock.api.capability import BlockKey, Capability, Stamp, check, key_id
from paxosblock.api.user_tokens import SignedFor, TokenKeys, TokenRight, UserToken
from paxosblock.errors import NotReadyError

WAIT_S: Final = 2.0
"""Seconds that a request may wait for a NameNode to bring the key that it was signed with."""


def wall_clock_s() -> float:
    """Return what the clock of the people shows, which simulations replace."""
    return time.time()


class OwnKeys:
    """The three keys that the NameNodes told last, by their ids."""

    def __init__(
        self, ask: Callable[[], None], clock_s: Callable[[], float] = wall_clock_s
    ) -> None:
        """`ask` has the NameNodes asked soon; `clock_s` is the clock of the people: a NameNode's
        says when a capability ends."""
        self._ask = ask
        self._clock_s = clock_s
        self._stamps: dict[int, Stamp] = {}
        self._newest = 0
        self._came = asyncio.Event()
        """Set and replaced whenever keys come."""

    def take(self, keys: tuple[BlockKey, ...]) -> None:
        """Know these, unless a NameNode that lags behind the others tells them."""
        if not keys or keys[-1].id <= self._newest:
            return
        self._stamps = {each.id: Stamp(each) for each in keys}
        self._newest = keys[-1].id
        came, self._came = self._came, asyncio.Event()
        came.set()

    def check(self, signed: bytes) -> Capability:
        """Return a capability for this DataNode.

        Raises:
            AccessDeniedError: no NameNode signed it, or it has ended.
            NotReadyError: it was signed with a key that this DataNode does not know yet.
        """
        number = key_id(signed)
        stamp = self._stamps.get(number)
        if stamp is None and number > self._newest:
            raise NotReadyError(
                "this DataNode serves only what was signed for it (block_tokens), and no NameNode"
                f" has told it {'this key' if self._newest else 'a key'} yet"
            )
        return check(signed, stamp, self._clock_s())

    async def checked(self, signed: bytes) -> Capability:
        """As `check`, but wait a little for the key."""
        came = self._came
        try:
            return self.check(signed)
        except NotReadyError:
            self._ask()
        try:
            async with asyncio.timeout(WAIT_S):
                await came.wait()
        except TimeoutError:
            pass  # `check` says what is missing
        return self.check(signed)


class OwnTokens:
    """The keys of tokens of users, and those that were revoked, as the NameNodes told last."""

    def __init__(
        self, ask: Callable[[], None], clock_s: Callable[[], float] = wall_clock_s
    ) -> None:
        """`ask` has the NameNodes asked soon; `clock_s` is the clock of the people."""
        self._ask = ask
        self._clock_s = clock_s
        self._keys: dict[int, bytes] = {}
        self._revoked: frozenset[int] = frozenset()
        self.at = 0
        """The number of what was told."""
        self._came = asyncio.Event()
        """Set and replaced whenever something is told."""

    def take(self, told: TokenKeys | None) -> None:
        """Know this, unless a NameNode that lags behind the others tells it."""
        if told is None or told.at <= self.at:
            return
        self._keys = {each.id: each.key for each in told.keys}
        self._revoked, self.at = frozenset(told.revoked), told.at
        came, self._came = self._came, asyncio.Event()
        came.set()

    async def check(self, word: str) -> UserToken:
        """Return the token that a caller brings; wait a little for the first keys.

        Raises:
            AccessDeniedError: it is none of this cluster, has ended, or was revoked.
            NotReadyError: no NameNode has told this DataNode how to check it.
        """
        user_tokens.unsealed(word)
        if not self.at:
            came = self._came
            self._ask()
            try:
                async with asyncio.timeout(WAIT_S):
                    await came.wait()
            except TimeoutError:
                raise user_tokens.not_told() from None
        # Later keys are told seven days before they sign.
        token = user_tokens.check(word, SignedFor.DATANODE, self._keys.get, self._clock_s())
        self.allow(token, TokenRight.NONE, "")
        return token

    def allow(self, token: UserToken, right: TokenRight, what: str) -> None:
        """Check a request on a connection that began with a token. One that ends meanwhile goes on
        with what it began, so that it costs no recovery.

        Raises:
            AccessDeniedError: it lacks this right, or was revoked.
        """
        token.demand(right, what)
        if token.serial in self._revoked:
            raise user_tokens.revoked(token)
