"""One block at this node: its registers, its files, and who waits for it to change.

Changed by one control step at a time (`lock`), and by writes on the event loop in between.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from paxosblock.datanode.open_file import OpenFile
from paxosblock.datanode.store import Stored
from paxosblock.datanode.volume import Volume
from paxosblock.protocol.messages import (
    Finalize,
    Nack,
    Read,
    ReadReply,
    RecoveryWrite,
    Request,
)
from paxosblock.protocol.register import Replica, answer, heals, nack
from paxosblock.protocol.types import (
    BlockId,
    Durability,
    Generation,
    Reason,
    ReplicaState,
)


@dataclass(frozen=True, slots=True)
class OpenForReaders:
    """The file of `files`, which have none open themselves."""

    files: Stored
    file: OpenFile


class Block:
    """Who owns the one replica of a block that this node may have."""

    __slots__ = (
        "_counted_bytes",
        "_counted_open",
        "_watchers",
        "behind_bytes",
        "copying",
        "corrupt",
        "files",
        "id",
        "lock",
        "reading",
        "replica",
        "stepping",
        "synced",
        "users",
        "volume",
    )

    def __init__(self, block: BlockId, volume: Volume) -> None:
        self.id = block
        self.volume = volume
        self.replica: Replica | None = None
        self.files: Stored | None = None
        self.reading: OpenForReaders | None = None
        """Closed with the next change. It is good for its own `files` and no others."""
        self.corrupt = ""
        """Why the replica is dead, "" when it is not. `replica` then only tells the promise."""
        self.synced = 0
        """Chunks that are known to be on stable storage."""
        self.behind_bytes = 0
        """User bytes whose way to stable storage was begun without anybody waiting for it."""
        self.lock = asyncio.Lock()
        self.copying = asyncio.Lock()
        """Held from the fetch of chunks for a recovery or finalization until it is answered."""
        self.stepping = False
        """A control step is under way in a thread; it fences the writer in any case."""
        self.users = 0
        """Control requests under way."""
        self._watchers: list[asyncio.Future[None]] = []
        self._counted_bytes = 0
        self._counted_open = False

    @property
    def vacant(self) -> bool:
        """True if there is nothing to remember."""
        return self.replica is None and not self.corrupt and self.users == 0

    @property
    def unsynced(self) -> bool:
        """True if this replica tells of chunks that must not be told before they are durable.

        In disk mode a chunk is adopted when the system has it, and named to nobody before the disk
        has it.
        """
        replica = self.replica
        return (
            replica is not None
            and replica.registers.durability is Durability.DISK
            and replica.registers.state is ReplicaState.RBW
            and self.synced < replica.length
        )

    def registers(self, request: Request) -> Replica | None:
        """Return what the acceptor is to see: a dead replica is none to who brings a full copy."""
        dead = bool(self.corrupt) and isinstance(request, RecoveryWrite | Finalize)
        return None if dead else self.replica

    def refusal(self, request: Request, generation: Generation) -> Nack | None:
        """Return why a dead replica does not answer (D9); None when the acceptor is to be asked."""
        if not self.corrupt or heals(self.replica, request):
            return None
        return self.nack(generation, Reason.CORRUPT)

    def adopt(self, files: Stored | None, replica: Replica | None, synced: int) -> None:
        """Become `replica`, of which `synced` chunks are on stable storage.

        Called in a thread of the volume while the event loop looks on: what is said of the new
        replica must not be seen beside the old one, of which it may not be true.
        """
        self.files, self.replica = files, replica
        self.synced, self.corrupt = synced, ""

    def nack(self, generation: Generation, reason: Reason) -> Nack:
        """A refusal with the facts of this replica."""
        return nack(self.volume.storage, self.id, generation, reason, self.replica)

    def state(self) -> ReadReply | None:
        """The registers as they are reported; None when there is no living replica."""
        if self.corrupt:
            return None
        reply = answer(self.volume.storage, self.replica, Read(self.id)).reply
        return reply if isinstance(reply, ReadReply) else None

    def changed(self) -> None:
        """Count it and its bytes on the volume, and wake everyone who waits in `wait_changed`."""
        self.close_for_readers()
        log = None if self.replica is None else self.replica.log
        size_bytes = 0 if log is None else self.volume.store.size_bytes(log)
        self.volume.used_bytes += size_bytes - self._counted_bytes
        self._counted_bytes = size_bytes
        is_open = self.replica is not None and self.replica.registers.state is ReplicaState.RBW
        self.volume.open_count += is_open - self._counted_open
        self._counted_open = is_open
        if self._watchers:
            watchers, self._watchers = self._watchers, []
            for watcher in watchers:
                if not watcher.done():
                    watcher.set_result(None)

    def close_for_readers(self) -> None:
        """Close the file that is open for them, as soon as its last user is done."""
        if self.reading is not None:
            self.reading.file.retire()
            self.reading = None

    async def wait_changed(self) -> None:
        """Wait for the next append or control step."""
        watcher = asyncio.get_running_loop().create_future()
        self._watchers.append(watcher)
        try:
            await watcher
        finally:
            if watcher in self._watchers:
                self._watchers.remove(watcher)
