"""Looking over the files below a path, a page at a time."""

from __future__ import annotations

import pytest

from paxosblock.api.fsck_call import CheckedFiles, Condition, FsckCursor
from paxosblock.api.namenode import DeletePath, MakeDirectories
from paxosblock.base.paths import NAMES_MAX
from paxosblock.errors import NotFoundError
from paxosblock.namenode.blocks.replication import fsck
from paxosblock.namenode.blocks.replication.fsck import check_slice
from paxosblock.namenode.blocks.replication.needs import (
    Need,
    StoragePlace,
    StorageState,
    StorageView,
    assess,
)
from paxosblock.namenode.catalog.members import Demand
from paxosblock.protocol.types import StorageId
from tests.namenode.scene import MEMBERS, NamedCatalog, closed_file, file_with_blocks, new_catalog

PLACES = {storage: StoragePlace(f"dn-{storage}") for storage in MEMBERS}


def need(demand: Demand, holders: tuple[StorageId, ...] = MEMBERS) -> Need:
    """All members are in service, and the holders have reported the block."""
    return assess(demand.entry.record, demand.wanted, holders, StorageView(PLACES))


async def pages(catalog: NamedCatalog, path: str, at_once: int = fsck.SLICE) -> list[CheckedFiles]:
    """All pages of what is below a path."""
    found: list[CheckedFiles] = []
    cursor: FsckCursor | None = None
    while cursor is not None or not found:
        found.append(CheckedFiles())
        cursor = check_slice(await catalog.view(), path, cursor, need, found[-1], at_once=at_once)
    return found


async def tree_of_all_kinds() -> NamedCatalog:
    """Directories that end, begin and hold others; files of no block, of one, and of many."""
    catalog = await new_catalog()
    for path in ("/a", "/b/c/d", "/b/e", "/z"):
        await catalog.make_directories(MakeDirectories(path))
    for path, lengths in {
        "/a.txt": (1,),
        "/b/0": (),
        "/b/c/d/many": (1, 2, 1, 2, 1),
        "/b/c/one": (2,),
        "/b/x": (1, 1),
        "/z/last": (2,),
    }.items():
        await closed_file(catalog, path, *lengths)
    await file_with_blocks(catalog, "/b/open", 1)
    return catalog


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
async def test_pages_of_any_size_show_everything_once(size: int) -> None:
    found = await pages(await tree_of_all_kinds(), "/", size)
    assert sum(page.files for page in found) == 7
    assert sum(page.directories for page in found) == 7  # with the root
    assert sum(page.blocks for page in found) == 11
    assert sum(page.size_bytes for page in found) == 150
    findings = [finding for page in found for finding in page.findings]
    assert [(each.path, each.condition) for each in findings] == [("/b/open", Condition.OPEN)]
    assert max(page.work for page in found) <= 2 * size
    assert len(found) == 1 or size < 100


@pytest.mark.parametrize(
    ("path", "files", "directories"),
    [("/b", 5, 4), ("/b/c", 2, 2), ("/b/x", 1, 0), ("/a", 0, 1), ("/z", 1, 1)],
)
async def test_only_what_is_below_the_path_is_looked_at(
    path: str, files: int, directories: int
) -> None:
    found = await pages(await tree_of_all_kinds(), path, 1)
    assert sum(page.files for page in found) == files
    assert sum(page.directories for page in found) == directories


@pytest.mark.parametrize("gone", ["/b/c/d/many", "/b/c/d", "/b/c", "/b/c/one", "/b/x"])
@pytest.mark.parametrize("size", [1, 2, 3])
async def test_what_is_deleted_between_two_pages_hides_nothing_else(gone: str, size: int) -> None:
    """Wherever the look stands when it happens."""
    total = len(await pages(await tree_of_all_kinds(), "/", size))
    for after in range(1, total):
        catalog, cursor, looked = await tree_of_all_kinds(), None, CheckedFiles()
        seen: list[str] = []

        def look(demand: Demand) -> Need:
            seen.append(str(demand.entry.file))  # noqa: B023 - used in this round only
            return need(demand)

        names = {str((await catalog.status(path)).file_id): path for path in FILES}
        for page in range(1000):
            cursor = check_slice(await catalog.view(), "/", cursor, look, looked, at_once=size)
            if cursor is None:
                break
            if page + 1 == after:
                await catalog.delete(DeletePath(gone, recursive=True))
        stayed = {path for path in FILES if path != gone and not path.startswith(gone + "/")}
        assert stayed <= {names[file] for file in seen}
        assert cursor is None


