"""All transitions between the states that HDFS names, found by running the code of each rule.

A replica in each state is asked every question, and a record in each state is put through every K
rule; what comes out is named by the tables of `replica_state` and `block_state`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from paxosblock.protocol import block_state, finalize, replica_state
from paxosblock.protocol.block_state import HdfsBlockState
from paxosblock.protocol.finalize import BlockRecord, Refused
from paxosblock.protocol.messages import Create, Delete, RecoveryWrite, Request
from paxosblock.protocol.messages import Finalize as FinalizeMessage
from paxosblock.protocol.register import Replica, answer, restarted, wanted
from paxosblock.protocol.replica_state import HdfsReplicaState
from paxosblock.protocol.types import BlockState, WriterId
from tests.protocol.build import (
    ABC,
    BLOCK,
    DISK,
    WRITER,
    A,
    B,
    C,
    chunks,
    finalize_of,
    finalized,
    gs,
    next_gs,
    record,
    recovery_write,
    replica,
    write_of,
)

NONE: Final = "none"
"""No replica, no block."""

LENGTH: Final = 2
DECIDED: Final = 3
"""The finalized generation of a block that is, and the highest that was allocated."""
LATER: Final = 9


@dataclass(frozen=True, slots=True)
class Arrow:
    """`event` leads from one state to another."""

    before: str
    event: str
    after: str


REPLICAS: Final[dict[str, tuple[Replica | None, ...]]] = {
    NONE: (None,),
    HdfsReplicaState.RBW.value: (replica(LENGTH),),
    HdfsReplicaState.RWR.value: (restarted(replica(LENGTH), same_boot=True),),
    HdfsReplicaState.RUR.value: (
        replica(LENGTH, max_generation=gs(LATER - 1)),
        finalized(LENGTH, DECIDED).having(max_generation=gs(LATER - 1)),
    ),
    HdfsReplicaState.FINALIZED.value: (finalized(LENGTH, DECIDED),),
}
"""A replica of each state that answers questions; one that is temporary answers nothing."""

APPENDED: Final = recovery_write(
    LENGTH, LATER, epoch=gs(LATER), finalized_generation=gs(DECIDED), tail=()
)
QUESTIONS: Final[dict[str, Request]] = {
    "Create": Create(BLOCK, 1, DISK),
    "Write": write_of(LENGTH),
    "NextGS": next_gs(LATER),
    "RecoveryWrite of a SEAL": recovery_write(LENGTH, LATER),
    "RecoveryWrite of a REBUILD": recovery_write(LENGTH, LATER, epoch=gs(LATER)),
    "RecoveryWrite of an APPEND": APPENDED,
    "Finalize": finalize_of(LENGTH, LATER),
    "Delete": Delete(BLOCK, gs(LATER)),
}


def replica_transitions() -> list[Arrow]:
    """Return what each question, and a restart, makes of a replica in each state."""
    found: dict[Arrow, None] = {}
    for before, held in REPLICAS.items():
        for each in held:
            for event, question in QUESTIONS.items():
                for arrow in _asked(before, each, event, question):
                    found[arrow] = None
            if each is not None:
                after = _named(restarted(each, same_boot=True))
                if after != before:
                    found[Arrow(before, "restart", after)] = None
    return list(found)


def _asked(before: str, held: Replica | None, event: str, question: Request) -> Iterator[Arrow]:
    missing = range(0)
    if isinstance(question, RecoveryWrite | FinalizeMessage):
        missing = wanted(A, held, question)
    step = answer(A, held, question, chunks(missing.stop)[missing.start :])
    after = _named(step.replica)
    if after == before:
        return
    if held is None and missing:  # in tmp/ until all of it is there, gone when that fails
        yield Arrow(before, event, HdfsReplicaState.TEMPORARY.value)
        yield Arrow(HdfsReplicaState.TEMPORARY.value, "all chunks are there", after)
        yield Arrow(HdfsReplicaState.TEMPORARY.value, "failure, restart", NONE)
    else:
        yield Arrow(before, event, after)


def _named(held: Replica | None) -> str:
    return NONE if held is None else replica_state.hdfs_state(held).value


_FINAL = record(
    state=BlockState.FINALIZED,
    generation=gs(DECIDED),
    finalized_generation=gs(DECIDED),
    length=LENGTH,
    size_bytes=10,
)
RECORDS: Final[dict[str, tuple[BlockRecord, int]]] = {
    HdfsBlockState.UNDER_CONSTRUCTION.value: (record(generation=gs(1)), 0),
    HdfsBlockState.UNDER_RECOVERY.value: (
        record(generation=gs(1), state=BlockState.UNDER_RECOVERY),
        0,
    ),
    HdfsBlockState.COMMITTED.value: (_FINAL, 0),
    HdfsBlockState.COMPLETE.value: (_FINAL, 2),
}
"""A record of each state, and how many members reported its version."""

_OTHER = WriterId("w2")
RULES: Final[dict[str, Callable[[BlockRecord, int], BlockRecord | Refused]]] = {
    "K2 allocate a SEAL": lambda r, _: finalize.allocate_seal(r),
    "K3 allocate a REBUILD": lambda r, _: finalize.allocate_rebuild(r, WRITER, r.writer_generation),
    "K4 allocate an APPEND": lambda r, _: finalize.allocate_append(r),
    "K5 a SEAL decides": lambda r, _: finalize.finalize_by_recovery(
        r, r.writer_generation, r.generation, LENGTH, 10
    ),
    "K6 the writer ends the block": lambda r, _: finalize.finalize_by_writer(
        r, WRITER, r.writer_generation, LENGTH, 10
    ),
    "K7 a REBUILD is installed": lambda r, _: finalize.install_rebuild(
        r, r.writer_generation, r.generation, ABC, LENGTH
    ),
    "K7 an APPEND is installed": lambda r, _: finalize.install_append(
        replace(r, generation=gs(r.generation + 1)),
        r.writer_generation,
        gs(r.generation + 1),
        ABC,
        _OTHER,
    ),
    "K8 truncate": lambda r, _: finalize.truncate(r, LENGTH - 1, 5),
    "K13 a member leaves": lambda r, reported: finalize.remove_replica(
        r, C, r.finalized_generation, (A, B)[:reported], 2
    ),
}


def block_transitions() -> list[Arrow]:
    """Return what each K rule, and reports, make of a record in each state.

    None has reported what was just decided; after K8 and K13 who had reported the version before
    is whole (`Replicas.whole`).
    """
    found = [Arrow(NONE, "K1 AddBlock", HdfsBlockState.UNDER_CONSTRUCTION.value)]
    for before, (held, reported) in RECORDS.items():
        for event, rule in RULES.items():
            after = rule(held, reported)
            if isinstance(after, Refused) or after == held:
                continue
            whole = reported if held.finalized and after.finalized else 0
            state = block_state.hdfs_state(after, whole, 1).value
            if state != before:
                found.append(Arrow(before, event, state))
    found.append(
        Arrow(HdfsBlockState.COMMITTED.value, "a member reports it", HdfsBlockState.COMPLETE.value)
    )
    return found
