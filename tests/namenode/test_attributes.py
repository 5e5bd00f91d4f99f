"""Attributes: named values that a file or directory carries."""

from __future__ import annotations

import pytest

from paxosblock.api.methods import Once
from paxosblock.api.namenode import (
    MKDIRS,
    RENAME,
    STAT,
    TRANSACT,
    MakeDirectories,
    PathRequest,
    RenamePath,
    Transact,
)
from paxosblock.api.path_attributes import (
    ATTRIBUTES_MAX,
    GET_ATTRIBUTES,
    SET_ATTRIBUTES,
    VALUE_BYTES_MAX,
    Attributes,
    GetAttributes,
    SetPathAttributes,
)
from paxosblock.api.transaction import AssertAbsent, Marker, SetAttributes
from paxosblock.errors import (
    ExistsError,
    InvalidRequestError,
    NotFoundError,
    PermissionDeniedError,
    SafeModeError,
)
from paxosblock.namenode.catalog import namespace
from paxosblock.namenode.catalog.draft import Draft
from paxosblock.net.port.caller import CALLER, Caller
from paxosblock.protocol.types import Durability
from tests.namenode.scene import Scene

COLOUR = "user.colour"


async def give(scene: Scene, path: str, attributes: dict[str, bytes | None]) -> None:
    await scene.service.call(SET_ATTRIBUTES, SetPathAttributes(path, attributes))


async def attributes_of(scene: Scene, path: str, *names: str) -> Attributes:
    return (await scene.service.call(GET_ATTRIBUTES, GetAttributes(path, names))).attributes


@pytest.mark.parametrize("path", ["/d", "/f", "/"])
async def test_they_are_set_replaced_and_removed_one_by_one(scene: Scene, path: str) -> None:
    await scene.service.call(MKDIRS, MakeDirectories("/d"))
    await scene.create("/f")
    before = await scene.service.call(STAT, PathRequest(path))
    await give(scene, path, {COLOUR: b"red", "trusted.a": b"", "user.größe": b"\0\xff"})
    await give(scene, path, {COLOUR: b"blue", "trusted.a": None, "user.none": None})
    assert await attributes_of(scene, path) == {COLOUR: b"blue", "user.größe": b"\0\xff"}
    assert await attributes_of(scene, path, COLOUR, "user.none") == {COLOUR: b"blue"}
    found = await scene.service.call(GET_ATTRIBUTES, GetAttributes(path))
    assert found.status == before == await scene.service.call(STAT, PathRequest(path))


async def test_they_change_only_if_they_exist_or_do_not_as_asked(scene: Scene) -> None:
    await scene.create("/f")
    await give(scene, "/f", {COLOUR: b"red"})

    async def change(exist: bool, **attributes: bytes | None) -> None:
        wanted = {f"user.{name}": value for name, value in attributes.items()}
        await scene.service.call(SET_ATTRIBUTES, SetPathAttributes("/f", wanted, exist=exist))

    with pytest.raises(ExistsError, match=r"^'/f' has an attribute 'user.colour' already$"):
        await change(False, size=b"1", colour=b"blue")
    with pytest.raises(NotFoundError, match=r"^'/f' has no attribute 'user.size'$"):
        await change(True, colour=b"blue", size=b"1")
    with pytest.raises(NotFoundError):
        await change(True, size=None)
    assert await attributes_of(scene, "/f") == {COLOUR: b"red"}
    await change(False, size=b"1")
    await change(True, colour=None, size=b"2")
    assert await attributes_of(scene, "/f") == {"user.size": b"2"}


async def test_what_changes_nothing_writes_nothing_to_the_log(scene: Scene) -> None:
    await scene.create("/f")
    before = scene.store.view().revision
    for _ in range(2):
        await give(scene, "/f", {COLOUR: b"red"})
        assert scene.store.view().revision == before + 1
    await give(scene, "/f", {"user.none": None})
    assert scene.store.view().revision == before + 1


async def test_they_move_with_the_file_and_are_not_those_of_the_next_one(scene: Scene) -> None:
    await scene.service.call(MKDIRS, MakeDirectories("/a"))
    await give(scene, "/a", {COLOUR: b"red"})
    await scene.service.call(RENAME, RenamePath("/a", "/b"))
    await scene.service.call(MKDIRS, MakeDirectories("/a"))
    assert await attributes_of(scene, "/b") == {COLOUR: b"red"}
    assert await attributes_of(scene, "/a") == {}


