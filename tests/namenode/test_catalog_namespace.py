"""Directories and files by name: what each operation does, and what it says when it cannot."""

from __future__ import annotations

import asyncio

import pytest

from paxosblock.api.namenode import (
    CloseFile,
    DeletePath,
    Kind,
    ListDirectory,
    MakeDirectories,
    RenamePath,
)
from paxosblock.errors import (
    DirectoryNotEmptyError,
    ExistsError,
    InvalidRequestError,
    IsDirectoryError,
    LeaseError,
    NotDirectoryError,
    NotFoundError,
    PaxosBlockError,
)
from tests.namenode.memory_store import MemoryStore
from tests.namenode.scene import (
    ANN,
    BOB,
    NamedCatalog,
    add_block,
    blocks_of,
    create_request,
    file_with_blocks,
    finalize,
    new_catalog,
    sweep_everything,
)


@pytest.fixture
async def catalog() -> NamedCatalog:
    """`/file` and `/dir/inner/deep`."""
    catalog = await new_catalog()
    await catalog.create(create_request("/file"))
    await catalog.make_directories(MakeDirectories("/dir/inner/deep"))
    return catalog


async def names(catalog: NamedCatalog, path: str) -> list[str]:
    return [entry.path for entry in (await catalog.list(ListDirectory(path))).entries]


async def test_create_makes_the_parents_that_are_missing(catalog: NamedCatalog) -> None:
    await catalog.create(create_request("/x/y/z"))
    assert (await catalog.status("/x")).kind is Kind.DIRECTORY
    assert (await catalog.status("/x/y/z")).kind is Kind.FILE


async def test_a_new_file_is_open_and_empty(catalog: NamedCatalog) -> None:
    status = await catalog.status("/file")
    assert (status.open, status.size, status.replication) == (True, 0, 3)


async def test_a_repeated_create_of_the_same_writer_finds_its_file() -> None:
    catalog = await new_catalog()
    first = await catalog.create(create_request("/f"))
    assert await catalog.create(create_request("/f")) == first


async def test_a_late_copy_of_a_create_does_not_replace_what_its_writer_wrote_since() -> None:
    catalog = await new_catalog()
    request = create_request("/f", overwrite=True)
    file = (await catalog.create(request)).number
    block = (await finalize(catalog, await add_block(catalog, file), 2)).record.block
    with pytest.raises(ExistsError):
        await catalog.create(request)
    await catalog.close_file(CloseFile(file, ANN))
    with pytest.raises(ExistsError):
        await catalog.create(request)
    assert [entry.record.block for entry in await blocks_of(catalog, file)] == [block]


async def test_overwrite_replaces_the_file_and_leaves_its_blocks_to_the_sweep() -> None:
    catalog = await new_catalog()
    before = await file_with_blocks(catalog, "/f", 2)
    after = await catalog.create(create_request("/f", BOB, overwrite=True))
    assert after.number != before.number
    assert await blocks_of(catalog, after.number) == []
    assert {entry.file for entry in await sweep_everything(catalog)} == {before.number}


async def test_overwrite_of_a_file_that_is_being_written_names_the_writer(
    catalog: NamedCatalog,
) -> None:
    catalog.all_held = True
    with pytest.raises(LeaseError) as caught:
        await catalog.create(create_request("/file", BOB, overwrite=True))
    assert str(caught.value) == "'/file': is being written by ann; take_over ends that"


@pytest.mark.parametrize(
    ("path", "options", "kind", "message"),
    [
        ("/file", {}, ExistsError, "'/file': exists already"),
        ("/dir", {}, IsDirectoryError, "'/dir': is a directory"),
        ("/", {}, IsDirectoryError, "'/': is a directory"),
        ("/file/x", {}, NotDirectoryError, "'/file': is a file, not a directory"),
        ("/file/x/y", {}, NotDirectoryError, "'/file': is a file, not a directory"),
        (
            "/no/x",
            {"parent_must_exist": True},
            NotFoundError,
            "'/no': no such file or directory",
        ),
        ("/a\0", {}, InvalidRequestError, "'/a\\x00': a name has no NUL byte"),
    ],
)
async def test_create_says_why_it_cannot(
    catalog: NamedCatalog,
    path: str,
    options: dict[str, bool],
    kind: type[PaxosBlockError],
    message: str,
) -> None:
    with pytest.raises(kind) as caught:
        await catalog.create(create_request(path, BOB, **options))
    assert str(caught.value) == message


