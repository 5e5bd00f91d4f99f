"""Descriptors over the Unix socket of a node: to whom it is offered, once, and to nobody else."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from paxosblock.api.datanode import Offer
from paxosblock.errors import UnavailableError
from paxosblock.net.lending import CALLERS_MAX, OFFERED_MAX, LendingDoor, take
from tests.waiting import wait_until_async


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with a few bytes."""
    path = tmp_path / "lent"
    path.write_bytes(b"what is lent")
    return path


@pytest.fixture
async def door() -> AsyncIterator[LendingDoor]:
    """An open door."""
    door = LendingDoor.open()
    yield door
    door.close()


def to_read(path: Path) -> int:
    """Open a file as a DataNode does before it lends it."""
    return os.open(path, os.O_RDONLY)


async def taken(offer: Offer) -> int:
    """Take what is offered, in a thread as a client does."""
    return await asyncio.to_thread(take, offer)


async def test_who_shows_the_ticket_gets_the_file_once_to_read_it_alone(
    door: LendingDoor, path: Path
) -> None:
    offer = door.offer(to_read(path))
    file = await taken(offer)
    try:
        assert os.pread(file, 100, 0) == b"what is lent"
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.pwrite(file, b"other", 0)
        assert not os.get_inheritable(file)
    finally:
        os.close(file)
    with pytest.raises(UnavailableError, match="the offer is over"):
        await taken(offer)


async def test_a_ticket_that_was_never_given_gets_nothing(door: LendingDoor, path: Path) -> None:
    offer = door.offer(to_read(path))
    for forged in (bytes(16), offer.ticket[:-1], offer.ticket + b"\0", b"\0"):
        with pytest.raises(UnavailableError):
            await taken(replace(offer, ticket=forged))
    os.close(await taken(offer))


async def test_a_ticket_is_shown_to_no_process_of_another_user(
    door: LendingDoor, path: Path
) -> None:
    offer = door.offer(to_read(path))
    with pytest.raises(UnavailableError, match="another user"):
        await taken(replace(offer, user=offer.user + 1))
    os.close(await taken(offer))  # so nobody has it


async def test_another_file_than_the_one_offered_is_closed_and_not_taken(
    door: LendingDoor, path: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"what is lent")
    offer = door.offer(to_read(path))
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(UnavailableError, match="another file"):
        await taken(replace(offer, inode=other.stat().st_ino))
    # The door closed its own descriptor, and the one that came was closed, too.
    await wait_until_async(lambda: len(os.listdir("/proc/self/fd")) < before, what="no leak")


async def test_what_nobody_takes_is_closed(door: LendingDoor, path: Path) -> None:
    first = door.offer(to_read(path))
    for _ in range(OFFERED_MAX):
        door.offer(to_read(path))
    with pytest.raises(UnavailableError, match="over"):
        await taken(first)
    with closing(LendingDoor.open(offered_s=0.01)) as hasty:
        late = hasty.offer(to_read(path))
        await wait_until_async(lambda: late.ticket not in hasty._offered, what="the offer's end")


async def test_callers_that_say_nothing_keep_nobody_out_for_long(
    path: Path,
) -> None:
    door = LendingDoor.open(offered_s=0.05)
    silent = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(CALLERS_MAX)]
    try:
        for sock in silent:
            sock.setblocking(False)
            sock.connect("\0" + door._name)
            await asyncio.sleep(0)
        await wait_until_async(lambda: not door._callers, what="the end of silent callers")
        os.close(await taken(door.offer(to_read(path))))
    finally:
        door.close()
        for sock in silent:
            sock.close()


async def test_behind_a_closed_door_is_nothing(path: Path) -> None:
    door = LendingDoor.open()
    offer = door.offer(to_read(path))
    door.close()
    with pytest.raises(UnavailableError, match="no descriptor came"):
        await taken(offer)
