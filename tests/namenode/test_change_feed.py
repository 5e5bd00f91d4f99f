"""The change feed: at any NameNode the changes that were made, each once, in order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from paxosblock.api.namenode import (
    MKDIRS,
    AppendFile,
    CloseFile,
    ConcatFiles,
    DeletePath,
    MakeDirectories,
    RenamePath,
    Transact,
)
from paxosblock.api.ownership import SET_PERMISSION, SetPathPermission
from paxosblock.api.path_attributes import SET_ATTRIBUTES, SetPathAttributes
from paxosblock.api.transaction import Delete, Operation, Rename, SetPermission, Truncate
from paxosblock.api.watching import WATCH, ChangeKind, NameChange, NameChanges, Trait, WatchNames
from paxosblock.errors import (
    CorruptionError,
    GapError,
    InvalidRequestError,
    PaxosBlockError,
    UnavailableError,
)
from paxosblock.host.metrics import NodeMetrics
from paxosblock.namenode import change_feed, instruments
from paxosblock.namenode.catalog import keys
from paxosblock.namenode.catalog.permissions import ITSELF, Actor
from paxosblock.namenode.change_feed import ChangeFeed
from paxosblock.namenode.kv import recent_entries
from paxosblock.namenode.kv.interface import Committed, Conflict, Edit, Versioned, View
from paxosblock.namenode.raft.entry import Entry, EntryKind
from paxosblock.namenode.raft.machine import ReplicatedMachine
from paxosblock.protocol.types import Durability, WriterId
from tests.memory_table import MemoryMoment, MemoryTable, Snapshot
from tests.namenode.memory_store import MemoryStore
from tests.namenode.names_model import Names, WatchedNames, below, names_in
from tests.namenode.scene import (
    BOB,
    NamedCatalog,
    closed_file,
    create_request,
    file_with_blocks,
    new_catalog,
    new_scene,
    sweep_everything,
)
from tests.waiting import wait_until_async

SEEDS = range(8)
STEPS = 60


async def transact(catalog: NamedCatalog, *operations: Operation) -> None:
    """Do all of them at one moment."""
    await catalog.transact(Transact(operations, 3, 1 << 20, Durability.DISK))


class NotedStore(MemoryStore):
    """A store that keeps the names after each entry."""

    def __init__(self) -> None:
        super().__init__()
        self.states: dict[int, Names] = {}

    async def commit(self, edit: Edit) -> Committed | Conflict:
        outcome = await super().commit(edit)
        self.states[self.machine.revision] = names_in(self.machine)
        return outcome


@dataclass
class History:
    """A catalog in which random things happen, and all its states."""

    catalog: NamedCatalog
    store: NotedStore
    chance: random.Random

    @classmethod
    async def of(cls, seed: int) -> History:
        store = NotedStore()
        return cls(await new_catalog(store), store, random.Random(seed))

    def at(self, revision: int) -> Names:
        """The names after that entry."""
        return self.store.states[revision]

    def path(self) -> str:
        """A path that may be there."""
        there = list(self.at(self.store.machine.revision))
        if there and self.chance.random() < 0.6:
            return self.chance.choice(there)
        return "/" + "/".join(self.chance.choice("abc") for _ in range(self.chance.randint(1, 3)))

    async def step(self) -> None:
        """One operation, which may be refused; or several at once, which may be one entry."""
        count = self.chance.choice((1, 1, 1, 3))
        self.store.yielding = count > 1
        await asyncio.gather(*(self._try(self.operation) for _ in range(count)))

    async def _try(self, operation: Callable[[], Any]) -> None:
        with suppress(PaxosBlockError):
            await operation()

    async def operation(self) -> None:
        catalog, path = self.catalog, self.path()
        match self.chance.randrange(12):
            case 0:
                await catalog.make_directories(MakeDirectories(path, True))
            case 1 | 2:
                await closed_file(catalog, path, 1)
            case 3:
                await catalog.create(create_request(path, overwrite=True))
            case 4:
                writer = WriterId(f"writer-{self.chance.random()}")
                opened = await catalog.append(AppendFile(path, writer))
                if self.chance.random() < 0.5:
                    await catalog.close_file(CloseFile(opened.status.file_id, writer))
            case 5 | 6:
                overwrite = self.chance.random() < 0.5
                await catalog.rename(RenamePath(path, self.path(), overwrite))
            case 7:
                await catalog.delete(DeletePath(path, recursive=True))
            case 8:
                await catalog.concat(ConcatFiles(path, (self.path(),)))
            case 9:
                await transact(catalog, Truncate(path, 0))
            case 10:
                there, other = self.path(), self.path()
                await transact(
                    catalog,
                    Rename(path, there, overwrite=True),
                    Delete(other, recursive=True),
                    Rename(there, path),
                )
            case _:
                await sweep_everything(catalog)


class Member(MemoryStore):
    """Another NameNode that applies the same log, as far as it was told to."""

    def __init__(self, log: MemoryStore) -> None:
        super().__init__()
        self._log = log
        self.payloads = log.payloads

    def apply(self, index: int) -> None:
        """Apply the entries up to this one."""
        while self.machine.revision < index:
            entry = Entry(0, EntryKind.EDIT, self.payloads[self.machine.revision])
            self.machine.apply_whole(self.machine.revision + 1, entry)
        self.applied.set()
        self.applied.clear()

    def restart(self) -> None:
        """Go on in another process, from the last flush and the entries behind it."""
        revision = self.machine.revision
        flushed = self._snapshot(random.Random(revision).randint(0, revision))
        self.machine = ReplicatedMachine(MemoryTable(flushed))
        self.apply(revision)

    def install(self) -> None:
        """Get the map of the leader."""
        table = MemoryTable(self._snapshot(len(self.payloads)))
        if table.revision > self.machine.revision:
            self.machine.adopt(table)

    def _snapshot(self, index: int) -> Snapshot:
        other = Member(self._log)
        other.apply(index)
        return Snapshot(index, list(other.machine))

    async def read_barrier(self) -> View:
        self.apply(len(self.payloads))
        return self.machine


async def asked(
    feed: ChangeFeed, path: str, after: int, skip: int = 0, actor: Actor = ITSELF
) -> NameChanges:
    """Ask for the changes behind a position, without waiting for more."""
    return (await feed.answer(WatchNames(path, after, skip, wait_s=0), actor)).value


async def all_behind(feed: ChangeFeed, path: str, after: int, actor: Actor = ITSELF) -> NameChanges:
    """All that is known behind a revision."""
    answer = await asked(feed, path, after, 0, actor)
    found = [*answer.changes]
    while answer.changes or answer.skip:
        answer = await asked(feed, path, answer.revision, answer.skip, actor)
        found += answer.changes
    return NameChanges(answer.revision, answer.timeline, tuple(found))


@pytest.mark.parametrize("seed", SEEDS)
async def test_who_lists_and_then_watches_knows_the_names_at_each_moment(seed: int) -> None:
    history = await History.of(seed)
    feed = ChangeFeed(history.store)
    watchers: list[WatchedNames] = []
    for _ in range(STEPS):
        names, revision = history.at(history.store.machine.revision), history.store.machine.revision
        path = history.chance.choice(("/", "/a", "/a/b", "/c"))
        watchers.append(WatchedNames(path, names, revision))
        await history.step()
        for each in watchers:
            if history.chance.random() < 0.4:
                behind = await all_behind(feed, each.path, each.revision)
                each.take(behind.changes, lambda at, path: below(history.at(at), path))
                each.revision = behind.revision
                assert each.names == below(history.at(each.revision), each.path)
    await feed.close()


class RootWatcher:
    """Asks any member, a page at a time, and lists again after a gap."""

    def __init__(self, history: History) -> None:
        self._history = history
        self.gaps = -1
        self.begin()

    def begin(self) -> None:
        revision = self._history.store.machine.revision
        self.gaps += 1
        self._names = WatchedNames("/", self._history.at(revision), revision)
        self._place = NameChanges(revision, 0)
        self.heard: list[NameChange] = []

    async def ask(self, feed: ChangeFeed) -> None:
        try:
            self._place = await asked(feed, "/", self._place.revision, self._place.skip)
        except GapError:
            self.begin()
            return
        self.heard += self._place.changes
        if not self._place.skip:
            names, history = self._names, self._history
            behind = [each for each in self.heard if each.revision > names.revision]
            names.take(behind, lambda at, path: below(history.at(at), path))
            names.revision = max(names.revision, self._place.revision)
            assert names.names == history.at(names.revision)


@pytest.mark.parametrize("seed", SEEDS)
async def test_all_members_tell_the_same_through_restarts_and_copies(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From wherever a watcher begins, at whichever member it asks next."""
    monkeypatch.setattr(recent_entries, "PART_BYTES", 6000)
    monkeypatch.setattr(change_feed, "CHANGES_MAX", 2)
    monkeypatch.setattr(change_feed, "KNOWN_MAX", 20)
    history = await History.of(seed)
    chance, machine = history.chance, history.store.machine
    whole, told, read = ChangeFeed(history.store), list[NameChange](), machine.revision
    members = [Member(history.store) for _ in range(3)]
    feeds = [ChangeFeed(each) for each in members]
    watchers = [RootWatcher(history)]
    for _ in range(STEPS):
        await history.step()
        answer = await all_behind(whole, "/", read)
        told, read = [*told, *answer.changes], answer.revision
        for number, member in enumerate(members):
            match chance.randrange(10):
                case 0:
                    member.restart()
                    await feeds[number].close()
                    feeds[number] = ChangeFeed(member)
                case 1:
                    member.install()
                case _:
                    member.apply(chance.randint(member.machine.revision, machine.revision))
        if chance.random() < 0.2:
            watchers.append(RootWatcher(history))
        for each in watchers:
            await each.ask(chance.choice(feeds))
    for each in watchers:
        first = told.index(each.heard[0]) if each.heard else 0
        assert told[first : first + len(each.heard)] == each.heard
    assert sum(each.gaps for each in watchers), "some members were given copies"
    for feed in (whole, *feeds):
        await feed.close()


