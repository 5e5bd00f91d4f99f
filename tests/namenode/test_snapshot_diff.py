"""The differences between two states of a directory, at one NameNode."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from paxosblock.api.namenode import (
    DELETE,
    MKDIRS,
    RENAME,
    DeletePath,
    MakeDirectories,
    RenamePath,
)
from paxosblock.api.ownership import SET_PERMISSION, SetPathPermission
from paxosblock.api.snapshot_calls import (
    CREATE_SNAPSHOT,
    DIFF_SNAPSHOTS,
    CreateSnapshot,
    DiffSnapshots,
)
from paxosblock.errors import InvalidRequestError, NotFoundError
from paxosblock.namenode.catalog import snapshot_diff
from tests.namenode.scene import Scene, new_scene

NAMES = 30


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    made = await new_scene("s1")
    yield made
    await made.close()


async def make(scene: Scene, *paths: str) -> None:
    for path in paths:
        await scene.service.call(MKDIRS, MakeDirectories(path))


async def rename(scene: Scene, source: str, target: str) -> None:
    await scene.service.call(RENAME, RenamePath(source, target))


async def delete(scene: Scene, path: str) -> None:
    await scene.service.call(DELETE, DeletePath(path, recursive=True))


async def take(scene: Scene, name: str) -> None:
    await scene.service.call(CREATE_SNAPSHOT, CreateSnapshot("/d", name))


async def diff(scene: Scene, before: str, later: str) -> list[str]:
    found: list[str] = []
    moment, after = "", ""
    while True:
        part = await scene.service.call(
            DIFF_SNAPSHOTS, DiffSnapshots("/d", before, later, moment, after)
        )
        found += [
            " ".join((one.kind.value[0], one.source, one.target)).rstrip()
            for one in part.differences
        ]
        moment, after = part.moment, part.after
        if not after:
            return found


@pytest.mark.parametrize("slice_names", [1, 200])
async def test_each_change_is_told_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, slice_names: int
) -> None:
    monkeypatch.setattr(snapshot_diff, "SLICE", slice_names)
    await make(scene, "/d/same/x", "/d/gone/inside", "/d/gone/saved", "/d/moved/deep", "/d/left")
    await make(scene, "/d/rights", "/d/twice", "/elsewhere/came")
    await take(scene, "s1")
    assert await diff(scene, "s1", "") == []
    await make(scene, "/d/new/below", "/d/moved/deep/new")
    await rename(scene, "/d/gone/saved", "/d/saved")
    await delete(scene, "/d/gone")
    await rename(scene, "/d/moved", "/d/new/moved")
    await rename(scene, "/d/left", "/elsewhere/left")
    await rename(scene, "/elsewhere/came", "/d/came")
    await scene.service.call(SET_PERMISSION, SetPathPermission("/d/rights", 0o700))
    await delete(scene, "/d/twice")
    await make(scene, "/d/twice", "/d/same/for_a_while")
    await delete(scene, "/d/same/for_a_while")
    await take(scene, "s2")
    await make(scene, "/d/later")
    told = [
        "M",
        "C came",
        "C new",
        "C saved",
        "C twice",
        "D gone",
        "D left",
        "R moved new/moved",
        "D twice",
        "M moved/deep",
        "C moved/deep/new",
        "M rights",
    ]
    assert await diff(scene, "s1", "s2") == told
    assert await diff(scene, "s2", "") == ["M", "C later"]
    assert await diff(scene, "", "s2") == ["M", "D later"]
    inverted = {"C": "D", "D": "C", "R": "R", "M": "M"}
    back = [" ".join((inverted[one[0]], *reversed(one.split()[1:]))) for one in told]
    assert await diff(scene, "s2", "s1") == back


async def test_a_large_directory_is_compared_in_slices(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_diff, "SLICE", 7)
    await make(scene, *(f"/d/{number:03}" for number in range(NAMES)))
    await take(scene, "s")
    await delete(scene, f"/d/{NAMES - 1:03}")
    assert await diff(scene, "s", "") == ["M", f"D {NAMES - 1:03}"]


async def test_what_cannot_be_compared_is_refused(scene: Scene) -> None:
    await make(scene, "/d/a", "/e")
    await take(scene, "s")
    with pytest.raises(NotFoundError, match="Cannot find the snapshot of directory /d"):
        await diff(scene, "s", "none")
    with pytest.raises(NotFoundError):
        await scene.service.call(DIFF_SNAPSHOTS, DiffSnapshots("/none", "s", ""))
    for after in ("x", '["/e"]', '["/d","CREATE","a"]'):
        with pytest.raises(InvalidRequestError, match="go on"):
            await scene.service.call(DIFF_SNAPSHOTS, DiffSnapshots("/d", "s", "", after=after))
