"""DataNodes for the tests of the NameNode: the real acceptors, with their replicas in memory.

`Acceptor` runs `protocol.register.answer`; a restart builds it anew from what was durable.
`Network` carries messages to acceptors and can lose, delay and cut; it stands where `RpcAcceptors`
stands in a node.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from paxosblock.api.datanode import FindChunk, FoundChunk, ReplicaSummary
from paxosblock.api.reports import DeadReplica
from paxosblock.errors import (
    DeadlineError,
    NotFoundError,
    PaxosBlockError,
    UnavailableError,
)
from paxosblock.namenode.blocks.acceptors import Answer, Heard, Question
from paxosblock.protocol import register
from paxosblock.protocol.messages import (
    Create,
    Delete,
    Finalize,
    Nack,
    Read,
    ReadReply,
    RecoveryWrite,
    Reply,
    Request,
    Write,
)
from paxosblock.protocol.read import holds
from paxosblock.protocol.register import Replica
from paxosblock.protocol.replica_state import hdfs_state
from paxosblock.protocol.types import (
    NO_GENERATION,
    BlockId,
    ChunkIndex,
    ChunkName,
    Durability,
    Generation,
    Reason,
    StorageId,
)

CHUNK_BYTES = 10


@dataclass
class Acceptor:
    """One storage: its replicas, the dead ones among them, and the others it may fetch from."""

    storage: StorageId
    replicas: dict[BlockId, Replica] = field(default_factory=dict)
    dead: set[BlockId] = field(default_factory=set)
    peers: dict[StorageId, Acceptor] = field(default_factory=dict)
    alive: bool = True

    def answer(self, request: Request) -> Reply:
        """Answer like a DataNode: fetch what is wanted, adopt the new replica, reply."""
        block = request.block
        before = self.replicas.get(block)
        if block in self.dead:
            return self._answer_dead(request)
        step = register.answer(self.storage, before, request, self._supplied(before, request))
        refused = isinstance(step.reply, Nack) and step.reply.reason is Reason.CORRUPT
        if refused and isinstance(request, Finalize):
            self.dead.add(block)  # D9: a full copy takes its place, as soon as a member sends one
            return self._answer_dead(request)
        if step.replica is None:
            self.replicas.pop(block, None)
        else:
            if before is not None:
                step.replica.check_follows(before)
            self.replicas[block] = step.replica
        return step.reply

    def _answer_dead(self, request: Request) -> Reply:
        """A replica with damaged bytes may be deleted, or takes a full copy in its place."""
        block, none = request.block, NO_GENERATION
        if not isinstance(request, RecoveryWrite | Finalize | Delete):
            return Nack(block, none, self.storage, Reason.CORRUPT, none, none, 0)
        step = register.answer(self.storage, None, request, self._supplied(None, request))
        if isinstance(request, Delete):
            del self.replicas[block]
        elif step.replica is None:
            return step.reply
        else:
            self.replicas[block] = step.replica
        self.dead.discard(block)
        return step.reply

    def crash(self, *, same_boot: bool = True) -> None:
        """End the process and start it again."""
        for block, replica in self.replicas.items():
            self.replicas[block] = register.restarted(replica, same_boot=same_boot)

    def create(self, block: BlockId, window: int = 2) -> None:
        """D1."""
        self.answer(Create(block, window, Durability.DISK))

    def write(self, block: BlockId, count: int, *, crc: int = 7) -> None:
        """D2: vote for chunks of the first generation until there are `count`."""
        for index in range(self.replicas[block].length, count):
            self.answer(
                Write(block, Generation(0), ChunkIndex(index), CHUNK_BYTES, crc + index, index)
            )

    def find_chunk(self, wanted: FindChunk) -> FoundChunk:
        """Return where a chunk of a version begins."""
        state = None if wanted.block in self.dead else self.answer(Read(wanted.block))
        if not isinstance(state, ReadReply) or not holds(wanted.version, state):
            raise NotFoundError(f"storage {self.storage}: does not hold it", block=wanted.block)
        log = self.replicas[wanted.block].log.truncate(wanted.version.length)
        index = log.index_at(wanted.offset)
        return FoundChunk(index, log.start_of(index), log.size_bytes)

    def summary(self, block: BlockId) -> ReplicaSummary:
        """Return what the block report says of a replica."""
        replica = self.replicas[block]
        state = self.answer(Read(block))
        assert isinstance(state, ReadReply)
        last = replica.log[ChunkIndex(replica.length - 1)] if replica.length else None
        return ReplicaSummary(self.storage, state, hdfs_state(replica).value, last)

    def dead_replica(self, block: BlockId) -> DeadReplica:
        """Return what the block report says of a dead one."""
        promised = self.replicas[block].registers.max_generation
        return DeadReplica(block, promised, "a bit has flipped")

    def _supplied(self, before: Replica | None, request: Request) -> tuple[ChunkName, ...]:
        if not isinstance(request, RecoveryWrite | Finalize):
            return ()
        wanted = register.wanted(self.storage, before, request)
        accepted = (
            (request.finalized_generation,)
            if isinstance(request, Finalize)
            else (request.chosen_generation, request.generation)
        )
        for holder in request.holders:
            source = self.peers.get(holder)
            held = source.replicas.get(request.block) if source and source.alive else None
            if (
                held
                and held.registers.accepted_generation in accepted
                and held.length >= request.length
            ):
                return held.log.slice(wanted.start, wanted.stop)
        return ()


def acceptors(*names: str) -> dict[StorageId, Acceptor]:
    """Storages that can fetch from each other."""
    made = {StorageId(name): Acceptor(StorageId(name)) for name in names}
    for acceptor in made.values():
        acceptor.peers = made
    return made


@dataclass
class Network:
    """Carries questions to acceptors. A cut one is refused at once, a hung one never answers."""

    reach: dict[StorageId, Acceptor]
    loss: float = 0.0
    turns_max: int = 0
    random: random.Random = field(default_factory=lambda: random.Random(0))
    hung: set[StorageId] = field(default_factory=set)
    asked: list[tuple[StorageId, Question]] = field(default_factory=list)
    calls: list[StorageId] = field(default_factory=list)
    processes: dict[str, str | PaxosBlockError] = field(default_factory=dict)
    """Incarnations of the DataNode processes that answer at an address, or what comes instead."""

    async def ask(
        self, storage: StorageId, question: Question, *, timeout_s: float | None = None
    ) -> Answer:
        """Stand in for `RpcAcceptors`."""
        (heard,) = await self.ask_all(storage, (question,))
        if isinstance(heard, PaxosBlockError):
            raise heard
        assert heard is not None
        return heard

    async def ask_all(self, storage: StorageId, questions: Sequence[Question]) -> list[Heard]:
        """Stand in for `RpcAcceptors`; if a question is lost, nothing is heard of any."""
        self.calls.append(storage)
        self.asked += [(storage, each) for each in questions]
        return [await self._answer(storage, each) for each in questions]

    async def _answer(self, storage: StorageId, question: Question) -> Answer:
        if storage in self.hung:
            await asyncio.Event().wait()
        await self._delay()
        if not self.reach[storage].alive:
            raise UnavailableError(f"{storage}: connection refused")
        if self.random.random() < self.loss:
            raise DeadlineError(f"{storage}: the question was lost")
        answer = self.reach[storage].answer(question)
        await self._delay()
        if self.random.random() < self.loss:
            raise DeadlineError(f"{storage}: the answer was lost")
        assert isinstance(answer, Answer)
        return answer

    async def process_at(self, address: str) -> str:
        """Stand in for `RpcAcceptors`: what `processes` says, none by default."""
        found = self.processes.get(address, "")
        if isinstance(found, PaxosBlockError):
            raise found
        return found

    async def find_chunk(self, question: FindChunk) -> FoundChunk:
        """Stand in for `RpcAcceptors`."""
        if question.storage in self.hung:
            await asyncio.Event().wait()
        await self._delay()
        if not self.reach[question.storage].alive:
            raise UnavailableError(f"{question.storage}: connection refused")
        return self.reach[question.storage].find_chunk(question)

    async def _delay(self) -> None:
        for _ in range(self.random.randint(0, self.turns_max)):
            await asyncio.sleep(0)


def forget_votes(replica: Replica, keep: int) -> Replica:
    """Return what a machine crash leaves of a replica whose votes were in memory only."""
    return replace(replica, log=replica.log.truncate(keep))
