"""Quotas while the NameNode that leads is killed: writers churn at the limits of directories, and
none of these ever has more than it may."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.cli.main import run
from paxosblock.errors import NotFoundError, QuotaExceededError
from paxosblock.local.node_process import Node
from tests.services.conftest import QUICK, wait_other_leader
from tests.waiting import wait_until

WRITERS = 3
NAMES_MAX = 12
"""Names that a directory may have, itself included."""
BLOCK = 1 << 16
ROOM_MAX = 4 * 3 * BLOCK
"""Bytes that the replicas in a directory may take: those of four files."""
REFUSALS = 3
"""Refusals that each writer hears before and after each fail-over."""


@dataclass
class Filler:
    """Makes files in a directory, some of them elsewhere first, and removes one when it is full."""

    name: str
    folder: str
    kept: list[str] = field(default_factory=list)
    refused: int = 0

    def run(self, url: str, stop: threading.Event) -> None:
        with Client(url, QUICK) as fs:
            number = 0
            while not stop.is_set():
                number += 1
                self.add(fs, f"{self.name}-{number}", moves=number % 3 == 0)

    def add(self, fs: Client, name: str, *, moves: bool) -> None:
        path = f"{self.folder}/{name}"
        made = f"/elsewhere/{name}" if moves else path
        try:
            with fs.create(made, block_size=BLOCK) as out:
                out.write(bytes(BLOCK))
            if moves:
                fs.rename(made, path)
            self.kept.append(path)
        except QuotaExceededError:
            self.refused += 1
            for each in (made, *self.kept[:1]):  # a file that got no block is there, and empty
                _remove(fs, each)
            del self.kept[:1]


def _remove(fs: Client, path: str) -> None:
    with contextlib.suppress(NotFoundError):  # its name was refused
        fs.delete(path)


def _full_again(fillers: list[Filler], look: Callable[[], None]) -> None:
    """Wait until each has been refused anew, and `look` at the directories all the while."""
    wanted = [each.refused + REFUSALS for each in fillers]

    def full() -> bool:
        look()
        return all(each.refused >= most for each, most in zip(fillers, wanted, strict=True))

    wait_until(full, what="directories that are full")


def test_no_directory_gets_more_than_its_quota_while_leaders_are_killed(
    cluster: LocalCluster, fs: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = ("/quotas/names", "/quotas/room")
    for folder in (*folders, "/elsewhere"):
        fs.mkdirs(folder)
    fs.set_quota("/quotas/names", names=NAMES_MAX)
    fs.set_quota("/quotas/room", space=ROOM_MAX)

    def look() -> None:
        names, room = (fs.content_summary(folder) for folder in folders)
        assert names.directories + names.files <= NAMES_MAX
        assert room.space <= ROOM_MAX

    fillers = [
        Filler(f"{folder.rpartition('/')[2]}{n}", folder)
        for folder in folders
        for n in range(WRITERS)
    ]
    stop = threading.Event()
    with ThreadPoolExecutor(len(fillers)) as pool:
        filling = [pool.submit(each.run, cluster.url, stop) for each in fillers]
        try:
            for _ in range(2):
                _full_again(fillers, look)
                victim: Node = cluster.wait_leader()
                victim.kill()
                wait_other_leader(cluster, victim)
                _full_again(fillers, look)
                victim.start()
        finally:
            stop.set()
        for each in filling:
            each.result()
    for folder in folders:
        found, usage = fs.content_summary(folder), fs.quota_usage(folder)
        assert (usage.names, usage.space) == (found.directories + found.files, found.space)
        kept = {path for each in fillers if each.folder == folder for path in each.kept}
        assert {each.path for each in fs.ls(folder)} == kept
    monkeypatch.setenv("PAXOSBLOCK_NAMENODES", ",".join(cluster.addresses))
    assert run(["fsck", "--quota", "/"]) == 0