def kinds(changes: tuple[NameChange, ...]) -> list[tuple[ChangeKind, str, str]]:
    return [(each.kind, each.source, each.path) for each in changes]


async def changes_of(store: MemoryStore, path: str, after: int, actor: Actor = ITSELF) -> Any:
    feed = ChangeFeed(store)
    found = (await all_behind(feed, path, after, actor)).changes
    await feed.close()
    return found


async def test_the_life_of_a_file_is_told_change_by_change() -> None:
    store = MemoryStore()
    catalog = await new_catalog(store)
    begin = store.machine.revision
    number = await closed_file(catalog, "/d/f", 2)
    await catalog.append(AppendFile("/d/f", BOB))
    await catalog.close_file(CloseFile(number, BOB))
    await catalog.rename(RenamePath("/d/f", "/d/g"))
    await transact(catalog, Truncate("/d/g", 0))
    await catalog.delete(DeletePath("/d", recursive=True))
    await sweep_everything(catalog)
    found = await changes_of(store, "/", begin)
    assert kinds(found) == [
        (ChangeKind.CREATED, "", "/d"),
        (ChangeKind.CREATED, "", "/d/f"),
        (ChangeKind.CLOSED, "", "/d/f"),
        (ChangeKind.OPENED, "", "/d/f"),
        (ChangeKind.CLOSED, "", "/d/f"),
        (ChangeKind.RENAMED, "/d/f", "/d/g"),
        (ChangeKind.RESIZED, "", "/d/g"),
        (ChangeKind.REMOVED, "", "/d"),
    ]
    assert {each.file_id for each in found if not each.is_directory} == {number}
    assert [each.size for each in found[1:7]] == [None, 20, None, 20, 20, 0]


