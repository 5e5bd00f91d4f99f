"""A slice of the chaos campaign; `make chaos SEED=… SECONDS=…` runs as long as you like."""

from __future__ import annotations

from pathlib import Path

from tests.services import chaos


def test_nothing_acknowledged_is_lost_when_nodes_and_writers_are_killed(tmp_path: Path) -> None:
    # The first faults of this seed are a leader that is killed and one that is paused.
    report = chaos.run(seed=3, seconds=15, path=tmp_path / "cluster", namenodes=3)
    assert report.namenodes_killed + report.namenodes_paused > 0
    assert report.bytes_acknowledged > 0
    assert report.bytes_verified == report.bytes_followed >= report.bytes_acknowledged
