"""A DataNode whose log of small replicas lost records while it was down starts, says so, and has
what it lost copied from others. Real processes and disks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.api.status import ReplicationStatus
from paxosblock.journal.segment import HEADER_BYTES
from tests.services.content import content
from tests.services.test_lost_replicas import QUICK, WHOLE_WITHIN_S, blocks_of, replicas_at
from tests.waiting import wait_until

FILES = 40
SIZE = 500
FORGETS = "small replicas may be forgotten"


def heads(data: bytes) -> list[int]:
    """The offsets of the records of a segment."""
    salt, at = data[16:24], [HEADER_BYTES]
    while (found := data.find(salt, at[-1] + 1)) >= 0:
        at.append(found)
    return at


def cut_in_half(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flip_in_head(data: bytes) -> bytes:
    """Two bits of a record's head, which its checksum does not mend."""
    at = heads(data)[FILES] + 9
    return data[:at] + bytes((data[at] ^ 0x41,)) + data[at + 1 :]


def flip_in_both_heads(data: bytes) -> bytes:
    """Nothing tells any more whose log the segment is."""
    both = bytearray(data)
    both[0] ^= 0x41
    both[HEADER_BYTES] ^= 0x41
    return bytes(both)


@pytest.mark.parametrize("damage", [cut_in_half, flip_in_head, flip_in_both_heads])
def test_a_datanode_whose_small_log_lost_records_starts_and_is_healed(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    paths = [f"/f-{number}" for number in range(FILES)]
    with LocalCluster(3, path=tmp_path, settings=QUICK) as cluster, Client(cluster.url) as fs:
        for path in paths:
            with fs.create(path) as out:
                out.write(content(path, 0, SIZE))
        blocks = {view.record.block for path in paths for view in blocks_of(cluster, path)}
        victim = cluster.datanodes[0]
        wait_until(lambda: replicas_at([victim]).keys() == blocks, what="all to be finalized")
        victim.kill()
        segment = victim.volumes[0] / "small" / "log_1"
        assert len(segment.read_bytes()) > FILES * SIZE
        segment.write_bytes(damage(segment.read_bytes()))
        before = len(victim.log.read_text())
        victim.start()
        wait_until(lambda: FORGETS in victim.log.read_text()[before:], what="its loss to be told")
        told = victim.log.read_text()[before:]
        assert told.count(FORGETS) == 1
        assert "Traceback" not in told
        wait_until(
            lambda: replicas_at([victim]).keys() == blocks, WHOLE_WITHIN_S, "all to be healed"
        )
        wait_until(
            lambda: cluster.status().replication == ReplicationStatus(), what="nothing to do"
        )
        for other in cluster.datanodes[1:]:
            other.kill()
        for path in paths:  # of what is healed
            with fs.open(path) as file:
                assert file.read() == content(path, 0, SIZE)
        victim.kill()
        victim.start()
        assert victim.log.read_text()[before:].count(FORGETS) == 1, "it is known, and told once"
