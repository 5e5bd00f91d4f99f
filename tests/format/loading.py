"""The content of a volume, with the replicas that rest until a caller asks for them."""

from __future__ import annotations

from paxosblock.datanode.store.disk_format import Loaded
from paxosblock.datanode.store.file_store import FileStore


def load_all(store: FileStore) -> list[Loaded]:
    """Load a volume as a DataNode that starts does, and look at every replica, in order."""
    found = store.load()
    store.first_read(found.unread)
    asleep = map(store.wake, (*found.resting, *found.unread))
    return sorted((*found.loaded, *asleep), key=lambda one: one.block)
