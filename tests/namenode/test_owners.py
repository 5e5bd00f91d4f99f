"""`chmod` and `chown`: who owns a file or directory, and what its bits say."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from paxosblock.api.methods import Once
from paxosblock.api.namenode import (
    CLOSE_FILE,
    MKDIRS,
    STAT,
    CloseFile,
    FileStatus,
    MakeDirectories,
    PathRequest,
)
from paxosblock.api.ownership import (
    SET_OWNER,
    SET_PERMISSION,
    SET_TIMES,
    SetPathOwner,
    SetPathPermission,
    SetPathTimes,
)
from paxosblock.errors import InvalidRequestError, NotFoundError, SafeModeError
from tests.namenode.scene import ANN, Scene


async def stat(scene: Scene, path: str) -> FileStatus:
    return await scene.service.call(STAT, PathRequest(path))


@pytest.mark.parametrize("path", ["/d", "/f", "/"])
async def test_bits_and_owners_change_and_nothing_else(scene: Scene, path: str) -> None:
    await scene.service.call(MKDIRS, MakeDirectories("/d", ttl_s=100))
    await scene.create("/f")
    before = await stat(scene, path)
    answer = await scene.service.call(SET_PERMISSION, SetPathPermission(path, 0o1750))
    assert answer == replace(before, permission=0o1750) == await stat(scene, path)
    answer = await scene.service.call(SET_OWNER, SetPathOwner(path, "ann", "staff"))
    assert answer == replace(before, permission=0o1750, owner="ann", group="staff")
    answer = await scene.service.call(SET_OWNER, SetPathOwner(path, "bob"))
    assert (answer.owner, answer.group) == ("bob", "staff")
    answer = await scene.service.call(SET_OWNER, SetPathOwner(path, group="dev"))
    assert answer == await stat(scene, path)
    assert (answer.owner, answer.group) == ("bob", "dev")


async def test_it_is_one_entry_of_the_log_and_none_when_nothing_changes(scene: Scene) -> None:
    await scene.create("/f")
    before = scene.store.view().revision
    for _ in range(2):
        await scene.service.call(SET_PERMISSION, SetPathPermission("/f", 0o600))
        assert scene.store.view().revision == before + 1
    for _ in range(2):
        await scene.service.call(SET_OWNER, SetPathOwner("/f", "ann", "staff"))
        assert scene.store.view().revision == before + 2


async def test_a_copy_of_a_request_gets_the_first_answer_and_changes_nothing(scene: Scene) -> None:
    await scene.create("/f")
    request = SetPathPermission("/f", 0o600, Once("a client's session", 1))
    first = await scene.service.call(SET_PERMISSION, request)
    await scene.service.call(SET_PERMISSION, SetPathPermission("/f", 0o755))
    assert await scene.service.call(SET_PERMISSION, request) == first
    assert (await stat(scene, "/f")).permission == 0o755
    chown = SetPathOwner("/f", "ann", once=Once("a client's session", 2))
    second = await scene.service.call(SET_OWNER, chown)
    await scene.service.call(SET_OWNER, SetPathOwner("/f", "bob"))
    assert await scene.service.call(SET_OWNER, chown) == second
    assert (await stat(scene, "/f")).owner == "bob"


async def test_the_writer_of_an_open_file_goes_on(scene: Scene) -> None:
    file = await scene.create("/f")
    await scene.service.call(SET_PERMISSION, SetPathPermission("/f", 0))
    closed = await scene.service.call(CLOSE_FILE, CloseFile(file, ANN))
    assert (closed.open, closed.permission) == (False, 0)


async def test_what_is_not_there_is_not_changed(scene: Scene) -> None:
    with pytest.raises(NotFoundError, match="'/none': no such file or directory"):
        await scene.service.call(SET_PERMISSION, SetPathPermission("/none", 0o600))
    with pytest.raises(NotFoundError, match="'/none': no such file or directory"):
        await scene.service.call(SET_OWNER, SetPathOwner("/none", "ann"))


@pytest.mark.parametrize(
    ("owner", "group", "why"),
    [
        ("", "", "neither an owner nor a group"),
        ("a:b", "", "'a:b' is no owner or group"),
        ("", " staff", "' staff' is no owner or group"),
        ("x" * 256, "", "is no owner or group"),
        ("a\nb", "", r"'a\\nb' is no owner or group"),
    ],
)
async def test_a_name_that_no_user_or_group_has_changes_nothing(
    scene: Scene, owner: str, group: str, why: str
) -> None:
    await scene.create("/f")
    before = await stat(scene, "/f")
    with pytest.raises(InvalidRequestError, match=why):
        await scene.service.call(SET_OWNER, SetPathOwner("/f", owner, group))
    assert await stat(scene, "/f") == before


@pytest.mark.parametrize("permission", [-1, 0o2000, 0o7777])
async def test_bits_that_no_file_has_change_nothing(scene: Scene, permission: int) -> None:
    await scene.create("/f")
    with pytest.raises(InvalidRequestError, match=r"0 to 1777 \(octal\)"):
        await scene.service.call(SET_PERMISSION, SetPathPermission("/f", permission))
    assert (await stat(scene, "/f")).permission == 0o644


async def test_nothing_changes_in_safe_mode(scene: Scene) -> None:
    await scene.create("/f")
    await scene.node.catalog.enter_safe_mode()
    with pytest.raises(SafeModeError):
        await scene.service.call(SET_PERMISSION, SetPathPermission("/f", 0o600))
    assert (await stat(scene, "/f")).permission == 0o644


@pytest.mark.parametrize("path", ["/d", "/f", "/"])
async def test_the_time_of_a_change_can_be_set_and_nothing_else_changes(
    scene: Scene, path: str
) -> None:
    await scene.service.call(MKDIRS, MakeDirectories("/d"))
    await scene.create("/f")
    before = await stat(scene, path)
    revision = scene.store.view().revision
    for _ in range(2):
        answer = await scene.service.call(SET_TIMES, SetPathTimes(path, 1234.5678))
        assert answer == replace(before, modified_s=1234.568) == await stat(scene, path)
        assert scene.store.view().revision == revision + 1
    assert (await scene.service.call(SET_TIMES, SetPathTimes(path, 0))).modified_s == 0


@pytest.mark.parametrize("time_s", [-1.0, float("nan"), float("inf"), 253_402_300_800.0])
async def test_a_time_that_no_calendar_has_is_refused(scene: Scene, time_s: float) -> None:
    await scene.create("/f")
    before = await stat(scene, "/f")
    with pytest.raises(InvalidRequestError, match="1970 to 9999"):
        await scene.service.call(SET_TIMES, SetPathTimes("/f", time_s))
    assert await stat(scene, "/f") == before


async def test_the_time_of_what_is_not_there_is_not_set(scene: Scene) -> None:
    with pytest.raises(NotFoundError, match="'/none': no such file or directory"):
        await scene.service.call(SET_TIMES, SetPathTimes("/none", 1))
