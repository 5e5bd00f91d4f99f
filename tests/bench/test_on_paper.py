"""The page about growth shows what its costs and the arithmetic make."""

from __future__ import annotations

from benchmarks.on_paper import Shape, measured, on_paper
from benchmarks.record import read_records
from tests.make_growth import PAGE, RECORDS, growth_page


def test_the_page_is_what_the_records_make() -> None:
    assert PAGE.read_text(encoding="utf-8") == growth_page(), "run: make generate"


def test_more_groups_take_work_from_each_leader_but_no_heartbeats() -> None:
    costs = measured(read_records([RECORDS]))
    one, eight = (on_paper(costs, Shape(10**8, 1000, groups)) for groups in (1, 8))
    assert eight.reported_again_s * 8 == one.reported_again_s
    assert eight.creates_per_s == 8 * one.creates_per_s
    assert eight.memory_gib < one.memory_gib / 7
    assert eight.heartbeats == one.heartbeats
    assert one.heartbeats == 1000 * costs.heartbeat_us.value / 1e6
