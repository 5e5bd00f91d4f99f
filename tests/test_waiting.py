"""The waiting helper of the tests: it returns at once, or says what it waited for."""

from __future__ import annotations

import pytest

from tests.waiting import wait_until, wait_until_async


def test_waiting_ends_with_the_first_true_value() -> None:
    answers = iter([0, 0, 7, 8])
    assert wait_until(lambda: next(answers), timeout_s=60) == 7


def test_waiting_in_vain_says_for_what_and_what_came_last() -> None:
    with pytest.raises(
        AssertionError, match=r"^waited 0\.02 s for a leader; the last answer was \[\]$"
    ):
        wait_until(list, timeout_s=0.02, what="a leader")


async def test_an_asynchronous_condition_is_awaited() -> None:
    answers = iter([False, True])

    async def condition() -> bool:
        return next(answers)

    assert await wait_until_async(condition, timeout_s=60)


async def test_a_plain_condition_may_be_waited_for_in_a_loop() -> None:
    answers = iter([None, "up"])
    assert await wait_until_async(lambda: next(answers), timeout_s=60) == "up"
