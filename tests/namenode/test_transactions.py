"""Many operations as one: all of them or none, once, each seeing those before it."""

from __future__ import annotations

import asyncio

import pytest

from paxosblock.api.namenode import (
    TRANSACT,
    ApplicationVersion,
    DeletePath,
    FileStatus,
    ListDirectory,
    MakeDirectories,
    Transact,
)
from paxosblock.api.transaction import (
    BLOCKS_MOVED_MAX,
    OPERATIONS_MAX,
    AclChange,
    AssertAbsent,
    AssertDirectory,
    AssertFile,
    ChangeAcl,
    Concat,
    Delete,
    MakeDirectory,
    Marker,
    Operation,
    Rename,
    SetAttributes,
    SetOwner,
    SetPermission,
    TransactionOutcome,
)
from paxosblock.errors import (
    DirectoryNotEmptyError,
    ExistsError,
    InvalidRequestError,
    IsDirectoryError,
    LeaseError,
    NotDirectoryError,
    NotFoundError,
    OutcomeUnknownError,
    PaxosBlockError,
    PermissionDeniedError,
)
from paxosblock.namenode.catalog.draft import Draft
from paxosblock.namenode.catalog.namespace import Context
from paxosblock.namenode.catalog.permissions import Actor
from paxosblock.namenode.catalog.records import BlockEntry
from paxosblock.namenode.catalog.transactions import transact
from paxosblock.namenode.kv.codec import encode_edit
from paxosblock.namenode.kv.interface import EDIT_BYTES_MAX, Committed, Conflict, Edit
from paxosblock.protocol.types import BlockId, Durability
from tests.namenode.memory_store import MemoryStore
from tests.namenode.scene import (
    NamedCatalog,
    add_block,
    closed_file,
    create_request,
    new_catalog,
    new_scene,
    sweep_everything,
)
from tests.namenode.scene import blocks_of as entries_of
from tests.namenode.test_permissions import acting

APPLIED = TransactionOutcome(True, 0)


def request_of(
    *operations: Operation, version: int | None = None, app: str = "app", attempt: str = "first"
) -> Transact:
    """A transaction as a client sends it."""
    application = None if version is None else ApplicationVersion(app, version, attempt)
    return Transact(operations, 3, 1 << 20, Durability.DISK, "ann", application)


async def apply(catalog: NamedCatalog, *operations: Operation) -> TransactionOutcome:
    return await catalog.transact(request_of(*operations))


async def names(catalog: NamedCatalog, path: str = "/") -> list[str]:
    return [entry.path for entry in (await catalog.list(ListDirectory(path))).entries]


async def file_at(catalog: NamedCatalog, path: str) -> tuple[FileStatus, list[BlockEntry]]:
    status = await catalog.status(path)
    return status, await entries_of(catalog, status.file_id)


async def blocks_of(catalog: NamedCatalog, path: str) -> list[BlockId]:
    return [entry.record.block for entry in (await file_at(catalog, path))[1]]


# --- what each operation does --------------------------------------------------------------------


async def test_a_job_publishes_all_its_files_and_its_marker_at_once() -> None:
    store = MemoryStore()
    catalog = await new_catalog(store)
    for number in range(3):
        await closed_file(catalog, f"/out/_tmp/part-{number}", 1)
    before = store.machine.revision
    moves = (Rename(f"/out/_tmp/part-{number}", f"/out/part-{number}") for number in range(3))
    outcome = await apply(catalog, *moves, Delete("/out/_tmp"), Marker("/out/_SUCCESS"))
    assert outcome == APPLIED
    assert store.machine.revision == before + 1, "one entry of the log"
    assert await names(catalog, "/out") == ["/out/_SUCCESS", *(f"/out/part-{n}" for n in range(3))]