async def test_a_rename_goes_in_out_or_within_what_is_watched() -> None:
    store = MemoryStore()
    catalog = await new_catalog(store)
    for path in ("/in/a", "/out/b", "/top/in"):
        await catalog.make_directories(MakeDirectories(path))
    begin = store.machine.revision
    await catalog.rename(RenamePath("/in/a", "/in/c"))
    await catalog.rename(RenamePath("/in/c", "/out/c"))
    await catalog.rename(RenamePath("/out/b", "/in/b"))
    await catalog.rename(RenamePath("/in", "/away"))
    await catalog.rename(RenamePath("/top/in", "/in"))
    assert kinds(await changes_of(store, "/in", begin)) == [
        (ChangeKind.RENAMED, "/in/a", "/in/c"),
        (ChangeKind.RENAMED, "/in/c", "/out/c"),
        (ChangeKind.RENAMED, "/out/b", "/in/b"),
        (ChangeKind.RENAMED, "/in", "/away"),
        (ChangeKind.RENAMED, "/top/in", "/in"),
    ]
    assert kinds(await changes_of(store, "/in/deep", begin)) == [
        (ChangeKind.RENAMED, "/in", "/away"),
        (ChangeKind.RENAMED, "/top/in", "/in"),
    ], "what happens to a directory above"
    assert kinds(await changes_of(store, "/inner", begin)) == []


