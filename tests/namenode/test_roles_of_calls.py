"""A DataNode is the one that its certificate names: others neither register nor report for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from paxosblock.api.methods import Method
from paxosblock.api.reports import (
    ALL_BLOCKS,
    BLOCK_REPORT,
    HEARTBEAT,
    REGISTER,
    BlockReport,
    Heartbeat,
    Register,
    StorageReport,
)
from paxosblock.config import NameNodeConfig
from paxosblock.errors import AccessDeniedError
from paxosblock.namenode.calls import Service
from paxosblock.net.port.caller import CALLER, Caller, CallerRole
from paxosblock.net.port.node_roles import UNPROVEN, Roles
from paxosblock.protocol.types import StorageId
from tests.namenode.scene import MEMBERS, Scene, new_scene

ROOM = StorageReport(MEMBERS[0], 1 << 40, 1 << 40, 0)
STOLEN = Register("dn-s1", "stranger:1", "run-9", (ROOM,))
CALLS: list[tuple[Method[Any, Any], Any]] = [
    (BLOCK_REPORT, BlockReport("dn-s1", "run-1", MEMBERS[0], 99, ALL_BLOCKS, ())),
    (HEARTBEAT, Heartbeat("dn-s1", "run-1", (ROOM,), 0)),
    (REGISTER, STOLEN),
]
STRANGERS = [
    Caller(CallerRole.CLAIMED, "dn-s1"),
    Caller(CallerRole.USER, "dn-s1"),
    Caller(CallerRole.DATANODE, "dn-s2"),
    Caller(CallerRole.NAMENODE, ""),
]


@pytest.fixture
def as_caller() -> Iterator[None]:
    token = CALLER.set(CALLER.get())
    yield
    CALLER.reset(token)


def services(scene: Scene) -> tuple[Service, Service]:
    """The calls of one node, where nodes prove nothing, and where they do."""
    return Service(scene.node, roles=UNPROVEN), Service(scene.node, roles=Roles(proven=True))


@pytest.mark.usefixtures("as_caller")
@pytest.mark.parametrize("caller", STRANGERS, ids=lambda caller: caller.role.value)
async def test_a_stranger_takes_the_name_of_no_datanode(caller: Caller) -> None:
    scene = await new_scene(config=NameNodeConfig(block_tokens=True))
    try:
        _, proven = services(scene)
        before = scene.node.datanodes.address(StorageId("s1"))
        for method, request in CALLS:
            CALLER.set(caller)
            with pytest.raises(AccessDeniedError) as error:
                await proven.call(method, request)
            assert "\n" not in str(error.value)
        assert scene.node.datanodes.address(StorageId("s1")) == before
        CALLER.set(Caller(CallerRole.DATANODE, "dn-s1"))
        for method, request in CALLS:
            await proven.call(method, request)
    finally:
        await scene.close()


@pytest.mark.usefixtures("as_caller")
async def test_what_a_datanode_says_of_itself_waits_for_no_directory_of_users() -> None:
    scene = await new_scene()
    try:
        caller = Caller(CallerRole.DATANODE, "dn-s1")
        CALLER.set(caller)
        for method, request in CALLS:
            await Service(scene.node).call(method, request)
        assert scene.node.users.known(caller) is None
    finally:
        await scene.close()


@pytest.mark.usefixtures("as_caller")
async def test_without_proofs_a_stranger_takes_it_and_its_keys() -> None:
    scene = await new_scene(config=NameNodeConfig(block_tokens=True))
    try:
        unproven, _ = services(scene)
        CALLER.set(STRANGERS[0])
        told = await unproven.call(REGISTER, STOLEN)
        assert told.keys
        assert scene.node.datanodes.address(StorageId("s1")) == "stranger:1"
    finally:
        await scene.close()
