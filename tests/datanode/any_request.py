"""Any message that a DataNode may get about a block, and what the acceptor alone makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from paxosblock.api.datanode import StorageAddress
from paxosblock.base.checksum import crc32c
from paxosblock.datanode.store.disk_format import FetchedChunks
from paxosblock.datanode.volumes.volume import Volume
from paxosblock.errors import UnavailableError
from paxosblock.protocol import register
from paxosblock.protocol.chunk_log import ChunkLog
from paxosblock.protocol.messages import (
    Create,
    Delete,
    Finalize,
    Nack,
    NextGS,
    Read,
    RecoveryWrite,
    Reply,
    Request,
    Write,
)
from paxosblock.protocol.register import Replica, Transition
from paxosblock.protocol.types import (
    BlockId,
    ChunkIndex,
    ChunkName,
    Durability,
    Generation,
    Reason,
    StorageId,
)
from tests.datanode.node import WINDOW, Holder, chunk, name

HOLDS = 6
"""Chunks that another replica can send."""
KINDS = (Write, Create, Write, Write, Write, Write, NextGS, RecoveryWrite, Finalize, Read)

T = TypeVar("T")


class Chance(Protocol):
    """Decides; `random.Random` is one."""

    def choice(self, seq: Sequence[T], /) -> T:
        """Return one of them."""

    def randint(self, a: int, b: int, /) -> int:
        """Return a number from `a` to `b`."""


def sent(request: RecoveryWrite | Finalize, chunks: range) -> tuple[ChunkName, ...]:
    """Return those of `chunks` that another replica sends: all or none, of the decided log only."""
    names = tuple(name(index) for index in chunks if index < HOLDS)
    full_copy = isinstance(request, Finalize) and chunks == range(request.length)
    if full_copy and sum(each.size_bytes for each in names) != request.size_bytes:
        return ()
    return names if len(names) == len(chunks) else ()


class DecidedHolder(Holder):
    """Sends what `sent` says."""

    def __init__(self) -> None:
        super().__init__([chunk(index) for index in range(HOLDS)])

    async def fetch(
        self,
        volume: Volume,
        request: RecoveryWrite | Finalize,
        chunks: range,
        peers: tuple[StorageAddress, ...],
    ) -> FetchedChunks:
        """The chunks, in a draft of `volume`."""
        if not sent(request, chunks):
            raise UnavailableError("no holder has them")
        return await super().fetch(volume, request, chunks, peers)


def says_corrupt(reply: Reply) -> bool:
    """Return if a replica says that it is dead."""
    return isinstance(reply, Nack) and reply.reason is Reason.CORRUPT


def expected(storage: StorageId, replica: Replica | None, request: Request) -> Transition:
    """Return what `protocol.register` alone makes of a request at a node with a `DecidedHolder`."""
    step = _answered(storage, replica, request)
    if gives_way(storage, replica, request):
        assert isinstance(request, Finalize)
        return register.answer(storage, None, request, sent(request, range(request.length)))
    return step


def _answered(storage: StorageId, replica: Replica | None, request: Request) -> Transition:
    supplied: tuple[ChunkName, ...] = ()
    if isinstance(request, RecoveryWrite | Finalize):
        supplied = sent(request, register.wanted(storage, replica, request))
    return register.answer(storage, replica, request, supplied)


def gives_way(storage: StorageId, replica: Replica | None, request: Request) -> bool:
    """D9: a log that is not the one that was decided gives way to a full copy of that."""
    if not isinstance(request, Finalize):
        return False
    contradicts = says_corrupt(_answered(storage, replica, request).reply)
    has_copy = bool(sent(request, range(request.length)))
    return contradicts and has_copy and register.heals(replica, request)


@dataclass(frozen=True, slots=True)
class AnyRequest:
    """Draws messages for one block at one storage."""

    chance: Chance
    block: BlockId
    storage: StorageId

    def about(self, replica: Replica | None) -> tuple[Request, bytes]:
        """Draw any message at all, more often than not one that fits the replica; and a Write's
        chunk."""
        chance, block, kind = self.chance, self.block, self.chance.choice(KINDS)
        promised = 0 if replica is None else replica.registers.max_generation
        generation = Generation(max(0, promised + chance.choice((1, 0, 0, 2, -1))))
        durability = chance.choice(tuple(Durability))
        if kind is Create:
            return Create(block, WINDOW, durability), b""
        if kind is Write:
            return self._write(replica, generation)
        if kind is NextGS:
            base = Generation(chance.randint(0, 2))
            return NextGS(block, generation, base, WINDOW, durability), b""
        if kind is RecoveryWrite:
            return self._recovery(replica, generation, durability), b""
        if kind is Finalize:
            epoch = Generation(chance.randint(0, generation))
            log = self._log(replica)
            size = log.size_bytes
            return Finalize(block, generation, epoch, len(log), size, (), WINDOW, durability), b""
        if not chance.randint(0, 3):
            return Delete(block, generation), b""
        return Read(block, sync=chance.choice((False, True))), b""

    def _write(self, replica: Replica | None, generation: Generation) -> tuple[Write, bytes]:
        chance, held = self.chance, 0 if replica is None else replica.length
        if replica is not None and chance.randint(0, 5):
            generation = replica.registers.accepted_generation
        index = max(0, held + chance.choice((0, 0, 0, 0, -1, 1)))
        payload = chunk(index, chance.choice((100, 100, 0)), chance.randint(0, 1))
        size, crc, sync = len(payload), crc32c(payload), chance.choice((False, True))
        acknowledged = chance.randint(0, held)
        write = Write(self.block, generation, ChunkIndex(index), size, crc, acknowledged, sync)
        return write, payload

    def _recovery(
        self, replica: Replica | None, generation: Generation, durability: Durability
    ) -> RecoveryWrite:
        log, base = self._log(replica), Generation(self.chance.randint(0, generation))
        return RecoveryWrite(
            block=self.block,
            generation=generation,
            base=base,
            epoch=self.chance.choice((base, generation)),
            length=len(log),
            size_bytes=log.size_bytes,
            tail=log.tail(WINDOW),
            chosen_generation=base,
            members=(self.storage,) * self.chance.randint(0, 1),
            holders=(),
            window=WINDOW,
            durability=durability,
        )

    def _log(self, replica: Replica | None) -> ChunkLog:
        """Draw the log that the replica has, as far as it goes, or one that another one has."""
        own = replica is not None and self.chance.choice((False, True))
        log = replica.log if replica is not None and own else ChunkLog()
        length = self.chance.randint(0, HOLDS)
        if length <= len(log):
            return log.truncate(length)
        return log.extend(name(index) for index in range(len(log), length))
