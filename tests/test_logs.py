"""The log of a node: one line per event, whatever happens in it."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator

import pytest

from paxosblock.errors import ConfigError
from paxosblock.logs import facts, set_up_logs

log = logging.getLogger("paxosblock.test")


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers = []  # set_up_logs would close pytest's own
    stream = io.StringIO()
    set_up_logs("dn-1", "info", stream)
    yield stream
    root.handlers, root.level = handlers, level


def after_the_time(stream: io.StringIO) -> str:
    return re.sub(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ", "", stream.getvalue())


def test_an_event_is_a_line_with_time_level_node_message_and_facts(written: io.StringIO) -> None:
    log.info("block recovered", extra=facts(block=7, generation=3))
    assert after_the_time(written) == "info dn-1 block recovered block=7 generation=3\n"


def test_a_fact_that_would_blur_the_line_is_quoted(written: io.StringIO) -> None:
    log.info("refused", extra=facts(path="/a b", reason='say "no"', empty="", name="é"))
    assert after_the_time(written) == (
        'info dn-1 refused path="/a b" reason="say \\"no\\"" empty="" name=é\n'
    )


def test_a_line_break_cannot_fake_a_second_event(written: io.StringIO) -> None:
    log.warning("first\nsecond", extra=facts(path="/x\r\n\u2028y"))
    assert after_the_time(written) == ('warning dn-1 first\\nsecond path="/x\\r\\n\\u2028y"\n')


def test_a_traceback_stays_on_the_line_of_its_event(written: io.StringIO) -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("request failed", extra=facts(block=7))
    line = after_the_time(written)
    assert line.startswith('error dn-1 request failed block=7 traceback="Traceback (most recent')
    assert line.endswith('ValueError: broken"\n')
    assert line.count("\n") == 1


def test_events_below_the_level_are_not_written(written: io.StringIO) -> None:
    log.debug("detail")
    assert written.getvalue() == ""


def test_an_unknown_level_is_refused_with_the_levels_there_are() -> None:
    with pytest.raises(
        ConfigError, match=r"^log level 'loud': expected one of debug, info, warning, error$"
    ):
        set_up_logs("dn-1", "loud")
