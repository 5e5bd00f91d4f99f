"""A slice of the chaos campaign; `make chaos SEED=… SECONDS=…` runs as long as you like."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.services.chaos.campaign import run
from tests.services.chaos.failures import FAILURES


@pytest.mark.parametrize(
    ("namenodes", "names"),
    [
        (3, ("DataNode hangs", "NameNode hangs", "DataNode killed")),
        (1, ("DataNode lost with its disks",)),
        pytest.param(1, ("DataNodes restarted in turn",), marks=pytest.mark.slow),
    ],
)
def test_all_files_are_whole_after_failures_under_writers_idle_ones_too(
    tmp_path: Path, namenodes: int, names: tuple[str, ...]
) -> None:
    by_name = {failure.name: failure for failure in FAILURES}
    rounds = iter([[by_name[name] for name in names]])
    report = run(3, rounds, tmp_path / "cluster", namenodes, appenders=0)
    assert report.failures == dict.fromkeys(names, 1)
    assert report.blocks_checked > 0
    assert report.blocks_whole > 0
    assert report.bytes_verified > report.bytes_acknowledged > report.bytes_followed > 0
