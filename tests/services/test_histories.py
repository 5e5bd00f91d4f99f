"""Whatever happens to NameNodes, one order of all calls explains what every client was told."""

from __future__ import annotations

from pathlib import Path

import pytest

from paxosblock import LocalCluster
from paxosblock.local.cluster_folder import NodeEntry, NodeKind
from tests.services import histories


def test_histories_are_linearizable_while_namenodes_die_hang_and_restart(tmp_path: Path) -> None:
    faults = (
        histories.a_leader_is_killed,
        histories.a_leader_hangs,
        histories.a_leader_closes,
        histories.all_are_killed,
    )
    campaign = histories.run(1, histories.in_turn(faults), tmp_path / "cluster")
    assert campaign.history.violations() == []
    counts = campaign.history.counts
    assert min(counts[kind] for kind in ("read", "swap", "ensure", "delete")) > 20
    assert campaign.history.mistakes() == []
    assert min(counts[kind] for kind in ("list", "snapshot", "past", "time")) > 10


class PlantedCluster(LocalCluster):
    """Its NameNodes answer `stat` without asking whether they still lead."""

    def command(self, member: NodeEntry) -> list[str]:
        words = super().command(member)
        if member.role is NodeKind.NAMENODE:
            words[words.index("paxosblock")] = "tests.services.planted_namenode"
        return words


def test_namenodes_that_answer_from_old_states_are_noticed(tmp_path: Path) -> None:
    faults = histories.until_noticed(histories.a_follower_is_killed, 12)
    campaign = histories.run(1, faults, tmp_path / "cluster", PlantedCluster)
    assert campaign.history.violations()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_histories_stay_linearizable_under_faults_at_random(tmp_path: Path) -> None:
    faults = histories.for_seconds(120, seed=2)
    campaign = histories.run(2, faults, tmp_path / "cluster")
    assert campaign.history.violations() == []
    assert campaign.history.mistakes() == []
    assert campaign.faults.total() > 10
