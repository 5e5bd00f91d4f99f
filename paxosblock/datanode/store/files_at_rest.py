"""The finalized replicas of a volume that have files of their own, while no caller asks for them.

Memory holds a row of bytes for each, and the replica is made from it when a caller asks: there may
be millions. A start knows only the names of their files. Each is read when a caller asks for it, or
when its turn comes (`first_reads.py`), while the node serves.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import astuple

from paxosblock.base.encoding import msgpack_decoder
from paxosblock.datanode.store.disk_format import Loaded
from paxosblock.datanode.store.layout import ReplicaFiles, data_name
from paxosblock.datanode.store.small_index import RowRegisters
from paxosblock.net.wire import HEADER_BYTES
from paxosblock.protocol.chunk_log import ChunkLog
from paxosblock.protocol.register import Replica
from paxosblock.protocol.types import BlockId, Registers, ReplicaState

LOCKS: Final = 16
"""Replicas of a volume that may be read at the same time, the first time after a start."""


class _Row(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """All that is known of a sound replica; `copy` tells the name of its block file."""

    copy: int
    registers: RowRegisters
    chunks: bytes
    acknowledged_count: int


_ENCODER: Final = msgspec.msgpack.Encoder()
_ROW: Final = msgpack_decoder(_Row)


class FilesAtRest:
    """All that is known of each such replica. Any thread may call; only `read` blocks."""

    def __init__(self, folder: Path, load: Callable[[Path, BlockId, str], Loaded]) -> None:
        """`folder` has the files. `load` reads a replica in it whose block file has this name, and
        finishes or undoes what was interrupted."""
        self._folder = folder
        self._load = load
        self._known: dict[BlockId, str | bytes | Loaded] = {}
        """The name of the block file of one that was not read yet; then its row, or what was loaded
        if it is dead, until a caller takes that."""
        self._counting = threading.Lock()
        self._read_bytes = 0
        self._reading = [threading.Lock() for _ in range(LOCKS)]

    def expect(self, names: dict[BlockId, str]) -> None:
        """Begin with replicas for which a start found one meta file and this one block file."""
        self._known.update(names)

    def is_unread(self, block: BlockId) -> bool:
        """True if only the names of its files are known."""
        return isinstance(self._known.get(block), str)

    def read(self, blocks: Sequence[BlockId]) -> None:
        """Read those of the replicas that were not read yet. Raises as `load`."""
        for block in blocks:
            # No `Block` has the replica before it was read, so nothing changes its files meanwhile.
            with self._reading[block % LOCKS]:
                name = self._known.get(block)
                if not isinstance(name, str):
                    continue
                loaded = self._load(self._folder, block, name)
                files, replica = loaded.files, loaded.replica
                if loaded.corrupt or replica is None or not isinstance(files, ReplicaFiles):
                    self._known[block] = loaded
                    continue
                size_bytes = replica.log.size_bytes + len(replica.log) * HEADER_BYTES
                with self._counting:
                    self._known[block] = _row(replica, files.copy)
                    self._read_bytes += size_bytes

    def take_read_bytes(self) -> int:
        """Return the bytes of the chunks' records of those that rest since `read`; once."""
        with self._counting:
            read_bytes, self._read_bytes = self._read_bytes, 0
        return read_bytes

    def rests(self, block: BlockId) -> bool:
        """True if `wake` returns all there is to know of it."""
        return isinstance(self._known.get(block), bytes)

    def wake(self, block: BlockId) -> Loaded:
        """Return a replica that was read. One that is dead is the caller's from then on."""
        known = self._known[block]
        if isinstance(known, Loaded):
            del self._known[block]
            return known
        assert isinstance(known, bytes), "it was read"
        row = _ROW.decode(known)
        registers = Registers(*astuple(row.registers))
        name = data_name(block, registers.epoch, row.copy)
        replica = Replica(
            block,
            registers,
            ChunkLog.from_bytes(row.chunks),
            acknowledged_count=row.acknowledged_count,
        )
        return Loaded(block, replica, ReplicaFiles(None, self._folder, name, row.copy))

    def note(self, replica: Replica, copy: int) -> None:
        """Note the metadata of a replica that became durable: it rests if it is finalized."""
        if replica.registers.state is ReplicaState.FINALIZED:
            self._known[replica.block] = _row(replica, copy)
        else:
            self.forget(replica.block)

    def forget(self, block: BlockId) -> None:
        """Note that nothing of it rests here any more."""
        self._known.pop(block, None)


def _row(replica: Replica, copy: int) -> bytes:
    registers = RowRegisters(*astuple(replica.registers))
    return _ENCODER.encode(
        _Row(copy, registers, replica.log.to_bytes(), replica.acknowledged_count)
    )
