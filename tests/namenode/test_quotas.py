"""Quotas of names and of room, on a catalog: what is counted, refused and left as it was."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from paxosblock.api.care import SetReplication
from paxosblock.api.namenode import (
    CREATE,
    STAT,
    AddBlock,
    AppendFile,
    CloseFile,
    ConcatFiles,
    CreateFile,
    DeletePath,
    FileStatus,
    FirstBlock,
    ListDirectory,
    MakeDirectories,
    PathRequest,
    RenamePath,
    Transact,
)
from paxosblock.api.quota import (
    CHECK_QUOTAS,
    LIST_QUOTAS,
    SET_QUOTA,
    CheckQuotas,
    ListQuotas,
    QuotaUsage,
    SetQuota,
)
from paxosblock.api.transaction import Delete, MakeDirectory, Marker, Rename
from paxosblock.errors import (
    DirectoryNotEmptyError,
    InvalidRequestError,
    NameQuotaError,
    NotDirectoryError,
    PermissionDeniedError,
    QuotaExceededError,
    SafeModeError,
    SpaceQuotaError,
)
from paxosblock.namenode.catalog import keys, namespace, quotas, tree
from paxosblock.namenode.catalog.catalog import Catalog
from paxosblock.namenode.catalog.draft import Draft, in_one, inode_of
from paxosblock.namenode.catalog.namespace import Context
from paxosblock.namenode.catalog.permissions import ITSELF
from paxosblock.namenode.catalog.records import DirectoryInode
from paxosblock.namenode.kv.interface import Committed, Conflict, Count, Edit
from paxosblock.net.port.caller import CALLER, Caller
from paxosblock.protocol.types import Durability
from tests.namenode.cluster import CHUNK_BYTES
from tests.namenode.memory_store import MemoryStore
from tests.namenode.scene import (
    ANN,
    BOB,
    MEMBERS,
    NamedCatalog,
    Scene,
    add_block,
    closed_file,
    create_request,
    finalize,
    finalize_request,
    new_catalog,
    sweep_everything,
)

BLOCK = 1 << 20
"""The block size of `create_request`, whose files have three replicas."""


async def limit(
    catalog: Catalog, path: str, names: int | None = None, space: int | None = None
) -> QuotaUsage:
    def decide(draft: Draft, request: SetQuota, context: Context) -> QuotaUsage:
        return quotas.set_limits(draft, request, context.actor)

    request = SetQuota(path, names, space)
    return (await catalog.decide(QuotaUsage, in_one(decide), request)).value


async def used(catalog: Catalog, path: str) -> tuple[int, int]:
    """Names and room that a directory's counters have, which are what there is."""
    (usage,) = await catalog.quotas(path, ITSELF)
    for each in await catalog.check_quotas("/", repair=False):
        assert each.right, each
    return usage.names, usage.space


async def made(catalog: NamedCatalog, *paths: str) -> None:
    for path in paths:
        await catalog.make_directories(MakeDirectories(path))


# --- names ----------------------------------------------------------------------------------------


async def test_the_words_of_names_are_hdfs_and_nothing_is_changed() -> None:
    catalog = await new_catalog()
    await made(catalog, "/d")
    assert await limit(catalog, "/d", names=3) == QuotaUsage("/d", 3, 1, -1, 0)
    await made(catalog, "/d/a", "/d/b")
    before = (await catalog.view()).revision
    with pytest.raises(NameQuotaError) as refused:
        await catalog.create(create_request("/d/c"))
    assert str(refused.value) == (
        "The NameSpace quota (directories and files) of directory /d is exceeded: "
        "quota=3 file count=4"
    )
    assert (await catalog.view()).revision == before
    with pytest.raises(NameQuotaError, match="quota=3 file count=5"):
        await made(catalog, "/d/a/x/y")
    await catalog.delete(DeletePath("/d/b"))
    await catalog.create(create_request("/d/c"))
    assert await used(catalog, "/d") == (3, 0)


async def test_a_quota_below_what_is_there_is_taken_and_lets_nothing_in() -> None:
    """HDFS: the attempt to set a quota succeeds, even if the directory would violate it."""
    catalog = await new_catalog()
    await made(catalog, "/d/a/b", "/d/c")
    assert await limit(catalog, "/d", names=2) == QuotaUsage("/d", 2, 4, -1, 0)
    with pytest.raises(NameQuotaError, match="quota=2 file count=5"):
        await made(catalog, "/d/e")
    await catalog.rename(RenamePath("/d/c", "/d/a/c"))  # within it nothing is added
    await catalog.delete(DeletePath("/d/a/c"))
    with pytest.raises(NameQuotaError, match="quota=2 file count=4"):
        await made(catalog, "/d/e")
    await catalog.delete(DeletePath("/d/a", recursive=True))
    await made(catalog, "/d/e")
    assert await used(catalog, "/d") == (2, 0)


