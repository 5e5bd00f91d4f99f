"""Copies of files and directories: several at once, told in order, each whole or not there."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from paxosblock import CopyAction, CopyStep, InvalidRequestError, Sync
from paxosblock.base.checksum import Buffer
from paxosblock.client.copies.copy_run import CopyRun
from paxosblock.client.copies.copy_steps import AT_ONCE, CopyOptions, CopySummary
from paxosblock.client.copies.local_place import PIECE_BYTES, LocalPlace, LocalSource
from paxosblock.client.copies.places import COPYING, draft_of
from paxosblock.errors import ExistsError, IsDirectoryError, NotFoundError
from tests.waiting import PATIENCE_S, wait_until_async

SYNC = CopyOptions(sync=Sync())
MIRROR = CopyOptions(sync=Sync(delete=True))


class Copied:
    """Copies from `a` to `b`, both in one folder of this machine, and what was told of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told: list[CopyStep] = []

    async def __call__(self, how: CopyOptions = SYNC, *, tells: bool = True) -> CopySummary:
        told = self.told.append if tells else None
        run = CopyRun(LocalPlace(), LocalPlace(), how, told)
        return await run.run(str(self.folder / "a"), str(self.folder / "b"))

    def make(self, files: dict[str, str]) -> None:
        """Make files by their paths, and directories, which end with `/`."""
        for name, content in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if name.endswith("/"):
                path.mkdir(exist_ok=True)
            else:
                path.write_text(content)

    def there(self, top: str = "b") -> dict[str, str]:
        """Return what is below `top`, as `make` takes it."""
        base = self.folder / top
        return {
            f"{each.relative_to(base)}/" if each.is_dir() else str(each.relative_to(base)): (
                "" if each.is_dir() else each.read_text()
            )
            for each in base.rglob("*")
        }

    def actions(self) -> dict[str, str]:
        """Return what was told of each target, but for what is as it was."""
        kept = (CopyAction.SAME, CopyAction.KEPT)
        return {
            os.path.relpath(step.path, self.folder): str(step.error or step.action.value)
            for step in self.told
            if step.action not in kept or step.error
        }


@pytest.fixture
def copied(tmp_path: Path) -> Copied:
    return Copied(tmp_path)


TREE = {"a/x": "x", "a/empty/": "", "a/d/y": "y", "a/d/z": "", "a/ü\n 'q'*": "odd"}


async def test_a_second_run_copies_nothing(copied: Copied) -> None:
    copied.make(TREE)
    assert await copied() == CopySummary(copied=4, size=5)
    assert copied.there() == copied.there("a")
    before = {each: each.stat() for each in (copied.folder / "b").rglob("*")}
    copied.told.clear()
    assert await copied() == CopySummary(same=4)
    assert copied.actions() == {}
    assert {each: each.stat() for each in (copied.folder / "b").rglob("*")} == before


async def test_what_differs_in_length_or_bytes_is_copied_and_nothing_else_goes(
    copied: Copied,
) -> None:
    copied.make({"a/same": "1", "a/longer": "22", "a/other": "3", "a/new": "4"})
    copied.make({"b/same": "1", "b/longer": "2", "b/other": "0", "b/extra": "5", "b/more/": ""})
    assert await copied() == CopySummary(copied=3, same=1, size=4)
    assert copied.actions() == dict.fromkeys(("b/longer", "b/other", "b/new"), "copied")
    assert copied.there() == {**copied.there("a"), "extra": "5", "more/": ""}


async def test_a_dry_run_tells_the_same_and_changes_nothing(copied: Copied) -> None:
    copied.make({**TREE, "b/x": "other", "b/extra/deep": "5", "b/d": "a file"})
    before = copied.there()
    dry = await copied(CopyOptions(sync=Sync(delete=True, dry_run=True)))
    planned = copied.actions()
    assert copied.there() == before
    copied.told.clear()
    assert (await copied(MIRROR), copied.actions()) == (dry, planned)
    assert copied.there() == copied.there("a")


async def test_delete_replaces_files_by_directories_and_the_other_way(copied: Copied) -> None:
    copied.make({"a/file": "1", "a/folder/in": "2", "b/file/deep/er": "3", "b/folder": "4"})
    assert (await copied()).failed == 2
    errors = [type(step.error) for step in copied.told if step.error]
    assert sorted(errors, key=repr) == [ExistsError, IsDirectoryError]
    assert copied.there()["file/deep/er"] == "3"
    assert (await copied(MIRROR)).failed == 0
    assert copied.there() == copied.there("a")


@pytest.mark.parametrize("names", [("a", "b/in"), ("a/in", "b")])
async def test_not_even_delete_replaces_what_was_named_itself(
    copied: Copied, names: tuple[str, str]
) -> None:
    copied.make(dict.fromkeys(names, "kept"))
    with pytest.raises((ExistsError, IsDirectoryError)):
        await copied(MIRROR, tells=False)
    assert [(copied.folder / name).read_text() for name in names] == ["kept", "kept"]


async def test_a_run_in_which_something_failed_deletes_nothing(copied: Copied) -> None:
    copied.make({"a/good": "1", "b/extra": "2"})
    (copied.folder / "a" / "broken").symlink_to("nowhere")
    assert await copied(MIRROR) == CopySummary(copied=1, failed=1, size=1)
    assert copied.there() == {"good": "1", "extra": "2"}
    (copied.folder / "a" / "broken").unlink()
    assert (await copied(MIRROR)).deleted == 1
    assert copied.there() == {"good": "1"}


