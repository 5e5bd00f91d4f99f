"""Alarms: what an operator has to look at is told and counted once."""

from __future__ import annotations

import logging

import pytest

from paxosblock.namenode.alarms import Alarms


def test_an_alarm_that_is_over_is_not_shown_and_rings_again() -> None:
    alarms = Alarms()
    for _ in range(2):
        alarms.ring("missing block: gone", block=1)
        assert alarms.latest() == ("missing block: gone block=1",)
        alarms.end("missing block: gone", block=1)
        alarms.end("missing block: gone", block=1)
        assert (alarms.latest(), alarms.counts["missing"]) == ((), 0)


def test_what_every_report_finds_again_is_one_alarm(caplog: pytest.LogCaptureFixture) -> None:
    alarms = Alarms()
    with caplog.at_level(logging.ERROR):
        for length in (1, 2):
            alarms.ring("I6 a vote that nobody asked for", block=1, storage="s1", length=length)
            alarms.ring("I6 a vote that nobody asked for", block=2, storage="s1", length=length)
            alarms.ring("damaged replica: bad checksum", block=1, storage="s1")
    assert alarms.counts == {"I6": 2, "damaged": 1}
    assert len(caplog.records) == 3
    assert alarms.latest(2) == (
        "I6 a vote that nobody asked for block=2 storage=s1",
        "damaged replica: bad checksum block=1 storage=s1",
    )