async def test_mkdirs_of_an_existing_directory_is_fine_only_with_parents(
    catalog: NamedCatalog,
) -> None:
    assert (await catalog.make_directories(MakeDirectories("/dir"))).path == "/dir"
    assert (await catalog.make_directories(MakeDirectories("/"))).path == "/"
    with pytest.raises(ExistsError, match="'/dir': exists already"):
        await catalog.make_directories(MakeDirectories("/dir", parents=False))


@pytest.mark.parametrize(
    ("request_", "kind", "message"),
    [
        (MakeDirectories("/file"), ExistsError, "'/file': exists already"),
        (MakeDirectories("/file/x"), NotDirectoryError, "'/file': is a file, not a directory"),
        (
            MakeDirectories("/no/x", parents=False),
            NotFoundError,
            "'/no': no such file or directory",
        ),
    ],
)
async def test_mkdirs_says_why_it_cannot(
    catalog: NamedCatalog, request_: MakeDirectories, kind: type[PaxosBlockError], message: str
) -> None:
    with pytest.raises(kind) as caught:
        await catalog.make_directories(request_)
    assert str(caught.value) == message


async def test_mkdirs_gives_the_last_directory_the_permission_that_was_asked_for(
    catalog: NamedCatalog,
) -> None:
    made = await catalog.make_directories(MakeDirectories("/p/q", permission=0o700, owner="eve"))
    assert (made.permission, made.owner) == (0o700, "eve")
    assert await catalog.status("/p/q") == made
    assert (await catalog.status("/p")).permission == 0o755


async def test_a_directory_changes_its_time_when_an_entry_comes_or_goes(
    catalog: NamedCatalog,
) -> None:
    start = (await catalog.status("/dir")).modified_s
    await catalog.create(create_request("/dir/f"))
    created = (await catalog.status("/dir")).modified_s
    await catalog.delete(DeletePath("/dir/f"))
    assert start < created < (await catalog.status("/dir")).modified_s


async def test_a_moved_directory_takes_along_what_is_below_it(catalog: NamedCatalog) -> None:
    await catalog.create(create_request("/dir/inner/f"))
    await catalog.rename(RenamePath("/dir", "/moved"))
    assert (await catalog.status("/moved/inner/f")).path == "/moved/inner/f"
    with pytest.raises(NotFoundError):
        await catalog.status("/dir")


async def test_a_moved_file_may_still_be_written() -> None:
    catalog = await new_catalog()
    file = await catalog.create(create_request("/a"))
    await catalog.rename(RenamePath("/a", "/b"))
    await add_block(catalog, file.number)
    assert (await catalog.open_file(file.number, ANN)).name == "b"


async def test_a_move_to_itself_changes_nothing(catalog: NamedCatalog) -> None:
    assert await catalog.rename(RenamePath("/dir", "/dir")) == await catalog.status("/dir")


async def test_a_move_replaces_a_file_only_with_overwrite() -> None:
    catalog = await new_catalog()
    old = await file_with_blocks(catalog, "/old", 1)
    new = await file_with_blocks(catalog, "/new", 1)
    with pytest.raises(ExistsError, match="'/old': exists already"):
        await catalog.rename(RenamePath("/new", "/old"))
    moved = await catalog.rename(RenamePath("/new", "/old", overwrite=True))
    assert moved.file_id == new.number
    assert {entry.file for entry in await sweep_everything(catalog)} == {old.number}


