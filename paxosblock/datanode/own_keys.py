"""The keys of this DataNode, by which it knows what a NameNode signed for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from paxosblock.api.capability import BlockKey, Capability, check, key_id
from paxosblock.errors import NotReadyError

WAIT_S: Final = 2.0
"""Seconds that a request may wait for a NameNode to bring the key that it was signed with."""


class OwnKeys:
    """The three keys that the NameNodes told last, by their ids."""

    def __init__(self, ask: Callable[[], None], clock_s: Callable[[], float] = time.time) -> None:
        """`ask` has the NameNodes asked soon; `clock_s` is the clock of the people: a NameNode's
        says when a capability ends."""
        self._ask = ask
        self._clock_s = clock_s
        self._keys: dict[int, bytes] = {}
        self._newest = 0
        self._came = asyncio.Event()
        """Set and replaced whenever keys come."""

    def take(self, keys: tuple[BlockKey, ...]) -> None:
        """Know these, unless a NameNode that lags behind the others tells them."""
        if not keys or keys[-1].id <= self._newest:
            return
        self._keys = {each.id: each.key for each in keys}
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
        if number > self._newest:
            raise NotReadyError(
                "this DataNode serves only what was signed for it (block_tokens), and no NameNode"
                f" has told it {'this key' if self._newest else 'a key'} yet"
            )
        return check(signed, self._keys.get(number), self._clock_s())

    async def checked(self, signed: bytes) -> Capability:
        """As `check`, but wait a little for the key."""
        if key_id(signed) > self._newest:
            came = self._came
            self._ask()
            try:
                async with asyncio.timeout(WAIT_S):
                    await came.wait()
            except TimeoutError:
                pass  # `check` says what is missing
        return self.check(signed)
