"""Reads the NameNode's map in the background, so that damage is found before a caller meets it.

A read of damage makes the store act on it (KV.md), so this only reads. It reads keys that were
written years ago, and never asked for since, as often as all others.
"""

from __future__ import annotations

import asyncio
from typing import Final

from paxosblock.namenode.kv.interface import KeyValueStore

KEYS: Final = 250
"""Keys that are read in one turn of the event loop: less than a millisecond for small ones."""

PAUSE_S: Final = 0.05
"""Time between two turns: 5,000 keys a second, so an hour for nine million files."""

REST_S: Final = 3600.0
"""Time between the end of a pass and the next one."""


class TableScrubber:
    """Reads one store's map from the first key to the last, again and again."""

    def __init__(self, store: KeyValueStore) -> None:
        """Begin before the first key."""
        self._store = store
        self._next = b""
        self.keys_read = 0
        """Keys read since the start; the last few of a pass are not counted."""
        self.passes = 0
        """Times that the last key was reached."""

    async def run(self) -> None:
        """Read for ever.

        Raises:
            CorruptionError: this map is damaged, and no other NameNode has it.
            UnavailableError: it is damaged, and the store gets that of another NameNode.
        """
        while True:
            following = self._store.view().read_some(self._next, KEYS)
            self._next = following or b""
            if following is None:
                self.passes += 1
                await asyncio.sleep(REST_S)
            else:
                self.keys_read += KEYS
                await asyncio.sleep(PAUSE_S)
