"""A NameNode whose journal lost what had been durable says so, and does not start."""

from __future__ import annotations

from pathlib import Path

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.base.checksum import crc32c
from paxosblock.errors import UnavailableError
from paxosblock.local.node_process import Node
from tests.services.conftest import QUICK

FOLDERS = 30


def cut_in_half(namenode: Node) -> Path:
    """Shorten the newest segment that is long to half of it; return its path."""
    segments = sorted(namenode.volumes[0].glob("*/journal-*"))
    last = max(segment for segment in segments if segment.stat().st_size > 1000)
    last.write_bytes(last.read_bytes()[: last.stat().st_size // 2])
    return last


@pytest.mark.parametrize(
    ("namenodes", "advice"),
    [
        (1, "restore the folder from a copy"),
        (3, "replace the folder as `paxosblock help operations` says"),
    ],
)
def test_a_namenode_whose_journal_was_cut_in_half_does_not_start(
    tmp_path: Path, namenodes: int, advice: str
) -> None:
    with LocalCluster(1, namenodes, tmp_path) as cluster, Client(cluster.url, QUICK) as fs:
        for number in range(FOLDERS):
            fs.mkdirs(f"/folder-{number}")
        victim = cluster.wait_leader()
        victim.kill()
        segment = cut_in_half(victim)
        left = segment.read_bytes()
        with pytest.raises(
            UnavailableError, match=f"(?s){segment} is damaged at .* cannot be read.*{advice}"
        ):
            victim.start()
        assert victim.exit_code not in (None, 0)
        assert "Traceback" not in victim.log.read_text()
        assert segment.read_bytes() == left, "whoever looks at it finds what was found"
        if namenodes > 1:
            listed = {entry.path for entry in fs.ls("/")}
            assert {f"/folder-{number}" for number in range(FOLDERS)} <= listed


def test_a_namenode_whose_journal_is_of_an_earlier_version_says_so_and_leaves_it(
    tmp_path: Path,
) -> None:
    with LocalCluster(1, path=tmp_path) as cluster:
        victim = cluster.namenode
        victim.kill()
        (segment,) = victim.volumes[0].glob("*/journal-*")
        header = b"PBKJRNL1" + segment.read_bytes()[8:24]
        earlier = header + crc32c(header).to_bytes(4, "big")
        segment.write_bytes(earlier)
        with pytest.raises(UnavailableError, match=f"{segment} was written by another version"):
            victim.start()
        assert "Traceback" not in victim.log.read_text()
        assert segment.read_bytes() == earlier
