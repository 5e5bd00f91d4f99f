"""The content of a volume, with the replicas that rest until somebody asks for them."""

from __future__ import annotations

from paxosblock.datanode.file_store import FileStore
from paxosblock.datanode.load import load
from paxosblock.datanode.store import Loaded


def load_all(store: FileStore) -> list[Loaded]:
    """Load a volume as a DataNode that starts does, and look at every replica, in order."""
    found = load(store)
    store.first_read(found.unread)
    asleep = map(store.wake, (*found.resting, *found.unread))
    return sorted((*found.loaded, *asleep), key=lambda one: one.block)