async def test_what_a_user_may_not_list_is_not_told() -> None:
    store = MemoryStore()
    catalog = await new_catalog(store)
    await catalog.make_directories(MakeDirectories("/open", permission=0o755))
    await catalog.make_directories(MakeDirectories("/locked", permission=0o700))
    await catalog.make_directories(MakeDirectories("/passed", permission=0o711))
    begin = store.machine.revision
    for name in ("open", "locked", "passed"):
        await catalog.make_directories(MakeDirectories(f"/{name}/d", permission=0o755))
        await catalog.make_directories(MakeDirectories(f"/{name}/d/e", permission=0o755))
    await catalog.rename(RenamePath("/locked/d", "/open/came"))
    await catalog.rename(RenamePath("/open/d", "/locked/went"))
    await catalog.delete(DeletePath("/locked/went", recursive=True))
    found = await changes_of(store, "/", begin, Actor("eve"))
    assert kinds(found) == [
        (ChangeKind.CREATED, "", "/open/d"),
        (ChangeKind.CREATED, "", "/open/d/e"),
        (ChangeKind.CREATED, "", "/passed/d/e"),
        (ChangeKind.RENAMED, "", "/open/came"),
        (ChangeKind.RENAMED, "/open/d", ""),
    ]


async def test_rights_are_those_of_the_time_of_the_change() -> None:
    store = MemoryStore()
    catalog = await new_catalog(store)
    await catalog.make_directories(MakeDirectories("/d", permission=0o755))
    begin = store.machine.revision
    for permission, name in ((0o700, "a"), (0o755, "b"), (0o700, "c")):
        await transact(catalog, SetPermission("/d", permission))
        await catalog.make_directories(MakeDirectories(f"/d/{name}"))
    found = await changes_of(store, "/d", begin, Actor("eve"))
    created = [each.path for each in found if each.kind is ChangeKind.CREATED]
    assert created == ["/d/b"]


async def test_rights_of_the_directories_above_are_told_to_whoever_watches_below() -> None:
    """The watcher is not told what happens below while they may not see it: they list again."""
    store = MemoryStore()
    catalog = await new_catalog(store)
    await catalog.make_directories(MakeDirectories("/hidden/way/d", permission=0o755))
    await transact(catalog, SetPermission("/hidden", 0o711))
    begin = store.machine.revision
    await transact(catalog, SetPermission("/hidden/way", 0o700))
    await catalog.make_directories(MakeDirectories("/hidden/way/d/new"))
    await transact(catalog, SetPermission("/hidden/way", 0o755))
    found = await changes_of(store, "/hidden/way/d", begin, Actor("eve"))
    assert kinds(found) == [(ChangeKind.CHANGED, "", "/hidden/way")] * 2
    assert not await changes_of(store, "/hidden", begin, Actor("eve"))


async def test_traits_say_what_of_a_file_is_another() -> None:
    scene = await new_scene()
    begin = scene.store.machine.revision
    await scene.service.call(MKDIRS, MakeDirectories("/d"))
    await scene.service.call(SET_ATTRIBUTES, SetPathAttributes("/d", {"user.a": b"1"}))
    await scene.service.call(SET_ATTRIBUTES, SetPathAttributes("/d", {"user.a": b"2"}))
    await scene.service.call(SET_PERMISSION, SetPathPermission("/d", 0o700))
    answer = await scene.service.call(WATCH, WatchNames("/d", begin, wait_s=0))
    assert [each.traits for each in answer.changes] == [
        (),
        (Trait.ATTRIBUTES,),
        (Trait.ATTRIBUTES,),
        (Trait.PERMISSION,),
    ]
    await scene.close()


async def test_who_waits_is_woken_by_what_concerns_them_alone() -> None:
    scene = await new_scene()
    feed, begin = scene.node.feed, scene.store.machine.revision
    waits = [
        asyncio.create_task(feed.answer(WatchNames(path, begin, wait_s=60), ITSELF))
        for path in ("/a", "/a", "/b", "/")
    ]
    await wait_until_async(lambda: feed.watchers == len(waits), what="all wait")
    await scene.service.call(MKDIRS, MakeDirectories("/a/x"))
    answers = [(await waits[number]).value for number in (0, 1, 3)]
    assert [kinds(each.changes) for each in answers] == [
        [(ChangeKind.CREATED, "", "/a"), (ChangeKind.CREATED, "", "/a/x")]
    ] * 3
    assert feed.watchers == 1
    assert not waits[2].done()
    await scene.service.call(MKDIRS, MakeDirectories("/b"))
    assert kinds((await waits[2]).value.changes) == [(ChangeKind.CREATED, "", "/b")]
    await scene.close()