async def test_a_quota_of_one_keeps_a_directory_empty_and_the_innermost_is_named() -> None:
    catalog = await new_catalog()
    await made(catalog, "/d/in")
    await limit(catalog, "/d", names=2)
    await limit(catalog, "/d/in", names=1)
    with pytest.raises(NameQuotaError, match="/d/in is exceeded: quota=1 file count=2"):
        await catalog.create(create_request("/d/in/f"))
    await limit(catalog, "/d/in", names=9)
    with pytest.raises(NameQuotaError, match="of directory /d is exceeded: quota=2 file count=3"):
        await catalog.create(create_request("/d/in/f"))


async def test_creates_in_one_directory_do_not_conflict_and_are_as_many_as_may_be() -> None:
    store = MemoryStore(yielding=True)
    catalog, other = await new_catalog(store), NamedCatalog(store)
    await other.start(0, "")
    await made(catalog, "/d")
    await limit(catalog, "/d", names=30, space=0)
    await catalog.create(create_request("/d/first"))
    await other.create(create_request("/d/second"))
    conflicts = store.conflicts
    await asyncio.gather(
        *(each.create(create_request(f"/d/{n}{each is other}")) for n in range(10)
          for each in (catalog, other))
    )  # fmt: skip
    assert store.conflicts == conflicts, "they add to one counter, and expect nothing of it"
    tries = [each.create(create_request(f"/d/x{n}{each is other}")) for n in range(10)
             for each in (catalog, other)]  # fmt: skip
    ends = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(isinstance(end, NameQuotaError) for end in ends) == 20 - (30 - 23)
    assert await used(catalog, "/d") == (30, 0)


# --- room -----------------------------------------------------------------------------------------


async def test_a_block_that_is_written_counts_as_a_whole_one_until_its_file_is_closed() -> None:
    catalog = await new_catalog()
    await made(catalog, "/d")
    await limit(catalog, "/d", space=2 * 3 * BLOCK)
    file = (await catalog.create(create_request("/d/f"))).number
    assert await used(catalog, "/d") == (2, 0)
    first = await add_block(catalog, file)
    assert await used(catalog, "/d") == (2, 3 * BLOCK)
    await finalize(catalog, first, 4)
    ahead = AddBlock(file, ANN, first.record.block, 2, ahead=True)
    await catalog.add_block(ahead, await catalog.next_block(), MEMBERS)
    assert await used(catalog, "/d") == (2, 2 * 3 * BLOCK)
    second = await add_block(catalog, file, first.record.block)  # and no more the one made ahead
    assert await used(catalog, "/d") == (2, 3 * (BLOCK + 4 * CHUNK_BYTES))
    with pytest.raises(SpaceQuotaError) as refused:
        await catalog.add_block(
            AddBlock(file, ANN, second.record.block, 2, ahead=True),
            await catalog.next_block(),
            MEMBERS,
        )
    assert str(refused.value) == (
        f"The DiskSpace quota of /d is exceeded: quota = {6 * BLOCK} B = 6 MB but diskspace "
        f"consumed = {6 * BLOCK + 12 * CHUNK_BYTES} B = 6.00 MB"
    )
    await finalize(catalog, second, 1)
    await catalog.close_file(CloseFile(file, ANN))
    assert await used(catalog, "/d") == (2, 3 * 5 * CHUNK_BYTES)


async def test_no_room_lets_empty_files_be_made_as_in_hdfs(scene: Scene) -> None:
    catalog = scene.node.catalog
    await scene.service.call(CREATE, create_request("/d/before"))
    await scene.service.call(SET_QUOTA, SetQuota("/d", space=0))
    request = CreateFile("/d/f", BOB, False, 3, BLOCK, Durability.DISK, first=FirstBlock(2))
    created = await scene.service.call(CREATE, request)
    assert created.first is None
    with pytest.raises(SpaceQuotaError, match=r"quota = 0 B = 0 B but .* = 3145728 B = 3 MB"):
        await scene.add_block(created.status.file_id, writer=BOB)
    await catalog.close_file(CloseFile(created.status.file_id, BOB))
    assert await used(catalog, "/d") == (3, 0)


