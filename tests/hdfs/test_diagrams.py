"""*Append/Hflush/Read Design*, 9: the two diagrams of state transitions, arrow by arrow."""

from __future__ import annotations

import pytest

from paxosblock.protocol.effects import AdoptLog
from paxosblock.protocol.messages import RecoveryWrite
from paxosblock.protocol.register import answer
from paxosblock.protocol.replica_state import HdfsReplicaState
from tests.hdfs.transitions import (
    LATER,
    QUESTIONS,
    REPLICAS,
    block_transitions,
    replica_transitions,
)
from tests.protocol.build import A

REPLICA_ARROWS = {(arrow.before, arrow.event, arrow.after) for arrow in replica_transitions()}
BLOCK_ARROWS = {(arrow.before, arrow.event, arrow.after) for arrow in block_transitions()}


@pytest.mark.parametrize(
    ("words", "before", "event", "after"),
    [
        ("a new replica by a client starts rbw", "none", "Create", "rbw"),
        ("a new replica by replication is temporary", "none", "Finalize", "temporary"),
        ("rbw becomes rwr when its DataNode restarts", "rbw", "restart", "rwr"),
        ("rur when a recovery starts, from rbw", "rbw", "NextGS", "rur"),
        ("rur when a recovery starts, from rwr", "rwr", "NextGS", "rur"),
        ("rur when a recovery starts, from finalized", "finalized", "NextGS", "rur"),
        ("finalized when the client closes", "rbw", "Finalize", "finalized"),
        ("finalized when its recovery succeeds", "rur", "Finalize", "finalized"),
        ("finalized when a copy succeeds", "temporary", "all chunks are there", "finalized"),
        ("a copy that fails is deleted", "temporary", "failure, restart", "none"),
        ("append opens finalized again", "finalized", "RecoveryWrite of an APPEND", "rbw"),
        ("rwr may take part in a recovery, unlike there", "rwr", "RecoveryWrite of a SEAL", "rbw"),
        ("outdated and deleted", "rwr", "Delete", "none"),
    ],
)
def test_an_arrow_of_hdfs_replica_diagram_is_one_of_ours(
    words: str, before: str, event: str, after: str
) -> None:
    assert (before, event, after) in REPLICA_ARROWS, words


def test_a_replica_never_goes_back_to_where_it_takes_writes_but_by_a_later_generation() -> None:
    back = {event for _, event, after in REPLICA_ARROWS if after == HdfsReplicaState.RBW.value}
    made = {"Create", "all chunks are there"}
    assert back - made == {name for name, q in QUESTIONS.items() if isinstance(q, RecoveryWrite)}


@pytest.mark.parametrize("before", REPLICAS)
def test_error_recovery_always_bumps_the_generation_of_a_replica(before: str) -> None:
    for held in REPLICAS[before]:
        for name, question in QUESTIONS.items():
            step = answer(A, held, question)
            if isinstance(step.effect, AdoptLog):
                assert step.replica is not None, name
                assert step.replica.registers.accepted_generation == LATER


def test_a_restart_changes_the_name_of_an_rbw_replica_and_of_no_other() -> None:
    assert {before for before, event, _ in REPLICA_ARROWS if event == "restart"} == {"rbw"}


@pytest.mark.parametrize(
    ("words", "before", "event", "after"),
    [
        ("addBlock makes it under construction", "none", "K1 AddBlock", "under_construction"),
        (
            "lease recovery: under recovery",
            "under_construction",
            "K2 allocate a SEAL",
            "under_recovery",
        ),
        (
            "close: committed",
            "under_construction",
            "K6 the writer ends the block",
            "committed",
        ),
        ("recovery succeeds: committed", "under_recovery", "K5 a SEAL decides", "committed"),
        ("a matching finalized replica: complete", "committed", "a member reports it", "complete"),
        (
            "append: under construction again",
            "complete",
            "K7 an APPEND is installed",
            "under_construction",
        ),
    ],
)
def test_an_arrow_of_hdfs_block_diagram_is_one_of_ours(
    words: str, before: str, event: str, after: str
) -> None:
    assert (before, event, after) in BLOCK_ARROWS, words


def test_nothing_leads_out_of_a_decided_block_but_an_append() -> None:
    decided = {"committed", "complete"}
    left = {
        event for before, event, after in BLOCK_ARROWS if before in decided and after not in decided
    }
    assert left == {"K7 an APPEND is installed"}