async def test_all_of_an_audience_are_sent_the_same_bytes_in_parts() -> None:
    scene = await new_scene()
    feed, begin = scene.node.feed, scene.store.machine.revision
    count = 3 * change_feed.TOLD_AT_ONCE
    waits = [
        asyncio.create_task(feed.answer(WatchNames("/", begin, wait_s=60), ITSELF))
        for _ in range(count)
    ]
    await wait_until_async(lambda: feed.watchers == count, what="all wait")
    await scene.service.call(MKDIRS, MakeDirectories("/a"))
    left, parts = count, list[int]()
    while left:
        await asyncio.sleep(0)
        if told := left - feed.watchers:
            parts.append(told)
            left = feed.watchers
    assert parts == [change_feed.TOLD_AT_ONCE] * 3, "others get turns in between"
    answers = [await each for each in waits]
    assert len({id(each.sent) for each in answers}) == 1
    metrics = NodeMetrics("namenode")
    instruments._observe_watchers(metrics, scene.node)
    told_all = f"paxosblock_namenode_watch_events_total {count}.0"
    assert told_all in metrics.render().decode().splitlines()
    await scene.close()


async def test_who_waits_hears_nothing_twice_when_another_asks_for_older_changes() -> None:
    """Entries are read again for the one who asks; the one who waits has heard of them."""
    scene = await new_scene()
    feed, begin = scene.node.feed, scene.store.machine.revision
    for name in "ab":
        await scene.service.call(MKDIRS, MakeDirectories(f"/{name}"))
    now = scene.store.machine.revision
    waits = asyncio.create_task(feed.answer(WatchNames("/", now, wait_s=60), ITSELF))
    await wait_until_async(lambda: feed.watchers == 1, what="it waits")
    assert len((await asked(feed, "/", begin)).changes) == 2
    await scene.service.call(MKDIRS, MakeDirectories("/c"))
    assert kinds((await waits).value.changes) == [(ChangeKind.CREATED, "", "/c")]
    await scene.close()


async def test_who_may_not_see_a_change_waits_on_behind_it() -> None:
    scene = await new_scene()
    await scene.service.call(MKDIRS, MakeDirectories("/locked", permission=0o700))
    feed, begin = scene.node.feed, scene.store.machine.revision
    asks = WatchNames("/locked", begin, wait_s=60)
    waits = asyncio.create_task(feed.answer(asks, Actor("eve")))
    await wait_until_async(lambda: feed.watchers == 1, what="it waits")
    await scene.service.call(MKDIRS, MakeDirectories("/locked/a"))
    await scene.service.call(SET_PERMISSION, SetPathPermission("/locked", 0o755))
    answer = (await waits).value
    assert [(each.kind, each.path) for each in answer.changes] == [(ChangeKind.CHANGED, "/locked")]
    await scene.close()


async def test_a_wait_that_is_over_goes_on_where_it_ended() -> None:
    scene = await new_scene()
    await scene.service.call(MKDIRS, MakeDirectories("/elsewhere"))
    begin = await scene.service.call(WATCH, WatchNames("/a"))
    await scene.service.call(MKDIRS, MakeDirectories("/elsewhere/b"))
    answer = await scene.service.call(WATCH, WatchNames("/a", begin.revision, wait_s=0))
    assert (answer.changes, answer.skip) == ((), 0)
    assert answer.revision == scene.store.machine.revision > begin.revision
    await scene.close()


async def test_a_node_that_ends_tells_those_who_wait() -> None:
    scene = await new_scene()
    begin = scene.store.machine.revision
    waits = asyncio.create_task(scene.node.feed.answer(WatchNames("/", begin), ITSELF))
    await wait_until_async(lambda: scene.node.feed.watchers > 0, what="it waits")
    await scene.close()
    with pytest.raises(UnavailableError):
        await waits


