"""A file of a later format is refused in one line, and nothing is changed; an earlier one is read,
or refused in one line."""

from __future__ import annotations

import asyncio
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from paxosblock.base.checksum import crc32c
from paxosblock.config import DataNodeConfig
from paxosblock.datanode.data_node import open_volumes
from paxosblock.datanode.store.damaged_file import write_damaged
from paxosblock.datanode.store.disk_format import Forgot
from paxosblock.datanode.store.identity import forget
from paxosblock.datanode.volumes import volume_snapshot
from paxosblock.datanode.volumes.first_reads import read_first
from paxosblock.errors import ConfigError, CorruptionError
from paxosblock.host.disk import OsDisk
from paxosblock.local.cluster_folder import ClusterFolder, Membership, NodeEntry, NodeKind
from paxosblock.namenode.kv.codec import encode_edit
from paxosblock.namenode.kv.interface import Edit
from paxosblock.namenode.raft.entry import Entry, EntryKind, encode_entry
from paxosblock.namenode.raft.folder_admission import Lineage
from paxosblock.namenode.raft.member_folder import check_member, make_member, open_folder
from paxosblock.namenode.raft.vote_file import ElectionVote
from paxosblock.protocol.types import BlockId
from tests.datanode.node import name, running

MEMBERS = ("n1:1", "n2:1", "n3:1")
PUT = Edit(puts=((b"k", b"value"),))
SEGMENT_BYTES = 1 << 20


# -- folders as their owners make them -------------------------------------------------------------


def make_volume(folder: Path) -> None:
    """A volume with a replica in `current/`, one in `rbw/`, and the second of two snapshots."""

    async def write() -> None:
        async with running(folder) as node:
            await node.volumes[0].enter("cluster-1")
            await node.create()
            await node.write(2)
            await node.finalize(1, [name(0), name(1)])
            await node.next_gs(3, block=BlockId(8))
            forget(OsDisk(), folder, node.volumes[0].identity, Forgot(BlockId(1), 1))
        async with running(folder, upgrade=True) as node:
            await node.volumes[0].be_taken_in()
            volume_snapshot.finalize(OsDisk(), [folder])
        async with running(folder, upgrade=True) as node:
            await node.volumes[0].be_taken_in()

    asyncio.run(write())
    write_damaged(OsDisk(), folder, {BlockId(7): 9})  # of a copy that was replaced


def open_volume(folder: Path) -> int:
    """As a DataNode that starts does; returns the number of replicas that are sound."""

    async def load() -> int:
        volumes, _ = open_volumes(OsDisk(), [folder], "node-1", DataNodeConfig(), "boot-1")
        try:
            volume, found = volumes[0], await volumes[0].load(30.0)
            await read_first(volume, found.unread)
            loaded = (*found.loaded, *map(volume.store.wake, found.unread))
            return sum(not each.corrupt for each in loaded)
        finally:
            volumes[0].close()

    return asyncio.run(load())


def make_raft(folder: Path) -> None:
    """The folder of one of several NameNodes."""
    check_member(folder, "n1:1", MEMBERS, new_cluster=True)
    make_member(OsDisk(), folder, MEMBERS, Lineage("line", born=True), ElectionVote(0, None))
    opened = open_folder(OsDisk(), folder, SEGMENT_BYTES)
    opened.votes.write(ElectionVote(1, None))
    entry = Entry(1, EntryKind.EDIT, encode_edit(PUT))
    opened.journal.append([encode_entry(1, entry)])
    opened.machine.apply(1, PUT, 1)
    opened.machine.flush().write()
    opened.close()


def open_raft(folder: Path) -> int:
    """As a NameNode that starts does; returns the last entry."""
    check_member(folder, "n1:1", MEMBERS, new_cluster=False)
    opened = open_folder(OsDisk(), folder, SEGMENT_BYTES)
    opened.close()
    return opened.tail.last_index


