"""The keys that capabilities (`api/capability.py`) are signed with, and those of tokens of users
(`api/user_tokens.py`): three of each, which are replaced.

The newest is known to DataNodes before it signs, and the oldest while what it signed is good: the
one between them signs. A new leader finds them here and goes on.
"""

from __future__ import annotations

import secrets
from typing import Final

from paxosblock.api.capability import BlockKey
from paxosblock.namenode.catalog import keys
from paxosblock.namenode.catalog.draft import Draft, Reads
from paxosblock.namenode.catalog.records import BlockKeys, decode_block_keys, encode

KEPT: Final = 3
KEY_BYTES: Final = 32

NO_KEYS: Final = BlockKeys((), 0)


def find(reads: Reads, place: bytes = keys.BLOCK_KEYS) -> BlockKeys:
    """Return the keys; none before the first leader that signs."""
    found = reads.get(place)
    return decode_block_keys(found.value) if found.exists else NO_KEYS


def are_due(found: BlockKeys, now_ms: int, interval_ms: int) -> bool:
    """True if the newest key should sign by now.

    Or it should do so only after a long while, as a clock was put back or the interval is shorter
    now: that would keep one key for too long.
    """
    return not found.keys or not 0 < found.next_ms - now_ms <= 2 * interval_ms


def roll(draft: Draft, now_ms: int, interval_ms: int, place: bytes = keys.BLOCK_KEYS) -> BlockKeys:
    """Make another key, once the newest one is due; return the keys from now on."""
    found = find(draft, place)
    if not are_due(found, now_ms, interval_ms):
        return found
    made = found.keys
    for _ in range(1 if made else KEPT - 1):
        # Times are greater than those in a backup that was brought back, and DataNodes go by that.
        newest = made[-1].id if made else 0
        number = max(newest + 1, now_ms // 1000)
        made = (*made, BlockKey(number, secrets.token_bytes(KEY_BYTES)))
    rolled = BlockKeys(made[-KEPT:], now_ms + interval_ms)
    draft.put(place, encode(rolled))
    return rolled
