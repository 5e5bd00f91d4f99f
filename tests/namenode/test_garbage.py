"""Unlinked files and directories go with nothing left behind: at once if nothing is below them,
else by the sweep. A directory that either takes for empty must be so when its edit is applied.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from paxosblock.api.namenode import DeletePath, MakeDirectories, RenamePath
from paxosblock.errors import DirectoryNotEmptyError
from paxosblock.namenode.catalog import garbage, keys, namespace
from paxosblock.namenode.catalog.draft import Draft
from paxosblock.namenode.catalog.namespace import Context
from paxosblock.namenode.kv.interface import Committed, Conflict, Edit
from tests.namenode.memory_store import MemoryStore
from tests.namenode.scene import (
    BOB,
    NamedCatalog,
    add_block,
    closed_file,
    create_request,
    file_with_blocks,
    new_catalog,
    sweep_everything,
)

PATH = "/d"


async def new_file(catalog: NamedCatalog) -> None:
    await catalog.create(create_request(PATH))


async def new_closed_file(catalog: NamedCatalog) -> None:
    await closed_file(catalog, PATH)


async def new_directory(catalog: NamedCatalog) -> None:
    await catalog.make_directories(MakeDirectories(PATH, ttl_s=60.0))


async def emptied_directory(catalog: NamedCatalog) -> None:
    await catalog.make_directories(MakeDirectories(f"{PATH}/gone"))
    await catalog.delete(DeletePath(f"{PATH}/gone"))


async def full_directory(catalog: NamedCatalog) -> None:
    await catalog.make_directories(MakeDirectories(f"{PATH}/there"))


async def file_with_a_block(catalog: NamedCatalog) -> None:
    await file_with_blocks(catalog, PATH, 1)


Make = Callable[[NamedCatalog], Awaitable[None]]
BARE: tuple[Make, ...] = (new_file, new_closed_file, new_directory, emptied_directory)


async def make_entry(catalog: NamedCatalog) -> None:
    await catalog.make_directories(MakeDirectories(f"{PATH}/late"))


async def make_block(catalog: NamedCatalog) -> None:
    await add_block(catalog, (await catalog.status(PATH)).file_id)


@pytest.mark.parametrize("make", BARE)
@pytest.mark.parametrize("recursive", [False, True])
async def test_a_delete_of_what_has_nothing_below_it_is_one_change_that_leaves_nothing(
    make: Make, recursive: bool
) -> None:
    store = MemoryStore()
    catalog = await warm_catalog(store)
    before = shown(store)
    await make(catalog)
    commits = store.commits
    assert (await catalog.delete(DeletePath(PATH, recursive))).existed
    assert (store.commits, catalog.has_garbage) == (commits + 1, False)
    assert shown(store) == before


async def test_an_empty_file_that_is_replaced_leaves_nothing() -> None:
    store = MemoryStore()
    catalog = await warm_catalog(store)
    await closed_file(catalog, "/other")
    before = len(store.machine)
    await catalog.create(create_request(PATH))
    await catalog.create(create_request(PATH, BOB, overwrite=True))
    await catalog.rename(RenamePath("/other", PATH, overwrite=True))
    assert (len(store.machine), catalog.has_garbage) == (before, False)


@pytest.mark.parametrize(
    ("make", "late"),
    [
        (new_file, make_block),
        (new_directory, make_entry),
        (emptied_directory, make_entry),
    ],
)
async def test_what_got_something_since_the_look_is_not_deleted_as_if_it_were_empty(
    make: Make, late: Callable[[NamedCatalog], Awaitable[None]]
) -> None:
    """Nothing would lead to the entry or block any more: it would be there for ever."""
    store = MemoryStore()
    catalog = await warm_catalog(store)
    await make(catalog)
    draft = Draft(store.view())
    context = Context(iter(()), 0, lambda _: False, {})
    list(namespace.delete(draft, DeletePath(PATH), context))
    await late(catalog)
    assert isinstance(await store.commit(draft.to_edit()), Conflict)
    assert (await catalog.status(PATH)).path == PATH


async def test_creates_in_a_directory_do_not_hold_up_its_recursive_delete() -> None:
    store = MemoryStore()
    catalog = await warm_catalog(store)
    await full_directory(catalog)
    draft = Draft(store.view())
    context = Context(iter(()), 0, lambda _: False, {})
    list(namespace.delete(draft, DeletePath(PATH, recursive=True), context))
    await make_entry(catalog)
    assert isinstance(await store.commit(draft.to_edit()), Committed)
    assert await sweep_everything(catalog) == []


async def test_a_directory_with_an_entry_is_refused_and_stays_as_it_is() -> None:
    store = MemoryStore()
    catalog = await warm_catalog(store)
    await full_directory(catalog)
    before = shown(store)
    with pytest.raises(DirectoryNotEmptyError, match="'/d': directory is not empty"):
        await catalog.delete(DeletePath(PATH))
    assert shown(store) == before


@pytest.mark.parametrize(
    ("make", "late"),
    [
        (full_directory, lambda number: keys.entry(number, "late")),
        (file_with_a_block, lambda number: keys.place(number, 7)),
    ],
)
async def test_what_got_something_since_the_last_look_of_the_sweep_stays_garbage(
    make: Make, late: Callable[[int], bytes]
) -> None:
    store = MemoryStore()
    catalog = await warm_catalog(store)
    await make(catalog)
    await catalog.delete(DeletePath(PATH, recursive=True))
    await catalog.sweep()
    (number,) = garbage.pending(store.view())
    draft = Draft(store.view())
    assert garbage.sweep(draft) == garbage.Swept(())
    await store.commit(Edit(puts=((late(number), b""),)))
    assert isinstance(await store.commit(draft.to_edit()), Conflict)
    assert garbage.pending(store.view()) == (number,)


async def test_many_small_files_are_swept_together() -> None:
    store = MemoryStore()
    catalog = await warm_catalog(store)
    files = [await closed_file(catalog, f"/{number}", 1) for number in range(20)]
    for number in range(20):
        await catalog.delete(DeletePath(f"/{number}"))
    commits = store.commits
    assert [entry.file for entry in await sweep_everything(catalog)] == files
    assert store.commits == commits + 2, "their blocks, and then what they were"


async def warm_catalog(store: MemoryStore) -> NamedCatalog:
    """A catalog that has given ids of files and blocks, and whose root has changed."""
    catalog = await new_catalog(store)
    await file_with_blocks(catalog, "/warm", 1)
    await catalog.delete(DeletePath("/warm"))
    await sweep_everything(catalog)
    return catalog


def shown(store: MemoryStore) -> list[bytes]:
    return [key for key, _ in store.machine]