def make_cluster(folder: Path) -> None:
    """The folder of `paxosblock cluster`."""
    entry = NodeEntry(NodeKind.NAMENODE, "namenode-1", "127.0.0.1:0")
    ClusterFolder(folder).prepare(Membership((entry,), {}))


def open_cluster(folder: Path) -> int:
    """As every command of it does; returns the number of members."""
    found = ClusterFolder(folder).read()
    assert found is not None
    return len(found.members)


# -- the same file, of another format --------------------------------------------------------------


def with_header(data: bytes, version: int) -> bytes:
    """`data` begins with 24 bytes, a magic first, and their checksum."""
    head = data[:7] + str(version).encode() + data[8:24]
    return head + struct.pack(">I", crc32c(head)) + data[28:]


def with_header_of_a_log(data: bytes, version: int) -> bytes:
    """The same, little-endian."""
    head = data[:7] + str(version).encode() + data[8:24]
    return head + struct.pack("<I", crc32c(head)) + data[28:]


def with_tail_of_a_log(data: bytes, version: int) -> bytes:
    """`data` begins with a magic and ends with a checksum, little-endian."""
    body = data[:7] + str(version).encode() + data[8:-4]
    return body + struct.pack("<I", crc32c(body))


def with_tail(data: bytes, version: int) -> bytes:
    """`data` begins with a magic and ends with a checksum."""
    body = data[:7] + str(version).encode() + data[8:-4]
    return body + struct.pack(">I", crc32c(body))


def with_tail_of_a_replica(data: bytes, version: int) -> bytes:
    """The same with a magic of four, little-endian."""
    body = data[:3] + str(version).encode() + data[4:-4]
    return body + struct.pack("<I", crc32c(body))


def with_line(data: bytes, version: int) -> bytes:
    """`data` has a line `format=`, and perhaps one with a checksum."""
    text = re.sub("^format=.*", f"format={version}", data.decode())
    body = re.sub("crc=.*\n", "", text).encode()
    return body + (f"crc={crc32c(body):08x}\n".encode() if "crc=" in text else b"")


def with_field(data: bytes, version: int) -> bytes:
    """`data` is JSON with a version."""
    return re.sub(rb'"version": \d+', b'"version": %d, "moon": 1' % version, data)


@dataclass(frozen=True)
class Kind:
    """A kind of file: in which folder it is, what its latest format is, and how to change that."""

    file: str
    known: int
    make: Callable[[Path], None]
    open: Callable[[Path], int]
    of_format: Callable[[bytes, int], bytes]
    way_back: str

    def __str__(self) -> str:
        return f"{self.make.__name__.removeprefix('make_')}/{self.file}"

    def path(self, folder: Path) -> Path:
        """The one file of this kind."""
        *_, found = sorted(folder.glob(self.file))
        return found


KINDS = [
    Kind("VERSION", 5, make_volume, open_volume, with_line, "--rollback"),
    Kind("previous/VERSION", 5, make_volume, open_volume, with_line, "--rollback"),
    Kind("current/blk_7.meta", 2, make_volume, open_volume, with_tail_of_a_replica, "--rollback"),
    Kind("damaged", 1, make_volume, open_volume, with_line, "--rollback"),
    Kind("rbw/blk_8.meta", 2, make_volume, open_volume, with_tail_of_a_replica, "--rollback"),
    Kind("journal-*", 3, make_raft, open_raft, with_header_of_a_log, "the copy"),
    Kind("durable", 2, make_raft, open_raft, with_tail_of_a_log, "the copy"),
    Kind("vote", 1, make_raft, open_raft, with_tail, "the copy"),
    Kind("members", 1, make_raft, open_raft, with_line, "the copy"),
    Kind("cluster.json", 1, make_cluster, open_cluster, with_field, "the copy"),
]


