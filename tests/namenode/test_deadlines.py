"""Things that end by themselves: directories with a time to live, versions of applications."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest

from paxosblock.api.namenode import (
    CLOSE_FILE,
    MKDIRS,
    AppendFile,
    ApplicationVersion,
    CloseFile,
    DeletePath,
    MakeDirectories,
    RenamePath,
    Transact,
)
from paxosblock.api.transaction import MakeDirectory
from paxosblock.errors import InvalidRequestError, NotFoundError
from paxosblock.namenode.catalog.catalog import wall_clock_ms
from paxosblock.namenode.catalog.deadlines import Ended
from paxosblock.namenode.kv.interface import Committed, Conflict, Edit
from paxosblock.protocol.types import Durability
from tests.namenode.memory_store import MemoryStore
from tests.namenode.scene import (
    ANN,
    BOB,
    TAG,
    Clock,
    NamedCatalog,
    Scene,
    add_block,
    closed_file,
    create_request,
    sweep_everything,
)
from tests.waiting import wait_until_async

AT_START = Clock().now
TTL_S = 60.0


class Timed:
    """A catalog whose clock, in seconds, stands in the test's hand."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.clock = Clock()
        self.store = store or MemoryStore()
        self.catalog = NamedCatalog(self.store, lambda: int(self.clock.now * 1000))

    async def mkdirs(self, path: str, ttl_s: float | None = TTL_S) -> float:
        return (await self.catalog.make_directories(MakeDirectories(path, ttl_s=ttl_s))).expires_s

    async def end_all(self, *, live: bool = False) -> list[Ended]:
        """End all that is due; `live` says that every open file has a writer."""
        self.catalog.all_held = live
        due = await self.catalog.due()
        return [await self.catalog.end(deadline) for deadline in due]

    async def transact(self, version: int, keep_for_s: float | None) -> None:
        application = ApplicationVersion("app", version, f"attempt-{version}", keep_for_s)
        made = (MakeDirectory(f"/v{version}"),)
        await self.catalog.transact(
            Transact(made, 3, 1 << 20, Durability.DISK, application=application)
        )

    def deadlines(self) -> int:
        return len(list(self.store.machine.scan(b"x", b"y")))


@pytest.fixture
async def timed() -> Timed:
    timed = Timed()
    await timed.catalog.start(TAG, "cluster-1")
    return timed


# --- directories ---------------------------------------------------------------------------------


async def test_a_directory_whose_time_is_over_goes_with_all_that_is_in_it(timed: Timed) -> None:
    expires_s = await timed.mkdirs("/tmp/job")
    assert expires_s == AT_START + TTL_S
    await closed_file(timed.catalog, "/tmp/job/part", 1)
    timed.clock.now += TTL_S - 1
    assert await timed.end_all() == []
    timed.clock.now += 1
    assert await timed.end_all() == [Ended.DELETED]
    with pytest.raises(NotFoundError):
        await timed.catalog.status("/tmp/job")
    assert (await timed.catalog.status("/tmp")).expires_s == 0, "those above live on"
    assert timed.deadlines() == 0


async def test_mkdirs_gives_a_directory_its_time_anew(timed: Timed) -> None:
    await timed.mkdirs("/d")
    timed.clock.now += TTL_S - 1
    await timed.mkdirs("/d")
    timed.clock.now += TTL_S - 1
    assert await timed.end_all() == []
    assert timed.deadlines() == 1
    timed.clock.now += 1
    assert await timed.end_all() == [Ended.DELETED]


async def test_mkdirs_without_a_time_leaves_it_as_it_is(timed: Timed) -> None:
    first = await timed.mkdirs("/d")
    assert await timed.mkdirs("/d", ttl_s=None) == first
    assert await timed.mkdirs("/other", ttl_s=None) == 0


async def test_a_directory_can_be_given_a_time_later(timed: Timed) -> None:
    await timed.mkdirs("/d", ttl_s=None)
    assert await timed.mkdirs("/d") > 0
    timed.clock.now += TTL_S
    assert await timed.end_all() == [Ended.DELETED]


async def test_a_directory_waits_for_the_writer_below_it(timed: Timed) -> None:
    await timed.mkdirs("/d")
    file = (await timed.catalog.create(create_request("/d/a/b/open"))).number
    timed.clock.now += TTL_S
    assert await timed.end_all(live=True) == [Ended.HELD]
    assert await timed.end_all(live=True) == [Ended.HELD]
    await timed.catalog.close_file(CloseFile(file, ANN))
    assert await timed.end_all(live=True) == [Ended.DELETED]


async def test_a_directory_does_not_wait_for_writers_elsewhere_or_gone(timed: Timed) -> None:
    await timed.mkdirs("/d")
    await timed.mkdirs("/e")
    await timed.catalog.create(create_request("/f"))
    await timed.catalog.create(create_request("/e/open"))
    timed.clock.now += TTL_S
    assert await timed.end_all(live=True) == [Ended.DELETED, Ended.HELD]
    assert await timed.end_all(live=False) == [Ended.DELETED]


class IntrudedStore(MemoryStore):
    """Lets another caller's operation be applied between the next decision and its commit."""

    def __init__(self) -> None:
        super().__init__()
        self.intrusion: Coroutine[Any, Any, object] | None = None

    async def commit(self, edit: Edit) -> Committed | Conflict:
        intrusion, self.intrusion = self.intrusion, None
        if intrusion is not None:
            await intrusion
        return await super().commit(edit)


