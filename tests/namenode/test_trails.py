"""A way through directories that is remembered leads where a walk would lead, and no further."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from paxosblock.api.namenode import DeletePath, MakeDirectories, RenamePath
from paxosblock.api.transaction import AclChange, ChangeAcl
from paxosblock.base.acl_entries import parse_acl
from paxosblock.errors import PaxosBlockError, PermissionDeniedError
from paxosblock.namenode.catalog import namespace, trails, tree
from paxosblock.namenode.catalog.draft import Draft, Reads
from paxosblock.namenode.catalog.namespace import Context
from paxosblock.namenode.catalog.permissions import ITSELF, Actor
from paxosblock.namenode.kv.interface import Committed, Conflict
from tests.namenode.memory_store import MemoryStore
from tests.namenode.scene import NamedCatalog, new_catalog
from tests.namenode.test_permissions import change, transacted

ANN = Actor("ann", frozenset({"dev"}))
PATH = "/a/b/c/d"

Change = Callable[[MemoryStore, NamedCatalog], Awaitable[object]]


async def tree_of_four() -> tuple[MemoryStore, NamedCatalog]:
    """Four directories below each other, through which everybody may go."""
    store = MemoryStore()
    catalog = await new_catalog(store)
    await catalog.make_directories(MakeDirectories(PATH))
    return store, catalog


def seen(reads: Reads, actor: Actor) -> tuple[int, int] | str:
    """Return the inode that `PATH` leads to, and how many names do; or the refusal."""
    names = tuple(PATH[1:].split("/"))
    try:
        found, depth = tree.descend(reads, names, actor)
    except PaxosBlockError as error:
        return str(error)
    return found.number, depth


async def close(store: MemoryStore, _: NamedCatalog) -> None:
    """Nobody but its owner may go through a directory on the way."""
    await change(store, "/a/b", "me", "staff", 0o700)


async def close_last(store: MemoryStore, _: NamedCatalog) -> None:
    """The same of the last directory on the way."""
    await change(store, "/a/b/c", "me", "staff", 0o700)


async def give_to_group(store: MemoryStore, _: NamedCatalog) -> None:
    """The class of the group decides now, and lets nobody in."""
    await change(store, "/a", "me", "dev", 0o705)


async def keep_out(_: MemoryStore, catalog: NamedCatalog) -> None:
    """An entry of an access control list keeps the user out."""
    entries = parse_acl("user:ann:---")
    await transacted(ChangeAcl("/a/b", AclChange.MODIFY, entries))(catalog)


async def rename(_: MemoryStore, catalog: NamedCatalog) -> None:
    """A directory on the way has another name."""
    await catalog.rename(RenamePath("/a/b", "/a/other"))


async def replace(_: MemoryStore, catalog: NamedCatalog) -> None:
    """Another directory has the name of one on the way."""
    await catalog.rename(RenamePath("/a/b", "/aside"))
    await catalog.make_directories(MakeDirectories(PATH))


async def make_again(_: MemoryStore, catalog: NamedCatalog) -> None:
    """All was deleted, and made again."""
    await catalog.delete(DeletePath("/a", recursive=True))
    await catalog.make_directories(MakeDirectories(PATH))


@pytest.mark.parametrize("actor", [ANN, ITSELF], ids=["user", "superuser"])
@pytest.mark.parametrize(
    "alter", [close, close_last, give_to_group, keep_out, rename, replace, make_again]
)
async def test_a_trail_ends_with_each_change_on_the_way(alter: Change, actor: Actor) -> None:
    store, catalog = await tree_of_four()
    before = seen(store.view(), actor)
    assert seen(store.view(), actor) == before, "the second one follows the trail"
    await alter(store, catalog)
    followed = seen(store.view(), actor)
    trails.TRAILS.clear()
    assert followed == seen(store.view(), actor), "a walk says the same"
    if not actor.superuser or alter in (rename, replace, make_again):
        assert followed != before


async def test_what_is_decided_on_a_trail_expects_that_it_stays_open() -> None:
    """The right to go through a directory is taken away between decision and entry in the log."""
    store, _ = await tree_of_four()
    await change(store, "/a/b/c", "ann", "dev", 0o755)
    for closed in ("/a", "/a/b", "/a/b/c"):
        await change(store, closed, "ann", "dev", 0o755)
        seen(store.view(), ANN)  # there is a trail
        draft = Draft(store.view())
        context = Context(iter([99]), 1, lambda _: False, {}, ANN)
        namespace.make_directories(draft, MakeDirectories("/a/b/c/new"), context)
        await change(store, closed, "me", "dev", 0o700)
        assert isinstance(await store.commit(draft.to_edit()), Conflict), closed
        await change(store, closed, "ann", "dev", 0o755)


async def test_a_draft_does_not_follow_a_trail_through_what_it_changed() -> None:
    store, _ = await tree_of_four()
    before = seen(store.view(), ANN)
    draft = Draft(store.view())
    assert seen(draft, ANN) == before
    renamed = RenamePath("/a/b", "/a/other")
    namespace.rename(draft, renamed, Context(iter([99]), 1, lambda _: False, {}, ITSELF))
    assert seen(draft, ANN) == (tree.find(draft, "/a", ITSELF).number, 1)
    assert isinstance(await store.commit(draft.to_edit()), Committed)


async def test_no_more_trails_are_kept_than_there_is_room_for() -> None:
    store, catalog = await tree_of_four()
    view = store.view()
    for number in range(trails.TRAILS_KEPT + 2):
        tree.descend(view, ("a", "b"), Actor(f"user-{number}"))
        assert len(trails.TRAILS) <= trails.TRAILS_KEPT
    deep = "/deep" * (trails.TRAIL_NAMES_MAX + 2)
    await catalog.make_directories(MakeDirectories(deep))
    kept = len(trails.TRAILS)
    assert tree.find(store.view(), deep, ANN).is_directory
    assert len(trails.TRAILS) == kept, "one that is longer is not remembered"


async def test_a_trail_of_one_user_is_none_for_another() -> None:
    store, _ = await tree_of_four()
    await change(store, "/a/b", "ann", "dev", 0o700)
    assert seen(store.view(), ANN) == seen(store.view(), ITSELF)
    refused = seen(store.view(), Actor("bob", frozenset({"dev"})))
    assert isinstance(refused, str)
    assert refused.startswith("Permission denied: user=bob, access=EXECUTE")
    with pytest.raises(PermissionDeniedError):
        tree.find(store.view(), PATH, Actor("ann-too"))
