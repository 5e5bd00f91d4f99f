"""Decisions that take long: interrupted for others, and decided as if they had not been."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from paxosblock.api.namenode import ConcatFiles, DeletePath, MakeDirectories, Transact
from paxosblock.api.transaction import (
    OPERATIONS_MAX,
    RECORDS_MAX,
    AssertAbsent,
    AssertDirectory,
    AssertFile,
    Concat,
    Delete,
    MakeDirectory,
    Marker,
    Operation,
    Rename,
    TransactionOutcome,
)
from paxosblock.errors import InvalidRequestError, NotFoundError, PaxosBlockError
from paxosblock.namenode.catalog import changes, transactions
from paxosblock.namenode.catalog.changes import SLICE_WORK
from paxosblock.namenode.catalog.draft import Draft, Slices
from paxosblock.namenode.catalog.namespace import Context
from paxosblock.namenode.catalog.permissions import ACTOR, ITSELF, Actor
from paxosblock.namenode.kv.interface import Edit
from paxosblock.protocol.types import Durability
from tests.namenode.memory_store import MemoryStore
from tests.namenode.scene import NamedCatalog, blocks_of, closed_file, create_request, new_catalog

NAMES = ("a", "b", "c", "d", "dir")
PATHS = st.sampled_from([f"/{top}/{name}" for top in ("x", "y") for name in NAMES])
OPERATIONS = st.one_of(
    st.builds(AssertAbsent, PATHS),
    st.builds(AssertFile, PATHS),
    st.builds(AssertDirectory, PATHS),
    st.builds(MakeDirectory, PATHS),
    st.builds(Rename, PATHS, PATHS, st.booleans()),
    st.builds(Concat, PATHS, st.lists(PATHS, min_size=1, max_size=2).map(tuple)),
    st.builds(Delete, st.sampled_from(["/x", "/y", "/x/a", "/y/dir"]), st.booleans()),
    st.builds(Marker, PATHS),
)
INTRUSIONS = st.one_of(
    st.builds(Marker, PATHS),
    st.builds(Delete, PATHS, st.just(True)),
    st.builds(Rename, PATHS, PATHS, st.just(True)),
)


def request_of(*operations: Operation) -> Transact:
    return Transact(operations, 3, 1 << 20, Durability.DISK)


def run(slices: Slices[TransactionOutcome]) -> None:
    for _ in slices:
        pass


def in_no_order(edit: Edit) -> tuple[object, ...]:
    """An edit whose preconditions may come in any order: those of a way that was walked before
    come first (`trails.py`)."""
    return frozenset(edit.expect), edit.puts, edit.deletes, edit.counts


@dataclass(slots=True)
class Twice:
    """Takes the place of `transactions.transact`: decides in slices, as it is told, and at the end
    once more in one go, on the state of that moment."""

    store: MemoryStore
    drafts: list[Draft] = field(default_factory=list)
    compared: int = 0

    def __call__(
        self, draft: Draft, request: Transact, context: Context
    ) -> Slices[TransactionOutcome]:
        numbers = list(context.numbers)
        self.drafts.append(draft)
        try:
            mine = replace(context, numbers=iter(numbers))
            result = yield from TRANSACT(draft, request, mine)
        except PaxosBlockError as error:
            with pytest.raises(type(error), match=f"^{re.escape(str(error))}$"):
                self._again(request, replace(context, numbers=iter(numbers)))
            raise
        at_once = self._again(request, replace(context, numbers=iter(numbers)))
        assert in_no_order(at_once.to_edit()) == in_no_order(draft.to_edit())
        return result

    def _again(self, request: Transact, context: Context) -> Draft:
        self.compared += 1
        draft = Draft(self.store.machine)
        run(TRANSACT(draft, request, context))
        return draft


TRANSACT = transactions.transact


async def intrude(twice: Twice, operations: list[Operation]) -> None:
    """Once a decision has begun, apply in each turn what another NameNode might have done."""
    machine = twice.store.machine
    while not twice.drafts:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0)
    numbers = itertools.count(10_000)
    for operation in operations:
        draft = Draft(machine)
        with contextlib.suppress(PaxosBlockError):
            run(TRANSACT(draft, request_of(operation), Context(numbers, 7, bool, {})))
            machine.apply(machine.revision + 1, draft.to_edit())
            await asyncio.sleep(0)


@given(
    wanted=st.lists(OPERATIONS, min_size=3, max_size=8),
    intruders=st.lists(INTRUSIONS, max_size=12),
    slice_work=st.integers(1, 40),
)
def test_a_decision_in_slices_is_the_one_that_one_turn_would_have_made(
    wanted: list[Operation], intruders: list[Operation], slice_work: int
) -> None:
    async def decide() -> None:
        store = MemoryStore(yielding=True)
        catalog = await new_catalog(store)
        for path in ("/x/a", "/x/b", "/y/a"):
            await closed_file(catalog, path, 1, 1)
        await catalog.make_directories(MakeDirectories("/y/dir"))
        twice = Twice(store)
        patch.setattr(transactions, "transact", twice)
        intruding = asyncio.create_task(intrude(twice, intruders))
        with contextlib.suppress(PaxosBlockError):
            await catalog.transact(request_of(*wanted))
        await intruding
        assert twice.compared >= 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(changes, "SLICE_WORK", slice_work)
        asyncio.run(decide())


async def many_files(catalog: NamedCatalog, folder: str, count: int) -> list[str]:
    """Closed files, made in one step."""
    paths = [f"{folder}/{number:05}" for number in range(count)]
    await catalog.transact(request_of(*(Marker(path) for path in paths)))
    return paths


def renames(paths: list[str]) -> Iterator[Operation]:
    return (Rename(path, path.replace("/from", "/to")) for path in paths)


async def work_in_each_turn(twice: Twice) -> list[int]:
    """Return the work of decisions in each turn of the loop, until this is cancelled."""
    seen = [0]
    try:
        while True:
            await asyncio.sleep(0)
            seen.append(sum(draft.work for draft in twice.drafts))
    except asyncio.CancelledError:
        return [after - before for before, after in itertools.pairwise(seen)]


async def test_no_turn_of_a_long_decision_does_more_than_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    catalog = await new_catalog(store)
    paths = await many_files(catalog, "/from", OPERATIONS_MAX)
    await closed_file(catalog, "/one")
    await closed_file(catalog, "/two", *[1] * 1500)
    twice = Twice(store)
    monkeypatch.setattr(transactions, "transact", twice)
    watching = asyncio.create_task(work_in_each_turn(twice))
    await asyncio.sleep(0)
    operations = [*renames(paths[2:]), MakeDirectory("/to"), Concat("/one", ("/two",))]
    operations.insert(0, operations.pop(-2))  # the directory comes first
    await catalog.transact(request_of(*operations))
    watching.cancel()
    turns = await watching
    assert max(turns) < 1.1 * SLICE_WORK, "a step more than a slice"
    assert sum(turns) > 20 * SLICE_WORK
    assert len(await blocks_of(catalog, (await catalog.status("/one")).file_id)) == 1500


async def test_a_long_decision_gets_through_beside_any_number_of_others_and_they_do_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore(yielding=True)
    catalog = await new_catalog(store)
    paths = await many_files(catalog, "/from", 500)
    await catalog.make_directories(MakeDirectories("/to"))
    twice = Twice(store)
    monkeypatch.setattr(transactions, "transact", twice)
    monkeypatch.setattr(changes, "SLICE_WORK", 50)
    made = [0] * 8

    async def make_files(client: int) -> None:
        while True:
            await catalog.create(create_request(f"/from/{client}-{made[client]}"))
            made[client] += 1

    clients = [asyncio.create_task(make_files(client)) for client in range(len(made))]
    while min(made) < 3:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0)
    before = list(made)
    await catalog.transact(request_of(*renames(paths)))
    assert len(twice.drafts) <= 5, "those that were under way, and no others, come before it"
    assert max(after - was for was, after in zip(before, made, strict=True)) < 5, "they waited"
    while any(after == was for was, after in zip(before, made, strict=True)):  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0)
    for client in clients:
        client.cancel()
    await asyncio.gather(*clients, return_exceptions=True)
    assert (await catalog.status("/to/00499")).size == 0


async def test_a_directory_in_which_others_work_without_a_pause_can_be_deleted() -> None:
    """Its entries are a precondition for whoever needs rights on it."""
    catalog = await new_catalog(MemoryStore(yielding=True))
    await catalog.make_directories(MakeDirectories("/busy/below", permission=0o777))
    made = [0] * 8

    async def make_files(client: int) -> None:
        while True:
            with contextlib.suppress(NotFoundError):
                await catalog.create(create_request(f"/busy/below/{client}-{made[client]}"))
            made[client] += 1

    clients = [asyncio.create_task(make_files(client)) for client in range(len(made))]
    while min(made) < 3:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0)
    token = ACTOR.set(Actor(ITSELF.user))
    try:
        assert (await catalog.delete(DeletePath("/busy", recursive=True))).existed
    finally:
        ACTOR.reset(token)
    for client in clients:
        client.cancel()
    await asyncio.gather(*clients, return_exceptions=True)


async def test_what_a_long_decision_refuses_is_refused_and_nothing_was_done() -> None:
    catalog = await new_catalog(MemoryStore(yielding=True))
    paths = await many_files(catalog, "/from", 1000)
    await catalog.make_directories(MakeDirectories("/to"))
    with pytest.raises(NotFoundError, match=r"^operation 1001 of 1001: '/none': no such file"):
        await catalog.transact(request_of(*renames(paths), Delete("/none", must_exist=True)))
    assert (await catalog.status(paths[0])).size == 0
    await catalog.make_directories(MakeDirectories("/goes-on"))


async def test_a_concat_alone_is_decided_in_slices_too(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = await new_catalog()
    await closed_file(catalog, "/one", 1)
    await closed_file(catalog, "/two", *[1] * 60)
    monkeypatch.setattr(changes, "SLICE_WORK", 20)
    moving = asyncio.create_task(catalog.concat(ConcatFiles("/one", ("/two",))))
    turns = 0
    while not moving.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns > 10
    assert (await moving).size == 61 * 10


async def test_more_records_than_an_entry_of_the_log_may_change_are_refused() -> None:
    catalog = await new_catalog()
    many = [MakeDirectory(f"/{n}/a/b/c/d/e/f/g") for n in range(RECORDS_MAX // 20)]
    with pytest.raises(InvalidRequestError, match=r"at most \d+ records .*: split it"):
        await catalog.transact(request_of(*many))
    await catalog.transact(request_of(*many[:1000]))
