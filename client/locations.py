"""Where the bytes of a file are: for schedulers that move work to data."""

from __future__ import annotations

from dataclasses import dataclass

from paxosblock.client.length import Consistency, whole_snapshot
from paxosblock.client.session import Session
from paxosblock.protocol.types import NO_GENERATION, BlockId


@dataclass(frozen=True, slots=True)
class BlockLocation:
    """One block of a file: `length` bytes from `offset` of the file on, in bytes.

    `hosts` are the host:port of the DataNodes that hold it and are alive, as far as the NameNode
    knows. A block that is not `finalized` is being written and may be longer by now.
    """

    block: BlockId
    offset: int
    length: int
    finalized: bool
    hosts: tuple[str, ...]


async def locations(session: Session, path: str) -> list[BlockLocation]:
    """The blocks of a file in order. Raises: as `whole_snapshot`."""
    found = await whole_snapshot(session, path, Consistency.QUORUM)
    return [
        BlockLocation(
            extent.block,
            extent.offset,
            extent.size_bytes,
            extent.version.finalized_generation != NO_GENERATION,
            tuple(member.address for member in extent.members if member.live and member.address),
        )
        for extent in found.extents
    ]
