"""A slice of the simulation, and that it is one: the same seed runs the same way."""

from __future__ import annotations

import asyncio
import random

import pytest

from paxosblock.namenode.kv import state_machine
from tests.raft.linearizability import Operation, is_linearizable
from tests.raft.lost_folders import OpenDoors
from tests.raft.simulation import (
    DAMAGE_EVERY,
    FULL_DISKS_EVERY,
    LOST_EVERY,
    simulate,
    virtual_loop,
)
from tests.raft.virtual_time import DeadlockError, Host, VirtualTimeLoop

SLICE = range(1000, 1040)


@pytest.mark.parametrize("first", range(SLICE.start, SLICE.stop, 10))
def test_no_rule_is_violated_whatever_fails(first: int) -> None:
    outcomes = [simulate(seed) for seed in range(first, first + 10)]
    assert [each for each in outcomes if each.violations] == []
    assert sum(each.counts["elections"] for each in outcomes) > 20
    assert sum(each.counts["answered"] for each in outcomes) > 500
    assert sum(each.counts["read at followers"] for each in outcomes) > 50
    assert sum(each.counts["crashes"] for each in outcomes) > 20
    assert sum(each.counts["pauses"] for each in outcomes) > 5


def test_no_rule_is_violated_while_disks_run_full_and_have_room_again() -> None:
    first = 1000 + (5 - 1000) % FULL_DISKS_EVERY
    outcomes = [simulate(first + number * FULL_DISKS_EVERY) for number in range(40)]
    assert [each for each in outcomes if each.violations] == []
    assert sum(each.counts["disks filled"] for each in outcomes) > 200
    assert sum(each.counts["answered"] for each in outcomes) > 1000


def test_no_rule_is_violated_while_tables_are_damaged_and_replaced() -> None:
    first = 1000 + (6 - 1000) % DAMAGE_EVERY
    outcomes = [simulate(first + number * DAMAGE_EVERY) for number in range(20)]
    assert [each for each in outcomes if each.violations] == []
    assert sum(each.counts["tables damaged"] for each in outcomes) > 50
    assert sum(each.counts["answered"] for each in outcomes) > 500


LOST = range(1000 + (4 - 1000) % LOST_EVERY, 1160, LOST_EVERY)


def test_no_rule_is_violated_while_folders_are_lost_and_members_start_with_every_flag() -> None:
    outcomes = [simulate(seed) for seed in LOST]
    assert [each for each in outcomes if each.violations] == []
    assert sum(each.counts["members born"] for each in outcomes) >= 3 * len(LOST)
    assert sum(each.counts["folders lost"] for each in outcomes) > 15
    assert sum(each.counts["starts refused"] for each in outcomes) > 60
    assert sum(each.counts["folders replaced"] for each in outcomes) > 10
    assert sum(each.counts["answered"] for each in outcomes) > 500


def test_an_empty_member_that_votes_is_found() -> None:
    found = [outcome for seed in LOST if (outcome := simulate(seed, doors=OpenDoors)).violations]
    assert any("leader completeness" in one for each in found for one in each.violations)


def test_no_rule_is_violated_when_each_edit_is_applied_over_several_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(state_machine, "SLICE_KEYS", 1)
    outcomes = [simulate(seed) for seed in range(1000, 1010)]
    assert [each for each in outcomes if each.violations] == []
    assert sum(each.counts["answered"] for each in outcomes) > 100


def test_without_faults_one_leader_serves_all_the_time() -> None:
    outcome = simulate(6, faults=False)
    assert outcome.violations == ()
    assert outcome.counts["elections"] == 1
    assert outcome.counts["crashes"] == 0


def test_the_same_seed_runs_the_same_way() -> None:
    assert simulate(7) == simulate(7)
    assert simulate(10) == simulate(10), "with members that stand still"