async def test_positions_that_cannot_be_are_refused() -> None:
    scene = await new_scene()
    now = await scene.service.call(WATCH, WatchNames("/"))
    for wrong in (
        WatchNames("a", now.revision),
        WatchNames("/", -1),
        WatchNames("/", 0, -1),
        WatchNames("/", 0, wait_s=-1),
        WatchNames("/", 0, wait_s=float("nan")),
        WatchNames("/", now.revision + 1),
    ):
        with pytest.raises(InvalidRequestError):
            await scene.service.call(WATCH, wrong)
    with pytest.raises(GapError, match="backup"):
        await scene.service.call(WATCH, WatchNames("/", now.revision, timeline=now.timeline + 1))
    await scene.close()


async def test_what_is_no_longer_kept_is_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_entries, "PART_BYTES", 3000)
    store = MemoryStore()
    catalog = await new_catalog(store)
    feed, begin = ChangeFeed(store), store.machine.revision
    for number in range(60):
        await catalog.make_directories(MakeDirectories(f"/{number}"))
    with pytest.raises(GapError):
        await asked(feed, "/", begin)
    oldest = store.recent.oldest
    assert begin < oldest < store.machine.revision - 5
    found = await all_behind(feed, "/", oldest)
    assert len(found.changes) == store.machine.revision - oldest
    await feed.close()


async def test_changes_that_took_too_much_room_are_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """They stay one: reading them again and again would hold up the rest."""
    monkeypatch.setattr(change_feed, "KEPT_BYTES", 20 * change_feed.CHANGE_BYTES)
    store = MemoryStore()
    catalog = await new_catalog(store)
    feed, begin = ChangeFeed(store), store.machine.revision
    for number in range(60):
        await catalog.make_directories(MakeDirectories(f"/{number}"))
    for _ in range(2):
        with pytest.raises(GapError):
            await asked(feed, "/", begin)
    found = await all_behind(feed, "/", store.machine.revision - 5)
    assert len(found.changes) == 5
    await feed.close()


async def test_a_reader_that_is_given_up_in_the_middle_leaves_nothing_out() -> None:
    """The caller of a long read goes; the next one gets all of it."""
    store = MemoryStore()
    catalog = await new_catalog(store)
    begin = store.machine.revision
    for number in range(300):
        await catalog.make_directories(MakeDirectories(f"/d/{number}"))
    sources = []
    for number in range(300):
        sources.append(Rename(f"/d/{number}", f"/{number}"))
    await transact(catalog, *sources)
    turns = 0
    while True:
        feed = ChangeFeed(store)
        task = asyncio.create_task(asked(feed, "/", begin))
        for _ in range(turns + 1):
            await asyncio.sleep(0)
        ended = task.done()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        found = (await all_behind(feed, "/", begin)).changes
        assert len(found) == 601, turns
        await feed.close()
        turns += 1
        if ended:
            break
    assert turns > 8


async def test_a_file_that_replaces_another_is_one_moment() -> None:
    store = MemoryStore()
    catalog = await new_catalog(store)
    begin = store.machine.revision
    held = await file_with_blocks(catalog, "/f", 1)
    await catalog.create(create_request("/f", BOB, overwrite=True))
    found = await changes_of(store, "/", begin)
    assert kinds(found) == [
        (ChangeKind.CREATED, "", "/f"),
        (ChangeKind.REMOVED, "", "/f"),
        (ChangeKind.CREATED, "", "/f"),
    ]
    assert found[1].file_id == held.number != found[2].file_id
    assert found[1].revision == found[2].revision, "they are one change"


class RottenOnceTable(MemoryTable):
    """A table in which one value cannot be read once."""

    rotten = False

    def get(self, key: bytes) -> Versioned:
        if RottenOnceTable.rotten and key == keys.inode(2):
            RottenOnceTable.rotten = False
            raise CorruptionError("a block is damaged")
        return super().get(key)

    def values(self) -> MemoryMoment:
        return MemoryMoment(RottenOnceTable(self.snapshot()))


async def test_an_entry_that_could_not_be_read_is_not_left_out() -> None:
    store = MemoryStore()
    store.machine = ReplicatedMachine(RottenOnceTable())
    catalog = await new_catalog(store)
    await catalog.make_directories(MakeDirectories("/d"))
    begin, feed = store.machine.revision, ChangeFeed(store)
    await asked(feed, "/", begin)
    await catalog.make_directories(MakeDirectories("/d/a"))
    RottenOnceTable.rotten = True
    with pytest.raises(CorruptionError):
        await asked(feed, "/", begin)
    found = await all_behind(feed, "/", begin)
    assert kinds(found.changes) == [(ChangeKind.CREATED, "", "/d/a")]
    await feed.close()
