"""The calls that show people more of a cluster than commands ask for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

from paxosblock.api.fsck_call import Condition
from paxosblock.api.insight import (
    LIST_UNWHOLE,
    LIST_WRITERS,
    PATHS_SHOWN,
    SHOW_SETTINGS,
    SHOW_WORK,
    ListUnwhole,
    ListWriters,
    ShowSettings,
    ShowWork,
)
from paxosblock.api.namenode import CREATE, RENEW_LEASES, RenewLeases
from paxosblock.api.status import CLUSTER_STATUS, ClusterStatusRequest
from paxosblock.config import NameNodeConfig
from paxosblock.errors import PermissionDeniedError, StorageError
from paxosblock.host.disk import Disk, Room
from paxosblock.host.folder_room import UNKNOWN, FolderRoom
from paxosblock.host.metrics import NodeMetrics
from paxosblock.namenode import counting, instruments
from paxosblock.net.port.caller import CALLER, Caller, CallerRole
from tests.namenode.scene import ANN, BOB, Clock, create_request, new_scene
from tests.namenode.test_monitor import LOST_S, blocks_of_three, scene_without_s3, silent, turn
from tests.waiting import wait_until_async


@pytest.fixture
def as_caller() -> Iterator[None]:
    token = CALLER.set(CALLER.get())
    yield
    CALLER.reset(token)


def user(name: str) -> Caller:
    return Caller(CallerRole.CLAIMED, name, address="10.0.0.7")


@pytest.mark.usefixtures("as_caller")
async def test_writers_are_shown_with_who_they_are_and_how_long_they_are_silent() -> None:
    scene = await new_scene()
    CALLER.set(scene_user := user(scene.node.users.superuser))
    for number in range(PATHS_SHOWN + 2):
        await scene.service.call(CREATE, create_request(f"/a{number}"))
    await scene.service.call(CREATE, create_request("/b", BOB))
    scene.clock.now += 30
    await scene.service.call(RENEW_LEASES, RenewLeases((BOB,)))
    scene.clock.now += 12
    found = await scene.service.call(LIST_WRITERS, ListWriters())
    assert [(each.writer, each.held_s, each.silent_s) for each in found.each] == [
        (ANN, 42, 42),
        (BOB, 42, 12),
    ]
    assert {(each.user, each.address) for each in found.each} == {(scene_user.user, "10.0.0.7")}
    assert found.each[0].paths == tuple(f"/a{number}" for number in range(PATHS_SHOWN))
    assert [each.files for each in found.each] == [PATHS_SHOWN + 2, 1]
    page = await scene.service.call(LIST_WRITERS, ListWriters(limit=1))
    assert ([each.writer for each in page.each], page.total, page.more) == ([ANN], 2, True)
    rest = await scene.service.call(LIST_WRITERS, ListWriters(after=ANN, limit=1))
    assert ([each.writer for each in rest.each], rest.more) == ([BOB], False)
    await scene.close()


@pytest.mark.usefixtures("as_caller")
async def test_a_user_sees_no_writer_of_another_one() -> None:
    scene = await new_scene()
    await scene.service.call(CREATE, create_request("/of-the-node"))
    CALLER.set(user("eve"))
    found = await scene.service.call(LIST_WRITERS, ListWriters())
    assert (found.each, found.hidden, found.total) == ((), 1, 1)
    with pytest.raises(PermissionDeniedError):
        await scene.service.call(LIST_UNWHOLE, ListUnwhole())
    await scene.close()


async def test_blocks_that_lack_something_are_known_without_a_walk_over_files() -> None:
    scene = await scene_without_s3()
    records = await blocks_of_three(scene, 3)
    await turn(scene)
    found = await scene.service.call(LIST_UNWHOLE, ListUnwhole())
    numbers = [each.block for each in found.findings]
    assert numbers == sorted(record.block for record in records)
    assert {(each.path, each.condition, each.wanted, each.counted) for each in found.findings} == {
        ("/f", Condition.UNDER_REPLICATED, 3, 2)
    }
    assert (found.total, found.next) == (3, None)
    page = await scene.service.call(LIST_UNWHOLE, ListUnwhole(limit=2))
    assert ([each.block for each in page.findings], page.next) == (numbers[:2], numbers[1])
    rest = await scene.service.call(LIST_UNWHOLE, ListUnwhole(after=numbers[1], limit=2))
    assert ([each.block for each in rest.findings], rest.next) == (numbers[2:], None)
    await scene.close()


async def test_settings_and_work_are_shown() -> None:
    scene = await new_scene(config=NameNodeConfig(lease_soft_limit_s=90.0))
    found = await scene.service.call(SHOW_SETTINGS, ShowSettings())
    assert found.section == "namenode"
    assert [(each.name, each.value, each.default) for each in found.changed] == [
        ("lease_soft_limit", "90s", "1min")
    ]
    work = await scene.service.call(SHOW_WORK, ShowWork())
    assert (work.copies, work.under_way, work.balance) == ((), 0, None)
    await scene.close()


async def test_a_recent_count_of_files_costs_one_walk_however_many_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = await new_scene()
    counts, walks = scene.node.catalog.counts, 0

    async def counted() -> Any:
        nonlocal walks
        walks += 1
        return await counts()

    monkeypatch.setattr(scene.node.catalog, "counts", counted)
    await scene.create("/one")
    ask = ClusterStatusRequest(recent=True)
    found = [await scene.service.call(CLUSTER_STATUS, ask) for _ in range(5)]
    assert ([each.files for each in found], walks) == ([1] * 5, 1)
    await scene.create("/two", BOB)
    assert (await scene.service.call(CLUSTER_STATUS, ClusterStatusRequest())).files == 2
    scene.clock.now += counting.RECENT_S

    async def is_new() -> bool:
        return (await scene.service.call(CLUSTER_STATUS, ask)).files == 2

    await wait_until_async(is_new)
    assert walks == 3
    await scene.close()


async def test_a_page_of_metrics_goes_over_the_datanodes_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = await new_scene()
    looks = 0

    class Counted:
        def __init__(self, datanodes: Any) -> None:
            self._datanodes = datanodes

        def __getattr__(self, name: str) -> Any:
            return getattr(self._datanodes, name)

        def __iter__(self) -> Iterator[Any]:
            nonlocal looks
            looks += 1
            return iter(self._datanodes)

    monkeypatch.setattr(scene.node, "datanodes", Counted(scene.node.datanodes))
    metrics = NodeMetrics("namenode")
    instruments._observe_datanodes(metrics, scene.node)
    families = text_string_to_metric_families(metrics.render().decode())
    values = {each.name: sum(sample.value for sample in each.samples) for each in families}
    assert values["paxosblock_namenode_datanodes"] == 3
    assert values["paxosblock_namenode_capacity_bytes"] == 3 << 40
    assert looks == 1
    await scene.close()


def disk_of(room: Any) -> Disk:
    return cast(Disk, SimpleNamespace(room=room))


async def test_the_room_of_a_folder_is_asked_for_once_in_a_while() -> None:
    clock, asked = Clock(), list[Path]()

    def room(folder: Path) -> Room:
        asked.append(folder)
        return Room(100, 40 - len(asked))

    seen = FolderRoom(disk_of(room), Path("/nn"), clock)
    assert [await seen.seen(), await seen.seen()] == [Room(100, 39)] * 2
    clock.now += 5.0
    assert (await seen.seen(), asked) == (Room(100, 38), [Path("/nn")] * 2)


async def test_a_disk_that_hangs_or_refuses_keeps_no_caller() -> None:
    answers = threading.Event()

    def hang(_: Path) -> Room:
        answers.wait()
        return Room(1, 1)

    def refuse(folder: Path) -> Room:
        raise StorageError(f"{folder}: read-only")

    hanging = FolderRoom(disk_of(hang), Path("/nn"), Clock())
    async with asyncio.timeout(10):
        assert [await hanging.seen(), await hanging.seen()] == [UNKNOWN] * 2
    answers.set()

    async def told() -> bool:
        return await hanging.seen() == Room(1, 1)

    await wait_until_async(told)
    assert await FolderRoom(disk_of(refuse), Path("/nn"), Clock()).seen() == UNKNOWN


async def test_blocks_with_bytes_at_risk_are_asked_for_by_themselves() -> None:
    scene = await scene_without_s3()
    records = await blocks_of_three(scene, 2)
    await turn(scene)
    assert len((await scene.service.call(LIST_UNWHOLE, ListUnwhole())).findings) == 2
    found = await scene.service.call(LIST_UNWHOLE, ListUnwhole(worst=True))
    assert (found.findings, found.total) == ((), 2)
    await silent(scene, LOST_S, "s1", "s2")
    await turn(scene)
    first = await scene.service.call(LIST_UNWHOLE, ListUnwhole(limit=1, worst=True))
    assert first.next is not None
    rest = await scene.service.call(LIST_UNWHOLE, ListUnwhole(after=first.next, worst=True))
    lost = (*first.findings, *rest.findings)
    assert [each.block for each in lost] == sorted(record.block for record in records)
    assert {each.condition for each in lost} == {Condition.MISSING}
    await scene.close()
