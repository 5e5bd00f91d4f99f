"""Brings the bytes for which no vote waits to the disk early, so that there are never many.

A vote of durability `memory` leaves when the system has the chunk. Left alone the system keeps all
of a block in memory, and the sync at its end waits for the whole of it; meanwhile all other syncs
wait, too. So writing to the disk begins while the block is written, piece by piece
(`sync_file_range`, which commits nothing in the file system's journal), and a writer that is faster
than the disk waits for it. It lives on the event loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from paxosblock.base.units import MIB
from paxosblock.datanode.store.open_file import OpenFile
from paxosblock.datanode.volumes.group_commit import Done, GroupCommit
from paxosblock.errors import PaxosBlockError

PIECE_BYTES: Final = 8 * MIB
"""Bytes of one file that are written out together."""

BOUND_BYTES: Final = 64 * MIB
"""Writers wait while the disk still lacks more than these bytes of a volume: the end of a block has
to wait for at most this much."""


class WriteOut:
    """The bytes of one volume that the system has, and the disk may not have."""

    def __init__(
        self,
        commit: GroupCommit,
        fail: Callable[[PaxosBlockError], None],
        bound_bytes: int = BOUND_BYTES,
    ) -> None:
        """Write out by `commit`; `fail` hears of an error. Beyond `bound_bytes` writers wait."""
        self._commit = commit
        self._bound_bytes = bound_bytes
        self._fail = fail
        self._left: dict[OpenFile, int] = {}
        self._waiting: deque[Done] = deque()
        self.unwritten_bytes = 0
        """Bytes being written out, and those that were left to the system until now."""

    def wrote(self, file: OpenFile, size_bytes: int, done: Done) -> None:
        """Note that the system got `size_bytes` more of `file`; call `done` at once, or as soon as
        the disk has caught up or has failed."""
        self.unwritten_bytes += size_bytes
        self._left[file] = self._left.get(file, 0) + size_bytes
        if self._left[file] >= PIECE_BYTES:
            self._begin(file)
        elif self._is_full:
            for each in tuple(self._left):
                self._begin(each)
        if self._is_full:
            self._waiting.append(done)
        else:
            done(None)

    def forget(self, file: OpenFile) -> None:
        """Note that `file` was synced, or is deleted. Must be called before it is retired."""
        self._written(self._left.pop(file, 0), None)

    @property
    def _is_full(self) -> bool:
        return self.unwritten_bytes > self._bound_bytes

    def _begin(self, file: OpenFile) -> None:
        self._commit.wait(file, partial(self._written, self._left.pop(file)))

    def _written(self, size_bytes: int, error: PaxosBlockError | None) -> None:
        if error is not None:
            self._fail(error)
        self.unwritten_bytes -= size_bytes
        assert self.unwritten_bytes >= sum(self._left.values()), "each byte is counted once"
        while self._waiting and (error is not None or not self._is_full):
            self._waiting.popleft()(error)
