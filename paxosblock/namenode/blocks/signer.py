"""Signs what DataNodes admit (`api/capability.py`), and gives each of them its own keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from paxosblock.api.capability import BlockKey, Capability, Stamp, key_of, sign
from paxosblock.namenode.catalog.block_keys import NO_KEYS
from paxosblock.namenode.catalog.catalog import Catalog
from paxosblock.namenode.catalog.records import BlockKeys
from paxosblock.protocol.types import BlockId, Generation


class _Own(NamedTuple):
    """The `keys` of one DataNode, as HMACs of the three, and the stamp that signs for it."""

    keys: tuple[BlockKey, ...]
    stamp: Stamp


class Signer:
    """The keys as they were applied here at the last look, and one signature after the other."""

    def __init__(self, catalog: Catalog, interval_s: float) -> None:
        """Replace the key after `interval_s`; what is signed is good for as long."""
        self._catalog = catalog
        self._interval_s = interval_s
        self._keys = NO_KEYS
        self._own: dict[str, _Own] = {}

    @property
    def turn_s(self) -> float:
        """Seconds between two looks of the leader: the key is replaced at most so much later."""
        return min(self._interval_s / 4, 60.0)

    async def turn(self) -> None:
        """Replace the key, as the leader, if that is due.

        Raises:
            UnavailableError: this NameNode does not lead.
        """
        self._take(await self._catalog.roll_block_keys(self._interval_s))

    def keys_for(self, node: str) -> tuple[BlockKey, ...]:
        """Return the keys of a DataNode, oldest first, whichever NameNode this is."""
        self._take(self._catalog.block_keys())
        return self._of(node).keys if self._keys.keys else ()

    def sign(
        self, nodes: Sequence[str], block: BlockId, rights: int, generation: Generation
    ) -> Sequence[bytes]:
        """Return a capability for a block at each of the DataNodes; b"" while there are no keys."""
        if not self._keys.keys:
            return [b""] * len(nodes)
        until_s = int(self._catalog.now_ms() / 1000 + self._interval_s) + 1
        stamps = [self._of(node).stamp for node in nodes]
        return sign(Capability(block, rights, generation, until_s), stamps)

    def _of(self, node: str) -> _Own:
        own = self._own.get(node)
        if own is None:
            keys = tuple(key_of(each, node) for each in self._keys.keys)
            # Not every DataNode knows the newest key yet: the one before it signs.
            own = self._own[node] = _Own(keys, Stamp(keys[-2]))
        return own

    def _take(self, found: BlockKeys) -> None:
        if found != self._keys:
            self._keys = found
            self._own.clear()