async def test_appends_replicas_and_joins_are_counted() -> None:
    catalog = await new_catalog()
    await made(catalog, "/d", "/e")
    await closed_file(catalog, "/d/f", 4)
    await closed_file(catalog, "/e/g", 6)
    await limit(catalog, "/d", space=40 * CHUNK_BYTES)
    await limit(catalog, "/e", space=40 * CHUNK_BYTES)
    assert await used(catalog, "/d") == (2, 12 * CHUNK_BYTES)

    async def replicate(replication: int) -> None:
        request = SetReplication("/d/f", replication)
        await catalog.decide(FileStatus, in_one(namespace.set_replication), request)

    await replicate(2)
    with pytest.raises(SpaceQuotaError):
        await replicate(11)
    assert await used(catalog, "/d") == (2, 8 * CHUNK_BYTES)
    await catalog.concat(ConcatFiles("/d/f", ("/e/g",)))
    assert await used(catalog, "/e") == (1, 0)
    assert await used(catalog, "/d") == (2, 20 * CHUNK_BYTES)
    opened = await catalog.append(AppendFile("/d/f", BOB))
    with pytest.raises(SpaceQuotaError):
        await add_block(catalog, opened.status.file_id, opened.last, BOB)
    await catalog.close_file(CloseFile(opened.status.file_id, BOB))
    assert await used(catalog, "/d") == (2, 20 * CHUNK_BYTES)


# --- what leaves and comes ------------------------------------------------------------------------


async def test_a_tree_is_counted_when_it_crosses_a_border_and_only_then() -> None:
    catalog = await new_catalog()
    await made(catalog, "/q", "/free/t/u", "/free/t/v")
    await closed_file(catalog, "/free/t/u/f", 2)
    await limit(catalog, "/q", names=4, space=100 * CHUNK_BYTES)
    with pytest.raises(NameQuotaError, match="quota=4 file count=5"):
        await catalog.rename(RenamePath("/free/t", "/q/t"))
    assert await catalog.status("/free/t/u/f")
    await catalog.delete(DeletePath("/free/t/v"))
    await catalog.rename(RenamePath("/free/t", "/q/t"))
    assert await used(catalog, "/q") == (4, 6 * CHUNK_BYTES)
    view = await catalog.view()
    moved = tree.find_inode(view, "/q/t", ITSELF)
    assert isinstance(moved, DirectoryInode)
    assert moved.quota is UNSET, "what it was counted with went with the border"
    await catalog.rename(RenamePath("/q/t/u", "/q/w"))
    await catalog.rename(RenamePath("/q/w", "/free/w"))
    assert await used(catalog, "/q") == (2, 0)
    await catalog.rename(RenamePath("/free/w/f", "/q/f"))
    assert await used(catalog, "/q") == (3, 6 * CHUNK_BYTES)


async def test_quotas_stick_with_directories_that_move() -> None:
    catalog = await new_catalog()
    await made(catalog, "/a/in/x", "/b")
    await limit(catalog, "/a", names=10)
    await limit(catalog, "/b", names=10)
    await limit(catalog, "/a/in", names=3)
    await catalog.rename(RenamePath("/a/in", "/b/in"))
    assert await used(catalog, "/a") == (1, 0)
    assert await used(catalog, "/b") == (3, 0)
    await made(catalog, "/b/in/y")
    with pytest.raises(NameQuotaError, match="of directory /b/in is exceeded"):
        await made(catalog, "/b/in/z")
    assert await used(catalog, "/b") == (4, 0)
    await catalog.delete(DeletePath("/b/in", recursive=True))
    assert await used(catalog, "/b") == (1, 0)
    await sweep_everything(catalog)
    left = {keys.number_of(key) for key, _ in (await catalog.view()).scan(*keys.COUNTERS)}
    assert left == {tree.find(await catalog.view(), each, ITSELF).number for each in ("/a", "/b")}


