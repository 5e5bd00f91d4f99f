"""The part of an error that reaches a user of Spark."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator

import pytest

from paxosblock.client.spark.short_errors import short_errors
from paxosblock.errors import ConfigError


def deep(error: Exception) -> int:
    """Fail some calls further down, with a cause."""
    try:
        raise KeyError("cause")
    except KeyError as cause:
        raise error from cause


@short_errors
def call(error: Exception) -> int:
    return deep(error)


@short_errors
def generate(error: Exception) -> Iterator[int]:
    yield 1
    yield deep(error)


@pytest.mark.parametrize("run", [call, lambda error: list(generate(error))])
def test_of_our_own_errors_only_the_message_is_shown(
    run: Callable[[Exception], object], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "paxosblock")
    with pytest.raises(ConfigError) as caught:
        run(ConfigError("wrong"))
    shown = "".join(traceback.format_exception(caught.value))
    assert shown.endswith("ConfigError: wrong\n")
    assert "in deep" not in shown
    assert "KeyError" not in shown
    assert "in deep" in caplog.text, "the log tells the way"


@pytest.mark.parametrize("run", [call, lambda error: list(generate(error))])
def test_an_error_that_nobody_foresaw_keeps_its_traceback(
    run: Callable[[Exception], object],
) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        run(ZeroDivisionError("odd"))
    assert "in deep" in "".join(traceback.format_exception(caught.value))


def test_what_goes_well_is_handed_through() -> None:
    @short_errors
    def ids(count: int, *, first: int = 0) -> Iterator[int]:
        yield from range(first, count)

    assert list(ids(3, first=1)) == [1, 2]
