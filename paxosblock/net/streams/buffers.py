"""Memory for bytes that pass through, which is used again and again.

New memory costs about as much as receiving the bytes that go into it: the system clears it, and a
virtual machine may first have to ask its host for it.
"""

from __future__ import annotations


class BufferPool:
    """Lends buffers. A buffer comes back by itself when its last view is gone."""

    def __init__(self, most: int) -> None:
        """Remember at most `most` buffers; those lent beyond that are used once."""
        self._most = most
        self._buffers: list[bytearray] = []

    def take(self, size_bytes: int) -> memoryview:
        """Return `size_bytes` (at least one) of any content; no other caller gets these bytes as
        long as this view or a part of it exists.
        """
        for buffer in self._buffers:
            if len(buffer) >= size_bytes and not _is_viewed(buffer):
                return memoryview(buffer)[:size_bytes]
        buffer = bytearray(size_bytes)
        # Those without a view are too short: the longer one does for what they would.
        self._buffers = [each for each in self._buffers if _is_viewed(each)]
        self._buffers.append(buffer)
        del self._buffers[: -self._most]
        return memoryview(buffer)


def _is_viewed(buffer: bytearray) -> bool:
    """True if there is a view of it: then, and only then, Python refuses to resize it."""
    try:
        last = buffer.pop()
    except BufferError:
        return True
    buffer.append(last)  # there is room for it: to make a buffer shorter by one moves nothing
    return False