async def test_a_transaction_gives_a_new_file_its_attributes_or_makes_none(scene: Scene) -> None:
    def wanted(*operations: AssertAbsent | Marker | SetAttributes) -> Transact:
        return Transact(operations, 3, 1 << 20, Durability.DISK)

    await scene.service.call(
        TRANSACT, wanted(AssertAbsent("/f"), Marker("/f"), SetAttributes("/f", {COLOUR: b"red"}))
    )
    assert await attributes_of(scene, "/f") == {COLOUR: b"red"}
    with pytest.raises(ExistsError):
        await scene.service.call(
            TRANSACT, wanted(SetAttributes("/f", {COLOUR: b"blue"}), AssertAbsent("/f"))
        )
    assert await attributes_of(scene, "/f") == {COLOUR: b"red"}
    with pytest.raises(InvalidRequestError, match="no name of an attribute"):
        await scene.service.call(TRANSACT, wanted(SetAttributes("/f", {"colour": b"blue"})))


async def test_a_copy_of_a_request_changes_nothing(scene: Scene) -> None:
    await scene.create("/f")
    request = SetPathAttributes("/f", {COLOUR: b"red"}, Once("a client's session", 1))
    first = await scene.service.call(SET_ATTRIBUTES, request)
    await give(scene, "/f", {COLOUR: b"blue"})
    assert await scene.service.call(SET_ATTRIBUTES, request) == first
    assert await attributes_of(scene, "/f") == {COLOUR: b"blue"}


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({}, "no attribute is named"),
        ({"colour": b""}, "no name of an attribute"),
        ({"user.": b""}, "no name of an attribute"),
        ({"system.acl": b""}, "no name of an attribute"),
        ({"user.a\0": b""}, "no name of an attribute"),
        ({"user.a\nb": b""}, "cannot be shown"),
        ({"user.\udcff": b""}, "cannot be shown"),
        ({"user." + "n" * 251: b""}, "has 256 bytes: at most 255"),
        ({"user.a": bytes(VALUE_BYTES_MAX)}, "the total size is 16390"),
        ({f"user.{number}": b"" for number in range(ATTRIBUTES_MAX + 1)}, "exceed limit of 32"),
        ({f"user.{number}": bytes(16_000) for number in range(5)}, "80030 bytes of attributes"),
    ],
)
async def test_what_is_too_much_or_called_otherwise_is_refused_in_one_line(
    scene: Scene, attributes: dict[str, bytes | None], reason: str
) -> None:
    await scene.create("/f")
    with pytest.raises(InvalidRequestError, match=reason) as error:
        await give(scene, "/f", attributes)
    assert "\n" not in str(error.value)
    assert await attributes_of(scene, "/f") == {}


async def test_nothing_is_there_or_names_are_not_to_change(scene: Scene) -> None:
    with pytest.raises(NotFoundError):
        await give(scene, "/none", {COLOUR: b"red"})
    with pytest.raises(NotFoundError):
        await attributes_of(scene, "/none")
    await scene.create("/f")
    draft = Draft(scene.store.view())
    namespace.enter_safe_mode(draft, 1)
    await scene.store.commit(draft.to_edit())
    with pytest.raises(SafeModeError):
        await give(scene, "/f", {COLOUR: b"red"})


async def test_who_may_not_write_sets_none_and_trusted_ones_are_of_superusers(scene: Scene) -> None:
    await scene.create("/f")
    await give(scene, "/f", {COLOUR: b"red", "trusted.a": b"1"})
    before = CALLER.set(Caller.claiming("eve", "10.0.0.7"))
    try:
        with pytest.raises(PermissionDeniedError, match=r'access=WRITE, inode="/f"'):
            await give(scene, "/f", {COLOUR: b"blue"})
        assert await attributes_of(scene, "/f") == {COLOUR: b"red"}
        with pytest.raises(PermissionDeniedError, match="Superuser"):
            await attributes_of(scene, "/f", "trusted.a")
    finally:
        CALLER.reset(before)
    assert await attributes_of(scene, "/f", "trusted.a") == {"trusted.a": b"1"}
