"""HDFS's state names are total tables, and PROTOCOL.md shows exactly their rows."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

import paxosblock.protocol
from paxosblock.protocol import block_state, replica_state
from paxosblock.protocol.block_state import HdfsBlockState
from paxosblock.protocol.register import Replica, restarted
from paxosblock.protocol.replica_state import HdfsReplicaState
from paxosblock.protocol.types import BlockState, ReplicaState
from tests.protocol.build import finalized, gs, record, replica

TEXT = (Path(paxosblock.protocol.__file__).parent / "PROTOCOL.md").read_text(encoding="utf-8")


def rows(heading: str) -> set[tuple[str, ...]]:
    """The cells of the first table below `heading`, without its two head lines."""
    section = TEXT.split(heading, 1)[1]
    table = re.search(r"(?:^\|.*\n)+", section, flags=re.MULTILINE)
    assert table is not None
    lines = table.group(0).splitlines()[2:]
    return {tuple(cell.strip(" `") for cell in line.strip("|").split("|")) for line in lines}


def yes(value: bool) -> str:
    return "yes" if value else "no"


def test_every_combination_of_registers_has_a_replica_state() -> None:
    assert set(replica_state.TABLE) == set(product(ReplicaState, (False, True), (False, True)))


def test_every_record_has_a_block_state() -> None:
    assert set(block_state.TABLE) == set(product(BlockState, (False, True)))


def test_protocol_md_lists_exactly_the_replica_states() -> None:
    expected = {
        (folder.value, yes(promised), yes(again), name.value)
        for (folder, promised, again), name in replica_state.TABLE.items()
    }
    assert rows("### Replica states") == expected


def test_protocol_md_lists_exactly_the_block_states() -> None:
    expected = {
        (state.value, yes(enough), name.value)
        for (state, enough), name in block_state.TABLE.items()
    }
    assert rows("### Block states") == expected


@pytest.mark.parametrize(
    ("held", "name"),
    [
        (replica(1), HdfsReplicaState.RBW),
        (restarted(replica(1), same_boot=True), HdfsReplicaState.RWR),
        (replica(1, max_generation=gs(1)), HdfsReplicaState.RUR),
        (finalized(1, 2), HdfsReplicaState.FINALIZED),
        (replica(0, state=ReplicaState.TEMPORARY), HdfsReplicaState.TEMPORARY),
    ],
)
def test_a_replica_is_called_what_hdfs_calls_it(held: Replica, name: HdfsReplicaState) -> None:
    assert replica_state.hdfs_state(held) is name


def test_a_decided_block_is_complete_once_enough_members_reported() -> None:
    decided = record(state=BlockState.FINALIZED)
    assert block_state.hdfs_state(decided, 0, 1) is HdfsBlockState.COMMITTED
    assert block_state.hdfs_state(decided, 1, 1) is HdfsBlockState.COMPLETE
