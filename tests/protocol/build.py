"""Small builders for the tests of single rules: three members, chunks that differ by number."""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec.structs import replace

from paxosblock.protocol.chunk_log import ChunkLog
from paxosblock.protocol.finalize import BlockRecord, Refused, add_block
from paxosblock.protocol.messages import (
    Finalize,
    LastVote,
    NextGS,
    ReadReply,
    RecoveryWrite,
    Write,
)
from paxosblock.protocol.register import Replica
from paxosblock.protocol.types import (
    BlockId,
    ChunkIndex,
    ChunkName,
    Durability,
    Generation,
    Registers,
    ReplicaState,
    StorageId,
    WriterId,
)

BLOCK = BlockId(7)
A, B, C, D, E = (StorageId(name) for name in "ABCDE")
ABC = (A, B, C)
WRITER = WriterId("w1")
DISK, MEMORY = Durability.DISK, Durability.MEMORY


T = TypeVar("T", Replica, LastVote, ReadReply)


def gs(number: int) -> Generation:
    return Generation(number)


REGISTERS = Registers(
    max_generation=gs(0),
    accepted_generation=gs(0),
    epoch=gs(0),
    base_length=0,
    state=ReplicaState.RBW,
    window=1,
    durability=DISK,
)


def chunk(index: int, crc: int | None = None) -> ChunkName:
    """Chunk `index` is index + 1 bytes long; its CRC is 100 + index unless it is another one."""
    return ChunkName(ChunkIndex(index), index + 1, 100 + index if crc is None else crc)


def chunks(count: int, start: int = 0) -> tuple[ChunkName, ...]:
    return tuple(chunk(index) for index in range(start, count))


def size(count: int) -> int:
    return sum(name.size_bytes for name in chunks(count))


def replica(length: int = 0, **changes: Any) -> Replica:
    """An rbw replica of generation 0 with `length` chunks, unless `changes` say otherwise."""
    return changed(Replica(BLOCK, REGISTERS, ChunkLog(chunks(length))), **changes)


def changed(value: T, **changes: Any) -> T:
    """`value` with other fields, or other fields of its registers."""
    inner = {name: changes.pop(name) for name in Registers.__struct_fields__ if name in changes}
    return replace(value, **changes, registers=replace(value.registers, **inner))


def finalized(length: int, fgs: int) -> Replica:
    return replica(
        length,
        max_generation=gs(fgs),
        accepted_generation=gs(fgs),
        base_length=length,
        state=ReplicaState.FINALIZED,
        finalized_generation=gs(fgs),
        finalized_length=length,
    )


def write_of(index: int, generation: int = 0, **changes: Any) -> Write:
    name = chunk(index)
    message = Write(BLOCK, gs(generation), name.index, name.size_bytes, name.crc)
    return replace(message, **changes)


def next_gs(generation: int, base: int = 0) -> NextGS:
    return NextGS(BLOCK, gs(generation), gs(base), 1, DISK)


def last_vote(storage: StorageId, length: int, generation: int = 1, **changes: Any) -> LastVote:
    reply = LastVote(
        block=BLOCK,
        generation=gs(generation),
        storage=storage,
        registers=REGISTERS,
        length=length,
        size_bytes=size(length),
        acknowledged_count=0,
        tail=chunks(length)[-1:],
    )
    return changed(reply, **changes)


def recovery_write(length: int, generation: int = 1, **changes: Any) -> RecoveryWrite:
    request = RecoveryWrite(
        block=BLOCK,
        generation=gs(generation),
        base=gs(0),
        epoch=gs(0),
        length=length,
        size_bytes=size(length),
        tail=chunks(length)[-1:],
        chosen_generation=gs(0),
        members=ABC,
        holders=(A,),
        window=1,
        durability=DISK,
    )
    return replace(request, **changes)


def finalize_of(length: int, fgs: int, **changes: Any) -> Finalize:
    request = Finalize(BLOCK, gs(fgs), gs(0), length, size(length), (), 1, DISK)
    return replace(request, **changes)


def read_reply(storage: StorageId, length: int, **changes: Any) -> ReadReply:
    reply = ReadReply(
        block=BLOCK,
        storage=storage,
        registers=REGISTERS,
        restarted=False,
        length=length,
        size_bytes=size(length),
        acknowledged_count=0,
    )
    return changed(reply, **changes)


def record(**changes: Any) -> BlockRecord:
    return replace(add_block(BLOCK, ABC, WRITER, 1, DISK), **changes)


def applied(outcome: BlockRecord | Refused) -> BlockRecord:
    """The record of a compare-and-set that is expected to apply."""
    assert isinstance(outcome, BlockRecord), outcome
    return outcome
