"""A member whose table is damaged shows nothing of it, leads no member, and gets another table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from paxosblock.errors import CorruptionError, OutcomeUnknownError, UnavailableError
from paxosblock.host.disk import Disk
from paxosblock.namenode.kv.codec import encode_edit
from paxosblock.namenode.kv.interface import Edit, Expect, Versioned
from paxosblock.namenode.kv.table import Tables
from paxosblock.namenode.raft.entry import Entry, EntryKind
from paxosblock.namenode.raft.raft_messages import (
    AppendEntries,
    AppendEntriesResponse,
    InstallSnapshot,
    InstallSnapshotResponse,
    PreVote,
    RequestVote,
    TimeoutNow,
)
from tests.memory_table import MemoryReceiver, MemoryTable, open_memory
from tests.raft.rig import ELECTION_S, Rig, entry, put, rig, stream_after

DAMAGED = "the map of NameNode n0:1 is damaged"


class RottenTable(MemoryTable):
    """A table from which `b"rotten"` cannot be read."""

    def get(self, key: bytes) -> Versioned:
        if key == b"rotten":
            raise self.on_damage(CorruptionError("a block fails its checksum"))
        return super().get(key)


def open_rotten(disk: Disk, folder: Path) -> RottenTable:
    opened = open_memory(disk, folder)
    return RottenTable(opened.snapshot(), opened.place)


@contextmanager
def rotten() -> Iterator[Rig]:
    with rig(tables=Tables(open_rotten, MemoryReceiver)) as member:
        yield member


def reading(term: int = 1) -> Entry:
    """An entry that reads what cannot be read."""
    edit = Edit(expect=(Expect(b"rotten", 0),), puts=((b"new", b""),))
    return Entry(term, EntryKind.EDIT, encode_edit(edit))


def read_damage(member: Rig) -> None:
    with pytest.raises(UnavailableError, match=DAMAGED):
        member.store.view().get(b"rotten")
    member.run()


def test_a_leader_that_reads_damage_leads_no_more_and_says_so() -> None:
    with rotten() as member:
        member.become_leader()
        write = member.commit()
        read_damage(member)
        assert not member.store.is_leader()
        assert DAMAGED in str(member.store.impaired())
        assert member.store.failure() is None
        with pytest.raises(OutcomeUnknownError):
            write.result()
        with pytest.raises(UnavailableError, match=DAMAGED):
            member.wait(member.store.barrier())


def test_a_leader_that_applies_damage_answers_at_once() -> None:
    with rotten() as member:
        member.become_leader()
        edit = Edit(expect=(Expect(b"rotten", 0),), puts=((b"new", b""),))
        write = member.begin(member.store.commit(edit))
        member.run()
        member.acknowledge()
        with pytest.raises(OutcomeUnknownError):
            write.result()
        assert not member.store.is_leader()


def test_who_waits_for_an_entry_to_be_applied_is_told_of_the_damage_at_once() -> None:
    with rotten() as member:
        member.append([])
        waiting = member.begin(member.node.wait_applied(9))
        read_damage(member)
        assert isinstance(waiting.exception(), UnavailableError)


def test_a_damaged_member_stands_for_no_election_and_votes() -> None:
    with rotten() as member:
        member.append([])
        read_damage(member)
        member.clear()
        member.run(3 * ELECTION_S)
        member.tell("n1:1", TimeoutNow(term=member.term))
        assert not member.sent(PreVote) + member.sent(RequestVote)
        answer = member.ask_for_vote("n1:1", 9, last=(9, 9))
        assert answer is not None
        assert answer.vote_granted


def test_support_that_comes_after_the_damage_elects_nobody() -> None:
    with rotten() as member:
        member.run(ELECTION_S)
        read_damage(member)
        member.support(*member.peers)
        assert not member.sent(RequestVote)


def test_a_damaged_member_confirms_entries_and_asks_for_a_table() -> None:
    with rotten() as member:
        assert member.append([entry(1)], commit=1).damaged is None
        answer = member.append([reading()], previous=(1, 1), commit=2)
        assert answer.last_log_index == 2
        answer = member.append([entry(1)], previous=(2, 1), commit=3)
        assert answer.last_log_index == 3, "its log is sound"
        assert answer.damaged == 1, "nothing is applied any more"


def test_a_member_that_knows_of_damage_applies_nothing_so_that_the_leader_s_table_is_later() -> (
    None
):
    with rotten() as member:
        member.append([entry(1)], commit=1)
        read_damage(member)
        assert member.append([entry(1)], previous=(1, 1), commit=2).damaged == 1
        assert member.node.machine.revision == 1
        member.send_snapshot(2, stream_after(2))
        assert member.store.impaired() is None


def test_a_damaged_member_goes_on_from_the_leader_s_table_and_so_does_its_next_start() -> None:
    with rotten() as member:
        member.append([entry(1), reading(), entry(1)], commit=3)
        member.send_snapshot(3, stream_after(3))
        assert member.store.impaired() is None
        assert member.last(InstallSnapshotResponse).match == 3
        assert member.append([entry(1)], previous=(3, 1), commit=4).damaged is None
        assert member.node.machine.revision == 4
        assert not member.store.view().get(b"rotten").exists
        member.crash()
        assert member.node.machine.revision >= 3
        assert member.node.log.last_log_index == 4


def test_a_table_that_is_not_later_takes_no_place() -> None:
    with rotten() as member:
        member.append([entry(1), entry(1), reading()], commit=3)
        member.send_snapshot(2, stream_after(2))
        assert member.store.impaired() is not None
        assert member.node.machine.revision == 2


def test_a_leader_sends_its_table_to_a_damaged_member_once_it_is_later() -> None:
    with rig() as member:
        member.become_leader()
        standing = member.node.machine.revision
        member.clear()
        member.tell("n1:1", asked_for_table(member, standing))
        member.run(0.2)
        assert not member.sent(InstallSnapshot), "no change has come since"
        (added,) = member.last(AppendEntries, "n2:1").entries or member.node.log.slice(
            standing + 1, 1, 1
        )
        assert added.kind is EntryKind.NOOP
        member.acknowledge("n2:1")
        assert member.node.machine.revision > standing
        member.tell("n1:1", asked_for_table(member, standing))
        member.run()
        sent = member.last(InstallSnapshot, "n1:1")
        assert sent.index > standing
        assert not member.sent(InstallSnapshot, "n2:1")


def asked_for_table(member: Rig, standing: int) -> AppendEntriesResponse:
    return AppendEntriesResponse(member.term, True, 1, 1 << 20, standing, damaged=standing)


def test_a_member_alone_whose_table_is_damaged_serves_the_rest_as_nobody_else_has_it() -> None:
    said = "a block fails its checksum"
    with rig(1, tables=Tables(open_rotten, MemoryReceiver)) as member:
        member.run()
        with pytest.raises(CorruptionError, match=said):
            member.store.view().get(b"rotten")
        assert said in str(member.store.impaired())
        assert member.store.failure() is None
        member.wait(member.store.commit(put(b"other")))
        assert member.wait(member.store.barrier()).get(b"other").exists
        member.may_stop = True
        with pytest.raises(OutcomeUnknownError, match=rf"{said}; whether .* after a restart"):
            member.wait(member.store.commit(Edit((Expect(b"rotten", 0),))))
        assert said in str(member.store.failure())
