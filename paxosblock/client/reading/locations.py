"""The places of the bytes of a file: for schedulers that move work to data."""

from __future__ import annotations

from dataclasses import dataclass

from paxosblock.client.reading.block_reader import Extent
from paxosblock.client.reading.file_blocks import all_extents
from paxosblock.client.reading.length import Consistency, whole_file
from paxosblock.client.session.shared_session import SharedSession
from paxosblock.errors import InvalidRequestError
from paxosblock.protocol.types import NO_GENERATION, BlockId


@dataclass(frozen=True, slots=True)
class BlockLocation:
    """One block of a file: `size` bytes from byte `offset` of the file on.

    `hosts` are the host:port of the DataNodes that hold it and are alive, as far as the NameNode
    knows. A block that is not `finalized` is being written and may be longer by now.
    """

    block: BlockId
    offset: int
    size: int
    finalized: bool
    hosts: tuple[str, ...]


async def locations(
    session: SharedSession, path: str, offset: int = 0, size: int | None = None
) -> list[BlockLocation]:
    """Return the blocks of a file in order that hold bytes of the `size` from `offset` on.

    Raises:
        InvalidRequestError: a negative offset or size.
        Others: as `whole_file`, and NotFoundError if the file is deleted meanwhile.
    """
    if offset < 0 or (size is not None and size < 0):
        raise InvalidRequestError(f"'{path}': locations of {size} bytes from {offset} on")
    found = await whole_file(session, path, Consistency.QUORUM)
    places: list[BlockLocation] = []
    async for extent in all_extents(session, found, offset):
        if size is not None and extent.offset >= offset + size:
            break
        if extent.end > offset or extent.offset >= offset:
            places.append(_location(extent))
    return places


def _location(extent: Extent) -> BlockLocation:
    return BlockLocation(
        extent.block,
        extent.offset,
        extent.size_bytes,
        extent.version.finalized_generation != NO_GENERATION,
        tuple(member.address for member in extent.members if member.live and member.address),
    )
