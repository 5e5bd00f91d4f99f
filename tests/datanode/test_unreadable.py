"""A replica whose metadata no process can read, of a block that was opened again (D9 beside K4)."""

from __future__ import annotations

from pathlib import Path

import pytest

from paxosblock.protocol.messages import Delete, Deleted, Finalized, RecoveryVote
from paxosblock.protocol.types import Generation, Reason
from tests.datanode.node import BLOCK, Holder, chunk, name, refusal, running

FIRST = [name(i) for i in range(2)]
LATER = [name(i) for i in range(3)]
APPENDED = 5
"""The generation of the APPEND, which begins an epoch."""


@pytest.fixture
async def unreadable(tmp_path: Path) -> Path:
    """A replica that was finalized under 4, opened again and voted on; its meta file is damaged."""
    async with running(tmp_path) as node:
        await node.create()
        await node.write(2)
        assert isinstance(await node.finalize(4, FIRST), Finalized)
        assert isinstance(await node.reopen(APPENDED, FIRST, 4), RecoveryVote)
        await node.write(1, start=2, generation=APPENDED)
    names = sorted(path.name for path in (tmp_path / "rbw").iterdir())
    assert names == ["blk_7.meta", "blk_7_5"]
    assert (tmp_path / "rbw" / "blk_7.meta").read_bytes().startswith(b"PXM2"), "format 2"
    assert list((tmp_path / "current").iterdir()) == []
    (tmp_path / "rbw" / "blk_7.meta").write_bytes(b"garbage")
    return tmp_path


async def test_a_late_finalize_of_before_does_not_make_it_forget_its_votes(
    unreadable: Path,
) -> None:
    async with running(unreadable, holder=Holder([chunk(i) for i in range(3)])) as node:
        assert refusal(await node.finalize(4, FIRST)) is Reason.CORRUPT
        assert isinstance(await node.finalize(6, LATER, APPENDED), Finalized)
        names = sorted(path.name for path in (unreadable / "current").iterdir())
        assert names == ["blk_7.meta", "blk_7_5"]
        assert list((unreadable / "rbw").iterdir()) == []


async def test_a_late_delete_of_before_does_not_take_it(unreadable: Path) -> None:
    async with running(unreadable) as node:
        before = await node.ask(Delete(BLOCK, Generation(APPENDED - 1)))
        assert refusal(before) is Reason.CORRUPT
        deleted = await node.ask(Delete(BLOCK, Generation(APPENDED)))
        assert deleted == Deleted(BLOCK, node.storage)
        assert list((unreadable / "rbw").iterdir()) == []


async def test_without_its_block_file_nobody_knows_its_epoch_and_nothing_heals_it(
    unreadable: Path,
) -> None:
    (unreadable / "rbw" / "blk_7_5").unlink()
    async with running(unreadable, holder=Holder([chunk(i) for i in range(3)])) as node:
        assert refusal(await node.finalize(6, LATER, APPENDED)) is Reason.CORRUPT


async def test_a_later_epoch_is_found_again_by_its_name_after_each_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.create()
        await node.write(2)
        await node.finalize(4, FIRST)
        await node.reopen(APPENDED, FIRST, 4)
    async with running(tmp_path) as node:
        assert isinstance(await node.finalize(6, FIRST, APPENDED), Finalized)
    async with running(tmp_path) as node:
        assert isinstance(await node.finalize(6, FIRST, APPENDED), Finalized)
        assert sorted(path.name for path in tmp_path.glob("*/blk_7*")) == ["blk_7.meta", "blk_7_5"]
