"""What a sweep takes for empty must be empty when its transaction is applied."""

from __future__ import annotations

from paxosblock.api.namenode import DeletePath, MakeDirectories
from paxosblock.namenode.catalog import garbage, keys
from paxosblock.namenode.catalog.draft import Draft
from paxosblock.namenode.kv.interface import Conflict, Transaction
from tests.namenode.memory_store import MemoryStore
from tests.namenode.scene import create_request, new_catalog


async def test_a_directory_that_got_an_entry_since_the_look_stays_garbage() -> None:
    """Forgotten, nothing would lead to the entry any more: it would be there for ever."""
    store = MemoryStore()
    catalog = await new_catalog(store)
    await catalog.make_directories(MakeDirectories("/d"))
    await catalog.delete(DeletePath("/d"))
    (number,) = await catalog.garbage()
    assert await stays_when(store, number, keys.entry(number, "late"))


async def test_a_file_that_got_a_block_since_the_look_stays_garbage() -> None:
    store = MemoryStore()
    catalog = await new_catalog(store)
    await catalog.create(create_request("/f"))
    await catalog.delete(DeletePath("/f"))
    (number,) = await catalog.garbage()
    assert await stays_when(store, number, keys.place(number, 0))


async def stays_when(store: MemoryStore, number: int, key: bytes) -> bool:
    """True if the garbage is still known when `key` appears between the look of the last step of
    the sweep and its transaction.
    """
    draft = Draft(store.view())
    assert garbage.sweep(draft, number).done
    await store.commit(Transaction(puts=((key, b""),)))
    refused = isinstance(await store.commit(draft.transaction()), Conflict)
    return refused and store.view().get(keys.garbage(number)).exists
