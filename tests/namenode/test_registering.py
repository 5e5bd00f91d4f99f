"""Another process under the name of a DataNode: the NameNode asks the one before (PROTOCOL.md D10).

The addresses are made up; `Network.processes` says who answers at each.
"""

from __future__ import annotations

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
    NotReadyError,
    PaxosBlockError,
    UnavailableError,
)
from paxosblock.protocol.types import StorageId
from tests.namenode.scene import ROOM_BYTES, Scene

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