async def test_a_directory_is_replaced_by_deleting_and_renaming_in_one_transaction() -> None:
    catalog = await new_catalog()
    await closed_file(catalog, "/table/old", 1)
    await closed_file(catalog, "/staged/new", 1)
    await apply(catalog, Delete("/table", recursive=True), Rename("/staged", "/table"))
    assert await names(catalog) == ["/table"]
    assert await names(catalog, "/table") == ["/table/new"]


async def test_a_marker_is_an_empty_closed_file() -> None:
    catalog = await new_catalog()
    await apply(catalog, Marker("/a/b/_SUCCESS"))
    status = await catalog.status("/a/b/_SUCCESS")
    assert (status.open, status.size, status.replication, status.owner) == (False, 0, 3, "ann")
    assert (await catalog.counts()).open_files == 0


async def test_a_marker_replaces_a_closed_file_and_frees_its_blocks() -> None:
    catalog = await new_catalog()
    before = await closed_file(catalog, "/m", 2)
    await apply(catalog, Marker("/m"), Marker("/m"))
    assert (await catalog.status("/m")).size == 0
    assert [entry.file for entry in await sweep_everything(catalog)] == [before]


async def test_operations_build_on_those_before_them() -> None:
    catalog = await new_catalog()
    await closed_file(catalog, "/one", 1)
    await closed_file(catalog, "/two", 2)
    await apply(
        catalog,
        AssertAbsent("/new/dir"),
        MakeDirectory("/new/dir"),
        Rename("/one", "/new/dir/all"),
        AssertAbsent("/one"),
        Concat("/new/dir/all", ("/two",)),
        AssertFile("/new/dir/all", size=30),
        Rename("/new/dir", "/done"),
        Delete("/new"),
        Marker("/new"),
    )
    assert await names(catalog) == ["/done", "/new"]
    assert (await catalog.status("/done/all")).size == 30


async def test_a_directory_made_and_deleted_in_one_transaction_leaves_nothing() -> None:
    store = MemoryStore()
    catalog = await new_catalog(store)
    await apply(catalog, MakeDirectory("/a/b"), Marker("/a/b/c"), Delete("/a", recursive=True))
    await sweep_everything(catalog)
    assert await names(catalog) == []
    assert await catalog.counts() == await (await new_catalog()).counts()


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "kind"),
    [
        (AssertAbsent("/file"), ExistsError),
        (AssertAbsent("/"), ExistsError),
        (AssertFile("/none"), NotFoundError),
        (AssertFile("/dir"), IsDirectoryError),
        (AssertFile("/open"), LeaseError),
        (AssertFile("/file", file_id=999), NotFoundError),
        (AssertFile("/file", size=11), InvalidRequestError),
        (AssertDirectory("/none"), NotFoundError),
        (AssertDirectory("/file"), NotDirectoryError),
        (AssertDirectory("/dir", file_id=999), NotFoundError),
        (MakeDirectory("/file"), ExistsError),
        (MakeDirectory("/file/below"), NotDirectoryError),
        (Rename("/none", "/x"), NotFoundError),
        (Rename("/file", "/none/x"), NotFoundError),
        (Rename("/file", "/other"), ExistsError),
        (Rename("/open", "/x"), LeaseError),
        (Rename("/dir", "/dir/below"), InvalidRequestError),
        (Concat("/none", ("/file",)), NotFoundError),
        (Concat("/file", ("/none",)), NotFoundError),
        (Concat("/file", ()), InvalidRequestError),
        (Concat("/file", ("/file",)), InvalidRequestError),
        (Concat("/file", ("/other", "/other")), InvalidRequestError),
        (Concat("/file", ("/open",)), LeaseError),
        (Concat("/open", ("/file",)), LeaseError),
        (Concat("/file", ("/dir",)), IsDirectoryError),
        (Delete("/dir"), DirectoryNotEmptyError),
        (Delete("/none", must_exist=True), NotFoundError),
        (Delete("/none", file_id=999), NotFoundError),
        (Delete("/file", file_id=999), NotFoundError),
        (Delete("/open", file_id=999), NotFoundError),
        (Delete("/"), InvalidRequestError),
        (Marker("/dir"), IsDirectoryError),
        (Marker("/open"), LeaseError),
        (Marker("/"), IsDirectoryError),
        (Marker("no path"), InvalidRequestError),
    ],
    ids=str,
)
async def test_an_operation_that_is_refused_refuses_the_whole(
    operation: Operation, kind: type[PaxosBlockError]
) -> None:
    store = MemoryStore()
    catalog = await new_catalog(store)
    await closed_file(catalog, "/file", 1)
    await closed_file(catalog, "/other", 1)
    await closed_file(catalog, "/dir/below", 1)
    await catalog.create(create_request("/open"))
    before = dict(store.machine.scan(b"a", b""))
    with pytest.raises(kind, match=r"^operation 2 of 3: ") as caught:
        await apply(catalog, MakeDirectory("/made"), operation, Marker("/m"))
    assert type(caught.value) is kind
    after = dict(store.machine.scan(b"a", b""))
    assert {key: found for key, found in after.items() if not key.startswith(b"n")} == {
        key: found for key, found in before.items() if not key.startswith(b"n")
    }


