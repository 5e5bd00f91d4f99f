"""The table of calls, and what follows from a row: routing, checks, log and counts."""

from __future__ import annotations

import logging
from collections import Counter

import pytest

from paxosblock.api import (
    care,
    encryption,
    file_pages,
    fsck_call,
    insight,
    lease_call,
    namenode,
    ownership,
    path_attributes,
    quota,
    rebuild,
    reports,
    snapshot_calls,
    status,
    subtree,
    user_tokens,
    watching,
)
from paxosblock.api.insight import DATANODE_STATUS, GATEWAY_STATUS
from paxosblock.api.methods import Method
from paxosblock.api.namenode import (
    DELETE,
    MKDIRS,
    RENAME,
    STAT,
    DeletePath,
    FileStatus,
    MakeDirectories,
    PathRequest,
    RenamePath,
)
from paxosblock.api.status import NAMENODE_STATUS
from paxosblock.errors import InvalidRequestError, NotFoundError
from paxosblock.host.logs import LineFormatter
from paxosblock.host.metrics import NodeMetrics
from paxosblock.namenode.calls import CALLS, By, Service, handled
from paxosblock.namenode.name_node import NameNode
from paxosblock.net.calls.call_server import RpcRouter
from tests.namenode.scene import Scene, new_scene


def described() -> set[str]:
    """The calls that the API describes."""
    homes = (
        care,
        encryption,
        file_pages,
        fsck_call,
        insight,
        lease_call,
        namenode,
        ownership,
        path_attributes,
        quota,
        rebuild,
        reports,
        snapshot_calls,
        status,
        subtree,
        user_tokens,
        watching,
    )
    values = (value for home in homes for value in vars(home).values())
    return {value.name for value in values if isinstance(value, Method)}


def test_each_call_of_the_api_is_one_row() -> None:
    rows = Counter(call.method.name for call in CALLS)
    elsewhere = {NAMENODE_STATUS.name, DATANODE_STATUS.name, GATEWAY_STATUS.name}
    assert set(rows) == described() - elsewhere
    assert set(rows.values()) == {1}


async def test_every_row_is_found_on_the_network() -> None:
    scene, router = await new_scene(), RpcRouter()
    scene.service.add_to(router)
    assert set(router._methods) == {call.method.name for call in CALLS}
    await scene.close()


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the lines that the table logged, without times."""
    made = (LineFormatter("nn").format(each) for each in caplog.records if "calls" in each.name)
    return [line.partition(" nn ")[2] for line in made]


async def test_a_change_is_a_line_of_the_log_and_what_changed_nothing_is_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    scene = await new_scene()
    await scene.service.call(MKDIRS, MakeDirectories("/a b"))
    await scene.service.call(STAT, PathRequest("/a b"))
    await scene.service.call(DELETE, DeletePath("/nothing"))
    with pytest.raises(NotFoundError):
        await scene.service.call(RENAME, RenamePath("/nothing", "/c"))
    await scene.service.call(RENAME, RenamePath("/a b", "/c"))
    await scene.service.call(DELETE, DeletePath("/c"))
    assert lines(caplog) == [
        'mkdirs path="/a b"',
        'rename source="/a b" destination=/c',
        "delete path=/c recursive=False",
    ]
    await scene.close()


async def test_calls_are_counted_by_what_became_of_them() -> None:
    scene, metrics = await new_scene(), NodeMetrics("namenode")
    service = Service(scene.node, metrics)
    await service.call(MKDIRS, MakeDirectories("/a"))
    with pytest.raises(InvalidRequestError):
        await service.call(MKDIRS, MakeDirectories("/b", permission=-1))
    told = metrics.render().decode()
    assert 'paxosblock_namenode_calls_total{call="mkdirs",outcome="done"} 1.0' in told
    assert 'paxosblock_namenode_calls_total{call="mkdirs",outcome="failed"} 1.0' in told
    assert 'paxosblock_namenode_calls_total{call="stat",outcome="done"} 0.0' in told
    await scene.close()


async def test_a_new_call_is_one_row() -> None:
    """Nothing but the row makes it known: to this process, the network, counts."""

    async def answer(scene: NameNode, request: PathRequest) -> FileStatus:
        return await scene.catalog.status(request.path.upper())

    scene, method = await new_scene(), Method("loud", PathRequest, FileStatus)
    service = Service(scene.node, calls=(handled(method, answer, by=By.EVERY_MEMBER),))
    await made(scene, "/A")
    assert (await service.call(method, PathRequest("/a"))).path == "/A"
    await scene.close()


async def made(scene: Scene, path: str) -> None:
    await scene.service.call(MKDIRS, MakeDirectories(path))
