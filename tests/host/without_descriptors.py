"""No descriptor is left: what must not fail gets one of the reserve, a thread waits.

Run by `test_descriptors.py`, in a process of its own.
"""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from paxosblock.errors import NoSpaceError
from paxosblock.host.descriptors import RESERVE, Reserve, opening, raise_limit, scarce
from paxosblock.host.disk import OsDisk
from paxosblock.namenode.raft.vote_file import SPARE_BYTES, STEP_BYTES, ElectionVote, VoteFile
from tests.journal.records import begun_journal

LIMIT = 256


class Descriptors:
    """All that this process may have, as long as a test holds them."""

    def __init__(self) -> None:
        self._held: list[int] = []

    def take_all(self) -> None:
        with suppress(OSError):
            while True:
                self._held.append(os.open(os.devnull, os.O_RDONLY))

    def give(self, count: int) -> None:
        for _ in range(min(count, len(self._held))):
            os.close(self._held.pop())


@pytest.fixture
def descriptors() -> Iterator[Descriptors]:
    """A soft limit that is used up fast; no reserve before and after."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = Descriptors()
    resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, hard))
    try:
        RESERVE.let_go()
        yield found
    finally:
        found.give(LIMIT)
        RESERVE.let_go()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_limit_is_raised_to_what_the_system_grants(descriptors: Descriptors) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert raise_limit() == hard
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)


async def test_a_vote_is_written_on_the_event_loop_though_no_descriptor_is_left(
    tmp_path: Path, descriptors: Descriptors
) -> None:
    votes = VoteFile(OsDisk(), tmp_path)
    RESERVE.keep(4)
    descriptors.take_all()
    with pytest.raises(OSError, match="Too many open files"):
        os.open(os.devnull, os.O_RDONLY)
    for term in range(1, 6):
        votes.write(ElectionVote(term, None))
    assert RESERVE.count == 4, "what was given is taken back"
    descriptors.give(LIMIT)
    assert VoteFile(OsDisk(), tmp_path).vote == ElectionVote(5, None)


async def test_a_vote_that_finds_no_descriptor_at_all_is_refused_and_given_later(
    tmp_path: Path, descriptors: Descriptors
) -> None:
    votes = VoteFile(OsDisk(), tmp_path)
    descriptors.take_all()
    with pytest.raises(NoSpaceError, match="Too many open files"):
        votes.write(ElectionVote(1, None))
    assert votes.vote == ElectionVote(0, None)
    descriptors.give(LIMIT)
    votes.write(ElectionVote(1, None))
    assert VoteFile(OsDisk(), tmp_path).vote == ElectionVote(1, None)


async def test_a_log_goes_on_in_a_new_file_though_no_descriptor_is_left(
    tmp_path: Path, descriptors: Descriptors
) -> None:
    journal = begun_journal(tmp_path, 1)
    RESERVE.keep(4)
    descriptors.take_all()
    for _ in range(3):
        journal.append([b"an entry"])
    assert journal.next_index == 4
    descriptors.give(LIMIT)
    journal.close()


def test_a_thread_waits_for_a_descriptor_when_the_reserve_is_used_up(
    tmp_path: Path, descriptors: Descriptors
) -> None:
    looked = threading.Event()
    path = tmp_path / "file"

    def open_it() -> int:
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT)
        finally:
            looked.set()

    def give_one() -> None:
        looked.wait()
        descriptors.give(1)

    giver = threading.Thread(target=give_one)
    giver.start()
    descriptors.take_all()
    try:
        os.close(opening(open_it))
    finally:
        looked.set()
        giver.join()
    assert path.exists()


async def test_the_event_loop_does_not_wait_for_one(descriptors: Descriptors) -> None:
    descriptors.take_all()
    started_s = asyncio.get_running_loop().time()
    with pytest.raises(OSError, match="Too many open files"):
        opening(os.open, os.devnull, os.O_RDONLY)
    assert asyncio.get_running_loop().time() - started_s < 2


async def test_a_datanode_takes_it_for_a_lack_of_room_and_not_for_a_broken_disk(
    tmp_path: Path, descriptors: Descriptors
) -> None:
    descriptors.take_all()
    with pytest.raises(NoSpaceError, match="Too many open files"):
        OsDisk().create(tmp_path / "block")


def test_nothing_new_should_begin_when_less_than_an_eighth_is_left(
    descriptors: Descriptors,
) -> None:
    assert not scarce()
    descriptors.take_all()
    assert scarce()
    descriptors.give(LIMIT // 8 - 2)
    assert scarce()
    descriptors.give(8)
    assert not scarce()


def test_another_error_costs_no_descriptor(tmp_path: Path, descriptors: Descriptors) -> None:
    RESERVE.keep(2)
    with pytest.raises(FileNotFoundError):
        opening(os.open, tmp_path / "missing", os.O_RDONLY)
    assert RESERVE.count == 2


def test_a_reserve_holds_what_there_is(descriptors: Descriptors) -> None:
    reserve = Reserve()
    descriptors.take_all()
    descriptors.give(2)
    reserve.keep(5)
    assert reserve.count == 2
    descriptors.give(3)
    reserve.refill()
    assert reserve.count == 5
    reserve.let_go()
    assert not reserve.give()


def test_it_is_told_apart_from_what_is_broken() -> None:
    calls: list[int] = []

    def broken() -> None:
        calls.append(1)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with pytest.raises(OSError, match="Input/output error"):
        opening(broken)
    assert calls == [1]


async def test_room_kept_for_votes_is_no_reason_to_stop_when_no_descriptor_is_left(
    tmp_path: Path, descriptors: Descriptors
) -> None:
    votes = VoteFile(OsDisk(), tmp_path)
    votes.keep_room()
    descriptors.take_all()
    assert not votes.spare.give()
    descriptors.give(LIMIT)
    assert votes.spare.give()
    assert (tmp_path / "spare").stat().st_size == SPARE_BYTES - STEP_BYTES