async def test_what_is_absent_may_be_asserted_below_a_file() -> None:
    catalog = await new_catalog()
    await closed_file(catalog, "/file")
    assert await apply(catalog, AssertAbsent("/file/below"), AssertAbsent("/x/y")) == APPLIED


async def test_a_file_is_asserted_by_its_id_and_length() -> None:
    catalog = await new_catalog()
    file = await closed_file(catalog, "/f", 3)
    assert await apply(catalog, AssertFile("/f", file_id=file, size=30)) == APPLIED


async def test_a_file_is_deleted_by_its_id_even_while_it_is_written() -> None:
    catalog = await new_catalog()
    await catalog.create(create_request("/open"))
    file = (await catalog.status("/open")).file_id
    assert await apply(catalog, Delete("/open", file_id=file)) == APPLIED
    assert await names(catalog) == []
    assert (await catalog.counts()).open_files == 0


async def test_a_directory_is_asserted_by_its_id() -> None:
    """As a bucket that was deleted and made again is another one."""
    catalog = await new_catalog()
    await apply(catalog, MakeDirectory("/bucket"))
    file_id = (await catalog.status("/bucket")).file_id
    there = AssertDirectory("/bucket", file_id)
    assert await apply(catalog, AssertDirectory("/"), there) == APPLIED
    await apply(catalog, Delete("/bucket"), MakeDirectory("/bucket"))
    with pytest.raises(NotFoundError, match="'/bucket': is file "):
        await apply(catalog, there, Marker("/bucket/key"))


async def test_the_directories_made_for_a_file_go_with_the_last_one_when_it_is_pruned() -> None:
    catalog = await new_catalog()
    await apply(catalog, MakeDirectory("/bucket"), Marker("/bucket/a/b/one"))
    await closed_file(catalog, "/bucket/a/b/two")
    await apply(catalog, Delete("/bucket/a/b/one", prune=True))
    assert await names(catalog, "/bucket/a/b") == ["/bucket/a/b/two"]
    await apply(catalog, Delete("/bucket/a/b/two", prune=True))
    assert await names(catalog, "/bucket") == []


async def test_a_directory_that_is_let_go_goes_with_what_is_in_it() -> None:
    """A store of keys deletes the key of a directory, and then those below, or the other way."""
    catalog = await new_catalog()
    await apply(catalog, MakeDirectory("/bucket"), MakeDirectory("/bucket/a/b"))
    await apply(catalog, MakeDirectory("/bucket/a"), Marker("/bucket/a/b/file"))
    await apply(catalog, Delete("/bucket/a", prune=True))
    with pytest.raises(DirectoryNotEmptyError):
        await apply(catalog, Delete("/bucket/a"))
    await apply(catalog, Delete("/bucket/a/b/file", prune=True))
    assert await names(catalog, "/bucket/a") == ["/bucket/a/b"]
    await apply(catalog, Delete("/bucket/a/b", prune=True))
    assert await names(catalog, "/bucket") == []


