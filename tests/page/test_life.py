"""The drawing of a block's life: a lane for each generation, a mark for each step, in order."""

from __future__ import annotations

from paxosblock.api.status import EXPLAIN
from paxosblock.errors import UnavailableError
from paxosblock.namenode.blocks.history import describe
from paxosblock.page.life import MarkKind, life_of
from paxosblock.page.site import Site
from paxosblock.protocol.messages import Nack
from paxosblock.protocol.types import (
    BlockId,
    Generation,
    Reason,
)
from tests.page.answers import Answers
from tests.page.trouble import HISTORY, S1, explained, line


def test_steps_are_in_their_order_and_in_the_lane_of_their_generation() -> None:
    life = life_of(HISTORY)
    assert [lane.generation for lane in life.lanes] == [0, 1, 2]
    heights = {lane.generation: lane.y for lane in life.lanes}
    assert [mark.y for mark in life.marks] == [heights[each.generation] for each in HISTORY]
    places = [mark.x for mark in life.marks]
    assert places == sorted(set(places))
    assert all(0 < mark.x < life.width and 0 < mark.y < life.height for mark in life.marks)


def test_votes_refusals_and_decisions_differ_and_tell_their_reason_and_length() -> None:
    kinds = [(mark.kind, mark.length) for mark in life_of(HISTORY).marks]
    assert kinds == [
        (MarkKind.DECISION, ""),
        (MarkKind.VOTE, "12"),
        (MarkKind.REFUSAL, "11"),
        (MarkKind.DECISION, "12"),
        (MarkKind.VOTE, "12"),
    ]
    assert "fenced, promised 3" in life_of(HISTORY).marks[2].title


def test_a_refusal_is_called_as_the_history_calls_it() -> None:
    nack = Nack(BlockId(1), Generation(1), S1, Reason.FENCED, Generation(3), Generation(0), 11)
    event, detail = describe(nack)
    assert life_of((line(1, event, S1, detail),)).marks[0].kind is MarkKind.REFUSAL


def test_a_block_without_steps_has_an_empty_drawing() -> None:
    assert life_of(()).marks == ()


async def test_the_page_draws_every_step_and_has_the_same_as_a_table() -> None:
    answers = Answers({EXPLAIN.name: explained(HISTORY)})
    answer = await Site.of_namenode("nn", answers, "http").page("/block", {"id": "7"}, "me")
    page = answer.body.decode()
    assert answer.status == 200, page
    assert [page.count(f"<{shape} ") for shape in ("circle", "rect", "path")] == [2, 2, 1]
    assert page.count("2023-11-14 22:13:20.123Z") == len(HISTORY)
    assert "<b>" not in page
    assert "<i>" not in page
    assert page.count("no replica is known") == 2
    assert "secret" not in page


async def test_a_block_that_is_not_there_is_an_error_of_the_node() -> None:
    site = Site.of_namenode("nn", Answers({EXPLAIN.name: UnavailableError("no such")}), "http")
    assert (await site.page("/block", {"id": "7"}, "me")).status == 503
    assert (await site.page("/block", {"id": "seven"}, "me")).status == 400
