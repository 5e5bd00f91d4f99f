"""The room that a volume says its blocks use: exactly the bytes of its block files."""

from __future__ import annotations

from pathlib import Path

from paxosblock.protocol.messages import Delete, Finalized, Vote
from paxosblock.protocol.types import BlockId, Generation
from tests.datanode.node import BLOCK, Node, frame, name, running

OTHER = BlockId(8)


def used(node: Node) -> int:
    return node.volumes[0].report(0).used_bytes


def block_files_bytes(folder: Path) -> int:
    found = (*folder.glob("rbw/blk_*"), *folder.glob("current/blk_*"))
    return sum(path.stat().st_size for path in found if path.suffix != ".meta")


async def test_used_room_grows_with_every_chunk(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        assert used(node) == 0
        await node.create()
        await node.write(2)
        two = used(node)
        assert two == block_files_bytes(tmp_path) > 0
        await node.write(1, start=2)
        assert used(node) == block_files_bytes(tmp_path) > two


async def test_used_room_shrinks_with_a_log_that_a_recovery_cut(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.create()
        await node.write(3)
        await node.next_gs(1)
        await node.recover(1, [name(0)])
        assert used(node) == block_files_bytes(tmp_path) == len(frame(0)[1])


async def test_used_room_is_that_of_all_blocks_also_after_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        for block in (BLOCK, OTHER):
            await node.create(block)
            assert isinstance(await node.send(frame(0, block=block)), Vote)
        assert isinstance(await node.finalize(1, [name(0)]), Finalized)
        before = used(node)
        assert before == block_files_bytes(tmp_path) == 2 * len(frame(0)[1])
    async with running(tmp_path) as node:
        assert used(node) == before


async def test_a_deleted_replica_uses_nothing_once_its_file_is_gone(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.create()
        await node.write(2)
        before = used(node)
        await node.ask(Delete(BLOCK, Generation(0)))
        assert block_files_bytes(tmp_path) == 0
        assert used(node) == before
        node.volumes[0].store.removals.remove_all()
        assert used(node) == 0