async def test_a_directory_is_let_go_by_one_who_may_take_it_away() -> None:
    catalog = await new_catalog()
    await apply(catalog, MakeDirectory("/top/made"), SetPermission("/top/made", 0o777))
    await apply(catalog, SetPermission("/top", 0o755), SetOwner("/top", "bob"))
    await apply(catalog, Marker("/top/made/file"))
    with acting(Actor("ann")):
        with pytest.raises(PermissionDeniedError, match='inode="/top"'):
            await apply(catalog, Delete("/top/made", prune=True))
        await apply(catalog, Delete("/top/made/file", prune=True))
    assert await names(catalog, "/top") == ["/top/made"]


@pytest.mark.parametrize("first", ["file", "directory"])
async def test_one_deletes_a_directory_and_another_one_what_is_in_it_at_once(first: str) -> None:
    """Each was decided while the other was still there; in no order one is left."""
    store = MemoryStore()
    catalog = await new_catalog(store)
    await apply(catalog, MakeDirectory("/prefix"), Marker("/prefix/file"))
    context = Context(iter(()), 0, lambda _: False, {})
    paths = ["/prefix/file", "/prefix"]
    edits = []
    for path in paths if first == "file" else reversed(paths):
        draft = Draft(store.view())
        for _ in transact(draft, request_of(Delete(path, prune=True)), context):
            pass
        edits.append(draft.to_edit())
    outcomes = [await store.commit(edit) for edit in edits]
    assert [type(outcome) for outcome in outcomes] == [Committed, Conflict]


@pytest.mark.parametrize("through", ["a call", "a transaction"])
async def test_a_directory_that_somebody_made_stays_when_what_is_in_it_is_pruned(
    through: str,
) -> None:
    catalog = await new_catalog()
    await closed_file(catalog, "/made/later/file")
    if through == "a call":
        await catalog.make_directories(MakeDirectories("/made/later"))
    else:
        await apply(catalog, MakeDirectory("/made/later"))
    await apply(catalog, Delete("/made/later/file", prune=True))
    assert await names(catalog, "/made") == ["/made/later"]


@pytest.mark.parametrize(
    "said",
    [
        SetPermission("/made/private", 0o700),
        SetOwner("/made/private", "bob"),
        SetAttributes("/made/private", {"user.a": b"1"}),
        ChangeAcl("/made/private", AclChange.MODIFY, "user:bob:r--"),
        Rename("/made/private", "/made/moved"),
    ],
    ids=lambda operation: type(operation).__name__,
)
async def test_a_directory_of_which_a_user_said_something_stays(said: Operation) -> None:
    """One that comes again in its place would have other rights."""
    catalog = await new_catalog()
    await closed_file(catalog, "/made/private/file")
    await apply(catalog, said)
    (directory,) = await names(catalog, "/made")
    await apply(catalog, Delete(f"{directory}/file", prune=True))
    assert await names(catalog, "/made") == [directory]


async def test_pruning_ends_where_the_caller_may_not_delete() -> None:
    catalog = await new_catalog()
    await apply(catalog, MakeDirectory("/top"), SetPermission("/top", 0o777))
    with acting(Actor("ann")):
        await apply(catalog, Marker("/top/theirs/file"))
    await apply(catalog, SetPermission("/top", 0o755), SetOwner("/top", "bob"))
    with acting(Actor("ann")):
        await apply(catalog, Delete("/top/theirs/file", prune=True))
    assert await names(catalog, "/top") == ["/top/theirs"]
    assert await names(catalog, "/top/theirs") == []


