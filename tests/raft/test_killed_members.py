"""A member with the product's table, killed before any change of a file: what it confirmed is there
whatever the order in which it flushes, cuts its log, and gives or takes a table."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from rocksdict import Options as RocksOptions

from paxosblock.base.units import GIB
from paxosblock.host.disk import OsDisk
from paxosblock.host.kernel_syncs import KernelSyncs
from paxosblock.namenode.kv import rocks_table
from paxosblock.namenode.kv.rocks_options import database_options
from paxosblock.namenode.kv.rocks_table import ROCKS, RocksTable
from paxosblock.namenode.kv.table import Checkpoint, Flush, pieces
from paxosblock.namenode.raft.member_folder import Limits
from paxosblock.namenode.raft.raft_messages import AppendEntriesResponse
from tests.disks.cut_short import CutShort
from tests.raft.rig import OPTIONS, Rig
from tests.raft.simulation import virtual_loop
from tests.raft.test_member_tables import TERM, apply_to, entry, left_by_a_crash, map_after, opened
from tests.raft.virtual_time import VirtualTimeLoop, spread
from tests.services.small_disk import SHARED_MEMORY

ACTS = 25
LIVES = 10
KINDS = FLUSHED, CUT, GIVEN, TAKEN = "flush", "cut of the log", "checkpoint", "install"
NEVER_NEXT = {(FLUSHED, TAKEN), (TAKEN, FLUSHED)}
"""The log is cut in between: nothing else is done with the table before."""


class Watched(CutShort):
    """A real disk that shows what is on it before each change."""

    def __init__(self, look: Callable[[], None]) -> None:
        super().__init__()
        self.look = look
        self.seen: list[str] = []
        """Steps that the changes were part of, in order."""

    def _step(self) -> None:
        super()._step()
        self.look()

    def kernel_syncs(self) -> KernelSyncs | None:
        return None  # the loop's time is not the kernel's

    def remove(self, path: Path) -> None:
        if path.name.startswith("journal-"):
            self.seen.append(CUT)
        super().remove(path)

    def rename(self, source: Path, target: Path) -> None:
        if target.name.startswith("db-"):
            self.seen.append(TAKEN)
        super().rename(source, target)

    def make_folder(self, folder: Path) -> None:
        if folder.name.startswith("db.sent-"):
            self.seen.append(GIVEN)
        super().make_folder(folder)


class Life(Rig):
    """A follower that gets entries and tables from a leader that is the test, and gives copies."""

    def __init__(self, loop: VirtualTimeLoop, folder: Path, rng: random.Random) -> None:
        self.rng = rng
        self.kills = random.Random(rng.random())
        """Of its own: how many files RocksDB has removed by now must not change what is done."""
        self.folder = folder
        self.own_disk = Watched(self.kill_now_and_then)
        self.leader = opened(folder.with_name("leader"))
        self.logged = self.committed = self.checked = 0
        limits = Limits(segment_bytes=200, flush_bytes=400, trailing_entries=2)
        super().__init__(loop, 3, replace(OPTIONS, limits=limits), "n0:1", ROCKS)

    def start(self) -> None:
        self.start_on(self.own_disk, self.folder, ROCKS)
        machine, seen = self.node.machine, self.own_disk.seen
        flush = machine.flush

        def seen_flush() -> Flush:
            seen.append(FLUSHED)
            return flush()

        machine.flush = seen_flush  # type: ignore[method-assign]  # only of this instance

    def kill_now_and_then(self) -> None:
        if self.kills.random() < 0.15:
            self.kill()

    def kill(self) -> None:
        """Start on what a kill would leave now, and go on there."""
        if not self.folder.exists():
            return
        confirmed = max(
            (answer.last_log_index for answer in self.sent(AppendEntriesResponse)), default=0
        )
        with closing(opened(left_by_a_crash(self.folder))) as member:
            found = member.machine.revision
            assert dict(member.machine.scan(b"", b"")) == map_after(found)
            assert member.machine.term == (TERM if found else 0)
            assert member.tail.base_index == found, "the log goes on where the map ends"
            assert confirmed <= member.tail.last_index <= self.logged
            assert all(each == entry(found + n) for n, each in enumerate(member.tail.entries, 1))
        self.checked += 1

    def append_some(self) -> None:
        """Get up to four entries, some of which are committed."""
        log = self.node.log
        previous = log.last_log_index
        if log.term_at(previous) is None:
            return
        end = previous + self.rng.randint(1, 4)
        self.logged = max(self.logged, end)
        self.committed = max(self.committed, self.rng.randint(previous, end))
        self.append_only(
            [entry(each) for each in range(previous + 1, end + 1)],
            term=TERM,
            previous=(previous, TERM if previous else 0),
            commit=self.committed,
        )

    def take_table(self) -> None:
        """Get the leader's table, whose entry this member may have, or not."""
        index = self.rng.randint(self.node.machine.revision + 1, self.logged + 3)
        if index <= self.leader.machine.revision:
            return
        apply_to(self.leader, index)
        self.logged, self.committed = max(self.logged, index), max(self.committed, index)
        with closing(self.leader.machine.checkpoint().make()) as checkpoint:
            stream = b"".join(pieces(checkpoint, 1 << 20))
        self.send_snapshot(index, stream, term=TERM, number=index)

    def give_table(self) -> None:
        """Begin to make a copy, and give its room back a while later."""

        async def give() -> None:
            checkpoint: Checkpoint = await self.store.checkpoint()
            await self.loop.pass_time(self.rng.random())
            await self.node.run(checkpoint.close)

        self.begin(give())

    def live(self) -> None:
        acts = (self.append_some, self.append_some, self.take_table, self.give_table)
        for _ in range(ACTS):
            self.rng.choice(acts)()
            self.run(self.rng.choice((0.0, 0.05, 0.2)))
            self.kill()
        assert self.node.failure is None


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """In memory where there is room for it: what is killed here needs no sync, and does many."""
    roomy = SHARED_MEMORY.is_dir() and shutil.disk_usage(SHARED_MEMORY).free > GIB
    with TemporaryDirectory(dir=SHARED_MEMORY if roomy else tmp_path) as made:
        yield Path(made)


def checked_here(path: Path) -> int:
    """Check here what another process checks in the product, which takes longer to start."""
    with closing(RocksTable(OsDisk(), path, read_only=True)) as table:
        table.check()
        return table.revision


def never_compacted(new: bool) -> RocksOptions:
    options = database_options(new)
    options.set_disable_auto_compactions(True)  # a copy of the files is no moment, else
    return options


def test_killed_at_any_change_a_member_has_what_it_confirmed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rocks_table, "check_apart", checked_here)
    monkeypatch.setattr(rocks_table, "database_options", never_compacted)
    orders: set[tuple[str, str]] = set()
    for seed in range(LIVES):
        rng = random.Random(seed)
        with virtual_loop() as loop:
            loop.disk_delay = partial(spread, rng, 0.0, 0.05)
            member = Life(loop, folder / f"{seed}" / "member", rng)
            member.live()
            member.wait(member.store.close())
            member.leader.close()
        orders |= set(pairwise(member.own_disk.seen))
        assert member.checked > ACTS
        shutil.rmtree(folder / f"{seed}")
    assert {(a, b) for a in KINDS for b in KINDS if a != b} - orders <= NEVER_NEXT
