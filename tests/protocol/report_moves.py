"""Block reports: the NameNode's own `judge` looks at every replica of every state."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from paxosblock.api.datanode import ReplicaSummary
from paxosblock.namenode.blocks.replicas import FINE, Judgement, Verdict, judge
from paxosblock.protocol import register
from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.messages import Delete, Read, ReadReply
from paxosblock.protocol.replica_state import hdfs_state
from tests.protocol.oracle import demand
from tests.protocol.world import BLOCK, Cell, Disk, Model, Move, World


def report_moves(model: Model, world: World) -> Iterator[Move]:
    """D7: a replica that is no member's is reported; a Delete leaves, to arrive any time later."""
    for at, disk in enumerate(world.disks):
        finding = model.once(_judged, model, at, world.record, disk)
        if finding.verdict is Verdict.DELETE:
            deletes = world.budget.value.deletes - 1
            asked = world._replace(
                mail=world.mail | model.post(Delete(BLOCK, finding.up_to), (at,)),
                budget=model.cell(replace(world.budget.value, deletes=deletes)),
            )
            words = (model.storages[at], "is told to delete up to", finding.up_to)
            yield Move("D7-asked", words, asked)


def check(model: Model, world: World) -> None:
    """I6, I7, I9: without a fault in the protocol no report rings an alarm."""
    for at, disk in enumerate(world.disks):
        finding = model.once(_judged, model, at, world.record, disk)
        demand(finding.verdict is not Verdict.ALARM, finding.why, model.storages[at])


def _judged(model: Model, at: int, record: Cell[BlockRecord], disk: Cell[Disk]) -> Judgement:
    replica, storage = disk.value.sound, model.storages[at]
    if replica is None:
        return FINE
    state = register.answer(storage, replica, Read(BLOCK)).reply
    assert isinstance(state, ReadReply)
    last = replica.log[replica.length - 1] if replica.length else None
    summary = ReplicaSummary(storage, state, hdfs_state(replica).value, last)
    return judge(record.value, True, summary)