async def test_two_that_delete_the_last_two_names_at_once_do_not_leave_the_directory() -> None:
    """Each was decided while the other name was still there."""
    store = MemoryStore()
    catalog = await new_catalog(store)
    await apply(catalog, Marker("/prefix/one"), Marker("/prefix/two"))
    context = Context(iter(()), 0, lambda _: False, {})
    edits = []
    for name in ("one", "two"):
        draft = Draft(store.view())
        for _ in transact(draft, request_of(Delete(f"/prefix/{name}", prune=True)), context):
            pass
        edits.append(draft.to_edit())
    outcomes = [await store.commit(edit) for edit in edits]
    assert [type(outcome) for outcome in outcomes] == [Committed, Conflict]


async def test_deleting_what_is_not_there_is_fine_unless_it_must_exist() -> None:
    assert await apply(await new_catalog(), Delete("/none")) == APPLIED


@pytest.mark.parametrize("count", [0, OPERATIONS_MAX + 1])
async def test_a_transaction_has_operations_but_not_too_many(count: int) -> None:
    scene = await new_scene()
    with pytest.raises(InvalidRequestError, match=f"a transaction of {count} operations"):
        await scene.service.call(TRANSACT, request_of(*[AssertAbsent("/x")] * count))
    await scene.close()


async def test_a_transaction_does_not_make_trees_without_end() -> None:
    scene = await new_scene()
    deep = "/a" * 4000
    with pytest.raises(InvalidRequestError, match="makes paths of 36000 names: at most 32768"):
        await scene.service.call(TRANSACT, request_of(*[MakeDirectory(deep)] * 9))
    await scene.close()


# --- races ---------------------------------------------------------------------------------------


async def test_what_was_asserted_holds_when_the_transaction_is_applied() -> None:
    """Of many that assert the same absence and then fill it, one is applied."""
    catalog = await new_catalog(MemoryStore(yielding=True))
    outcomes = await asyncio.gather(
        *(apply(catalog, AssertAbsent("/lock"), Marker("/lock")) for _ in range(8)),
        return_exceptions=True,
    )
    assert outcomes.count(APPLIED) == 1
    assert sum(isinstance(outcome, ExistsError) for outcome in outcomes) == 7


async def test_a_directory_does_not_go_while_something_comes_into_it() -> None:
    """Deleted as empty in the transaction that empties it, unless another file came meanwhile."""
    store = MemoryStore(yielding=True)
    catalog = await new_catalog(store)
    await closed_file(catalog, "/d/old", 1)
    deleting = apply(catalog, Rename("/d/old", "/old"), Delete("/d"))
    made, deleted = await asyncio.gather(
        catalog.create(create_request("/d/new", parent_must_exist=True)),
        deleting,
        return_exceptions=True,
    )
    if isinstance(made, NotFoundError):
        assert await names(catalog) == ["/old"]
    else:
        assert isinstance(deleted, DirectoryNotEmptyError)
        assert await names(catalog, "/d") == ["/d/new", "/d/old"]


async def test_a_writer_below_a_directory_that_a_transaction_deleted_is_refused() -> None:
    catalog = await new_catalog()
    file = (await catalog.create(create_request("/job/attempt/part"))).number
    await apply(catalog, Delete("/job", recursive=True))
    with pytest.raises(NotFoundError):
        await add_block(catalog, file)
    with pytest.raises(NotFoundError):
        await catalog.create(create_request("/job/attempt/late", parent_must_exist=True))


# --- once ----------------------------------------------------------------------------------------


async def test_a_version_is_applied_once_and_later_ones_after_it() -> None:
    catalog = await new_catalog()
    assert await catalog.application_version("app") is None
    first = await catalog.transact(request_of(MakeDirectory("/0"), version=0))
    again = await catalog.transact(request_of(Marker("/x"), version=0, attempt="second"))
    later = await catalog.transact(request_of(MakeDirectory("/5"), version=5))
    older = await catalog.transact(request_of(Marker("/x"), version=4, attempt="third"))
    assert first == TransactionOutcome(True, 0)
    assert again == TransactionOutcome(False, 0)
    assert later == TransactionOutcome(True, 5)
    assert older == TransactionOutcome(False, 5)
    assert await names(catalog) == ["/0", "/5"]
    assert await catalog.application_version("app") == 5


