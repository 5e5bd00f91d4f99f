"""Checking what every replica of a block really holds, byte by byte.

A reader is content with one sound replica. This asks each of them, so that damage is found while
there are others to mend it from.
"""

from __future__ import annotations

import asyncio
import enum
from collections import Counter
from dataclasses import dataclass, replace
from typing import Final

from paxosblock.api.namenode import GET_BLOCK, BlockMember, BlockRequest
from paxosblock.base.checksum import crc32c
from paxosblock.base.units import MIB
from paxosblock.client.datanode_verbs import AsyncDataNode
from paxosblock.client.reading.block_reader import BlockReader, Extent, finalized_extent
from paxosblock.client.session.shared_session import SharedSession
from paxosblock.errors import (
    CorruptionError,
    NotFoundError,
    NotReadyError,
    PaxosBlockError,
)
from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.types import BlockId

PIECE_BYTES: Final = 4 * MIB
"""Bytes that are read of each replica at a time."""


class ReplicaHealth(enum.Enum):
    """The finding at one member of a block."""

    SOUND = "sound"
    DAMAGED = "damaged"
    """Its bytes do not match their checksums; this was reported to the NameNode."""
    DIFFERENT = "different"
    """Its checksums are right, and its bytes are not those of the other replicas."""
    BEHIND = "behind"
    """It does not have the decided version yet."""
    MISSING = "missing"
    """Its DataNode has no such replica."""
    UNREACHABLE = "unreachable"
    """Its DataNode does not answer."""


@dataclass(frozen=True, slots=True)
class ReplicaCheck:
    """One member, what was found there and, unless it is sound, why; `crc` is that of all its
    bytes.
    """

    member: BlockMember
    health: ReplicaHealth
    detail: str = ""
    crc: int = 0


@dataclass(frozen=True, slots=True)
class BlockCheck:
    """A finalized block's record and what was found at each of its members."""

    record: BlockRecord
    replicas: tuple[ReplicaCheck, ...]

    @property
    def sound_count(self) -> int:
        """Members that hold exactly the decided bytes."""
        return sum(check.health is ReplicaHealth.SOUND for check in self.replicas)


async def check_block(session: SharedSession, block: BlockId) -> BlockCheck:
    """Read the whole of every replica, side by side, at most `PIECE_BYTES` of each at a time.

    Raises:
        NotFoundError: there is no such block.
        NotReadyError: its length is not decided yet.
    """
    view = await session.namenodes.call(GET_BLOCK, BlockRequest(block))
    if not view.record.finalized:
        raise NotReadyError(
            f"block {view.record.block} is being written; it can be checked once it is finalized",
            block=view.record.block,
        )
    extent = finalized_extent(view)
    checks = await asyncio.gather(
        *(_check_replica(session, replace(extent, members=(each,))) for each in view.members)
    )
    return BlockCheck(view.record, _compared(checks))


async def _check_replica(session: SharedSession, extent: Extent) -> ReplicaCheck:
    (member,) = extent.members
    if not member.address:
        return ReplicaCheck(member, ReplicaHealth.UNREACHABLE, "no DataNode has reported it")
    try:
        await AsyncDataNode(session, member).state(extent.block)
        return ReplicaCheck(member, ReplicaHealth.SOUND, crc=await _read_all(session, extent))
    except CorruptionError as error:
        return ReplicaCheck(member, ReplicaHealth.DAMAGED, str(error))
    except NotFoundError as error:
        return ReplicaCheck(member, ReplicaHealth.MISSING, str(error))
    except NotReadyError as error:
        return ReplicaCheck(member, ReplicaHealth.BEHIND, str(error))
    except PaxosBlockError as error:
        return ReplicaCheck(member, ReplicaHealth.UNREACHABLE, str(error))


async def _read_all(session: SharedSession, extent: Extent) -> int:
    """CRC32C of all bytes of the one replica of `extent`."""
    reader, crc = BlockReader(session, extent), 0
    piece = memoryview(bytearray(min(PIECE_BYTES, extent.size_bytes)))
    for start in range(0, extent.size_bytes, PIECE_BYTES):
        into = piece[: extent.size_bytes - start]
        await reader.fetch_once(start, into)
        crc = crc32c(into, crc)
    return crc


def _compared(checks: list[ReplicaCheck]) -> tuple[ReplicaCheck, ...]:
    """Mark replicas that differ from most others: not sound, whatever their checksums say."""
    crcs = Counter(check.crc for check in checks if check.health is ReplicaHealth.SOUND)
    if len(crcs) < 2:
        return tuple(checks)
    (common, votes), (_, next_votes) = crcs.most_common(2)
    agreed = common if votes > next_votes else None
    return tuple(
        replace(
            check,
            health=ReplicaHealth.DIFFERENT,
            detail=f"CRC32C of its bytes is {check.crc:08x}, of the others' {common:08x}"
            if agreed is not None
            else f"CRC32C of its bytes is {check.crc:08x}, and no two replicas agree",
        )
        if check.health is ReplicaHealth.SOUND and check.crc != agreed
        else check
        for check in checks
    )
