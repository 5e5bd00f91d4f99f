"""The example in FORMAT.md is what the program writes and reads, byte for byte."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from paxosblock.base.checksum import crc32c
from paxosblock.datanode.store.damaged_file import decode_damaged, encode_damaged
from paxosblock.datanode.store.file_store import FileStore
from paxosblock.datanode.store.identity import Identity, decode_identity
from paxosblock.datanode.store.layout import FOLDERS
from paxosblock.datanode.store.meta import Metadata, decode_metadata, describe
from paxosblock.datanode.volumes.cursor import Cursor, decode_cursor
from paxosblock.net.wire import FrameKind, Header
from paxosblock.protocol.chunk_log import ChunkLog
from paxosblock.protocol.register import Replica
from paxosblock.protocol.types import (
    BlockId,
    ChunkIndex,
    ChunkName,
    Durability,
    Generation,
    Registers,
    ReplicaState,
    StorageId,
)
from tests.disks.simulated import SimulatedDisk
from tests.format.loading import load_all

BLOCK = BlockId(7)
PAYLOADS = (b"hello ", b"world\n")
IDENTITY = Identity(
    StorageId("6f1c2a52-9d0e-4c5b-8a39-1f2e3d4c5b6a"),
    "datanode-1",
    "0b9f6d1e-4d3c-4c1f-9a53-7e1d2c3b4a59",
)
BOOT = "4d8e2f1a"


@pytest.fixture(scope="module")
def examples(repository: Path) -> list[str]:
    """The fenced examples of FORMAT.md, in order."""
    text = (repository / "paxosblock" / "datanode" / "FORMAT.md").read_text(encoding="utf-8")
    return re.findall(r"```\n(.*?)\n```", text, re.DOTALL)


def from_dump(dump: str) -> bytes:
    """The bytes of a hexadecimal dump: offset, up to 16 bytes, the same as text."""
    rows = [line.strip()[4:].split("   ")[0] for line in dump.splitlines()]
    return bytes.fromhex("".join(re.sub(r"\s\s+\S*$", "", row[:50]) for row in rows))


def replica() -> Replica:
    """Two chunks, finalized under generation 2."""
    names = [ChunkName(ChunkIndex(i), len(p), crc32c(p)) for i, p in enumerate(PAYLOADS)]
    registers = Registers(
        max_generation=Generation(2),
        accepted_generation=Generation(2),
        epoch=Generation(0),
        base_length=2,
        state=ReplicaState.FINALIZED,
        window=4,
        durability=Durability.DISK,
        finalized_generation=Generation(2),
        finalized_length=2,
    )
    return Replica(BLOCK, registers, ChunkLog(names))


def test_the_identity_file_is_as_written_down(examples: list[str]) -> None:
    data = examples[0].encode() + b"\n"
    assert IDENTITY.encode() == data
    assert decode_identity(data, Path("VERSION")) == IDENTITY


def test_the_list_of_damaged_replicas_is_as_written_down(examples: list[str]) -> None:
    data = examples[3].encode() + b"\n"
    assert encode_damaged({BLOCK: 0}) == data
    assert decode_damaged(data, Path("damaged")) == {BLOCK: 0}


def test_the_cursor_file_is_as_written_down(examples: list[str]) -> None:
    cursor = Cursor(BlockId(1073741831), 1_700_000_000_000, 268_435_456, 1_698_000_000_000)
    data = examples[4].encode() + b"\n"
    assert cursor.encode() == data
    assert decode_cursor(data) == cursor


def test_the_block_file_is_as_written_down(examples: list[str]) -> None:
    records = b"".join(
        Header.of(
            FrameKind.CHUNK, payload, block=BLOCK, index=ChunkIndex(index), acknowledged=index
        ).pack()
        + payload
        for index, payload in enumerate(PAYLOADS)
    )
    assert from_dump(examples[1]) == records


def test_the_meta_file_is_as_written_down(examples: list[str]) -> None:
    data = from_dump(examples[2])
    assert describe(replica(), BOOT, 0).encode() == data
    assert decode_metadata(data, BLOCK) == describe(replica(), BOOT, 0)


EARLIER_META = bytes.fromhex(
    "50584d31d80000008fa5626c6f636b07ae6d61785f67656e65726174696f6e02b361636365707465645f6765"
    "6e65726174696f6e02a565706f636800ab626173655f6c656e67746802aa626173655f62797465730ca57374"
    "617465a966696e616c697a6564a677696e646f7704aa6475726162696c697479a46469736ba47765616bc2b4"
    "66696e616c697a65645f67656e65726174696f6e02b066696e616c697a65645f6c656e67746802a4626f6f74"
    "a83464386532663161a4636f707900a66368756e6b73c4180600000000000000587e627e0c00000000000000"
    "7373add4e8da6e39"
)
"""The same metadata as the version before wrote it, which had the fields in another order."""


def test_metadata_of_the_version_before_is_read() -> None:
    assert decode_metadata(EARLIER_META, BLOCK) == describe(replica(), BOOT, 0)


def test_every_field_of_the_metadata_is_written_down(repository: Path) -> None:
    text = (repository / "paxosblock" / "datanode" / "FORMAT.md").read_text(encoding="utf-8")
    table = text[text.index("| field | meaning |") : text.index("It is replaced as a whole")]
    named = re.findall(r"^\| ([a-z_, ]+) \|", table, re.MULTILINE)
    fields = [field for cell in named for field in cell.split(", ")]
    kept = {*Registers.__struct_fields__, *Metadata.__struct_fields__} - {"registers"}
    assert sorted(fields) == sorted([*kept, "field"])


def test_the_example_loads_as_a_finalized_replica(examples: list[str]) -> None:
    folder = Path("/volume")
    disk = SimulatedDisk(
        {
            folder / "current" / "blk_7": from_dump(examples[1]),
            folder / "current" / "blk_7.meta": from_dump(examples[2]),
        }
    )
    (loaded,) = load_all(FileStore(disk, folder, "another boot"))
    assert (loaded.replica, loaded.corrupt) == (replica(), "")
    assert "current" in FOLDERS