async def test_applications_do_not_know_of_each_other() -> None:
    catalog = await new_catalog()
    for app in ("a", "ab", "b"):
        outcome = await catalog.transact(request_of(MakeDirectory(f"/{app}"), version=3, app=app))
        assert outcome == TransactionOutcome(True, 3)
    assert await catalog.application_version("a") == 3


@pytest.mark.parametrize("before", [True, False])
async def test_a_transaction_whose_answer_was_lost_is_applied_once(before: bool) -> None:
    store = MemoryStore()
    catalog = await new_catalog(store)
    await closed_file(catalog, "/staged", 1)
    await catalog.delete(DeletePath("/nothing"))
    request = request_of(Rename("/staged", "/done"), version=7)
    store.fail_before, store.fail_after = before, not before
    with pytest.raises(OutcomeUnknownError):
        await catalog.transact(request)
    assert await catalog.transact(request) == TransactionOutcome(True, 7)
    assert await catalog.transact(request) == TransactionOutcome(True, 7)
    assert await names(catalog) == ["/done"]


async def test_a_version_that_was_refused_may_be_tried_again() -> None:
    catalog = await new_catalog()
    request = request_of(Rename("/staged", "/done"), version=1)
    with pytest.raises(NotFoundError):
        await catalog.transact(request)
    assert await catalog.application_version("app") is None
    await closed_file(catalog, "/staged", 1)
    assert (await catalog.transact(request)).applied


async def test_of_many_that_send_the_same_version_one_applies_it() -> None:
    catalog = await new_catalog(MemoryStore(yielding=True))
    outcomes = await asyncio.gather(
        *(
            catalog.transact(
                request_of(MakeDirectory(f"/{number}"), version=1, attempt=f"attempt-{number}")
            )
            for number in range(8)
        )
    )
    assert sum(outcome.applied for outcome in outcomes) == 1
    assert len(await names(catalog)) == 1


# --- concat --------------------------------------------------------------------------------------


async def test_concat_moves_blocks_in_order_and_each_block_knows_its_file() -> None:
    catalog = await new_catalog()
    target = await closed_file(catalog, "/target", 1, 2)
    await closed_file(catalog, "/a", 3)
    await closed_file(catalog, "/empty")
    await closed_file(catalog, "/b", 1, 1)
    expected = [
        block
        for path in ("/target", "/b", "/empty", "/a")
        for block in await blocks_of(catalog, path)
    ]
    await apply(catalog, Concat("/target", ("/b", "/empty", "/a")))
    status, entries = await file_at(catalog, "/target")
    assert [entry.record.block for entry in entries] == expected
    assert {entry.file for entry in entries} == {target}
    assert [entry.sequence for entry in entries] == list(range(5))
    assert (status.size, status.file_id, status.open) == (80, target, False)
    assert await names(catalog) == ["/target"]
    assert [await catalog.block_path(entry) for entry in entries] == ["/target"] * 5


async def test_no_sweep_reaches_blocks_that_were_moved() -> None:
    catalog = await new_catalog()
    await closed_file(catalog, "/target", 1)
    await closed_file(catalog, "/dir/source", 2)
    await apply(catalog, Concat("/target", ("/dir/source",)), Delete("/dir"))
    assert await sweep_everything(catalog) == []
    assert [await catalog.get_block(block) for block in await blocks_of(catalog, "/target")]
    assert (await catalog.status("/target")).size == 30


async def test_blocks_that_were_moved_go_with_their_new_file() -> None:
    catalog = await new_catalog()
    await closed_file(catalog, "/target", 1)
    await closed_file(catalog, "/source", 2)
    moved = await blocks_of(catalog, "/source")
    await apply(catalog, Concat("/target", ("/source",)))
    await catalog.delete(DeletePath("/target"))
    swept = await sweep_everything(catalog)
    assert set(moved) < {entry.record.block for entry in swept}


