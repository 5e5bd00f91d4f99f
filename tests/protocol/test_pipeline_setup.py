"""The five cases of pipeline set-up of seed 000, section 7: sanity check, change of state, new GS.

They are told in the seed's own words; `(BA, BR)` of a replica are its acknowledged count and its
length. What the seed refuses is refused or, where what is missing can be fetched, made good; what
it lets through is let through.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from paxosblock.protocol import register
from paxosblock.protocol.messages import Create, Created, Nack, RecoveryVote, RecoveryWrite, Request
from paxosblock.protocol.register import Replica
from paxosblock.protocol.replica_state import hdfs_state
from paxosblock.protocol.types import Reason, ReplicaState
from tests.protocol.build import (
    BLOCK,
    DISK,
    A,
    chunks,
    finalize_of,
    finalized,
    gs,
    next_gs,
    recovery_write,
    replica,
)

PRE_APPEND = 2
"""Chunks before the append."""
BA_C, BS_C = 2, 4
"""Acknowledged to the client, and sent by it, when data streaming failed."""


@dataclass(frozen=True)
class Case:
    """One row of the seed's two tables: what is sent, to which replicas, and what they become.

    `gs` is the generation stamp afterwards.
    """

    name: str
    request: Request
    passes: tuple[Replica | None, ...]
    refused: tuple[Replica | None, ...]
    because: tuple[Reason, ...]
    becomes: str
    length: int
    gs: int


def append_of(generation: int) -> RecoveryWrite:
    """P3 of an APPEND: block id with a new GS, and the pre-append block length."""
    return recovery_write(
        PRE_APPEND, generation, base=gs(0), epoch=gs(generation), tail=(),
        chosen_generation=gs(1), finalized_generation=gs(1),
    )  # fmt: skip


def rebuild_of(generation: int, length: int) -> RecoveryWrite:
    """P3 of a REBUILD: a new GS, and a length from BA^c to BS^c."""
    return recovery_write(length, generation, epoch=gs(generation))


def promised(length: int, generation: int) -> Replica:
    """An rbw replica that stopped for a recovery: the seed's "wait for writer to exit"."""
    return replica(length, max_generation=gs(generation))


def opened_again(generation: int) -> Replica:
    """Return what the append before has left: rbw of a newer GS, with the pre-append length."""
    step = register.answer(A, finalized(PRE_APPEND, 1), append_of(generation))
    assert step.replica is not None
    return step.replica


CASES = (
    Case(
        "create: a replica with the same block id should not exist",
        Create(BLOCK, 1, DISK),
        passes=(None,),
        refused=(finalized(0, 1), promised(0, 1)),
        because=(Reason.FENCED,),
        becomes="rbw",
        length=0,
        gs=0,
    ),
    Case(
        "append: finalized replica; its on-disk len should match the pre-append len",
        append_of(2),
        passes=(finalized(PRE_APPEND, 1),),
        refused=(None, finalized(PRE_APPEND - 1, 1), finalized(PRE_APPEND, 5)),
        because=(Reason.GAP, Reason.GAP, Reason.FENCED),
        becomes="rbw",
        length=PRE_APPEND,
        gs=2,
    ),
    Case(
        "append recovery: finalized or rbw; length should match pre-append len; same or newer GS",
        append_of(3),
        passes=(finalized(PRE_APPEND, 1), opened_again(2)),
        refused=(promised(PRE_APPEND - 1, 2), opened_again(4)),
        because=(Reason.GAP, Reason.FENCED),
        becomes="rbw",
        length=PRE_APPEND,
        gs=3,
    ),
    Case(
        "data streaming recovery: rbw; the same or newer GS; BA^c <= BA^i <= BR^i <= BS^c",
        rebuild_of(1, 3),
        passes=tuple(promised(length, 1) for length in range(3, BS_C + 1)),
        refused=(promised(BA_C, 1), replica(3, max_generation=gs(2))),
        because=(Reason.GAP, Reason.FENCED),
        becomes="rbw",
        length=3,
        gs=1,
    ),
    Case(
        "close recovery: rbw or finalized; the same or newer GS; length the same as BA^c",
        finalize_of(BA_C, 2),
        passes=(replica(BA_C), promised(BA_C, 1), finalized(BA_C, 2)),
        refused=(replica(BA_C, max_generation=gs(3)),),
        because=(Reason.STALE,),
        becomes="finalized",
        length=BA_C,
        gs=2,
    ),
)


def named(case: Case) -> str:
    return case.name


@pytest.mark.parametrize("case", CASES, ids=named)
def test_a_replica_that_passes_the_sanity_check_changes_as_the_seed_says(case: Case) -> None:
    for before in case.passes:
        step = register.answer(A, before, case.request)
        assert not isinstance(step.reply, Nack), step.reply
        assert step.replica is not None
        assert hdfs_state(step.replica).value == case.becomes
        assert step.replica.length == case.length
        assert step.replica.registers.accepted_generation == case.gs


@pytest.mark.parametrize("case", CASES, ids=named)
def test_a_replica_that_does_not_is_refused_and_stays_as_it_was(case: Case) -> None:
    reasons = case.because * (len(case.refused) if len(case.because) == 1 else 1)
    for before, reason in zip(case.refused, reasons, strict=True):
        step = register.answer(A, before, case.request)
        assert isinstance(step.reply, Nack), (before, step.reply)
        assert step.reply.reason is reason
        assert step.replica == before


def test_create_makes_a_replica_with_ba_and_br_of_0() -> None:
    step = register.answer(A, None, Create(BLOCK, 1, DISK))
    assert isinstance(step.reply, Created)
    assert step.replica is not None
    assert (step.replica.acknowledged_count, step.replica.length) == (0, 0)


def test_close_recovery_of_a_replica_that_is_longer_drops_what_nobody_acknowledged() -> None:
    """The seed closes only when all is acknowledged, so there is none there."""
    step = register.answer(A, replica(BS_C), finalize_of(BA_C, 2))
    assert step.replica is not None
    assert step.replica.length == BA_C


@pytest.mark.parametrize("case", CASES[1:4], ids=named)
def test_what_is_missing_is_fetched_where_the_seed_gives_the_replica_up(case: Case) -> None:
    """A replica that is too short, or not there, takes part after a copy."""
    assert isinstance(case.request, RecoveryWrite)
    wanted = register.wanted(A, None, case.request)
    step = register.answer(A, None, case.request, chunks(case.length)[wanted.start :])
    assert isinstance(step.reply, RecoveryVote)
    assert step.replica is not None
    assert step.replica.registers.state is ReplicaState.RBW


def test_rwr_replicas_take_part_in_the_recovery_where_the_seed_leaves_them_out() -> None:
    """ "We can relax this restriction with some special handling of the rwr replicas.\""""
    restarted = register.restarted(replica(3), same_boot=True)
    assert hdfs_state(restarted).value == "rwr"
    voted = register.answer(A, restarted, next_gs(1))
    assert voted.replica is not None
    step = register.answer(A, voted.replica, rebuild_of(1, 3))
    assert isinstance(step.reply, RecoveryVote)
    assert step.replica is not None
    assert hdfs_state(step.replica).value == "rbw"