@pytest.mark.parametrize(
    ("request_", "kind", "message"),
    [
        (RenamePath("/no", "/x"), NotFoundError, "'/no': no such file or directory"),
        (RenamePath("/file", "/no/x"), NotFoundError, "'/no': no such file or directory"),
        (RenamePath("/dir", "/file/x"), NotDirectoryError, "'/file': is a file, not a directory"),
        (RenamePath("/file", "/dir"), ExistsError, "'/dir': exists already"),
        (RenamePath("/file", "/dir", overwrite=True), IsDirectoryError, "'/dir': is a directory"),
        (
            RenamePath("/dir", "/file", overwrite=True),
            NotDirectoryError,
            "'/file': is a file, not a directory",
        ),
        (
            RenamePath("/dir", "/dir/inner/x"),
            InvalidRequestError,
            "'/dir': cannot be moved below itself to '/dir/inner/x'",
        ),
        (
            RenamePath("/", "/x"),
            InvalidRequestError,
            "'/': the root can be neither moved nor replaced",
        ),
        (
            RenamePath("/dir", "/"),
            InvalidRequestError,
            "'/': the root can be neither moved nor replaced",
        ),
    ],
)
async def test_rename_says_why_it_cannot(
    catalog: NamedCatalog, request_: RenamePath, kind: type[PaxosBlockError], message: str
) -> None:
    with pytest.raises(kind) as caught:
        await catalog.rename(request_)
    assert str(caught.value) == message


async def test_delete_tells_whether_there_was_anything(catalog: NamedCatalog) -> None:
    assert (await catalog.delete(DeletePath("/file"))).existed
    assert not (await catalog.delete(DeletePath("/file"))).existed


async def test_a_directory_with_entries_is_deleted_only_when_asked_for(
    catalog: NamedCatalog,
) -> None:
    with pytest.raises(DirectoryNotEmptyError, match="'/dir': directory is not empty"):
        await catalog.delete(DeletePath("/dir"))
    assert (await catalog.delete(DeletePath("/dir/inner/deep"))).existed
    assert (await catalog.delete(DeletePath("/dir", recursive=True))).existed
    assert await names(catalog, "/") == ["/file"]


async def test_the_root_is_not_deleted(catalog: NamedCatalog) -> None:
    with pytest.raises(InvalidRequestError, match="'/': the root cannot be deleted"):
        await catalog.delete(DeletePath("/", recursive=True))


async def test_a_file_below_a_deleted_directory_is_gone_for_its_writer_at_once() -> None:
    catalog = await new_catalog()
    file = await catalog.create(create_request("/d/f"))
    await catalog.delete(DeletePath("/d", recursive=True))
    with pytest.raises(NotFoundError, match=f"file {file.number}: no such file"):
        await add_block(catalog, file.number)


async def test_a_listing_comes_in_pages_in_byte_order(catalog: NamedCatalog) -> None:
    for name in ("b", "a", "ä", "a b", "aa"):
        await catalog.create(create_request(f"/many/{name}"))
    seen: list[str] = []
    more, after = True, ""
    while more:
        page = await catalog.list(ListDirectory("/many", after, limit=2))
        seen += [entry.path for entry in page.entries]
        more, after = page.more, seen[-1].removeprefix("/many/")
    assert seen == [f"/many/{name}" for name in ("a", "a b", "aa", "b", "ä")]


async def test_a_listing_of_a_file_is_the_file_itself(catalog: NamedCatalog) -> None:
    assert await names(catalog, "/file") == ["/file"]
    assert await names(catalog, "/dir/inner/deep") == []


async def test_a_listing_tells_which_change_gave_each_entry_its_name(catalog: NamedCatalog) -> None:
    file = await catalog.create(create_request("/d/a"))
    before = await catalog.list(ListDirectory("/d"))
    await catalog.close_file(CloseFile(file.number, ANN))
    closed = await catalog.list(ListDirectory("/d"))
    assert closed.linked == before.linked
    await catalog.rename(RenamePath("/file", "/d/moved"))
    after = await catalog.list(ListDirectory("/d"))
    assert after.linked[0] == before.linked[0] <= before.revision < closed.revision
    assert closed.revision < after.linked[1] <= after.revision
    alone = await catalog.list(ListDirectory("/d/moved"))
    assert (alone.linked, alone.revision) == (after.linked[1:], after.revision)


