"""A slice of the chaos campaign; `make chaos SEED=… SECONDS=…` runs as long as you like."""

from __future__ import annotations

from pathlib import Path

from tests.services.chaos.campaign import run
from tests.services.chaos.failures import FAILURES

ROUNDS = (
    ("DataNode hangs", "NameNode hangs", "DataNode killed"),
    ("DataNode lost with its disks", "DataNodes restarted in turn"),
)


def test_all_files_are_whole_after_failures_under_writers_idle_ones_too(tmp_path: Path) -> None:
    by_name = {failure.name: failure for failure in FAILURES}
    rounds = ([by_name[name] for name in names] for names in ROUNDS)
    report = run(3, rounds, tmp_path / "cluster", namenodes=3)
    assert report.failures == {name: 1 for names in ROUNDS for name in names}
    assert report.blocks_checked > 0
    assert report.blocks_whole > 0
    assert report.bytes_verified > report.bytes_acknowledged > report.bytes_followed > 0
