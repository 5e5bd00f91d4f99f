"""The metadata of a replica as bytes: everything of its registers that must survive (FORMAT.md 3).

The file is replaced as a whole. For an rbw replica it says how many chunks were on stable storage
when they were accepted; for a finalized one it also has the table of all chunks.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import asdict

from paxosblock.base.checksum import crc32c
from paxosblock.base.encoding import msgpack_decoder
from paxosblock.base.formats import FROM_A_SNAPSHOT, refuse_later_magic
from paxosblock.errors import CorruptionError
from paxosblock.protocol.chunk_log import ChunkLog
from paxosblock.protocol.register import Replica
from paxosblock.protocol.types import BlockId, Registers, ReplicaState

MAGIC: Final = b"PXM2"
"""The format of a replica whose block file's name has its epoch: an earlier program would not find
that file."""
OF_THE_FIRST_EPOCH: Final = b"PXM1"
_HEAD = struct.Struct("<4sI")
_CRC = struct.Struct("<I")


class Metadata(msgspec.Struct, frozen=True, gc=False):
    """The content of a meta file.

    `registers.base_length` chunks, `base_bytes` of user data, were on stable storage before this
    file was. `boot` is the boot of the machine in which votes of this replica may be in memory
    only. `copy` tells the name of the block file. `chunks` is the table of a finalized replica,
    else empty.
    """

    block: BlockId
    registers: Registers
    base_bytes: int
    boot: str
    copy: int
    chunks: bytes

    def encode(self) -> bytes:
        """Return the bytes of the file, in which the registers stand beside the other fields."""
        fields = asdict(self)
        registers = asdict(fields.pop("registers"))
        payload = msgspec.msgpack.encode(fields | registers)
        magic = MAGIC if self.registers.epoch else OF_THE_FIRST_EPOCH
        framed = _HEAD.pack(magic, len(payload)) + payload
        return framed + _CRC.pack(crc32c(framed))

    def replica(self, log: ChunkLog) -> Replica:
        """Return the registers, with `log` as it was found on disk."""
        return Replica(self.block, self.registers, log)


class _Beside(msgspec.Struct, frozen=True, gc=False):
    """The fields that stand beside the registers, which are read by a decoder of their own."""

    block: BlockId
    base_bytes: int
    boot: str
    copy: int
    chunks: bytes


_REGISTERS: Final = msgpack_decoder(Registers)
_BESIDE: Final = msgpack_decoder(_Beside)


def describe(replica: Replica, boot: str, copy: int) -> Metadata:
    """Return the metadata of `replica`, whose block file is `copy`."""
    registers, log = replica.registers, replica.log
    finalized = registers.state is ReplicaState.FINALIZED
    base_bytes = log.start_of(registers.base_length)
    chunks = log.to_bytes() if finalized else b""
    return Metadata(replica.block, registers, base_bytes, boot, copy, chunks)


def decode_metadata(data: bytes, block: BlockId, path: Path = Path("its meta file")) -> Metadata:
    """Return the metadata of `block` in the bytes of its file; `path` is for messages.

    Raises:
        ConfigError: a later version wrote it.
        CorruptionError: these bytes are not what was written; nothing they say may be believed.
    """
    if len(data) < _HEAD.size + _CRC.size:
        raise CorruptionError(f"metadata of block {block} is cut off")
    magic, length = _HEAD.unpack_from(data)
    end = _HEAD.size + length
    if magic[:-1] != MAGIC[:-1] or len(data) != end + _CRC.size:
        raise CorruptionError(f"metadata of block {block} has a wrong frame")
    if crc32c(data[:end]) != _CRC.unpack_from(data, end)[0]:
        raise CorruptionError(f"metadata of block {block} does not match its checksum")
    refuse_later_magic(path, magic, MAGIC, FROM_A_SNAPSHOT)
    if magic not in (MAGIC, OF_THE_FIRST_EPOCH):
        raise CorruptionError(f"metadata of block {block} is of no known format")
    try:
        payload = memoryview(data)[_HEAD.size : end]
        registers, beside = _REGISTERS.decode(payload), _BESIDE.decode(payload)
    except msgspec.DecodeError as error:
        raise CorruptionError(f"metadata of block {block}: {error}") from error
    if beside.block != block:
        raise CorruptionError(f"metadata of block {block} is that of block {beside.block}")
    return Metadata(
        beside.block, registers, beside.base_bytes, beside.boot, beside.copy, beside.chunks
    )
