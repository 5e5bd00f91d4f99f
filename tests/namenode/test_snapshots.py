"""Snapshots at one NameNode."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from paxosblock.api.file_pages import GET_FILE, GetFile
from paxosblock.api.methods import Method
from paxosblock.api.namenode import (
    DELETE,
    FINALIZE_BLOCK,
    GET_BLOCK,
    MKDIRS,
    BlockRequest,
    CloseFile,
    DeletePath,
    FinalizeBlock,
    MakeDirectories,
)
from paxosblock.api.ownership import SET_OWNER, SET_PERMISSION, SetPathOwner, SetPathPermission
from paxosblock.api.snapshot_calls import (
    CREATE_SNAPSHOT,
    DELETE_SNAPSHOT,
    RENAME_SNAPSHOT,
    UNDELETE,
    CreateSnapshot,
    DeleteSnapshot,
    RenameSnapshot,
    Undelete,
)
from paxosblock.errors import ExistsError, NotFoundError, PaxosBlockError, PermissionDeniedError
from paxosblock.namenode.kv.interface import Expect, ExpectEmpty
from paxosblock.net.port.caller import CALLER, Caller
from paxosblock.protocol.types import FIRST_GENERATION, NO_WRITER, BlockId, WriterId
from tests.namenode.scene import ANN, Scene, new_scene


class EditOfBefore(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An edit as versions before counters and snapshots read it."""

    expect: tuple[Expect | ExpectEmpty, ...] = ()
    puts: tuple[tuple[bytes, bytes], ...] = ()
    deletes: tuple[bytes, ...] = ()


async def test_without_a_history_nothing_is_written_for_it() -> None:
    scene = await new_scene("s1")
    before = len(scene.store.payloads)
    await scene.node.housekeeper.keep_history()
    assert len(scene.store.payloads) == before
    assert await scene.node.catalog.keep_history(60_000)
    assert len(scene.store.payloads) == before + 1
    assert not await scene.node.catalog.keep_history(60_000), "nothing has changed since"
    await scene.close()


async def test_what_is_there_cannot_be_undeleted() -> None:
    scene = await new_scene("s1")
    await scene.node.catalog.keep_history(60_000)
    await scene.service.call(MKDIRS, MakeDirectories("/d"))
    for path in ("/d", "/"):
        with pytest.raises(ExistsError):
            await scene.service.call(UNDELETE, Undelete(path))
    await scene.close()


async def test_a_namenode_from_before_snapshots_stops_at_the_first_one() -> None:
    """It would keep nothing of what later entries replace."""
    scene = await new_scene("s1")
    await scene.service.call(MKDIRS, MakeDirectories("/d"))
    msgspec.msgpack.decode(scene.store.payloads[-1], type=EditOfBefore)
    await scene.service.call(CREATE_SNAPSHOT, CreateSnapshot("/d", "s"))
    with pytest.raises(msgspec.ValidationError, match="length"):
        msgspec.msgpack.decode(scene.store.payloads[-1], type=EditOfBefore)
    await scene.service.call(DELETE_SNAPSHOT, DeleteSnapshot("/d", "s"))
    await scene.close()


@contextmanager
def acting(user: str) -> Iterator[None]:
    """Call as a user who is no superuser."""
    before = CALLER.set(Caller.claiming(user, "127.0.0.1", private=True))
    try:
        yield
    finally:
        CALLER.reset(before)


async def written(scene: Scene, path: str) -> BlockId:
    """Write a file of one block with two chunks, and return the block."""
    file = await scene.create(path)
    block = (await scene.add_block(file)).record.block
    ends = FinalizeBlock(block, ANN, FIRST_GENERATION, 2, 20)
    await scene.service.call(FINALIZE_BLOCK, ends)
    await scene.node.catalog.close_file(CloseFile(file, ANN))
    return block


Request = tuple[Method[Any, Any], Any]
NOT_OTHERS: tuple[Request, ...] = (
    (CREATE_SNAPSHOT, CreateSnapshot("/ann", "mine")),
    (RENAME_SNAPSHOT, RenameSnapshot("/ann", "s", "mine")),
    (DELETE_SNAPSHOT, DeleteSnapshot("/ann", "s")),
    (GET_FILE, GetFile("/ann/shown")),
    (GET_FILE, GetFile("/ann/.snapshot/s/hidden")),
)
NOT_THE_OWNERS_EITHER: tuple[Request, ...] = (
    (MKDIRS, MakeDirectories("/ann/.snapshot/s/new")),
    (DELETE, DeletePath("/ann/.snapshot/s/shown")),
    (SET_PERMISSION, SetPathPermission("/ann/.snapshot/s/hidden", 0o644)),
)


async def test_snapshots_are_of_the_owner_and_show_what_the_rights_of_then_let_see() -> None:
    scene = await new_scene()
    call = scene.service.call
    await call(MKDIRS, MakeDirectories("/ann"))
    await call(SET_OWNER, SetPathOwner("/ann", "ann"))
    with acting("ann"):
        shown = await written(scene, "/ann/shown")
        await written(scene, "/ann/hidden")
        await call(SET_PERMISSION, SetPathPermission("/ann/hidden", 0o600))
        await call(CREATE_SNAPSHOT, CreateSnapshot("/ann", "s"))
        await call(SET_PERMISSION, SetPathPermission("/ann/shown", 0o600))
        await call(SET_PERMISSION, SetPathPermission("/ann/hidden", 0o644))
    with acting("bob"):
        for method, request in NOT_OTHERS:
            with pytest.raises(PermissionDeniedError):
                await call(method, request)
        assert (await call(GET_FILE, GetFile("/ann/.snapshot/s/shown"))).blocks
        assert (await call(GET_FILE, GetFile("/ann/hidden"))).blocks
    with acting("ann"):
        for method, request in NOT_THE_OWNERS_EITHER:
            with pytest.raises(PaxosBlockError, match="snapshot"):
                await call(method, request)
        await call(DELETE, DeletePath("/ann/shown"))
    with acting("bob"):
        assert (await call(GET_FILE, GetFile("/ann/.snapshot/s/shown"))).blocks
        for writer in (NO_WRITER, WriterId("claimed")):
            with pytest.raises(NotFoundError, match="its file was deleted"):
                await call(GET_BLOCK, BlockRequest(shown, writer=writer))
    with acting("ann"):
        await call(SET_PERMISSION, SetPathPermission("/ann", 0o700))
    with acting("bob"), pytest.raises(PermissionDeniedError, match=r'access=EXECUTE, inode="/ann"'):
        await call(GET_FILE, GetFile("/ann/.snapshot/s/shown"))
    with acting("ann"):
        await call(RENAME_SNAPSHOT, RenameSnapshot("/ann", "s", "t"))
        await call(DELETE_SNAPSHOT, DeleteSnapshot("/ann", "t"))
    await scene.close()
