"""Step 2 of a chunk's way: runs `protocol.register` against the disks of this node.

The order is always the same: `answer` says what would be, the effect is made durable, the new
replica is adopted, the reply leaves. Chunks take the short way on the event loop: a `pwrite` to the
page cache, and in disk mode the vote waits for the volume's group commit. Control requests take the
long way, `steps.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from sortedcontainers import SortedDict

from paxosblock.api.datanode import Answer, Envelope
from paxosblock.checksum import crc32c
from paxosblock.datanode.block import Block
from paxosblock.datanode.group_commit import Done
from paxosblock.datanode.steps import ControlSteps, Fetcher, Listener
from paxosblock.datanode.store import Stored
from paxosblock.datanode.volume import Volume
from paxosblock.errors import NoSpaceError, PaxosBlockError, StorageError
from paxosblock.logs import facts
from paxosblock.net.wire import HEADER_BYTES, Flags, Header
from paxosblock.protocol import register
from paxosblock.protocol.effects import AppendChunk, Effect, SyncChunks
from paxosblock.protocol.messages import (
    Nack,
    Read,
    ReadReply,
    Vote,
    Write,
)
from paxosblock.protocol.register import Replica, Step
from paxosblock.protocol.types import (
    NO_GENERATION,
    BlockId,
    Generation,
    Reason,
    StorageId,
)
from paxosblock.units import MIB

_log = logging.getLogger(__name__)
_SYNC: Final = int(Flags.SYNC)
WRITE_BEHIND_BYTES: Final = 8 * MIB
"""In memory mode, how much is left to the page cache before the disk is told to begin."""
_NOWHERE: Final = StorageId("")


class Registers:
    """Every block of this node."""

    def __init__(
        self,
        volumes: Sequence[Volume],
        fetcher: Fetcher,
        listener: Listener,
        *,
        reserved_bytes: int = 0,
    ) -> None:
        """`reserved_bytes` are kept free on each volume when new replicas ask for room."""
        self._volumes = {volume.storage: volume for volume in volumes}
        self._listener = listener
        self._steps = ControlSteps(
            fetcher, listener, self._forget_if_vacant, self.mark_corrupt, reserved_bytes
        )
        self._blocks: dict[BlockId, Block] = SortedDict()  # block reports go by their order
        for volume in volumes:
            volume.on_failure = self._volume_failed

    async def load(self) -> None:
        """Load the replicas of all volumes; before this nobody may be answered."""
        volumes = tuple(self._volumes.values())
        for volume, found in zip(
            volumes, await asyncio.gather(*(volume.load() for volume in volumes)), strict=True
        ):
            for loaded in found:
                block = Block(loaded.block, volume)
                block.replica, block.files = loaded.replica, loaded.files
                block.corrupt = loaded.corrupt
                block.changed()
                other = self._blocks.setdefault(loaded.block, block)
                if other is not block:
                    _log.error(
                        "two volumes hold the same block",
                        extra=facts(block=block.id, used=other.volume, ignored=volume),
                    )

    async def close(self) -> None:
        """Let the control steps that are under way come to their end, then close every file."""
        await self._steps.close()
        for block in self._blocks.values():
            block.close_for_readers()
            if block.files is not None and block.files.file is not None:
                block.files.file.retire()
                block.files = None

    # -- looking --------------------------------------------------------------------------------

    def blocks(self) -> Iterator[Block]:
        """Every block that this node knows, the dead ones too."""
        return iter(tuple(self._blocks.values()))

    def behind(self, block: BlockId) -> Iterator[Block]:
        """The blocks with greater ids than `block`, in order; to be used before the next await."""
        ordered: SortedDict = self._blocks
        return map(self._blocks.__getitem__, ordered.irange(block, inclusive=(False, True)))

    @property
    def open_count(self) -> int:
        """Number of replicas that are being written."""
        return sum(volume.open_count for volume in self._volumes.values())

    @property
    def count(self) -> int:
        """Number of blocks."""
        return len(self._blocks)

    def find(self, block: BlockId, storage: StorageId) -> Block | None:
        """The block, if its replica is at `storage`."""
        found = self._blocks.get(block)
        return found if found is not None and found.volume.storage == storage else None

    # -- votes ----------------------------------------------------------------------------------

    def write(
        self, header: Header, frame: memoryview, reply: Callable[[Vote | Nack], None]
    ) -> None:
        """D2: vote for the chunk in `frame`, whose header is `header`.

        Args:
            frame: header and payload as they came; used during this call only.
            reply: gets the vote or the refusal, at once or when the chunk is durable.
        """
        block = self._blocks.get(header.block)
        if block is None:
            reply(register.nack(_NOWHERE, header.block, header.generation))
            return
        refused = self._refuses(block, header, frame)
        if refused is not None:
            reply(block.nack(header.generation, refused))
            return
        request = Write(
            header.block,
            header.generation,
            header.index,
            header.payload_length,
            header.payload_crc,
            header.acknowledged,
            bool(header.flags & _SYNC),
        )
        step = register.answer(block.volume.storage, block.replica, request)
        effect = step.effect
        if isinstance(effect, AppendChunk) and not self._append(block, step, frame):
            reason = Reason.NO_REPLICA if block.volume.failed else Reason.NO_SPACE
            reply(block.nack(header.generation, reason))
            return
        block.replica = step.replica
        if isinstance(effect, AppendChunk):
            block.changed()
        vote = step.reply
        assert isinstance(vote, Vote | Nack)
        if isinstance(vote, Vote) and _must_wait(block, vote, effect):
            self._vote_when_durable(block, vote, reply)
        else:
            reply(vote)
            if isinstance(effect, AppendChunk):
                self._write_behind(block)

    def _refuses(self, block: Block, header: Header, frame: memoryview) -> Reason | None:
        """Reasons of this node, beside those of the acceptor."""
        if block.volume.failed:
            return Reason.NO_REPLICA
        if block.corrupt:
            return Reason.CORRUPT
        if block.stepping:
            return Reason.FENCED
        # Every DataNode checks the client's own checksum, so that the wrong one is never blamed.
        if crc32c(frame[HEADER_BYTES:]) != header.payload_crc:
            return Reason.CORRUPT
        return None

    def _append(self, block: Block, step: Step, frame: memoryview) -> bool:
        before, after, files = block.replica, step.replica, block.files
        assert before is not None
        assert after is not None
        assert files is not None
        assert files.file is not None, "a replica that takes writes has its file open"
        # I1, I2 in short; `check_follows` compares whole logs, which no chunk can wait for.
        assert len(after.log) == len(before.log) + 1
        try:
            block.volume.store.append(files.file, before.log, frame)
        except NoSpaceError as error:
            _log.warning("chunk refused", extra=facts(block=block.id, reason=error))
            return False
        except StorageError as error:
            block.volume.fail(error)
            return False
        return True

    def _vote_when_durable(
        self, block: Block, vote: Vote, reply: Callable[[Vote | Nack], None]
    ) -> None:
        def done(error: PaxosBlockError | None) -> None:
            failed = block.nack(vote.generation, Reason.NO_REPLICA)
            reply(vote if error is None else failed)

        self._sync(block, vote.generation, vote.index + 1, done)

    def _write_behind(self, block: Block) -> None:
        """In memory mode the disk follows the writer: finalizing a block then has little to sync.

        Without it every block ends with its whole length in the page cache, and the creation of
        the next one waits behind that in the file system's journal.
        """
        replica = block.replica
        assert replica is not None
        if replica.log.size_bytes - block.behind_bytes >= WRITE_BEHIND_BYTES:
            block.behind_bytes = replica.log.size_bytes
            self._sync(block, replica.registers.accepted_generation, replica.length, lambda _: None)

    def _sync(self, block: Block, generation: Generation, count: int, done: Done) -> None:
        """Call `done` when `count` chunks of the log accepted in `generation` are durable."""
        files = block.files
        assert files is not None
        assert files.file is not None

        def synced(error: PaxosBlockError | None) -> None:
            # A control step's sync may have failed before, and dropped what this one did not see.
            error = error or block.volume.failure
            if error is None:
                self._synced(block, files, generation, count)
            else:
                block.volume.fail(error)
            done(error)

        block.volume.commit.wait(files.file, synced)

    @staticmethod
    def _synced(block: Block, files: Stored, generation: Generation, count: int) -> None:
        """Note that `count` chunks of the log accepted in `generation` are durable in `files`."""
        replica, now = block.replica, block.files
        same_file = now is not None and now.file is files.file  # not deleted and made anew
        if (
            replica is not None
            and replica.registers.accepted_generation == generation
            and same_file
        ):
            block.synced = max(block.synced, count)

    # -- control requests -----------------------------------------------------------------------

    async def take(self, envelope: Envelope) -> Answer:
        """Answer one protocol message.

        Raises:
            NoSpaceError, StorageError: the volume is full or has failed.
        """
        storage, request = envelope.storage, envelope.message
        volume = self._volumes.get(storage)
        block = self._blocks.get(request.block)
        if volume is None or (block is not None and block.volume is not volume):
            # A storage that is not here is lost; nobody else answers in its name (PROTOCOL.md 1).
            return register.nack(storage, request.block, register.generation_of(request))
        volume.check()
        if isinstance(request, Read):
            return await self.read(request, storage)
        if block is None:
            block = self._blocks[request.block] = Block(request.block, volume)
        return await self._steps.take(block, request, envelope.peers)

    def _forget_if_vacant(self, block: Block) -> None:
        if block.vacant:
            self._blocks.pop(block.id, None)

    # -- reading the registers ------------------------------------------------------------------

    async def read(self, request: Read, storage: StorageId) -> ReadReply | Nack:
        """D6: the registers; what they tell of is durable, in disk mode or when asked to be.

        Raises:
            StorageError: the volume has failed.
        """
        block = self.find(request.block, storage)
        if block is None or block.replica is None:
            return register.nack(storage, request.block, NO_GENERATION)
        if block.corrupt:
            return block.nack(NO_GENERATION, Reason.CORRUPT)
        step = register.answer(storage, block.replica, request)
        if step.effect is not None or block.unsynced:
            await self.make_durable(block, block.replica)
        assert isinstance(step.reply, ReadReply | Nack)
        return step.reply

    async def make_durable(self, block: Block, replica: Replica) -> None:
        """Wait until every chunk of `replica`, which `block` has now, is on stable storage.

        Raises:
            StorageError: the volume has failed.
        """
        files = block.files
        if block.synced >= replica.length or files is None:
            return
        if files.file is None:
            await block.volume.run(block.volume.store.sync, files)
            self._synced(block, files, replica.registers.accepted_generation, replica.length)
            return
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(_: PaxosBlockError | None) -> None:
            if not durable.done():
                durable.set_result(None)

        self._sync(block, replica.registers.accepted_generation, replica.length, done)
        await durable
        block.volume.check()

    # -- what goes wrong ------------------------------------------------------------------------

    def mark_corrupt(self, block: Block, reason: str) -> None:
        """The replica's bytes are not what was voted for: it is dead from here on."""
        if not block.corrupt:
            block.corrupt = reason
            _log.error("replica is dead", extra=facts(block=block.id, reason=reason))
            self._listener.replica_corrupt(block.id, block.volume.storage, reason)
            block.changed()

    def _volume_failed(self, volume: Volume) -> None:
        for block in self._blocks.values():
            if block.volume is volume:
                block.changed()


def _must_wait(block: Block, vote: Vote, effect: Effect | None) -> bool:
    """True if the vote may only leave once its chunk is on stable storage (D2, W3)."""
    asked = isinstance(effect, SyncChunks) or (isinstance(effect, AppendChunk) and effect.sync)
    return asked and block.synced <= vote.index