@pytest.mark.parametrize("how", ["created", "appended", "moved", "moved with its directory"])
async def test_no_writer_slips_in_while_a_directory_is_deleted(how: str) -> None:
    store = IntrudedStore()
    timed = Timed(store)
    catalog = timed.catalog
    await catalog.start(TAG, "cluster-1")
    await timed.mkdirs("/d")
    await closed_file(catalog, "/d/appended", 1)
    await catalog.create(create_request("/elsewhere/open", BOB))
    timed.clock.now += TTL_S
    intrusions = {
        "created": catalog.create(create_request("/d/created", parent_must_exist=True)),
        "appended": catalog.append(AppendFile("/d/appended", BOB)),
        "moved": catalog.rename(RenamePath("/elsewhere/open", "/d/moved")),
        "moved with its directory": catalog.rename(RenamePath("/elsewhere", "/d/moved")),
    }
    store.intrusion = intrusions.pop(how)
    for unused in intrusions.values():
        unused.close()
    assert await timed.end_all(live=True) == [Ended.HELD]
    assert store.conflicts == 1


async def test_who_wrote_below_a_directory_that_ended_is_refused(timed: Timed) -> None:
    await timed.mkdirs("/d")
    file = (await timed.catalog.create(create_request("/d/part"))).number
    timed.clock.now += TTL_S
    assert await timed.end_all() == [Ended.DELETED]
    with pytest.raises(NotFoundError):
        await add_block(timed.catalog, file)
    with pytest.raises(NotFoundError):
        await timed.catalog.close_file(CloseFile(file, ANN))


async def test_a_directory_that_is_moved_to_its_place_stays_for_ever(timed: Timed) -> None:
    """Nothing that was published vanishes because of what it was made in."""
    await timed.mkdirs("/staged")
    await closed_file(timed.catalog, "/staged/part", 1)
    await timed.catalog.rename(RenamePath("/staged", "/table"))
    assert (await timed.catalog.status("/table")).expires_s == 0
    assert timed.deadlines() == 0
    timed.clock.now += TTL_S
    assert await timed.end_all() == []


async def test_a_directory_that_is_deleted_or_swept_leaves_no_deadline(timed: Timed) -> None:
    await timed.mkdirs("/a")
    await timed.mkdirs("/b/below")
    for path in ("/a", "/b"):
        await timed.catalog.delete(DeletePath(path, recursive=True))
    await sweep_everything(timed.catalog)
    assert timed.deadlines() == 0


async def test_a_deadline_below_a_deleted_directory_is_dropped(timed: Timed) -> None:
    await timed.mkdirs("/b/below")
    await timed.catalog.delete(DeletePath("/b", recursive=True))
    timed.clock.now += TTL_S
    assert await timed.end_all() == [Ended.GONE]
    assert timed.deadlines() == 0


async def test_the_root_has_no_time_to_live(timed: Timed) -> None:
    with pytest.raises(InvalidRequestError, match="the root has no time to live"):
        await timed.mkdirs("/")


@pytest.mark.parametrize("ttl_s", [0.0, -1.0, float("nan"), float("inf")])
async def test_a_time_to_live_is_a_time(scene: Scene, ttl_s: float) -> None:
    with pytest.raises(InvalidRequestError, match="'/d': time to live"):
        await scene.service.call(MKDIRS, MakeDirectories("/d", ttl_s=ttl_s))


async def test_the_housekeeper_deletes_and_sweeps_but_not_under_a_live_lease(scene: Scene) -> None:
    made = await scene.service.call(MKDIRS, MakeDirectories("/d", ttl_s=0.001))
    file = await scene.create("/d/open")
    housekeeper, catalog = scene.node.housekeeper, scene.node.catalog
    await wait_until_async(lambda: wall_clock_ms() > made.expires_s * 1000)
    await housekeeper.check_deadlines()
    assert (await catalog.status("/d/open")).open
    await scene.service.call(CLOSE_FILE, CloseFile(file, ANN))
    await housekeeper.check_deadlines()
    with pytest.raises(NotFoundError):
        await catalog.status("/d")


async def test_many_held_directories_do_not_keep_others_from_ending(timed: Timed) -> None:
    for number in range(5):
        await timed.mkdirs(f"/{number}")
    timed.clock.now += TTL_S
    first = await timed.catalog.due(limit=2)
    rest = await timed.catalog.due(first[-1])
    assert (len(first), len(rest)) == (2, 3)
    assert not set(first) & set(rest)


# --- applications --------------------------------------------------------------------------------


async def test_a_version_is_forgotten_when_its_time_after_the_last_use_is_over(
    timed: Timed,
) -> None:
    await timed.transact(0, keep_for_s=TTL_S)
    timed.clock.now += TTL_S - 1
    await timed.transact(1, keep_for_s=TTL_S)
    assert timed.deadlines() == 1
    timed.clock.now += TTL_S - 1
    assert await timed.end_all() == []
    assert await timed.catalog.application_version("app") == 1
    timed.clock.now += 1
    assert await timed.end_all() == [Ended.FORGOTTEN]
    assert await timed.catalog.application_version("app") is None
    assert timed.deadlines() == 0


async def test_a_version_without_a_time_is_kept_for_ever(timed: Timed) -> None:
    await timed.transact(0, keep_for_s=TTL_S)
    await timed.transact(1, keep_for_s=None)
    assert timed.deadlines() == 0
    timed.clock.now += 10 * TTL_S
    assert await timed.end_all() == []
    assert await timed.catalog.application_version("app") == 1


async def test_a_version_is_not_forgotten_while_it_is_used(timed: Timed) -> None:
    """The deadline was over, but the application came back before it was looked at."""
    await timed.transact(0, keep_for_s=TTL_S)
    timed.clock.now += TTL_S
    (deadline,) = await timed.catalog.due()
    await timed.transact(1, keep_for_s=TTL_S)
    assert await timed.catalog.end(deadline) is Ended.GONE
    assert await timed.catalog.application_version("app") == 1
