"""A request that is sent again is done once, and gets the answer of the first time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from paxosblock.api.methods import Once
from paxosblock.api.namenode import (
    DELETE,
    MKDIRS,
    NO_BLOCK,
    NO_FILE,
    TRANSACT,
    AddBlock,
    ConcatFiles,
    DeletePath,
    MakeDirectories,
    RenamePath,
    Transact,
)
from paxosblock.api.transaction import MakeDirectory
from paxosblock.errors import ExistsError, InvalidRequestError, NotFoundError, OutcomeUnknownError
from paxosblock.namenode.catalog import keys
from paxosblock.namenode.catalog.catalog import wall_clock_ms
from paxosblock.namenode.catalog.changes import REMEMBERED_MS, SESSION_CHARS_MAX
from paxosblock.namenode.catalog.deadlines import Ended
from paxosblock.namenode.catalog.records import Answered, decode_answered, encode
from paxosblock.namenode.housekeeper import FORGET_AFTER_S
from paxosblock.namenode.kv.interface import Edit
from paxosblock.net.calls.call_server import RpcRouter
from paxosblock.net.port.caller import CALLER, HERE
from paxosblock.protocol.types import Durability
from tests.namenode.memory_store import MemoryStore
from tests.namenode.scene import (
    ANN,
    MEMBERS,
    TAG,
    Clock,
    NamedCatalog,
    closed_file,
    create_request,
    new_scene,
)

FIRST = Once("a client's session", 1)
SECOND = Once("a client's session", 2)
OTHER = Once("another client's session", 1)
KEPT_AT_LEAST_S = REMEMBERED_MS / 2000

Change = Callable[[NamedCatalog, Once], Awaitable[object]]


class Timed:
    """Two NameNodes' catalogs on one store; their clock stands in the test's hand."""

    def __init__(self, store: MemoryStore) -> None:
        self.clock = Clock()
        self.store = store
        self.catalog, self.other = (
            NamedCatalog(store, lambda: int(self.clock.now * 1000)) for _ in range(2)
        )

    async def start(self) -> None:
        await self.catalog.start(TAG, "cluster-1")
        await self.other.start(TAG, "cluster-1")

    async def end_all(self) -> list[Ended]:
        due = await self.catalog.due()
        return [await self.catalog.end(deadline) for deadline in due]

    def remembered(self) -> int:
        return len(list(self.store.machine.scan(b"s", b"t")))


@pytest.fixture
async def timed() -> Timed:
    timed = Timed(MemoryStore(yielding=True))
    await timed.start()
    for catalog in (timed.catalog, timed.other):  # both reserve ids
        await catalog.make_directories(MakeDirectories("/d/inner"))
        await catalog.delete(DeletePath("/d/inner"))
    await closed_file(timed.catalog, "/one", 1)
    await closed_file(timed.catalog, "/two", 1)
    return timed


async def mkdirs(catalog: NamedCatalog, once: Once) -> object:
    return await catalog.make_directories(MakeDirectories("/new", parents=False, once=once))


async def create(catalog: NamedCatalog, once: Once) -> object:
    return await catalog.create(replace(create_request("/new"), once=once))


async def rename(catalog: NamedCatalog, once: Once) -> object:
    return await catalog.rename(RenamePath("/d", "/new", once=once))


async def delete(catalog: NamedCatalog, once: Once) -> object:
    return await catalog.delete(DeletePath("/d", once=once))


async def concat(catalog: NamedCatalog, once: Once) -> object:
    return await catalog.concat(ConcatFiles("/one", ("/two",), once=once))


async def transact(catalog: NamedCatalog, once: Once) -> object:
    made = (MakeDirectory("/new"),)
    return await catalog.transact(Transact(made, 3, 1 << 20, Durability.DISK, once=once))


async def add_block(catalog: NamedCatalog, once: Once) -> object:
    request = AddBlock(NO_FILE, ANN, NO_BLOCK, window=2, once=once)
    found = await catalog.already_added(request)
    return found or await catalog.add_block(request, await catalog.next_block(), MEMBERS)


CHANGES = (mkdirs, create, rename, delete, concat, transact, add_block)


@pytest.mark.parametrize("change", CHANGES)
async def test_a_copy_gets_the_first_answer_from_any_namenode(timed: Timed, change: Change) -> None:
    first = await change(timed.catalog, FIRST)
    changed = timed.store.commits
    assert await change(timed.other, FIRST) == first
    assert await change(timed.catalog, FIRST) == first
    assert timed.store.commits == changed


@pytest.fixture
def as_this_process() -> Iterator[None]:
    """A handler of the router takes the caller that a door told."""
    before = CALLER.set(HERE)
    yield
    CALLER.reset(before)


@pytest.mark.usefixtures("as_this_process")
@pytest.mark.parametrize("again", [False, True], ids=["first", "repeated"])
async def test_the_msgpack_of_an_answer_is_made_once_for_its_record_and_the_caller(
    again: bool,
) -> None:
    """The caller is sent the very bytes of the record."""
    scene, router = await new_scene(), RpcRouter()
    scene.service.add_to(router)
    operations = (MakeDirectory("/e"),)
    for name, once, request in (
        (MKDIRS.name, FIRST, MakeDirectories("/d", once=FIRST)),
        (TRANSACT.name, OTHER, Transact(operations, 3, 1 << 20, Durability.DISK, once=OTHER)),
    ):
        handler = router.find(name).handler
        sent = await handler(request)
        if again:
            sent = await handler(request)
        assert isinstance(sent, Raw)
        kept = scene.store.machine.get(keys.session(once.session))
        assert bytes(sent) == bytes(decode_answered(kept.value).answer)
    await scene.close()


@pytest.mark.parametrize("change", CHANGES)
async def test_a_copy_after_a_lost_answer_is_answered(timed: Timed, change: Change) -> None:
    timed.store.fail_after = True
    with pytest.raises(OutcomeUnknownError):
        await change(timed.catalog, FIRST)
    assert await change(timed.other, FIRST) == await change(timed.other, FIRST)


@pytest.mark.parametrize("change", CHANGES)
async def test_a_copy_gets_an_answer_that_an_earlier_version_wrote_down(
    timed: Timed, change: Change
) -> None:
    """Its records held the msgpack of the answer as a binary."""
    first = await change(timed.catalog, FIRST)
    key = keys.session(FIRST.session)
    kept = decode_answered(timed.store.machine.get(key).value)
    wrapped = Raw(msgspec.msgpack.encode(bytes(kept.answer)))
    earlier = Answered(kept.sequence, kept.expires_ms, wrapped)
    await timed.store.commit(Edit(puts=((key, encode(earlier)),)))
    assert await change(timed.other, FIRST) == first


@pytest.mark.parametrize("change", CHANGES)
async def test_copies_side_by_side_are_done_once(timed: Timed, change: Change) -> None:
    both = await asyncio.gather(change(timed.catalog, FIRST), change(timed.other, FIRST))
    assert both[0] == both[1]
    assert timed.remembered() == 1


async def test_a_copy_that_comes_after_others_undid_it_does_not_do_it_again(timed: Timed) -> None:
    made = await mkdirs(timed.catalog, FIRST)
    await timed.catalog.delete(DeletePath("/new"))
    assert await mkdirs(timed.other, FIRST) == made
    with pytest.raises(NotFoundError):
        await timed.catalog.status("/new")


async def test_a_copy_that_comes_after_the_next_request_is_refused(timed: Timed) -> None:
    await mkdirs(timed.catalog, FIRST)
    await delete(timed.catalog, SECOND)
    with pytest.raises(InvalidRequestError, match="has made request 2 since"):
        await mkdirs(timed.other, FIRST)
    assert timed.remembered() == 1


async def test_a_request_that_was_refused_is_decided_again(timed: Timed) -> None:
    await timed.catalog.make_directories(MakeDirectories("/new"))
    with pytest.raises(ExistsError):
        await mkdirs(timed.catalog, FIRST)
    await timed.catalog.delete(DeletePath("/new"))
    await mkdirs(timed.catalog, FIRST)
    assert (await timed.catalog.status("/new")).path == "/new"


async def test_a_session_is_remembered_for_five_minutes_and_then_forgotten(timed: Timed) -> None:
    first = await mkdirs(timed.catalog, FIRST)
    timed.clock.now += KEPT_AT_LEAST_S
    assert await timed.end_all() == []
    assert await mkdirs(timed.catalog, FIRST) == first
    timed.clock.now += KEPT_AT_LEAST_S
    assert await timed.end_all() == [Ended.FORGOTTEN]
    assert timed.remembered() == 0


async def test_a_session_in_use_is_not_forgotten_and_has_one_deadline(timed: Timed) -> None:
    for number in range(1, 10):
        timed.clock.now += KEPT_AT_LEAST_S / 2
        assert await timed.end_all() == []
        name = Once(FIRST.session, number)
        await timed.catalog.make_directories(MakeDirectories(f"/new-{number}", once=name))
    timed.clock.now += KEPT_AT_LEAST_S - 1
    assert await timed.end_all() == []
    timed.clock.now += KEPT_AT_LEAST_S + 1
    assert await timed.end_all() == [Ended.FORGOTTEN]
    assert await timed.catalog.due() == ()


async def test_a_wall_clock_that_jumps_leaves_time_to_repeat_a_request() -> None:
    """It may as well be the clock of another machine, which leads after a fail-over."""
    scene = await new_scene()
    housekeeper, catalog = scene.node.housekeeper, scene.node.catalog
    request = MakeDirectories("/d", once=FIRST)
    made = await scene.service.call(MKDIRS, request)
    catalog._clock_ms = lambda: wall_clock_ms() + 10 * REMEMBERED_MS
    for _ in range(2):
        await housekeeper.check_deadlines()
        scene.clock.now += FORGET_AFTER_S - 1
    await scene.service.call(DELETE, DeletePath("/d"))
    assert await scene.service.call(MKDIRS, request) == made
    scene.clock.now += 1
    await housekeeper.check_deadlines()
    assert await scene.service.call(MKDIRS, request) != made
    await scene.close()


@pytest.mark.parametrize(
    "once", [Once("", 1), Once("x" * (SESSION_CHARS_MAX + 1), 1), Once("x", -1), Once("x", 1 << 63)]
)
async def test_what_is_no_name_of_a_request_is_refused(timed: Timed, once: Once) -> None:
    with pytest.raises(InvalidRequestError, match="not the name of a request"):
        await mkdirs(timed.catalog, once)
