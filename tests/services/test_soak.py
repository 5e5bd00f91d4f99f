"""A slice of the soak: `make soak SECONDS=1200` takes twenty minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.services.soak import OF_DATANODES, Held, Plan, excess, soak


@pytest.mark.timeout(180)
def test_after_work_and_kills_each_process_holds_what_it_did_before(tmp_path: Path) -> None:
    told: list[str] = []
    assert soak(tmp_path / "cluster", Plan(1, 8.0, 3.0, 1), told.append) == []
    assert any("processes killed" in line and ", 0 processes" not in line for line in told)


def test_a_figure_that_grew_by_more_than_its_bound_is_named() -> None:
    first = Held(50 << 20, 60, 10, 1 << 20)
    assert excess(first, first, OF_DATANODES) == []
    leaky = Held(first.memory_bytes, first.descriptors + 13, 10, 1 << 20)
    assert excess(first, leaky, OF_DATANODES) == ["descriptors grew from 60 to 73, by more than 12"]