def tree(folder: Path) -> dict[Path, bytes]:
    """All that is below a folder."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_file_of_a_later_format_is_refused_in_one_line_and_nothing_is_changed(
    kind: Kind, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    kind.make(folder)
    file = kind.path(folder)
    file.write_bytes(kind.of_format(file.read_bytes(), kind.known + 1))
    for leftover in ("tmp/blk_9.meta", "journal-1.tmp", "rbw/blk_9"):  # a start would remove it
        if (folder / leftover).parent.is_dir():
            (folder / leftover).write_bytes(b"a crash left it")
    before = tree(folder)
    with pytest.raises(ConfigError) as refused:
        kind.open(folder)
    said = f"{file} is of format {kind.known + 1}, and this version of paxosblock knows up to"
    assert str(refused.value).startswith(f"{said} {kind.known}: start the newer one, or ")
    assert kind.way_back in str(refused.value)
    assert "\n" not in str(refused.value)
    assert tree(folder) == before


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_file_of_the_known_format_is_taken(kind: Kind, tmp_path: Path) -> None:
    """The test above changes the format alone: the same bytes of the known one are read."""
    as_made, rewritten = tmp_path / "1", tmp_path / "2"
    for folder in (as_made, rewritten):
        kind.make(folder)
    file = kind.path(rewritten)
    file.write_bytes(kind.of_format(file.read_bytes(), kind.known))
    assert kind.open(rewritten) == kind.open(as_made)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_volume_of_an_earlier_format_is_brought_over(tmp_path: Path, version: int) -> None:
    make_volume(tmp_path)
    file = tmp_path / "VERSION"
    lines = re.sub("small=1\n|forgot=.*\n", "", file.read_text())
    if version < 3:
        lines = re.sub("timeline=.*\n", "", lines)
        (tmp_path / "previous" / "VERSION").unlink()
    if version < 2:
        lines = re.sub("cluster=.*\n", "", lines)
    file.write_bytes(with_line(lines.encode(), version))
    assert open_volume(tmp_path) == 2
    assert file.read_text().startswith("format=4\n")
    assert open_volume(tmp_path) == 2


def test_a_later_format_of_one_volume_leaves_the_others_of_the_node_alone(tmp_path: Path) -> None:
    make_volume(tmp_path / "1")
    file = tmp_path / "1" / "VERSION"
    file.write_bytes(with_line(file.read_bytes(), 9))
    with pytest.raises(ConfigError, match="is of format 9"):
        open_volumes(
            OsDisk(), [tmp_path / "0", tmp_path / "1"], "node-1", DataNodeConfig(), "boot-1"
        )
    assert not (tmp_path / "0").exists()


def test_a_journal_of_the_format_before_is_refused_in_one_line(tmp_path: Path) -> None:
    (kind,) = (each for each in KINDS if each.file == "journal-*")
    make_raft(tmp_path)
    file = kind.path(tmp_path)
    file.write_bytes(with_header(file.read_bytes(), 2))
    with pytest.raises(ConfigError, match="was written by another version") as refused:
        open_raft(tmp_path)
    assert "\n" not in str(refused.value)


def test_a_list_of_members_without_a_format_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    make_raft(tmp_path)
    for left in ("".join(f"{member}\n" for member in MEMBERS), ""):
        (tmp_path / "members").write_text(left)
        for members in (MEMBERS, ()):
            with pytest.raises(CorruptionError, match="members: damaged: its first line is"):
                check_member(tmp_path, "n1:1", members, new_cluster=False)


def test_a_garbled_mark_is_never_taken_for_one_of_a_later_format(tmp_path: Path) -> None:
    make_raft(tmp_path)
    data = bytearray((tmp_path / "durable").read_bytes())
    data[7] = ord("3")
    (tmp_path / "durable").write_bytes(data)
    assert open_raft(tmp_path) == 1


def test_a_flipped_bit_is_never_taken_for_a_later_format(tmp_path: Path) -> None:
    """A DataNode starts with one replica that is damaged, and does so in the magic, too."""
    make_volume(tmp_path)
    file = tmp_path / "current" / "blk_7.meta"
    data = bytearray(file.read_bytes())
    data[3] = ord("3")
    file.write_bytes(data)
    assert open_volume(tmp_path) == 1
