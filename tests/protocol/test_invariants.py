"""I6, I7, I9: a violation that is planted in a world is noticed, by the explorer's observer and by
what the NameNode makes of block reports."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from paxosblock.namenode.blocks.replicas import Replicas
from paxosblock.protocol import finalize
from paxosblock.protocol.chunk_log import ChunkLog
from paxosblock.protocol.register import Replica
from paxosblock.protocol.types import Generation, ReplicaState
from tests.protocol import oracle, report_moves
from tests.protocol.world import (
    WRITERS,
    Config,
    Disk,
    History,
    Model,
    Violation,
    World,
    chunk_crc,
    chunk_size,
)

Check = Callable[[Model, World], None]
CHUNK = chunk_crc(0, 0)
LOG = ChunkLog().append(chunk_size(CHUNK), CHUNK)


def finalized(replica: Replica, generation: Generation, log: ChunkLog) -> Replica:
    decided = replica.having(
        max_generation=generation,
        accepted_generation=generation,
        state=ReplicaState.FINALIZED,
        finalized_generation=generation,
        finalized_length=len(log),
    )
    return replace(decided, log=log)


def written(model: Model) -> World:
    """The writer has sent a chunk, all members hold it, and the block is open."""
    world = model.start()
    disks = tuple(cell.value.replica for cell in world.disks)
    held = tuple(replace(replica, log=LOG) for replica in disks if replica is not None)
    return world._replace(
        disks=tuple(model.cell(Disk(replica, 1)) for replica in held),
        history=model.cell(History(must=(CHUNK,), sent=((0, (CHUNK,)),))),
    )


def decided(model: Model) -> World:
    """The same, closed; all members are FINALIZED."""
    world = written(model)
    before = world.record.value
    record = finalize.finalize_by_writer(
        before, WRITERS[0], before.generation, 1, chunk_size(CHUNK)
    )
    assert isinstance(record, finalize.BlockRecord)
    history = replace(
        world.history.value, decided=((int(record.finalized_generation), 0, (CHUNK,)),)
    )
    world = world._replace(record=model.cell(record), history=model.cell(history))
    for at in range(3):
        world = with_replica(model, world, at, lambda r: finalized(r, record.generation, LOG))
    return world


def with_replica(
    model: Model, world: World, at: int, change: Callable[[Replica], Replica]
) -> World:
    replica = world.disks[at].value.replica
    assert replica is not None
    changed = model.cell(Disk(change(replica), 1))
    return world._replace(disks=(*world.disks[:at], changed, *world.disks[at + 1 :]))


@pytest.fixture
def model() -> Model:
    return Model(Config("", chunks=1))


@pytest.mark.parametrize("check", [oracle.check, report_moves.check])
@pytest.mark.parametrize("make", [written, decided])
def test_an_honest_world_breaks_no_invariant(
    model: Model, check: Check, make: Callable[[Model], World]
) -> None:
    check(model, make(model))


@pytest.mark.parametrize("check", [oracle.check, report_moves.check])
def test_i6_a_member_that_is_finalized_before_the_record_is_noticed(
    model: Model, check: Check
) -> None:
    world = with_replica(model, written(model), 1, lambda r: finalized(r, Generation(0), LOG))
    history = replace(world.history.value, decided=((0, 0, (CHUNK,)),))
    with pytest.raises(Violation, match="I6"):
        check(model, world._replace(history=model.cell(history)))


@pytest.mark.parametrize("check", [oracle.check, report_moves.check])
def test_i7_a_replica_finalized_with_another_length_is_noticed(model: Model, check: Check) -> None:
    world = decided(model)
    generation = world.record.value.finalized_generation
    world = with_replica(model, world, 2, lambda r: finalized(r, generation, ChunkLog()))
    with pytest.raises(Violation, match="I7"):
        check(model, world)


def test_i7_a_replica_finalized_with_other_bytes_is_noticed(model: Model) -> None:
    record, holders = decided(model).record.value, Replicas()
    generation = record.finalized_generation
    assert holders.note(record.block, model.storages[0], generation, CHUNK)
    assert holders.note(record.block, model.storages[1], generation, CHUNK)
    assert not holders.note(record.block, model.storages[2], generation, CHUNK + 1)


def test_i9_a_promise_above_the_record_is_noticed(model: Model) -> None:
    above = Generation(written(model).record.value.generation + 1)
    world = with_replica(model, written(model), 0, lambda r: r.having(max_generation=above))
    with pytest.raises(Violation, match="I9"):
        report_moves.check(model, world)
