"""Chunks of a holder are checked before a recovery or finalization counts on them (D4, D5, D9)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paxosblock.datanode.store.disk_format import FetchedChunks
from paxosblock.datanode.store.fetched import FetchedFile
from paxosblock.datanode.volumes.volume import Volume
from paxosblock.errors import CorruptionError
from paxosblock.host.disk import OsDisk
from paxosblock.protocol.messages import Finalized, Short
from tests.datanode.node import BLOCK, Holder, chunk, frame, name, running, unadopted

RECORDS = frame(0)[1] + frame(1)[1]
NAMES = (name(0), name(1))


def flipped(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


@pytest.mark.parametrize("position", [0, 47, 48, 147, 148, len(RECORDS) - 1])
def test_a_draft_takes_no_record_that_is_not_the_one_named(tmp_path: Path, position: int) -> None:
    draft = FetchedFile(OsDisk(), tmp_path, BLOCK, 0)
    with pytest.raises(CorruptionError, match="does not match its checksum"):
        draft.append(NAMES, flipped(RECORDS, position))
    assert draft.names == ()
    draft.append(NAMES, RECORDS)
    assert draft.read(0, 2) == RECORDS
    draft.discard()


@pytest.mark.parametrize("names", [(name(1), name(0)), (name(0), name(1, salt=1)), NAMES[:1] * 2])
def test_a_draft_takes_no_records_under_other_names(tmp_path: Path, names: tuple[Any, ...]) -> None:
    draft = FetchedFile(OsDisk(), tmp_path, BLOCK, 0)
    with pytest.raises(CorruptionError):
        draft.append(names, RECORDS)
    assert draft.names == ()
    draft.discard()


class DamagedHolder(Holder):
    """Sends what it should, with a bit flipped on the way."""

    async def fetch(self, volume: Volume, request: Any, chunks: range, peers: Any) -> FetchedChunks:
        draft = await volume.run(volume.store.draft, request.block, chunks.start)
        try:
            for index in chunks:
                await volume.run(draft.append, (name(index),), flipped(frame(index)[1], 60))
        finally:
            await volume.run(draft.discard)
        return draft


async def test_a_replica_is_not_finalized_with_bytes_that_were_damaged_on_the_way(
    tmp_path: Path,
) -> None:
    log = [name(i) for i in range(3)]
    async with running(tmp_path, holder=DamagedHolder()) as node:
        await node.create()
        await node.write(1)
        assert isinstance(await node.finalize(1, log), Short)
        assert unadopted(tmp_path) == []
    async with running(tmp_path, holder=Holder([chunk(i) for i in range(3)])) as node:
        assert isinstance(await node.finalize(1, log), Finalized)
