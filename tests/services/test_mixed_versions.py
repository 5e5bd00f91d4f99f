"""The program that upgrades a cluster node by node, from today's code to today's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.services.mixed_versions import upgrade


@pytest.mark.slow
def test_a_cluster_whose_nodes_change_one_after_the_other_loses_nothing(
    repository: Path, tmp_path: Path
) -> None:
    before = tmp_path / "before"
    before.mkdir()
    (before / "paxosblock").symlink_to(repository / "paxosblock")
    steps = list(upgrade(before, tmp_path / "cluster"))
    assert len(steps) == 7
    assert sum("runs today's code" in step for step in steps) == 6
