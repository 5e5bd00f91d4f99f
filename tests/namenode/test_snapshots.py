"""Snapshots at one NameNode."""

from __future__ import annotations

import msgspec
import pytest

from paxosblock.api.namenode import MKDIRS, MakeDirectories
from paxosblock.api.snapshot_calls import (
    CREATE_SNAPSHOT,
    DELETE_SNAPSHOT,
    CreateSnapshot,
    DeleteSnapshot,
)
from paxosblock.namenode.kv.interface import Expect, ExpectEmpty
from tests.namenode.scene import new_scene


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
