"""Every order, loss and repetition of messages in small clusters of the shipped classes.

The state counts are pinned: see `configurations`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import paxosblock.protocol
from tests.protocol.configurations import CI, LARGE
from tests.protocol.explore import silent_rules
from tests.protocol.explorer import explore

PROTOCOL = Path(paxosblock.protocol.__file__).with_name("PROTOCOL.md")


@pytest.mark.timeout(400)  # ten seconds of computing, on a machine that others may use, too
@pytest.mark.parametrize("name", CI)
def test_every_reachable_state_keeps_the_properties(name: str) -> None:
    config, pinned = CI[name]
    result = explore(config)
    assert result.fault is None, "\n".join((result.fault or "", *result.trace))
    assert silent_rules(config, result) == ()
    assert result.states == pinned


def test_the_document_tells_the_state_counts_that_are_pinned() -> None:
    text = PROTOCOL.read_text(encoding="utf-8")
    for name, (config, pinned) in LARGE.items():
        assert f"\n| {name} | {config.meaning} | {pinned} | " in text
    every_run = ", ".join(f"{name} {pinned}" for name, (_, pinned) in CI.items())
    assert f"states pinned: {every_run}." in " ".join(text.split())


def test_every_numbered_rule_is_one_that_an_exploration_must_reach() -> None:
    text = PROTOCOL.read_text(encoding="utf-8")
    rules = set(re.findall(r"\*\*([KPDRW](?:[0-9]+|-fin))\*\*", text))
    reached = {name for config, _ in CI.values() for name in config.must_fire}
    reached |= {name.partition("-")[0] for name in reached}
    assert {"K1", "K12", "P7", "D8", "R1", "R-fin", "W7"} <= rules
    assert rules - reached == set()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", LARGE)
def test_the_larger_bounds_keep_the_properties_too(name: str) -> None:
    config, pinned = LARGE[name]
    result = explore(config)
    assert result.fault is None, "\n".join((result.fault or "", *result.trace))
    assert result.complete
    assert silent_rules(config, result) == ()
    assert result.states == pinned
