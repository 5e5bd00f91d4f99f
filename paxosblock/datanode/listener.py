"""The seam between blocks and the reporter, which tells the NameNodes of them."""

from __future__ import annotations

from typing import Protocol

from paxosblock.protocol.types import BlockId, StorageId


class ReplicaListener(Protocol):
    """Hears about replicas (the reporter). Called on the event loop."""

    def replica_changed(self, block: BlockId, storage: StorageId) -> None:
        """A replica was made, finalized, deleted, or changed by a recovery."""

    def replica_corrupt(self, block: BlockId, storage: StorageId, reason: str) -> None:
        """A replica is dead."""
