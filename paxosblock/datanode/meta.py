"""The metadata of a replica as bytes: everything of its registers that must survive (FORMAT.md 3).

The file is replaced as a whole. Of an rbw replica it says how many chunks were on stable storage
when they were accepted; of a finalized one it also has the table of all chunks.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

import msgspec

from paxosblock.checksum import crc32c
from paxosblock.errors import CorruptionError
from paxosblock.protocol.log import ChunkLog
from paxosblock.protocol.register import Replica
from paxosblock.protocol.types import BlockId, Durability, Generation, ReplicaState

MAGIC: Final = b"PXM1"
_HEAD = struct.Struct("<4sI")
_CRC = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Metadata:
    """What a meta file says.

    `base_length` chunks, `base_bytes` of user data, were on stable storage before this file was.
    `boot` is the boot of the machine in which votes of this replica may be in memory only. `copy`
    tells the name of the block file. `chunks` is the table of a finalized replica, else empty.
    """

    block: BlockId
    max_generation: Generation
    accepted_generation: Generation
    epoch: Generation
    base_length: int
    base_bytes: int
    state: ReplicaState
    window: int
    durability: Durability
    weak: bool
    finalized_generation: Generation
    finalized_length: int
    boot: str
    copy: int
    chunks: bytes

    def encode(self) -> bytes:
        """The bytes of the file."""
        payload = msgspec.msgpack.encode(self)
        framed = _HEAD.pack(MAGIC, len(payload)) + payload
        return framed + _CRC.pack(crc32c(framed))

    def replica(self, log: ChunkLog) -> Replica:
        """The registers, with `log` as it was found on disk."""
        return Replica(
            block=self.block,
            max_generation=self.max_generation,
            accepted_generation=self.accepted_generation,
            epoch=self.epoch,
            base_length=self.base_length,
            state=self.state,
            log=log,
            window=self.window,
            durability=self.durability,
            weak=self.weak,
            finalized_generation=self.finalized_generation,
            finalized_length=self.finalized_length,
        )


def describe(replica: Replica, boot: str, copy: int) -> Metadata:
    """The metadata of `replica`, whose block file is `copy`."""
    finalized = replica.state is ReplicaState.FINALIZED
    return Metadata(
        block=replica.block,
        max_generation=replica.max_generation,
        accepted_generation=replica.accepted_generation,
        epoch=replica.epoch,
        base_length=replica.base_length,
        base_bytes=replica.log.start_of(replica.base_length),
        state=replica.state,
        window=replica.window,
        durability=replica.durability,
        weak=replica.weak,
        finalized_generation=replica.finalized_generation,
        finalized_length=replica.finalized_length,
        boot=boot,
        copy=copy,
        chunks=replica.log.to_bytes() if finalized else b"",
    )


_DECODER = msgspec.msgpack.Decoder(Metadata)


def decode_metadata(data: bytes, block: BlockId) -> Metadata:
    """The metadata of `block` in the bytes of its file.

    Raises:
        CorruptionError: these bytes are not what was written; nothing they say may be believed.
    """
    if len(data) < _HEAD.size + _CRC.size:
        raise CorruptionError(f"metadata of block {block} is cut off")
    magic, length = _HEAD.unpack_from(data)
    end = _HEAD.size + length
    if magic != MAGIC or len(data) != end + _CRC.size:
        raise CorruptionError(f"metadata of block {block} has a wrong frame")
    if crc32c(data[:end]) != _CRC.unpack_from(data, end)[0]:
        raise CorruptionError(f"metadata of block {block} does not match its checksum")
    try:
        metadata = _DECODER.decode(data[_HEAD.size : end])
    except msgspec.DecodeError as error:
        raise CorruptionError(f"metadata of block {block}: {error}") from error
    if metadata.block != block:
        raise CorruptionError(f"metadata of block {block} is that of block {metadata.block}")
    return metadata
