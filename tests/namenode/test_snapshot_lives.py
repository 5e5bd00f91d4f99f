"""Random lives with snapshots: what they show is never lost, and nothing else stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from paxosblock.namenode.catalog import garbage, kept_blocks, keys, truncate
from paxosblock.namenode.catalog.draft import Draft, Reads, block_entry
from paxosblock.namenode.catalog.kept_blocks import HeldRevision, HeldUntil, Shown
from paxosblock.namenode.kv import past, state_machine
from paxosblock.protocol.types import BlockId
from tests.namenode.snapshot_lives import live

LIVES = 60
STEPS = 60

DONE = {
    "a snapshot that keeps room",
    "append",
    "close",
    "concat",
    "delete",
    "delete of what has snapshots",
    "end_one",
    "leave_open",
    "overwrite",
    "rename",
    "rename over",
    "rename_one",
    "restart",
    "sweep",
    "take",
    "truncate",
    "truncate a block that is shown",
    "undelete",
    "undelete that is refused",
    "write",
}


async def test_snapshots_show_what_was_there_and_nothing_else_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(state_machine, "is_long", lambda _: True)
    monkeypatch.setattr(kept_blocks, "ROOM_LOOKS", 1)
    assert await lives() == DONE


async def lives() -> set[str]:
    """Live all lives; return what was done."""
    done: set[str] = set()
    for seed in range(LIVES):
        done |= await live(seed, STEPS)
    return done


Fault = Callable[[pytest.MonkeyPatch], None]


def cuts_in_place(patch: pytest.MonkeyPatch) -> None:
    """A block is cut in place that a snapshot shows."""
    patch.setattr(truncate, "_check_hidden", lambda *_: None)


def only_the_place_now(reads: Reads, block: BlockId) -> Iterator[bytes]:
    """In place of all that a block ever had."""
    entry = block_entry(reads, block)
    if entry is not None:
        yield keys.place(entry.file, entry.sequence)


def forgets_former_files_as_it_asks(patch: pytest.MonkeyPatch) -> None:
    """The file that has a block now is asked for only, not those that it came from by concat."""
    patch.setattr(kept_blocks, "_places", only_the_place_now)


def cuts_in_place_what_came_by_concat(patch: pytest.MonkeyPatch) -> None:
    """The same, but only where a block is cut."""

    class Forgetful(Shown):
        def by(self, block: BlockId, besides: int = 0) -> HeldRevision | HeldUntil | None:
            with pytest.MonkeyPatch.context() as inner:
                inner.setattr(kept_blocks, "_places", only_the_place_now)
                return super().by(block, besides)

    patch.setattr(truncate, "Shown", Forgetful)


def forgets_the_former_file(patch: pytest.MonkeyPatch) -> None:
    """Concat and truncate do not note the place that a block leaves."""
    patch.setattr(Shown, "leaves", lambda *_: None)


def sweeps_without_asking(patch: pytest.MonkeyPatch) -> None:
    """The sweep removes each block."""

    class Nobody(Shown):
        def by(self, block: BlockId, besides: int = 0) -> None:
            return None

    patch.setattr(garbage, "Shown", Nobody)


def walks_up_as_it_is_now(patch: pytest.MonkeyPatch) -> None:
    """The way up is that of today, so a file that was moved out or deleted is not shown."""
    versions = past.versions

    def latest(reads: past.Readable, key: bytes) -> Iterator[past.KeptVersion]:
        if key.startswith(b"i"):
            live = reads.get(key)
            return iter([past.KeptVersion(0, None, live.value)] if live.exists else [])
        return versions(reads, key)

    patch.setattr(past, "versions", latest)


def drops_what_another_holds(patch: pytest.MonkeyPatch) -> None:
    """The end of a snapshot drops before-images that another one holds."""
    drop = kept_blocks._drop_images

    def dropping(draft: Draft, ended: bytes, after: bytes) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(past.KeptVersion, "at", lambda *_: False)
            drop(draft, ended, after)

    patch.setattr(kept_blocks, "_drop_images", dropping)


def never_looks_again(patch: pytest.MonkeyPatch) -> None:
    """The end of a snapshot does not give back the files that waited for it."""
    patch.setattr(kept_blocks, "_give_back", lambda *_: False)


def forgets_holds_at_a_start(patch: pytest.MonkeyPatch) -> None:
    """A member that opens its map, or gets one, does not know what is held."""
    patch.setattr(state_machine, "holds_of", lambda _: past.Holds(()))


FAULTS: tuple[Fault, ...] = (
    cuts_in_place,
    forgets_former_files_as_it_asks,
    cuts_in_place_what_came_by_concat,
    forgets_the_former_file,
    sweeps_without_asking,
    walks_up_as_it_is_now,
    drops_what_another_holds,
    never_looks_again,
    forgets_holds_at_a_start,
)


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_planted_fault_is_found(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)
    with pytest.raises((AssertionError, ValueError, IndexError)):
        await lives()