async def test_a_transaction_counts_what_is_left_of_it() -> None:
    catalog = await new_catalog()
    await made(catalog, "/d/old", "/free/t/x")
    await limit(catalog, "/d", names=4)

    async def transact(*operations: Delete | Marker | MakeDirectory | Rename) -> None:
        await catalog.transact(Transact(operations, 3, BLOCK, Durability.DISK))

    await transact(Marker("/d/1"), Marker("/d/2"))
    await transact(Delete("/d/1"), Delete("/d/old"), Marker("/d/3"), Marker("/d/4"))
    with pytest.raises(NameQuotaError, match="quota=4 file count=6"):
        await transact(Delete("/d/3"), Marker("/d/5"), Rename("/free/t", "/d/t"))
    assert await used(catalog, "/d") == (4, 0)
    await transact(Delete("/d/3"), Delete("/d/2"), Rename("/free/t", "/d/t"))
    await transact(Delete("/d/t", recursive=True))
    assert await used(catalog, "/d") == (2, 0)
    await made(catalog, "/d/in")
    await limit(catalog, "/d/in", names=9)
    await transact(Marker("/d/in/x"), Rename("/d/in", "/free/in"), Marker("/free/in/y"))
    assert await used(catalog, "/d") == (2, 0)
    assert await used(catalog, "/free/in") == (3, 0)


async def test_directories_on_the_way_are_counted_and_pruned() -> None:
    catalog = await new_catalog()
    await made(catalog, "/d")
    await limit(catalog, "/d", names=9)
    await catalog.create(create_request("/d/a/b/f"))
    assert await used(catalog, "/d") == (4, 0)
    prune = Transact((Delete("/d/a/b/f", prune=True),), 3, BLOCK, Durability.DISK)
    await catalog.transact(prune)
    assert await used(catalog, "/d") == (1, 0)


async def test_a_full_directory_is_not_counted_to_say_that_it_is_not_empty() -> None:
    catalog = await new_catalog()
    await made(catalog, "/d/full/x")
    await limit(catalog, "/d", names=9)
    before = (await catalog.view()).revision
    with pytest.raises(DirectoryNotEmptyError):
        await catalog.delete(DeletePath("/d/full"))
    assert (await catalog.view()).revision == before


async def test_a_directory_is_counted_while_others_change_what_is_below_it() -> None:
    store = MemoryStore(yielding=True)
    catalog = await new_catalog(store)
    await made(catalog, *(f"/d/{n}/x" for n in range(150)))  # more than one slice

    async def change() -> None:
        for n in range(60):
            await catalog.create(create_request(f"/d/{n}/y/z"))
            await catalog.delete(DeletePath(f"/d/{149 - n}", recursive=True))
            await catalog.rename(RenamePath(f"/d/{n}/x", f"/d/{n + 1}/y{n}"))

    changing = asyncio.ensure_future(change())
    await limit(catalog, "/d", names=1000)
    assert not changing.done()
    await changing
    assert (await used(catalog, "/d"))[0] > 300


# --- at once --------------------------------------------------------------------------------------


async def both(first: Awaitable[object], second: Awaitable[object]) -> None:
    """Decide two changes on one state, and apply them one after the other."""
    ends = await asyncio.gather(first, second, return_exceptions=True)
    assert not [end for end in ends if isinstance(end, AssertionError)]


@pytest.mark.parametrize("was_empty", [True, False])
async def test_a_directory_that_is_empty_no_more_is_not_moved_as_one(was_empty: bool) -> None:
    store = MemoryStore(yielding=True)
    catalog, other = await new_catalog(store), NamedCatalog(store)
    await other.start(0, "")
    await made(catalog, "/q/a", "/free/d")
    if not was_empty:
        await made(catalog, "/free/d/x")
        await catalog.delete(DeletePath("/free/d/x"))
    await limit(catalog, "/q", names=9)
    await made(other, "/other")  # it has its ids by then
    moves = Transact((Rename("/free/d", "/q/d"),), 3, BLOCK, Durability.DISK)
    await both(other.make_directories(MakeDirectories("/free/d/y")), catalog.transact(moves))
    assert await catalog.status("/q/d/y")
    assert await used(catalog, "/q") == (4, 0)


async def test_an_open_file_gets_no_block_while_it_goes() -> None:
    store = MemoryStore(yielding=True)
    catalog, other = await new_catalog(store), NamedCatalog(store)
    await other.start(0, "")
    await made(catalog, "/q")
    await limit(catalog, "/q", space=9 * BLOCK)
    file = (await catalog.create(create_request("/q/f"))).number
    block = await add_block(catalog, file)
    await finalize(catalog, block, 1)
    await other.next_block()
    adds = add_block(other, file, block.record.block)
    await both(adds, catalog.delete(DeletePath("/q/f")))
    assert await used(catalog, "/q") == (1, 0)