async def test_delete_takes_a_link_and_not_what_it_leads_to(copied: Copied) -> None:
    copied.make({"a/good": "1", "b/good": "1", "outside/kept": "2"})
    (copied.folder / "b" / "link").symlink_to(copied.folder / "outside")
    assert (await copied(MIRROR)).deleted == 1
    assert copied.there() == {"good": "1"}
    assert copied.there("outside") == {"kept": "2"}


async def test_what_is_on_its_way_is_neither_copied_nor_deleted(copied: Copied) -> None:
    copied.make({f"a/x{COPYING}": "theirs", "a/x": "whole", f"b/y{COPYING}": "begun"})
    await copied(MIRROR)
    assert copied.there() == {"x": "whole", f"y{COPYING}": "begun"}


async def test_a_file_that_is_changed_meanwhile_is_not_copied(
    copied: Copied, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied.make({"a/x": "before", "b/x": "old"})

    async def pieces(source: LocalSource) -> AsyncIterator[Buffer]:
        yield await source.read(PIECE_BYTES)
        if (copied.folder / "a" / "x").read_text() == "before":
            copied.make({"a/x": "after it grew"})

    monkeypatch.setattr(LocalSource, "pieces", pieces)
    with pytest.raises(InvalidRequestError, match="was changed while it was copied"):
        await copied(tells=False)
    assert copied.there() == {"x": "old"}
    await copied()
    assert copied.there() == {"x": "after it grew"}


async def test_by_time_files_are_not_read(copied: Copied) -> None:
    copied.make({"a/x": "same", "b/x": "diff"})
    for name in "ab":
        os.utime(copied.folder / name / "x", (1_000_000, 1_000_000.25))
    by_time = CopyOptions(sync=Sync(by_time=True), preserve="t")
    assert await copied(by_time) == CopySummary(same=1)
    os.utime(copied.folder / "b" / "x", (1_000_000, 1_000_001))
    assert (await copied(by_time)).copied == 1
    assert (copied.folder / "b" / "x").stat().st_mtime == 1_000_000.25
    assert (await copied(by_time)).same == 1


async def test_files_are_copied_at_once_and_told_in_their_order(
    copied: Copied, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{number:02}" for number in range(2 * AT_ONCE)]
    copied.make({f"a/{name}": name for name in names})
    together = asyncio.Barrier(AT_ONCE)

    async def pieces(source: LocalSource) -> AsyncIterator[Buffer]:
        async with asyncio.timeout(PATIENCE_S):
            await together.wait()
        if source.found.path.endswith("02"):
            raise NotFoundError("'02': is gone", path="02")
        yield await source.read(PIECE_BYTES)

    monkeypatch.setattr(LocalSource, "pieces", pieces)
    assert await copied(CopyOptions()) == CopySummary(copied=len(names) - 1, failed=1, size=30)
    files = [step for step in copied.told if step.action is CopyAction.COPIED]
    assert [os.path.basename(step.path) for step in files] == names
    assert [step.path[-2:] for step in files if step.error] == ["02"]
    assert sorted(copied.there()) == [name for name in names if name != "02"]


async def test_a_copy_that_is_cancelled_leaves_whole_files_only(
    copied: Copied, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied.make({f"a/{name}": name for name in "xyz"})
    begun = asyncio.Semaphore(0)

    async def pieces(source: LocalSource) -> AsyncIterator[Buffer]:
        yield await source.read(PIECE_BYTES)
        if not source.found.path.endswith("x"):
            begun.release()
            await asyncio.Event().wait()

    monkeypatch.setattr(LocalSource, "pieces", pieces)
    running = asyncio.create_task(copied())
    async with asyncio.timeout(PATIENCE_S):
        for _ in "yz":
            await begun.acquire()
        await wait_until_async((copied.folder / "b" / "x").exists)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert copied.there() == {"x": "x"}


async def test_without_who_is_told_the_first_error_comes_when_all_is_done(copied: Copied) -> None:
    copied.make({"a/x": "new", "a/y": "y", "b/x": "old"})
    with pytest.raises(ExistsError, match="overwrite=True"):
        await copied(CopyOptions(), tells=False)
    assert copied.there() == {"x": "old", "y": "y"}


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink(os.path.dirname(path), path)])
async def test_what_is_no_file_is_told_and_does_not_hold_up_the_rest(
    copied: Copied, make: Callable[[str], None]
) -> None:
    copied.make({"a/z": "z"})
    make(str(copied.folder / "a" / "odd"))
    summary = await copied()
    assert (summary.copied, summary.failed) == (1, 1)
    assert copied.there() == {"z": "z"}


def test_the_name_of_a_draft_is_never_too_long() -> None:
    assert draft_of("/d/a") == f"/d/a{COPYING}"
    longest = "/d/" + "ü" * 127
    assert len(os.fsencode(draft_of(longest).removeprefix("/d/"))) <= 255
    assert draft_of(longest).endswith(COPYING)
    assert draft_of(longest) != draft_of(longest[:-1] + "u")