async def test_a_file_that_was_made_of_others_is_moved_on_and_grows_again() -> None:
    catalog = await new_catalog()
    for name in "abcd":
        await closed_file(catalog, f"/{name}", 1)
    await apply(catalog, Concat("/a", ("/b",)), Concat("/c", ("/a",)), Concat("/c", ("/d",)))
    status, entries = await file_at(catalog, "/c")
    assert status.size == sum(entry.record.size_bytes for entry in entries) == 40


async def test_of_two_concats_of_one_source_one_gets_its_blocks() -> None:
    catalog = await new_catalog(MemoryStore(yielding=True))
    for name in ("one", "two", "source"):
        await closed_file(catalog, f"/{name}", 1)
    outcomes = await asyncio.gather(
        *(apply(catalog, Concat(f"/{name}", ("/source",))) for name in ("one", "two")),
        return_exceptions=True,
    )
    assert sorted(type(outcome).__name__ for outcome in outcomes) == [
        "NotFoundError",
        "TransactionOutcome",
    ]
    assert sum([(await catalog.status(f"/{name}")).size for name in ("one", "two")]) == 30


async def test_concats_to_one_target_at_once_lose_nothing() -> None:
    catalog = await new_catalog(MemoryStore(yielding=True))
    await closed_file(catalog, "/target")
    for number in range(6):
        await closed_file(catalog, f"/{number}", 1)
    await asyncio.gather(*(apply(catalog, Concat("/target", (f"/{n}",))) for n in range(6)))
    status, entries = await file_at(catalog, "/target")
    assert (status.size, len(entries)) == (60, 6)


async def test_more_blocks_than_one_transaction_moves_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("paxosblock.namenode.catalog.transactions.BLOCKS_MOVED_MAX", 3)
    catalog = await new_catalog()
    await closed_file(catalog, "/target", 1, 1, 1, 1)
    await closed_file(catalog, "/a", 1, 1)
    await closed_file(catalog, "/b", 1, 1)
    with pytest.raises(InvalidRequestError, match=r"^operation 2 of 2: .* at most"):
        await apply(catalog, Concat("/target", ("/a",)), Concat("/target", ("/b",)))
    await apply(catalog, Concat("/target", ("/a",)))
    await apply(catalog, Concat("/target", ("/b",)))
    assert len(await blocks_of(catalog, "/target")) == 8


class MeasuredStore(MemoryStore):
    """Notes how long the latest edit is in the log."""

    size_bytes = 0

    async def commit(self, edit: Edit) -> Committed | Conflict:
        self.size_bytes = len(encode_edit(edit))
        return await super().commit(edit)


async def test_as_many_blocks_as_one_transaction_moves_fit_an_entry_of_the_log() -> None:
    store = MeasuredStore()
    catalog = await new_catalog(store)
    await closed_file(catalog, "/target", 1)
    await closed_file(catalog, "/source", *[1] * BLOCKS_MOVED_MAX)
    await apply(catalog, Concat("/target", ("/source",)))
    assert store.size_bytes < EDIT_BYTES_MAX / 4, "names of storages may be long"
    assert len(await blocks_of(catalog, "/target")) == BLOCKS_MOVED_MAX + 1


async def test_make_directory_in_a_busy_directory_does_not_conflict_with_its_writers() -> None:
    store = MemoryStore(yielding=True)
    catalog = await new_catalog(store)
    await catalog.make_directories(MakeDirectories("/busy"))
    await asyncio.gather(
        *(catalog.create(create_request(f"/busy/{number}")) for number in range(20)),
        *(apply(catalog, MakeDirectory("/busy"), Marker(f"/busy/m{n}")) for n in range(5)),
    )
    assert store.conflicts == 0
