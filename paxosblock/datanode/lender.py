"""Files of finalized replicas for clients on this machine, which check the chunks themselves.

PROTOCOL.md (R-lent) says why that is right whatever happens to the replica afterwards.
"""

from __future__ import annotations

from typing import Final, Protocol

from paxosblock.api.datanode import BorrowReplica, LentReplica, NotLent, Offer
from paxosblock.datanode.acceptor import Acceptor
from paxosblock.datanode.replica_reads import refusal
from paxosblock.errors import StorageError
from paxosblock.host.disk import FileHandle
from paxosblock.protocol.messages import Nack
from paxosblock.protocol.read import holds
from paxosblock.protocol.types import NO_GENERATION, Reason, ReplicaState

CHUNKS_MAX: Final = 64 * 1024
"""A replica of more is read by the stream: bounds the names in one reply."""


class Door(Protocol):
    """The place where a client gets what it was offered (`LendingDoor`)."""

    def offer(self, file: FileHandle) -> Offer:
        """Keep `file`, which is this object's from now on, for who shows the ticket."""

    def close(self) -> None:
        """Give nothing any more."""


class Lender:
    """Answers `BorrowReplica`."""

    def __init__(self, acceptor: Acceptor) -> None:
        """Lend nothing, until there is a door."""
        self._acceptor = acceptor
        self.door: Door | None = None

    async def lend(self, request: BorrowReplica) -> LentReplica | NotLent | Nack:
        """Offer the file of the replica, if it is finalized and has one of its own.

        Raises:
            StorageError: the volume has failed.
        """
        door = self.door
        if door is None:
            return NotLent(never=True)
        await self._acceptor.ready(request.block)
        block = self._acceptor.find(request.block, request.storage)
        state = None if block is None else block.state()
        if block is None or state is None:
            return refusal(block, request, NO_GENERATION)
        if not holds(request.version, state):
            return block.nack(request.version.epoch, Reason.STALE)
        replica, files, volume = block.replica, block.files, block.volume
        assert replica is not None, "it has a state"
        length = request.version.length
        is_finalized = replica.registers.state is ReplicaState.FINALIZED
        if not is_finalized or files is None or length > CHUNKS_MAX:
            return NotLent()
        try:
            file = await volume.run_read(volume.store.lend, files)
        except StorageError:  # a reader by the stream finds out what is wrong
            volume.check()
            return NotLent()
        if file is None:
            return NotLent()
        if block.files is not files:  # it may be the file of a replica that never was this one
            volume.store.take_back(file)
            return NotLent()
        volume.serve()
        return LentReplica(door.offer(file), replica.log.entries(0, length))
