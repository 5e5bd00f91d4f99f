"""A start with a damaged log of small replicas: what is damaged is lost, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paxosblock.api.datanode import LIST_REPLICAS, ListReplicas
from paxosblock.datanode.store.disk_format import SmallLimits
from paxosblock.datanode.store.small_records import RecordKind, small_records
from paxosblock.journal.segment import RECORD_BYTES, SegmentBounds, read_records
from paxosblock.net.calls import control
from paxosblock.protocol.messages import Created, Finalized, LastVote, Read, ReadReply, Vote
from paxosblock.protocol.types import BlockId, Reason
from tests.datanode.node import Node, chunk, frame, name, refusal, running
from tests.datanode.process import client_of, datanode
from tests.journal.records import encode_record

OPEN, OTHER = BlockId(11), BlockId(12)


async def put(node: Node, block: BlockId) -> None:
    """Write a small replica, and leave it open."""
    assert isinstance(await node.create(block, small=True), Created)
    assert isinstance(await node.send(frame(0, block=block)), Vote)


async def two_segments(folder: Path) -> Path:
    """A volume with an open replica in the first segment, another in the second; the first."""
    async with running(folder, limits=SmallLimits(segment_bytes=300)) as node:
        await put(node, OPEN)
        await put(node, OTHER)
    assert (folder / "small" / "log_2").exists()
    return folder / "small" / "log_1"


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def damage_chunk(path: Path) -> None:
    """Flip a bit of user data."""
    flip(path, path.read_bytes().index(chunk(0)) + 50)


async def test_a_damaged_chunk_of_an_open_replica_costs_this_replica_alone(tmp_path: Path) -> None:
    damage_chunk(await two_segments(tmp_path))
    async with running(tmp_path) as node:
        assert node.volumes[0].failed == ""
        assert refusal(await node.ask(Read(OPEN))) is Reason.CORRUPT
        assert refusal(await node.next_gs(1, block=OPEN)) is Reason.CORRUPT
        assert [block for block, _, _ in node.notes.corrupt] == []
        told = await node.ask(Read(OTHER))
        assert isinstance(told, ReadReply)
        assert told.length == 1
        node.holder.payloads = [chunk(0)]
        await node.finalize(1, [name(0)], block=OPEN)
        assert isinstance(await node.ask(Read(OPEN)), ReadReply), "a full copy heals it"


@pytest.mark.parametrize("at", range(0, RECORD_BYTES, 3))
async def test_a_bit_in_the_head_of_a_record_costs_nothing_when_the_replica_moves(
    tmp_path: Path, at: int
) -> None:
    """A start mends the heads as it reads them; a later reader of a record does so, too."""
    limits = SmallLimits(segment_bytes=600)
    blocks = OPEN, OTHER
    async with running(tmp_path, limits=limits) as node:
        for block in blocks:
            await put(node, block)
            assert isinstance(await node.finalize(1, [name(0)], block=block), Finalized)
    path = tmp_path / "small" / "log_1"
    data = path.read_bytes()
    bounds = SegmentBounds(data[16:24], None)
    heads = [each.offset for each in read_records("log_1", data, bounds) if each.key == OPEN]
    for head in heads:
        flip(path, head + at)
    async with running(tmp_path, limits=limits) as node:
        for block in blocks:
            assert isinstance(await node.finalize(2, [name(0)], block=block), Finalized)
            assert isinstance(await node.ask(Read(block)), ReadReply)
    assert len(heads) == 3, "CREATED, CHUNK, FINALIZED"


async def test_an_error_that_nobody_foresaw_costs_one_volume(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    async with running(first, second) as node:
        await put(node, OPEN)
        assert isinstance(await node.create(OTHER, storage=node.volumes[1].storage), Created)
    path = first / "small" / "log_1"
    data = path.read_bytes()
    unknown: Any = max(RecordKind) + 1
    path.write_bytes(data + encode_record(data[16:24], unknown, OPEN, b"", 0))
    bounds = SegmentBounds(data[16:24], None)
    with pytest.raises(ValueError, match="RecordKind"):
        list(small_records(read_records("log_1", path.read_bytes(), bounds)))
    async with running(first, second) as node:
        assert "RecordKind" in node.volumes[0].failed
        assert node.volumes[1].failed == ""
        assert isinstance(await node.ask(Read(OTHER), node.volumes[1].storage), ReadReply)


async def test_a_process_starts_with_flipped_bits_in_head_and_chunk(tmp_path: Path) -> None:
    folder = tmp_path / "node-1"
    path = await two_segments(folder / "volume-0")
    damage_chunk(path)
    flip(path, 20)
    with datanode(folder) as process:
        async with client_of(process) as client:
            assert isinstance(await client.last_vote(1, OTHER), LastVote)
            assert refusal(await client.ask(Read(OPEN))) is Reason.CORRUPT
        held = control.call(process.address, LIST_REPLICAS, ListReplicas()).replicas
        assert len(held) == 1
        assert "replica is dead" in process.log()
