"""Snapshots of the replicated machine: what `kv.snapshot` writes, and what Raft adds in front.

    file   = header, snapshot                        all integers big-endian
    header = "PBKRSNP2", index u64, term u64, crc32c of the header so far u32

`snapshot` as in KV.md. The same bytes travel to a member that is too far behind.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from paxosblock.checksum import crc32c
from paxosblock.disk import Disk, read_file
from paxosblock.errors import ConfigError, CorruptionError
from paxosblock.formats import refuse_later_magic
from paxosblock.namenode.kv.files import numbered, numbers, publish
from paxosblock.namenode.kv.segment import OTHER_VERSION
from paxosblock.namenode.kv.snapshot import Pace, decode_snapshot, encode_snapshot
from paxosblock.namenode.raft.machine import EMPTY, MachineSnapshot
from paxosblock.units import MIB

KIND = "snapshot"
_MAGIC, _EARLIER = b"PBKRSNP2", b"PBKRSNP1"
_HEADER = struct.Struct(">8sQQ")
_CRC = struct.Struct(">I")
PIECE_BYTES = MIB
"""Bytes copied at once: more would hold the interpreter for longer than a millisecond."""


def encode(snapshot: MachineSnapshot) -> Iterator[bytes]:
    """Yield the file in pieces."""
    header = _HEADER.pack(_MAGIC, snapshot.index, snapshot.term)
    yield header + _CRC.pack(crc32c(header))
    yield from encode_snapshot(snapshot.state)


def decode(name: str, whole: bytes | memoryview) -> MachineSnapshot:
    """Read a snapshot; `name` is for messages.

    Raises:
        ConfigError: another version wrote it.
        CorruptionError: damaged.
    """
    data = memoryview(whole)
    if data[: len(_MAGIC)] == _EARLIER:
        raise ConfigError(f"{name} {OTHER_VERSION}")
    header, begin = data[: _HEADER.size], _HEADER.size + _CRC.size
    if len(data) < begin or data[_HEADER.size : begin] != _CRC.pack(crc32c(header)):
        raise CorruptionError(f"{name}: damaged at offset 0")
    magic, index, term = _HEADER.unpack(header)
    refuse_later_magic(name, magic, _MAGIC)
    if magic != _MAGIC:
        raise ConfigError(f"{name} {OTHER_VERSION}")
    state = decode_snapshot(name, data[begin:])
    if state.revision != index:
        raise CorruptionError(f"{name}: its parts belong to entries {index} and {state.revision}")
    return MachineSnapshot(term, state)


def write(disk: Disk, folder: Path, snapshot: MachineSnapshot, pace: Pace) -> int:
    """Write the snapshot durably; return its size in bytes."""
    return publish(disk, numbered(folder, KIND, snapshot.index), pace.of(encode(snapshot)))


def keep(disk: Disk, folder: Path, index: int, data: memoryview) -> None:
    """Write the snapshot of entry `index`, which came as bytes, durably."""
    pieces = (bytes(data[i : i + PIECE_BYTES]) for i in range(0, len(data), PIECE_BYTES))
    publish(disk, numbered(folder, KIND, index), pieces)


def read(disk: Disk, folder: Path, index: int) -> bytes:
    """Return the bytes of the snapshot of entry `index`."""
    return read_file(disk, numbered(folder, KIND, index))


def load(disk: Disk, folder: Path) -> tuple[MachineSnapshot, int]:
    """Return the newest snapshot and its file's size in bytes; an empty one and 0 when there is
    none.

    Raises:
        CorruptionError: it is damaged; an older one would lack its log.
    """
    found = numbers(disk.names(folder), KIND)
    if not found:
        return EMPTY, 0
    path = numbered(folder, KIND, found[-1])
    data = read_file(disk, path)
    snapshot = decode(str(path), data)
    if snapshot.index != found[-1]:
        raise CorruptionError(f"{path}: is the snapshot of entry {snapshot.index}")
    return snapshot, len(data)
