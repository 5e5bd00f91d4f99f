"""A follower to which the leader's table came, when the process that checks it is killed."""

from __future__ import annotations

import pytest

from paxosblock.errors import UnavailableError
from paxosblock.namenode.kv.table import Receiver
from paxosblock.namenode.raft.log import ROOM_POLL_S
from paxosblock.namenode.raft.raft_messages import InstallSnapshotResponse
from paxosblock.namenode.raft.transfers import CHECKS_MAX
from tests.raft.rig import Rig, rig, stream_after


def kill_checks(member: Rig, killed: int) -> list[bool]:
    """Let so many checks of the tables that come be killed; return whether each one was."""
    checks: list[bool] = []
    receive = member.node.incoming._receive

    def received() -> Receiver:
        receiver = receive()
        check = receiver.check

        def checked() -> int:
            checks.append(len(checks) < killed)
            if checks[-1]:
                raise UnavailableError("the process that reads it was ended")
            return check()

        receiver.check = checked  # type: ignore[method-assign]  # only of this one
        return receiver

    member.node.incoming._receive = received
    return checks


def test_a_table_whose_check_was_killed_is_checked_again_and_not_fetched_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with rig() as member:
        checks = kill_checks(member, CHECKS_MAX - 1)
        member.append([])
        member.send_snapshot(3, stream_after(3))
        member.run(CHECKS_MAX * ROOM_POLL_S)
        assert checks == [True] * (CHECKS_MAX - 1) + [False]
        assert member.last(InstallSnapshotResponse).match == 3
        assert member.node.machine.revision == 3
        assert member.node.counters.strangers_refused == 0
        assert "the leader's table is not checked: the process that" in caplog.text


def test_a_table_whose_check_is_killed_each_time_is_fetched_again() -> None:
    """Its content may be the reason."""
    with rig() as member:
        checks = kill_checks(member, CHECKS_MAX)
        member.append([])
        stream = stream_after(3)
        member.send_snapshot(3, stream)
        member.run((CHECKS_MAX + 2) * ROOM_POLL_S)
        assert checks == [True] * CHECKS_MAX
        assert not member.sent(InstallSnapshotResponse)
        assert (member.store.failure(), member.node.machine.revision) == (None, 0)
        member.send_snapshot(3, stream)
        member.run(ROOM_POLL_S)
        assert member.last(InstallSnapshotResponse).match == 3


def test_a_member_that_stops_meanwhile_waits_for_no_check() -> None:
    with rig() as member:
        checks = kill_checks(member, CHECKS_MAX)
        member.append([])
        member.send_snapshot(3, stream_after(3))
        member.node.stop()
        member.run(CHECKS_MAX * ROOM_POLL_S)
        assert len(checks) == 1