async def test_the_block_that_follows_takes_the_place_of_the_one_made_ahead() -> None:
    catalog = await new_catalog()
    await made(catalog, "/q")
    await limit(catalog, "/q", space=9 * BLOCK)
    file = (await catalog.create(create_request("/q/f"))).number
    first = await add_block(catalog, file)
    ahead = AddBlock(file, ANN, first.record.block, 2, ahead=True)
    second = await catalog.add_block(ahead, await catalog.next_block(), MEMBERS)
    ends = finalize_request(first, 2)
    await catalog.finalize_by_writer(replace(ends, following=second.record.block))
    assert await used(catalog, "/q") == (2, 3 * (2 * CHUNK_BYTES + BLOCK))


# --- limits ---------------------------------------------------------------------------------------


async def test_limits_are_changed_shown_and_taken_away() -> None:
    catalog = await new_catalog()
    await made(catalog, "/d/a", "/e")
    await limit(catalog, "/d", names=5)
    assert await limit(catalog, "/d", space=100) == QuotaUsage("/d", 5, 2, 100, 0)
    await limit(catalog, "/e", space=7)
    assert [each.path for each in await catalog.quotas("", ITSELF)] == ["/d", "/e"]
    assert await limit(catalog, "/d", names=-1) == QuotaUsage("/d", -1, 2, 100, 0)
    assert await limit(catalog, "/d", space=-1) == QuotaUsage("/d")
    assert await limit(catalog, "/d", space=-1) == QuotaUsage("/d")
    assert [each.path for each in await catalog.quotas("", ITSELF)] == ["/e"]
    await limit(catalog, "/e", names=-1, space=-1)
    view = await catalog.view()
    assert not view.has_counters
    assert not list(view.scan(*keys.COUNTERS))
    inode = inode_of(view, tree.find(view, "/d", ITSELF).number)
    assert isinstance(inode, DirectoryInode)
    assert inode.quota is UNSET


async def test_what_may_have_no_quota_is_refused() -> None:
    catalog = await new_catalog()
    await catalog.create(create_request("/f"))
    with pytest.raises(NotDirectoryError):
        await limit(catalog, "/f", names=5)
    with pytest.raises(InvalidRequestError, match="Cannot clear namespace quota on root"):
        await limit(catalog, "/", names=-1)


async def test_the_root_has_quotas_and_that_of_names_cannot_be_cleared() -> None:
    catalog = await new_catalog()
    await made(catalog, "/d/a")
    assert await limit(catalog, "/", names=5, space=0) == QuotaUsage("/", 5, 3, 0, 0)
    await made(catalog, "/d/b")
    await limit(catalog, "/d", names=9)
    await made(catalog, "/c")
    with pytest.raises(NameQuotaError, match=r"of directory / is exceeded: quota=5 file count=6"):
        await made(catalog, "/d/e")
    await catalog.delete(DeletePath("/d/b", recursive=True))
    await catalog.rename(RenamePath("/d/a", "/a"))
    assert await used(catalog, "/") == (4, 0)
    with pytest.raises(InvalidRequestError, match="Cannot clear namespace quota on root"):
        await limit(catalog, "/", names=-1, space=-1)
    checked, _ = await catalog.check_quotas("/", repair=False)
    assert checked.right
    await limit(catalog, "/", names=quotas.ROOT_NAMES_MAX, space=-1)
    assert [each.path for each in await catalog.quotas("", ITSELF)] == ["/d"]


async def test_a_quota_changes_nothing_of_when_names_were_linked() -> None:
    """Streams of Spark go by it to read each file once."""
    catalog = await new_catalog()
    await made(catalog, "/d/a", "/d/b")
    await catalog.create(create_request("/d/a/f"))
    paths = ("/", "/d", "/d/a", "/d/a/f")
    before = [(await catalog.list(ListDirectory(path))).linked for path in paths]
    await limit(catalog, "/d/a", names=9)
    await limit(catalog, "/d/a", names=-1)
    await limit(catalog, "/d/a", space=9 * BLOCK)
    await limit(catalog, "/", names=9)
    assert [(await catalog.list(ListDirectory(path))).linked for path in paths] == before


