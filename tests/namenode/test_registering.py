"""Another process under the name of a DataNode: the NameNode asks the one before (PROTOCOL.md D10),
also one that it knows by its record alone.

The addresses are made up; `Network.processes` says who answers at each.
"""

from __future__ import annotations

import asyncio

import pytest

from paxosblock.api.reports import (
    ALL_BLOCKS,
    BLOCK_REPORT,
    HEARTBEAT,
    REGISTER,
    BlockReport,
    Heartbeat,
    Register,
    StorageReport,
    Timeline,
)
from paxosblock.errors import (
    AccessDeniedError,
    DeadlineError,
    InvalidRequestError,
    NoSpaceError,
    NotReadyError,
    PaxosBlockError,
    UnavailableError,
)
from paxosblock.namenode.calls import Service
from paxosblock.namenode.catalog.records import ProcessRecord
from paxosblock.namenode.kv.interface import Committed, Conflict, Edit
from paxosblock.namenode.name_node import NameNode
from paxosblock.protocol.types import StorageId
from tests.namenode.memory_store import MemoryStore
from tests.namenode.scene import ROOM_BYTES, Scene, new_scene

NODE, THERE, ELSEWHERE = "dn-s1", "dn-s1:9864", "elsewhere:9864"
ROOM = (StorageReport(StorageId("s1"), ROOM_BYTES, ROOM_BYTES, 0),)
COPY = Register(NODE, ELSEWHERE, "copy", ROOM)


def address(scene: Scene) -> str:
    return scene.node.datanodes.address(StorageId("s1"))


async def test_a_copy_of_a_live_nodes_volume_is_nobody(scene: Scene) -> None:
    """No commands go to it and no report is taken from it, not even for a moment."""
    scene.network.processes[THERE] = "run-1"
    said = "another process of this name lives at dn-s1:9864; give each an --id"
    with pytest.raises(InvalidRequestError, match=said):
        await scene.service.call(REGISTER, COPY)
    assert address(scene) == THERE
    assert (await scene.service.call(HEARTBEAT, Heartbeat(NODE, "copy", ROOM, 0))).register
    report = BlockReport(NODE, "copy", StorageId("s1"), 1, ALL_BLOCKS, ())
    with pytest.raises(NotReadyError, match="must register"):
        await scene.service.call(BLOCK_REPORT, report)
    assert len(scene.node.alarms.latest()) == 1
    await scene.beat("s1")
    assert scene.node.datanodes.is_current(NODE, "run-1")


@pytest.mark.parametrize("answers", ["", "copy", "another node"])
async def test_a_restart_elsewhere_is_taken_in_at_once(scene: Scene, answers: str) -> None:
    """No node listens at the old address, or another one does."""
    scene.network.processes[THERE] = answers
    await scene.service.call(REGISTER, COPY)
    assert address(scene) == ELSEWHERE


@pytest.mark.parametrize(
    "heard",
    [DeadlineError("late"), UnavailableError("no route"), AccessDeniedError("another secret")],
)
async def test_a_process_whose_end_is_not_known_is_waited_for_until_it_is_dead(
    scene: Scene, heard: PaxosBlockError
) -> None:
    scene.network.processes[THERE] = heard
    for _ in range(3):
        with pytest.raises(NotReadyError, match="does not answer; it may live"):
            await scene.service.call(REGISTER, COPY)
        scene.clock.now += scene.node.config.datanode_dead_after_s / 3 - 0.1
    assert address(scene) == THERE
    assert not scene.node.alarms.latest()
    scene.clock.now += 0.4
    await scene.service.call(REGISTER, COPY)
    assert address(scene) == ELSEWHERE


@pytest.mark.parametrize("heard", ["run-1", DeadlineError("late")])
async def test_a_copy_does_not_have_its_timeline_written_down(
    scene: Scene, heard: str | PaxosBlockError
) -> None:
    """Else the volume itself, in the timeline that it is in, would be refused from then on."""
    own = Timeline(StorageId("s1"), "t1", ("",))
    scene.network.processes[THERE] = "run-1"
    await scene.service.call(REGISTER, Register(NODE, THERE, "run-1", ROOM, timelines=(own,)))
    scene.network.processes[THERE] = heard
    rolled_back = Timeline(StorageId("s1"), "", ("t1",))
    with pytest.raises((InvalidRequestError, NotReadyError)):
        await scene.service.call(
            REGISTER, Register(NODE, ELSEWHERE, "copy", ROOM, timelines=(rolled_back,))
        )
    taken_in = Timeline(StorageId("s1"), "t1")
    again = Register(NODE, THERE, "run-1", ROOM, timelines=(taken_in,))
    await scene.service.call(REGISTER, again)
    assert address(scene) == THERE


# --- a NameNode that has just started knows those before by their records ------------------------

OWN = Register(NODE, THERE, "run-1", ROOM)
AGAIN = Register(NODE, THERE, "run-2", ROOM)


