"""Changes that are asked for at once share an entry of the log, and are done as if one by one."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paxosblock.api.methods import Once
from paxosblock.api.namenode import (
    DeletePath,
    FileStatus,
    Kind,
    ListDirectory,
    MakeDirectories,
    RenamePath,
    Transact,
)
from paxosblock.api.transaction import Delete, MakeDirectory
from paxosblock.errors import (
    DirectoryNotEmptyError,
    ExistsError,
    InvalidRequestError,
    NotFoundError,
    OutcomeUnknownError,
)
from paxosblock.namenode.catalog import changes
from paxosblock.namenode.kv.interface import Committed, Conflict, Edit
from paxosblock.protocol.types import Durability, WriterId
from tests.namenode.memory_store import MemoryStore
from tests.namenode.scene import NamedCatalog, create_request, new_catalog
from tests.namenode.test_catalog_model import PATHS, ROOT, Model


class TellingStore(MemoryStore):
    """Gives others a turn in each commit, and tells what is about to be committed."""

    def __init__(self) -> None:
        super().__init__(yielding=True)
        self.on_commit: Callable[[Edit], None] = lambda _: None

    async def commit(self, edit: Edit) -> Committed | Conflict:
        self.on_commit(edit)
        return await super().commit(edit)


def makes_several(edit: Edit) -> bool:
    """True if the edit makes several files or directories."""
    return sum(key.startswith(b"i") for key, _ in edit.puts) > 1


async def catalog_with_ids(store: MemoryStore) -> NamedCatalog:
    """A catalog that need not reserve ids before its next changes."""
    catalog = await new_catalog(store)
    await catalog.make_directories(MakeDirectories("/there"))
    return catalog


async def tree(catalog: NamedCatalog, path: str = ROOT) -> tuple[set[str], set[str]]:
    """The directories and the files below `path`."""
    directories: set[str] = set()
    files: set[str] = set()
    for entry in (await catalog.list(ListDirectory(path))).entries:
        if entry.kind is Kind.FILE:
            files.add(entry.path)
        else:
            below = await tree(catalog, entry.path)
            directories |= {entry.path, *below[0]}
            files |= below[1]
    return directories, files


def together(*asked: Awaitable[Any]) -> Awaitable[list[Any]]:
    """Ask for all in one turn of the loop; the first is committed while the others come."""
    return asyncio.gather(*asked, return_exceptions=True)


async def test_what_comes_while_something_is_committed_shares_an_edit() -> None:
    store = MemoryStore(yielding=True)
    catalog = await catalog_with_ids(store)
    paths, before = [f"/there/{number}" for number in range(20)], store.commits
    made = await together(*(catalog.make_directories(MakeDirectories(path)) for path in paths))
    assert store.commits == before + 2
    assert [status.path for status in made] == paths
    assert len({status.file_id for status in made}) == len(paths)
    assert [await catalog.status(path) for path in paths] == made


async def test_what_comes_alone_is_committed_at_once() -> None:
    store = TellingStore()
    catalog = await catalog_with_ids(store)
    turns: list[str] = []
    store.on_commit = lambda _: turns.append("committed")
    asyncio.get_running_loop().call_soon(turns.append, "a turn")
    await catalog.make_directories(MakeDirectories("/a"))
    assert turns[0] == "committed"


async def test_each_builds_on_what_those_before_it_did() -> None:
    store = MemoryStore(yielding=True)
    catalog = await catalog_with_ids(store)
    before = store.commits
    outcomes = await together(
        catalog.make_directories(MakeDirectories("/first")),
        catalog.make_directories(MakeDirectories("/d")),
        catalog.create(create_request("/d/f")),
        catalog.create(create_request("/d/g")),
        catalog.rename(RenamePath("/d", "/e")),
        catalog.delete(DeletePath("/e/f")),
        catalog.make_directories(MakeDirectories("/d", parents=False)),
    )
    assert not [each for each in outcomes if isinstance(each, BaseException)]
    assert store.commits == before + 2
    assert await tree(catalog) == ({"/there", "/first", "/d", "/e"}, {"/e/g"})


async def test_a_directory_that_those_before_emptied_is_deleted_with_them() -> None:
    store = MemoryStore(yielding=True)
    catalog = await catalog_with_ids(store)
    await catalog.create(create_request("/d/f"))
    before = store.commits
    outcomes = await together(
        catalog.make_directories(MakeDirectories("/first")),
        catalog.delete(DeletePath("/d/f")),
        catalog.delete(DeletePath("/d", recursive=False)),
    )
    assert [each.existed for each in outcomes[1:]] == [True, True]
    assert store.commits == before + 2
    assert await tree(catalog) == ({"/there", "/first"}, set())


async def test_one_that_fails_leaves_nothing_and_the_others_are_done() -> None:
    store = MemoryStore(yielding=True)
    catalog = await catalog_with_ids(store)
    await catalog.create(create_request("/full/f"))
    before = store.commits
    half = (MakeDirectory("/half"), Delete("/none", must_exist=True))
    first, no_parent, half_done, second, none, taken = await together(
        catalog.make_directories(MakeDirectories("/first")),
        catalog.make_directories(MakeDirectories("/no/parent", parents=False)),
        catalog.transact(Transact(half, 3, 1 << 20, Durability.DISK)),
        catalog.make_directories(MakeDirectories("/second")),
        catalog.delete(DeletePath("/none")),
        catalog.delete(DeletePath("/full", recursive=False)),
    )
    assert isinstance(first, FileStatus)
    assert isinstance(second, FileStatus)
    assert isinstance(no_parent, NotFoundError)
    assert isinstance(half_done, NotFoundError)
    assert isinstance(taken, DirectoryNotEmptyError)
    assert not none.existed
    assert store.commits == before + 2
    assert await tree(catalog) == ({"/there", "/first", "/second", "/full"}, {"/full/f"})


async def test_copies_of_a_request_in_one_turn_are_done_once() -> None:
    catalog = await catalog_with_ids(MemoryStore(yielding=True))
    request = MakeDirectories("/d", parents=False, once=Once("session", 7))
    _, *copies = await together(
        catalog.make_directories(MakeDirectories("/first")),
        *(catalog.make_directories(request) for _ in range(3)),
    )
    assert copies == [await catalog.status("/d")] * 3


async def test_when_another_change_came_first_each_is_decided_again_by_itself() -> None:
    store = TellingStore()
    catalog = await catalog_with_ids(store)
    other = NamedCatalog(store)
    intruded: list[asyncio.Future[FileStatus]] = []

    def intrude(edit: Edit) -> None:
        if makes_several(edit) and not intruded:
            intruded.append(asyncio.ensure_future(other.make_directories(MakeDirectories("/b"))))

    store.on_commit = intrude
    first, *made, taken = await together(
        catalog.make_directories(MakeDirectories("/first")),
        catalog.make_directories(MakeDirectories("/a")),
        catalog.make_directories(MakeDirectories("/b/below")),
        catalog.make_directories(MakeDirectories("/b", parents=False)),
    )
    assert isinstance(first, FileStatus)
    assert [each.path for each in made] == ["/a", "/b/below"]
    assert isinstance(taken, ExistsError)
    await intruded[0]
    assert await tree(catalog) == ({"/there", "/first", "/a", "/b", "/b/below"}, set())


async def test_what_may_not_have_been_committed_is_unknown_to_each_of_them() -> None:
    store = TellingStore()
    catalog = await catalog_with_ids(store)

    def fail(edit: Edit) -> None:
        store.fail_after = makes_several(edit)

    store.on_commit = fail
    first, *lost = await together(
        *(catalog.make_directories(MakeDirectories(f"/{name}")) for name in "abc")
    )
    assert isinstance(first, FileStatus)
    assert all(isinstance(each, OutcomeUnknownError) for each in lost)
    assert lost[0] is not lost[1], "whoever raises an error may say more of it"


async def test_those_that_are_too_long_together_are_committed_one_by_one() -> None:
    store = TellingStore()
    catalog = await catalog_with_ids(store)

    def refuse(edit: Edit) -> None:
        if makes_several(edit):
            raise InvalidRequestError("too long")

    store.on_commit = refuse
    made = await together(
        *(catalog.make_directories(MakeDirectories(f"/{name}")) for name in "abc")
    )
    assert [each.path for each in made] == ["/a", "/b", "/c"]


async def test_who_gives_up_before_its_turn_is_not_committed_and_the_others_are() -> None:
    catalog = await catalog_with_ids(MemoryStore(yielding=True))
    tasks = [
        asyncio.ensure_future(catalog.make_directories(MakeDirectories(f"/{name}")))
        for name in "abc"
    ]
    asyncio.get_running_loop().call_soon(tasks[1].cancel)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert await tree(catalog) == ({"/there", "/a", "/c"}, set())


async def test_who_gives_up_later_takes_nothing_from_the_others() -> None:
    store = TellingStore()
    catalog = await catalog_with_ids(store)
    tasks: list[asyncio.Future[FileStatus]] = []

    def cancel(edit: Edit) -> None:
        if makes_several(edit):
            tasks[1].cancel()

    store.on_commit = cancel
    for name in "abc":
        asked = catalog.make_directories(MakeDirectories(f"/{name}"))
        tasks.append(asyncio.ensure_future(asked))
    await asyncio.gather(*tasks, return_exceptions=True)
    assert tasks[1].cancelled()
    assert tasks[2].result().path == "/c"


async def test_one_that_takes_long_goes_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = await catalog_with_ids(MemoryStore(yielding=True))
    monkeypatch.setattr(changes, "SLICE_WORK", 50)
    many = tuple(MakeDirectory(f"/many/{number}") for number in range(40))
    outcomes = await together(
        catalog.make_directories(MakeDirectories("/first")),
        catalog.transact(Transact(many, 3, 1 << 20, Durability.DISK)),
        catalog.make_directories(MakeDirectories("/second")),
    )
    assert not [each for each in outcomes if isinstance(each, BaseException)]
    directories, _ = await tree(catalog)
    assert len(directories) == len(many) + 4


async def test_no_edit_is_much_more_than_a_turns_work() -> None:
    store = TellingStore()
    catalog = await catalog_with_ids(store)
    sizes: list[int] = []
    store.on_commit = lambda edit: sizes.append(len(edit.puts))
    await together(*(catalog.make_directories(MakeDirectories(f"/there/{n}")) for n in range(500)))
    assert len(sizes) > 3
    assert max(sizes) < 1.1 * changes.SLICE_WORK


WRITERS = st.sampled_from(["ann", "bob"])
OPERATIONS = st.one_of(
    st.tuples(st.just("mkdirs"), PATHS, st.booleans()),
    st.tuples(st.just("create"), PATHS, WRITERS, st.booleans(), st.booleans()),
    st.tuples(st.just("delete"), PATHS, st.booleans()),
    st.tuples(st.just("rename"), PATHS, PATHS, st.booleans()),
)
Operation = tuple[Any, ...]


def asked_of(catalog: NamedCatalog, operation: Operation) -> Awaitable[object]:
    match operation:
        case ("mkdirs", path, parents):
            return catalog.make_directories(MakeDirectories(path, parents))
        case ("create", path, writer, overwrite, must):
            request = create_request(
                path, WriterId(writer), overwrite=overwrite, parent_must_exist=must
            )
            return catalog.create(request)
        case ("delete", path, recursive):
            return catalog.delete(DeletePath(path, recursive))
        case (_, source, destination, overwrite):
            return catalog.rename(RenamePath(source, destination, overwrite))
    raise AssertionError(operation)


def outcome_in(model: Model, operations: list[Operation]) -> list[bool]:
    """Return which of the operations work, one after the other."""
    return [getattr(model, name)(*arguments) for name, *arguments in operations]


@settings(deadline=None)
@given(before=st.lists(OPERATIONS, max_size=6), asked=st.lists(OPERATIONS, min_size=2, max_size=5))
def test_those_that_come_together_are_done_as_if_one_after_the_other_in_some_order(
    before: list[Operation], asked: list[Operation]
) -> None:
    async def run() -> None:
        catalog, model = await new_catalog(MemoryStore(yielding=True)), Model()
        for each in before:
            await together(asked_of(catalog, each))
        outcome_in(model, before)
        outcomes = await together(*(asked_of(catalog, each) for each in asked))
        works = [not isinstance(each, BaseException) for each in outcomes]
        directories, files = await tree(catalog)
        for order in itertools.permutations(range(len(asked))):
            possible = deepcopy(model)
            found = outcome_in(possible, [asked[place] for place in order])
            there = possible.directories - {ROOT}, set(possible.files)
            if found == [works[place] for place in order] and there == (directories, files):
                return
        pytest.fail(f"{works}, {directories}, {files} come of no order")

    asyncio.run(run())
