"""What a caller may choose for a file or block, checked before anything is sent."""

from __future__ import annotations

from paxosblock.errors import InvalidRequestError
from paxosblock.net.wire import MAX_CHUNK_BYTES
from paxosblock.protocol.types import Durability


def durability_of(name: Durability | str) -> Durability:
    """The durability called `name`. Raises InvalidRequestError when there is none."""
    try:
        return Durability(name)
    except ValueError:
        raise InvalidRequestError(f"durability {name!r}: write 'disk' or 'memory'") from None


def check_sizes(block_size: int, chunk_size: int, window: int) -> None:
    """Raise InvalidRequestError for sizes (bytes) or a window (chunks) that no file can have."""
    if block_size < 1 or window < 1:
        raise InvalidRequestError(f"block size {block_size}, window {window}: at least 1 is needed")
    if not 1 <= chunk_size <= MAX_CHUNK_BYTES:
        raise InvalidRequestError(f"chunk size {chunk_size}: 1 to {MAX_CHUNK_BYTES} bytes")