async def test_pages_of_one_directory_tell_whether_its_names_changed_between(
    catalog: NamedCatalog,
) -> None:
    async def state(path: str) -> tuple[int, int]:
        page = await catalog.list(ListDirectory(path, limit=1))
        return page.directory, page.changed

    for name in "ab":
        await catalog.create(create_request(f"/d/{name}"))
    seen = [await state("/d")]
    await catalog.create(create_request("/elsewhere/c"))
    assert await state("/d") == seen[0]
    await catalog.rename(RenamePath("/d/b", "/elsewhere/b"))
    seen.append(await state("/d"))
    await catalog.rename(RenamePath("/elsewhere/b", "/d/b"))
    seen.append(await state("/d"))
    await catalog.rename(RenamePath("/d", "/old"))
    await catalog.rename(RenamePath("/elsewhere", "/d"))
    seen.append(await state("/d"))
    assert len(set(seen)) == len(seen)
    assert await state("/d/c") == (0, 0)


async def test_a_listing_without_room_for_an_entry_is_refused(catalog: NamedCatalog) -> None:
    with pytest.raises(InvalidRequestError, match="'/': a page has at least one entry"):
        await catalog.list(ListDirectory("/", limit=0))


async def test_creates_in_one_directory_do_not_conflict() -> None:
    store = MemoryStore(yielding=True)
    catalog = await new_catalog(store)
    await catalog.make_directories(MakeDirectories("/d"))
    await asyncio.gather(*(catalog.create(create_request(f"/d/{i}")) for i in range(50)))
    assert store.conflicts == 0
    assert len(await names(catalog, "/d")) == 50


async def test_of_two_who_create_one_path_at_once_exactly_one_wins() -> None:
    catalog = await new_catalog(MemoryStore(yielding=True))
    outcomes = await asyncio.gather(
        catalog.create(create_request("/a/b/f", ANN)),
        catalog.create(create_request("/a/b/f", BOB)),
        return_exceptions=True,
    )
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["ExistsError", "FileInode"]


async def test_a_create_never_lands_in_a_directory_that_is_deleted_meanwhile() -> None:
    catalog = await new_catalog(MemoryStore(yielding=True))
    await catalog.make_directories(MakeDirectories("/d"))
    created, deleted = await asyncio.gather(
        catalog.create(create_request("/d/f", parent_must_exist=True)),
        catalog.delete(DeletePath("/d")),
        return_exceptions=True,
    )
    # The one that came first made the other one impossible.
    assert {type(created).__name__, type(deleted).__name__} in (
        {"FileInode", "DirectoryNotEmptyError"},
        {"NotFoundError", "Deletion"},
    )


async def test_two_moves_at_once_never_make_a_circle() -> None:
    catalog = await new_catalog(MemoryStore(yielding=True))
    await catalog.make_directories(MakeDirectories("/a/x"))
    await catalog.make_directories(MakeDirectories("/b/y"))
    await asyncio.gather(
        catalog.rename(RenamePath("/a", "/b/y/a")),
        catalog.rename(RenamePath("/b", "/a/x/b")),
        return_exceptions=True,
    )
    assert len(await names(catalog, "/")) == 1


async def test_a_delete_of_one_file_leaves_another_that_has_its_name_by_now(
    catalog: NamedCatalog,
) -> None:
    before = (await catalog.status("/file")).file_id
    await catalog.close_file(CloseFile(before, ANN))
    await catalog.create(create_request("/file", BOB, overwrite=True))
    assert not (await catalog.delete(DeletePath("/file", file_id=before))).existed
    now = (await catalog.status("/file")).file_id
    assert now != before
    assert (await catalog.delete(DeletePath("/file", file_id=now))).existed