async def started_again(scene: Scene) -> Scene:
    """The next process of the NameNode, to which nobody has come yet."""
    await scene.close()
    network = scene.network
    node = NameNode("nn", scene.node.config, scene.store, scene.clock, lambda _: network)
    await node.start()
    return Scene(node, Service(node), network, scene.clock, scene.store)


def on_record(scene: Scene) -> ProcessRecord | None:
    return scene.node.catalog.process_of(NODE)


async def test_a_copy_that_is_the_first_to_come_to_a_namenode_that_started_is_nobody() -> None:
    scene = await started_again(await new_scene())
    scene.network.processes[THERE] = "run-1"
    with pytest.raises(InvalidRequestError, match="lives at dn-s1:9864; give each an --id"):
        await scene.service.call(REGISTER, COPY)
    assert address(scene) == ""
    assert len(scene.node.alarms.latest()) == 1
    await scene.service.call(REGISTER, OWN)
    assert address(scene) == THERE
    await scene.close()


async def test_a_namenode_that_does_not_know_the_record_yet_ends_no_datanode(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has taken in a copy, which lives: a refusal would end the process that is on record."""
    scene = await started_again(await new_scene())
    registrar, catalog = scene.node.registrar, scene.node.catalog
    registrar.end()
    scene.network.processes |= {THERE: "run-1", ELSEWHERE: "copy"}
    with monkeypatch.context() as lagging:
        lagging.setattr(catalog, "process_of", lambda _: None)
        await scene.service.call(REGISTER, COPY)
        with pytest.raises(NotReadyError, match="which of the two is a copy is not known yet"):
            await scene.service.call(REGISTER, OWN)
    await registrar.begin()
    await scene.service.call(REGISTER, OWN)
    assert address(scene) == THERE
    with pytest.raises(InvalidRequestError, match="lives at dn-s1:9864; give each an --id"):
        await scene.service.call(REGISTER, COPY)
    await scene.close()


async def test_the_process_on_record_is_taken_in_without_a_question_or_an_entry() -> None:
    scene = await started_again(await new_scene())
    scene.network.processes[THERE] = DeadlineError("late")
    commits = scene.store.commits
    await scene.service.call(REGISTER, OWN)
    assert (address(scene), scene.store.commits) == (THERE, commits)
    await scene.close()


async def test_whoever_comes_after_one_that_ended_is_on_record_from_then_on() -> None:
    scene = await started_again(await new_scene())
    await scene.service.call(REGISTER, COPY)  # nobody listens at the other address
    assert on_record(scene) == ProcessRecord(ELSEWHERE, "copy")
    scene = await started_again(scene)
    scene.network.processes[ELSEWHERE] = "copy"
    with pytest.raises(InvalidRequestError, match="lives at elsewhere:9864"):
        await scene.service.call(REGISTER, OWN)
    await scene.close()


async def test_one_on_record_that_does_not_answer_is_waited_for_since_the_namenode_began() -> None:
    scene = await started_again(await new_scene())
    scene.network.processes[THERE] = DeadlineError("late")
    for _ in range(3):
        with pytest.raises(NotReadyError, match="does not answer; it may live"):
            await scene.service.call(REGISTER, COPY)
        scene.clock.now += scene.node.config.datanode_dead_after_s / 3 - 0.1
    assert address(scene) == ""
    scene.clock.now += 0.4
    await scene.service.call(REGISTER, COPY)
    assert address(scene) == ELSEWHERE
    await scene.close()


async def test_of_two_that_come_at_once_after_one_that_ended_one_is_taken_in() -> None:
    scene = await started_again(await new_scene(store=MemoryStore(yielding=True)))
    both = (scene.service.call(REGISTER, each) for each in (COPY, AGAIN))
    answers = await asyncio.gather(*both, return_exceptions=True)
    (refused,) = [each for each in answers if isinstance(each, BaseException)]
    assert isinstance(refused, NotReadyError)
    assert "another process of this name registered meanwhile" in str(refused)
    record = on_record(scene)
    assert record is not None
    assert scene.node.datanodes.is_current(NODE, record.incarnation)
    await scene.close()


class FullStore(MemoryStore):
    """Its disk may be full."""

    full = False

    async def commit(self, edit: Edit) -> Committed | Conflict:
        if self.full:
            raise NoSpaceError("the disk is full")
        return await super().commit(edit)


async def test_without_room_for_the_record_a_datanode_is_taken_in_and_recorded_later() -> None:
    """Else nobody could read from nodes that start while the disks of the NameNodes are full."""
    store = FullStore()
    scene = await started_again(await new_scene(store=store))
    store.full = True
    await scene.service.call(REGISTER, AGAIN)
    assert scene.node.datanodes.is_current(NODE, "run-2")
    assert on_record(scene) == ProcessRecord(THERE, "run-1")
    store.full = False
    await scene.service.call(REGISTER, AGAIN)
    assert on_record(scene) == ProcessRecord(THERE, "run-2")
    await scene.close()