def test_a_simulation_that_waits_for_nothing_says_so() -> None:
    loop = VirtualTimeLoop()
    try:
        with pytest.raises(DeadlockError):
            loop.run_until_complete(loop.create_future())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def test_a_process_that_stands_still_does_nothing_and_goes_on_with_what_waited() -> None:
    with virtual_loop() as loop:
        host, heard = Host(loop, random.Random(1), rate=1.0), list[str]()
        host.call("peer", loop.call_later, 1.0, heard.append, "timer")
        host.call("peer", loop.call_later, 9.0, heard.append, "later timer")
        loop.run_until_complete(loop.pass_time(0.5))
        host.pause()
        host.call("peer", heard.append, "message")
        answer = loop.create_task(host.ask(loop.pass_time(0.0), patience_s=2.0))
        loop.run_until_complete(loop.pass_time(4.5))
        assert heard == []
        assert isinstance(answer.exception(), TimeoutError)
        host.resume()
        loop.run_until_complete(loop.pass_time(0.5))
        assert heard == ["message", "timer"]
        loop.run_until_complete(loop.pass_time(4.0))
        assert heard == ["message", "timer", "later timer"]


@pytest.mark.parametrize("rate", [0.5, 1.0, 4.0])
def test_a_process_has_a_clock_of_its_own_rate(rate: float) -> None:
    with virtual_loop() as loop:
        host, ended = Host(loop, random.Random(1), rate), list[float]()

        async def wait() -> float:
            begun = loop.time()
            await loop.pass_time(2.0)
            ended.append(loop.now)
            return loop.time() - begun

        assert loop.run_until_complete(host.ask(wait())) == pytest.approx(2.0)
        assert ended == [pytest.approx(2.0 / rate)]
        before = host.clock()
        host.set_rate(10.0)
        assert host.clock() == pytest.approx(before)
        loop.run_until_complete(loop.pass_time(1.0))
        assert host.clock() == pytest.approx(before + 10.0)


def operation(
    kind: str, value: str, called: float, answered: float | None, **more: object
) -> Operation:
    return Operation(kind, value, called, answered, **more)  # type: ignore[arg-type]  # of a test


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ([("write", "x", 0, 1), ("read", "x", 2, 3)], True),
        ([("write", "x", 0, 1), ("read", "", 2, 3)], False),
        ([("write", "x", 0, 3), ("read", "", 1, 2)], True),
        ([("write", "x", 0, 3), ("read", "x", 1, 1.5), ("read", "", 1.6, 2)], False),
        ([("write", "x", 0, None), ("read", "", 5, 6), ("read", "x", 7, 8)], True),
        ([("write", "x", 0, None), ("read", "x", 5, 6), ("read", "", 7, 8)], False),
    ],
)
def test_the_checker_of_histories_knows_right_from_wrong(
    history: list[tuple[str, str, float, float | None]], expected: bool
) -> None:
    assert is_linearizable([operation(*each) for each in history]) is expected


def test_the_checker_understands_swaps() -> None:
    write = operation("write", "x", 0, 1)
    good = operation("swap", "y", 2, 3, expected="x", swapped=True)
    refused = operation("swap", "z", 2, 3, expected="x", swapped=False)
    assert is_linearizable([write, good])
    assert not is_linearizable([write, refused])
    assert is_linearizable([write, good, refused])


def test_the_checker_understands_deletes_that_say_what_they_did() -> None:
    write = operation("write", "x", 0, 1)
    found, nothing = (operation("delete", "", 2, 3, swapped=each) for each in (True, False))
    assert is_linearizable([write, found, nothing])
    assert not is_linearizable([write, nothing])
    assert not is_linearizable([write, found, operation("delete", "", 4, 5, swapped=True)])
    assert is_linearizable([write, operation("delete", "", 2, None), operation("read", "", 8, 9)])


def test_the_checker_understands_writes_that_keep_what_they_find() -> None:
    write = operation("write", "x", 0, 1)
    assert is_linearizable([write, operation("ensure", "y", 2, 3, expected="x")])
    assert not is_linearizable([write, operation("ensure", "y", 2, 3, expected="y")])
    unknown = operation("ensure", "y", 2, None)
    assert is_linearizable([write, unknown, operation("read", "x", 4, 5)])
    assert not is_linearizable([write, unknown, operation("read", "y", 4, 5)])
    assert is_linearizable([unknown, operation("read", "y", 4, 5)])
