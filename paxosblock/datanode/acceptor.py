"""Step 2 of a chunk's way: the acceptor of this node, which runs `protocol.register` on its disks.

It knows every block and takes each request to the one that it is about (`block.py`): chunks at
once, on the event loop, control requests by way of `control_requests.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final
from weakref import WeakValueDictionary

from sortedcontainers import SortedDict

from paxosblock.api.datanode import (
    PROMPT_S,
    Answer,
    Control,
    CreateAndWrite,
    Envelope,
    NoAnswer,
)
from paxosblock.datanode.block import FORGOTTEN, Block, ReplicaListener, SentChunk
from paxosblock.datanode.control_requests import ControlRequests, Fetcher
from paxosblock.datanode.store.disk_format import Loaded
from paxosblock.datanode.volumes.first_reads import read_first, read_now
from paxosblock.datanode.volumes.volume import Volume
from paxosblock.errors import (
    NoSpaceError,
    NotReadyError,
    PaxosBlockError,
    ProtocolError,
    StorageError,
)
from paxosblock.host.logs import error_for_peer, facts
from paxosblock.net.wire import HEADER_BYTES, FrameKind, Header, encode_error
from paxosblock.protocol import register
from paxosblock.protocol.messages import Created, Nack, Read, ReadReply, Reply, Vote
from paxosblock.protocol.types import (
    NO_GENERATION,
    BlockId,
    Generation,
    ReplicaState,
    StorageId,
)

_log = logging.getLogger(__name__)
_NOWHERE: Final = StorageId("")


class Acceptor:
    """Every block of this node; it passes on to a `ReplicaListener` what they say.

    Most blocks are finalized and at rest. For those it only remembers the volume, and makes the
    `Block` when a caller asks for it. All callers share that one, and it goes with the last of
    them: so there is at most one at any time. After a start some are not even read (`ready`).
    """

    def __init__(
        self,
        volumes: Sequence[Volume],
        fetcher: Fetcher,
        listener: ReplicaListener,
        *,
        reserved_bytes: int = 0,
    ) -> None:
        """`reserved_bytes` are kept free on each volume when new replicas ask for room."""
        self._volumes = {volume.storage: volume for volume in volumes}
        self._listener = listener
        self._steps = ControlRequests(fetcher, self._settle, reserved_bytes)
        self._blocks: dict[BlockId, Block | Volume] = SortedDict()  # block reports go by order
        self._awake: WeakValueDictionary[BlockId, Block] = WeakValueDictionary()
        """The blocks at rest that callers hold at this moment."""
        self._late: set[asyncio.Task[None]] = set()
        """Chunks of blocks that are being read for the first time."""
        for volume in volumes:
            volume.on_failure = self._volume_failed

    async def load(self, hung_after_s: float) -> None:
        """Load the replicas of all volumes but those that hang for `hung_after_s`; answer no
        request before this."""
        volumes = tuple(self._volumes.values())
        loading = (volume.load(hung_after_s) for volume in volumes)
        for volume, found in zip(volumes, await asyncio.gather(*loading), strict=True):
            for loaded in found.loaded:
                block = Block(loaded.block, volume, self)
                block.load(loaded)
                await self._add(block)
            alone = dict.fromkeys((*found.resting, *found.unread), volume)
            for one in [one for one in alone if one in self._blocks]:
                del alone[one]
                with suppress(StorageError):  # the volume has failed
                    if volume.store.is_unread(one):
                        await read_first(volume, [one])
                    await self._add(self._woken(one, volume))
            if not volume.failed:
                self._blocks.update(alone)

    async def _add(self, block: Block) -> None:
        with suppress(StorageError):  # then that volume has failed, and has nothing
            await self.ready(block.id)
        other = self._owner(block.id)
        if other is not None:
            block, other = _later(block, other)
            _log.error(
                "two volumes hold the same block",
                extra=facts(block=block.id, used=block.volume, ignored=other.volume),
            )
        self._blocks[block.id] = block

    async def close(self) -> None:
        """Let the control steps that are under way end, then close every file."""
        await asyncio.gather(*self._late, return_exceptions=True)
        await self._steps.close()
        for block in (*self._blocks.values(), *self._awake.values()):
            if isinstance(block, Block):
                block.close()

    @property
    def outside(self) -> Volume | None:
        """Return a volume that was upgraded or rolled back, while it waits for a NameNode to accept
        it: it may have forgotten what it promised (FORMAT.md 7)."""
        return next((each for each in self._volumes.values() if each.outside), None)

    def check_inside(self) -> None:
        """Raise NotReadyError while a volume is `outside`."""
        if (volume := self.outside) is not None:
            raise NotReadyError(
                f"storage {volume.storage} was upgraded or rolled back, and no NameNode has"
                " taken it in yet",
                storage=volume.storage,
            )

    # -- looking --------------------------------------------------------------------------------

    def blocks(self) -> Iterator[Block]:
        """Return every block that this node knows, the dead ones too."""
        return (found for block in tuple(self._blocks) if (found := self._owner(block)))

    def behind(self, block: BlockId, storage: StorageId) -> Iterator[tuple[BlockId, Block | None]]:
        """Yield the greater ids than `block`, in order, until the next await; each with its block,
        if that is at `storage`. Replicas of other storages may be unread."""
        ordered: SortedDict = self._blocks
        volume = self._volumes.get(storage)
        for each in ordered.irange(block, inclusive=(False, True)):
            found = self._blocks[each]
            here = found if isinstance(found, Volume) else found.volume
            yield each, self._owner(each) if here is volume else None

    def _unread_at(self, block: BlockId) -> Volume | None:
        found = self._blocks.get(block)
        return found if isinstance(found, Volume) and found.store.is_unread(block) else None

    def is_unread(self, block: BlockId) -> bool:
        """True if nothing can be said of the block before it was read (`ready`)."""
        return self._unread_at(block) is not None

    async def ready(self, block: BlockId) -> None:
        """Wait until the replica of the block is read, if it was not read since the start.

        Raises:
            NoSpaceError: it cannot be read for lack of a file descriptor.
            StorageError: its volume has failed.
        """
        if (volume := self._unread_at(block)) is not None:
            await read_first(volume, [block])

    @property
    def open_count(self) -> int:
        """Number of replicas that are being written."""
        return sum(volume.open_count for volume in self._volumes.values())

    def is_open(self, block: BlockId) -> bool:
        """True if the replica of a block is being written."""
        found = self._blocks.get(block)
        replica = found.replica if isinstance(found, Block) else None
        return replica is not None and replica.registers.state is ReplicaState.RBW

    @property
    def count(self) -> int:
        """Number of blocks."""
        return len(self._blocks)

    def find(self, block: BlockId, storage: StorageId) -> Block | None:
        """Return the block if its replica is at `storage`."""
        found = self._owner(block)
        return found if found is not None and found.volume.storage == storage else None

    def _owner(self, block: BlockId) -> Block | None:
        """Return the block, awake; None if nothing of it is here."""
        found = self._blocks.get(block)
        if not isinstance(found, Volume):
            return found
        awake = self._awake.get(block)
        if awake is None:
            awake = self._woken(block, found)
            if awake.corrupt:
                self._blocks[block] = awake
            else:
                self._awake[block] = awake
        return awake

    def _woken(self, block: BlockId, volume: Volume) -> Block:
        """Return the block of a replica that rests at the volume."""
        if volume.store.is_unread(block):  # the ways in have let it be read in a thread
            read_now(volume, block)
        loaded, made = volume.store.wake(block), Block(block, volume, self)
        made.load(loaded, at_rest=not loaded.corrupt)
        return made

    def stands_s(self) -> float:
        """Return the seconds for which nothing has come back from a disk that is waited for."""
        return max((volume.stands_s() for volume in self._volumes.values()), default=0.0)

    # -- votes ----------------------------------------------------------------------------------

    def write(
        self, header: Header, frame: memoryview, reply: Callable[[Vote | Nack], None]
    ) -> None:
        """D2: `Block.vote` for the chunk in `frame`; without its block there is no vote."""
        block = self._blocks.get(header.block)
        if isinstance(block, Volume):
            if block.store.is_unread(header.block):  # finalized, so that a refusal comes late
                # A copy, as the connection reads the next frame into the same buffer.
                late = asyncio.create_task(self._write_late(header, bytes(frame), reply))
                self._late.add(late)
                late.add_done_callback(self._late.discard)
                return
            block = self._owner(header.block)
        if block is None:
            reply(register.nack(_NOWHERE, header.block, header.generation))
        else:
            block.vote(header, frame, reply)

    async def _write_late(
        self, header: Header, frame: bytes, reply: Callable[[Vote | Nack], None]
    ) -> None:
        try:
            await self.ready(header.block)
        except (NoSpaceError, StorageError):
            reply(register.nack(_NOWHERE, header.block, header.generation))
        else:
            self.write(header, memoryview(frame), reply)

    def begin_whole(self, request: CreateAndWrite) -> asyncio.Future[Reply] | None:
        """D1 and D2 as one step of a small replica; None: it is for `create_then_write`."""
        try:
            sent = SentChunk(first_chunk(request), memoryview(request.frame))
        except PaxosBlockError:
            return None
        return self._begin(request.storage, request.create, sent)

    async def create_then_write(self, request: CreateAndWrite) -> Reply:
        """D1, then D2, as two requests: whatever comes between them is let in.

        Raises:
            ProtocolError, CorruptionError: there is no first chunk of the block in the frame.
            NoSpaceError, StorageError: the volume is full or has failed.
        """
        frame, header = memoryview(request.frame), first_chunk(request)
        created = await self.take(Envelope(request.storage, request.create))
        if not isinstance(created, Created):
            return created
        voted: asyncio.Future[Vote | Nack] = asyncio.get_running_loop().create_future()

        def reply(vote: Vote | Nack) -> None:
            if not voted.done():  # its asker may have gone
                voted.set_result(vote)

        self.write(header, frame, reply)
        return await voted

    # -- control requests -----------------------------------------------------------------------

    def _found_or_new(self, block: BlockId, storage: StorageId) -> Block | None:
        """Return the block at `storage`, a new one if there is nothing of it on this node; None if
        the storage is not here, or the block is at another one."""
        found, volume = self._owner(block), self._volumes.get(storage)
        if volume is None or (found is not None and found.volume is not volume):
            return None
        if found is None:
            found = Block(block, volume, self)
            forgot = volume.identity.forgot
            if forgot is not None and block <= forgot.up_to:
                found.load(Loaded(block, None, None, FORGOTTEN))
        return found

    def _begin(
        self, storage: StorageId, request: Control, sent: SentChunk | None = None
    ) -> asyncio.Future[Reply] | None:
        """Begin to answer a message that takes but a record of a small replica; None: it is for
        `take`."""
        if self.is_unread(request.block):
            return None
        if (block := self._found_or_new(request.block, storage)) is None:
            return None
        begun = self._steps.begin(block, request, sent)
        if begun is not None:
            self._blocks[request.block] = block
        return begun

    async def take(self, envelope: Envelope) -> Answer:
        """Answer one protocol message.

        Raises:
            NoSpaceError, StorageError: the volume is full or has failed.
        """
        storage, request = envelope.storage, envelope.message
        if (volume := self._volumes.get(storage)) is not None:
            volume.check()
        await self.ready(request.block)
        if isinstance(request, Read):
            return await self.read(request, storage)
        block = self._found_or_new(request.block, storage)
        if block is None:
            # A storage that is not here is lost; no other may answer in its name (PROTOCOL.md 1).
            return register.nack(storage, request.block, register.generation_of(request))
        self._blocks[request.block] = block
        begun = self._steps.begin(block, request)
        if begun is None:
            return await self._steps.take(block, request, envelope.peers)
        reply = await begun
        assert not isinstance(reply, Vote), "only a Write is voted for"
        return reply

    async def take_all(self, envelopes: Sequence[Envelope]) -> tuple[Answer | NoAnswer, ...]:
        """Answer several messages, each as if it came alone; none waits long for another."""
        taking = [self._taking(each) for each in envelopes]
        if taking:
            await asyncio.wait(taking, timeout=PROMPT_S)
        return tuple(map(answered, taking))

    def _taking(self, envelope: Envelope) -> asyncio.Future[Any]:
        """Answer one of several messages, without a task if it takes but a record."""
        storage, request = envelope.storage, envelope.message
        begun = None
        if not isinstance(request, Read):
            with suppress(Exception):  # `take` fails in the same way, and for this message only
                begun = self._begin(storage, request)
        return asyncio.create_task(self.take(envelope)) if begun is None else begun

    def _settle(self, block: Block) -> None:
        """Forget a block that is vacant, or at rest, after its last step."""
        if self._blocks.get(block.id) is not block:
            return
        files = None if block.corrupt else block.files
        if block.vacant:
            del self._blocks[block.id]
        elif files is not None and block.volume.store.rests(block.id, files):
            self._blocks[block.id] = block.volume  # `_owner` makes the same block again
            self._awake[block.id] = block

    # -- what the blocks say --------------------------------------------------------------------

    def replica_changed(self, block: BlockId, storage: StorageId) -> None:
        """A replica was made, finalized, deleted, or changed by a recovery."""
        self._listener.replica_changed(block, storage)

    def replica_corrupt(self, block: BlockId, storage: StorageId, reason: str) -> None:
        """A replica is dead: if it was at rest, it no longer is."""
        found = self.find(block, storage)
        if found is not None:
            self._blocks[block] = found
        self._listener.replica_corrupt(block, storage, reason)

    # -- reading the registers ------------------------------------------------------------------

    async def read(self, request: Read, storage: StorageId) -> ReadReply | Nack:
        """D6: return the registers; in disk mode, or if asked for, what they say is durable.

        Raises:
            StorageError: the volume has failed.
        """
        await self.ready(request.block)
        block = self.find(request.block, storage)
        if block is None:
            return register.nack(storage, request.block, NO_GENERATION)
        return await block.read(request)

    # -- what goes wrong ------------------------------------------------------------------------

    def _volume_failed(self, volume: Volume) -> None:
        """Forget its blocks: another volume of this node may get them."""
        for block, found in tuple(self._blocks.items()):
            if (found if isinstance(found, Volume) else found.volume) is volume:
                del self._blocks[block]
                owner = self._awake.get(block) if found is volume else found
                if isinstance(owner, Block):
                    owner.changed()


def answered(taking: asyncio.Future[Any]) -> Any:
    """Return the answer to one of several messages; `NoAnswer` if it failed, or is not there."""
    if not taking.done():
        taking.cancel()  # its step goes on
        return NoAnswer()
    error = taking.exception()
    if error is None:
        return taking.result()
    return NoAnswer(encode_error(error_for_peer(error, "one of several messages", _log)))


def first_chunk(request: CreateAndWrite) -> Header:
    """Return the header of the chunk that comes with a Create.

    Raises:
        ProtocolError, CorruptionError: there is none in the frame.
    """
    if len(request.frame) < HEADER_BYTES:
        raise ProtocolError(f"a frame of {len(request.frame)} bytes holds no chunk")
    header = Header.unpack(request.frame)
    kind, size, block = header.kind, header.payload_length + HEADER_BYTES, request.create.block
    if (kind, size, header.block) != (FrameKind.CHUNK, len(request.frame), block):
        raise ProtocolError(f"the frame that came with Create holds no chunk of block {block}")
    return header


def _later(one: Block, other: Block) -> tuple[Block, Block]:
    """Return the later block first. Both are here because the block came to one volume after the
    other had failed."""
    return (one, other) if _accepted(one) > _accepted(other) else (other, one)


def _accepted(block: Block) -> Generation:
    return NO_GENERATION if block.replica is None else block.replica.registers.accepted_generation