FILES = ("/a.txt", "/b/c/d/many", "/b/c/one", "/b/open", "/b/x", "/z/last")
"""Those that have blocks."""


async def test_directories_may_be_as_deep_as_paths() -> None:
    catalog = await new_catalog()
    await catalog.make_directories(MakeDirectories("/d" * NAMES_MAX))
    found = await pages(catalog, "/", 400)
    assert sum(page.directories for page in found) == NAMES_MAX + 1


async def test_a_path_that_is_not_there_is_one_line() -> None:
    catalog = await new_catalog()
    with pytest.raises(NotFoundError, match=r"^'/none': no such file or directory$"):
        check_slice(await catalog.view(), "/none", None, need, CheckedFiles())


TWO = MEMBERS[:2]
LOST = {
    storage: StoragePlace(f"dn-{storage}", StorageState.LOST, live=False) for storage in MEMBERS
}
CROWDED = {storage: StoragePlace("dn") for storage in MEMBERS}


@pytest.mark.parametrize(
    ("wanted", "holders", "view", "damaged", "conditions"),
    [
        (3, MEMBERS, StorageView(PLACES), (), []),
        (3, TWO, StorageView(PLACES), (), [Condition.UNDER_REPLICATED]),
        (2, MEMBERS, StorageView(PLACES), (), [Condition.OVER_REPLICATED]),
        (3, MEMBERS, StorageView(LOST), (), [Condition.MISSING]),
        (3, MEMBERS, StorageView(PLACES), MEMBERS, [Condition.CORRUPT]),
        (3, MEMBERS, StorageView(PLACES), TWO, [Condition.UNDER_REPLICATED]),
        (3, MEMBERS, StorageView(CROWDED), (), [Condition.MIS_REPLICATED]),
        (3, MEMBERS, StorageView(PLACES, racks=2), (), [Condition.MIS_REPLICATED]),
    ],
)
async def test_what_is_wrong_with_a_block_is_told(
    wanted: int,
    holders: tuple[StorageId, ...],
    view: StorageView,
    damaged: tuple[StorageId, ...],
    conditions: list[Condition],
) -> None:
    catalog, looked = await new_catalog(), CheckedFiles()
    await closed_file(catalog, "/f", 2)

    def judge(demand: Demand) -> Need:
        assert demand.wanted == 3
        return assess(demand.entry.record, wanted, holders, view, damaged)

    check_slice(await catalog.view(), "/", None, judge, looked)
    assert [finding.condition for finding in looked.findings] == conditions
    assert all(finding.path == "/f" and finding.size_bytes == 20 for finding in looked.findings)


def test_a_block_is_not_called_missing_while_other_replicas_of_it_are_known() -> None:
    other = (StorageId("s9"),)
    unclear = Need(wanted=3, missing=True, elsewhere=other)
    assert tuple(fsck.conditions(unclear)) == (Condition.UNCLEAR,)
    beside = Need(wanted=3, missing=True, damaged=MEMBERS, elsewhere=other)
    assert tuple(fsck.conditions(beside)) == (Condition.UNCLEAR,), "it may be sound there"
    damaged = Need(wanted=3, missing=True, damaged=MEMBERS)
    assert tuple(fsck.conditions(damaged)) == (Condition.CORRUPT,)
    assert tuple(fsck.conditions(Need(wanted=3, missing=True))) == (Condition.MISSING,)
    assert not Condition.UNCLEAR.lost