class LateStore(MemoryStore):
    """One edit comes so late that others take effect before it, after it was decided."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: asyncio.Event | None = None
        self.decided = asyncio.Event()

    async def commit(self, edit: Edit) -> Committed | Conflict:
        if (waits := self.waits) is not None:
            self.waits = None
            self.decided.set()
            await waits.wait()
        return await super().commit(edit)


@pytest.mark.parametrize("path", ["/new", "/file", "/marker", "/q/y", "/moved", "/q/f"])
async def test_what_was_decided_before_the_root_counts_is_counted_when_it_comes_later(
    path: str,
) -> None:
    store = LateStore()
    catalog, other = await new_catalog(store), NamedCatalog(store)
    await other.start(0, "")
    await made(catalog, "/q/x")
    await made(other, "/other")  # it has its ids by then
    file = (await catalog.create(create_request("/q/f"))).number
    await other.next_block()
    change: Awaitable[object]
    if path == "/q/f":
        change = add_block(other, file)
    elif path == "/file":
        change = other.create(create_request(path))
    elif path == "/marker":
        change = other.transact(Transact((Marker(path),), 3, BLOCK, Durability.DISK))
    elif path == "/moved":
        change = other.rename(RenamePath("/q/x", path))
    else:
        change = other.make_directories(MakeDirectories(path))
    store.waits = waits = asyncio.Event()
    changing = asyncio.ensure_future(change)
    await store.decided.wait()
    await limit(catalog, "/", names=99, space=9 * BLOCK)
    waits.set()
    await changing
    (checked,) = await catalog.check_quotas("/", repair=False)
    assert checked.right
    assert checked.usage.names == (5 if path in ("/q/f", "/moved") else 6)
    assert (checked.usage.space > 0) is (path == "/q/f")


async def test_only_a_superuser_sets_a_quota_and_sees_all_of_them(scene: Scene) -> None:
    await scene.service.call(CREATE, create_request("/d/f"))
    before = CALLER.set(Caller.claiming("joe", "10.0.0.7"))
    try:
        with pytest.raises(PermissionDeniedError):
            await scene.service.call(SET_QUOTA, SetQuota("/d", 5))
        with pytest.raises(PermissionDeniedError):
            await scene.service.call(LIST_QUOTAS, ListQuotas())
        with pytest.raises(PermissionDeniedError):
            await scene.service.call(CHECK_QUOTAS, CheckQuotas("/"))
        (usage,) = (await scene.service.call(LIST_QUOTAS, ListQuotas("/d"))).found
        assert usage == QuotaUsage("/d")
    finally:
        CALLER.reset(before)
    await scene.service.call(SET_QUOTA, SetQuota("/d", 5))
    assert (await scene.service.call(STAT, PathRequest("/d"))).path == "/d"


@pytest.mark.parametrize(
    ("names", "space"), [(0, None), (-2, None), (None, -2), (1 << 63, None), (None, 1 << 63)]
)
async def test_limits_that_are_none_are_refused(
    scene: Scene, names: int | None, space: int | None
) -> None:
    with pytest.raises(InvalidRequestError, match="Invalid values for quota : "):
        await scene.service.call(SET_QUOTA, SetQuota("/", names, space))


async def test_safe_mode_changes_no_quota(scene: Scene) -> None:
    await scene.node.catalog.enter_safe_mode()
    with pytest.raises(SafeModeError):
        await scene.service.call(SET_QUOTA, SetQuota("/", 5))


async def test_counters_that_are_wrong_are_found_and_mended() -> None:
    store = MemoryStore()
    catalog = await new_catalog(store)
    await made(catalog, "/d/a", "/e")
    await limit(catalog, "/d", names=5)
    await limit(catalog, "/e", names=5)
    counter = next(key for key, _ in store.machine.scan(*keys.COUNTERS))
    await store.commit(Edit(counts=(Count(counter, 2),)))
    wrong, right = await catalog.check_quotas("/", repair=False)
    assert (wrong.usage.path, wrong.usage.names, wrong.names) == ("/d", 4, 2)
    assert not wrong.right
    assert right.right
    assert not (await catalog.check_quotas("/e", repair=True))[0].repaired
    assert (await catalog.check_quotas("/d", repair=True))[0].repaired
    assert await used(catalog, "/d") == (2, 0)


async def test_a_quota_keeps_no_file_from_its_close() -> None:
    """It gives room back, or takes what its writer was given before."""
    catalog = await new_catalog()
    await made(catalog, "/d")
    file = (await catalog.create(create_request("/d/f"))).number
    block = await add_block(catalog, file)
    await limit(catalog, "/d", space=0)
    another = (await catalog.create(create_request("/d/g"))).number
    with pytest.raises(QuotaExceededError):
        await add_block(catalog, another)
    await catalog.close_file(CloseFile(file, ANN, finalize_request(block, 3)))
    assert await used(catalog, "/d") == (3, 9 * CHUNK_BYTES)
