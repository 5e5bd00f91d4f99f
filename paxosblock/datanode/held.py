"""The replica of a block at this node, its count on the volume, and those who wait for a change."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from paxosblock.datanode.listener import Listener
from paxosblock.datanode.store.disk_format import Loaded, Stored
from paxosblock.datanode.store.open_file import OpenFile
from paxosblock.datanode.volumes.volume import Volume
from paxosblock.host.logs import facts
from paxosblock.protocol.messages import Nack, Read, ReadReply
from paxosblock.protocol.register import Replica, answer, nack
from paxosblock.protocol.types import (
    FIRST_GENERATION,
    BlockId,
    Durability,
    Generation,
    Reason,
    ReplicaState,
)

FORGOTTEN: Final = "it may have been here, and lost with records of the log of small replicas"
"""The reason why a replica is dead of which nothing is here (D11)."""
_log = logging.getLogger(__name__)


class Held:
    """The one replica of a block that this node may have; `Block`, which is one, changes it."""

    __slots__ = (
        "__weakref__",
        "_counted_bytes",
        "_counted_open",
        "_listener",
        "_reading",
        "_watchers",
        "corrupt",
        "epoch",
        "files",
        "id",
        "replica",
        "synced",
        "volume",
    )

    def __init__(self, block: BlockId, volume: Volume, listener: Listener) -> None:
        """Start with nothing; `load` says what the disk holds."""
        self.id = block
        self.volume = volume
        self.replica: Replica | None = None
        self.files: Stored | None = None
        self._reading: tuple[Stored, OpenFile] | None = None
        """A file open for readers, if `files` has none open; closed with the next change."""
        self.corrupt = ""
        """The reason why the replica is dead, or "". Of a dead one `replica` has the promise."""
        self.epoch = FIRST_GENERATION  # of a dead replica whose promise nobody knows (D9)
        self.synced = 0
        """Chunks that are known to be on stable storage."""
        self._listener = listener
        self._watchers: list[asyncio.Future[None]] = []
        self._counted_bytes = 0
        self._counted_open = False

    def load(self, loaded: Loaded, *, at_rest: bool = False) -> None:
        """Begin with what the volume found. A replica `at_rest` is durable, and counted already."""
        self.replica, self.files = loaded.replica, loaded.files
        self.corrupt, self.epoch = loaded.corrupt, loaded.epoch
        if at_rest and self.replica is not None:
            log = self.replica.log
            self.synced, self._counted_bytes = len(log), self.volume.store.size_bytes(log)
        self.changed()

    def close(self) -> None:
        """Close its files, as soon as their last users are done; no step is under way."""
        self.close_for_readers()
        if self.files is not None and self.files.file is not None:
            self._retire(self.files.file)
            self.files = None

    def _retire(self, file: OpenFile) -> None:
        """Give up `file`; nothing of it need be written out any more."""
        self.volume.write_out.forget(file)
        file.retire()

    # -- what it is -----------------------------------------------------------------------------

    @property
    def vacant(self) -> bool:
        """True if there is nothing to remember."""
        return self.replica is None and self.corrupt in ("", FORGOTTEN)

    @property
    def unsynced(self) -> bool:
        """True if this replica has chunks that must not be reported before they are durable.

        In disk mode a chunk is adopted when the system has it, and reported to nobody before the
        disk has it.
        """
        replica = self.replica
        return (
            replica is not None
            and replica.registers.durability is Durability.DISK
            and replica.registers.state is ReplicaState.RBW
            and self.synced < replica.length
        )

    def nack(self, generation: Generation, reason: Reason) -> Nack:
        """Return a refusal with the facts of this replica."""
        return nack(self.volume.storage, self.id, generation, reason, self.replica)

    def state(self) -> ReadReply | None:
        """Return the registers as they are reported; None when there is no living replica."""
        known = None if self.corrupt else self.replica
        reply = answer(self.volume.storage, known, Read(self.id)).reply
        return reply if isinstance(reply, ReadReply) else None

    # -- watchers and readers -------------------------------------------------------------------

    def mark_corrupt(self, reason: str) -> None:
        """Note that the replica's bytes are not what was voted for: it is dead from here on."""
        if not self.corrupt:
            self.corrupt = reason
            _log.error("replica is dead", extra=facts(block=self.id, reason=reason))
            self._listener.replica_corrupt(self.id, self.volume.storage, reason)
            self.changed()

    def opened(self, files: Stored) -> OpenFile | None:
        """Return the file of `files` that is open for readers, if there is one."""
        return self._reading[1] if self._reading and self._reading[0] is files else None

    def open_for_readers(self, files: Stored, file: OpenFile) -> bool:
        """Keep `file`, that of `files`, open until the next change; False if that came first."""
        if self.files is not files or self._reading is not None:
            file.retire()
            return False
        self._reading = files, file
        return True

    def changed(self) -> None:
        """Count the replica and its bytes on the volume, and wake `wait_changed`."""
        self.close_for_readers()
        self.volume.note_damaged(self.id, self.files if self.corrupt else None)
        log = None if self.replica is None else self.replica.log
        size_bytes = 0 if log is None else self.volume.store.size_bytes(log)
        self.volume.used_bytes += size_bytes - self._counted_bytes
        self._counted_bytes = size_bytes
        is_open = self.replica is not None and self.replica.registers.state is ReplicaState.RBW
        self.volume.open_count += is_open - self._counted_open
        self._counted_open = is_open
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            if not watcher.done():
                watcher.set_result(None)

    def close_for_readers(self) -> None:
        """Close the file that is open for them, as soon as its last user is done."""
        if self._reading is not None:
            self._reading[1].retire()
            self._reading = None

    async def wait_changed(self) -> None:
        """Wait for the next append or control step."""
        watcher = asyncio.get_running_loop().create_future()
        self._watchers.append(watcher)
        try:
            await watcher
        finally:
            self._watchers = [one for one in self._watchers if one is not watcher]
