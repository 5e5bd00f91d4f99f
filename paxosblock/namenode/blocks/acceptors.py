"""Asking DataNodes: the one place where protocol messages of the NameNode meet the network."""

from __future__ import annotations

from typing import Protocol, TypeVar

from paxosblock.api.datanode import (
    ACCEPT,
    FIND_CHUNK,
    Envelope,
    FindChunk,
    FoundChunk,
    StorageAddress,
)
from paxosblock.api.methods import Method
from paxosblock.errors import ProtocolError, UnavailableError
from paxosblock.namenode.blocks.datanodes import DataNodes
from paxosblock.net.rpc import RpcClient
from paxosblock.protocol.messages import (
    Delete,
    Deleted,
    Finalize,
    Finalized,
    LastVote,
    Nack,
    NextGS,
    RecoveryVote,
    RecoveryWrite,
    Short,
)
from paxosblock.protocol.types import StorageId

Q = TypeVar("Q")
A = TypeVar("A")
Question = NextGS | RecoveryWrite | Finalize | Delete
Answer = LastVote | RecoveryVote | Finalized | Short | Deleted | Nack


class Acceptors(Protocol):
    """The calls that the recoverer and the finalizer need of the network."""

    async def ask(
        self, storage: StorageId, question: Question, *, timeout_s: float | None = None
    ) -> Answer:
        """Ask one storage; `timeout_s` is for questions that may take longer than others.

        Raises:
            PaxosBlockError: no answer came (the question may have arrived), or the node's own one.
        """

    async def find_chunk(self, question: FindChunk) -> FoundChunk:
        """Ask a storage for the byte at which a chunk begins. Raises as `ask`."""


class RpcAcceptors:
    """Asks through control calls, at the addresses that the DataNodes registered with."""

    def __init__(self, client: RpcClient, datanodes: DataNodes, timeout_s: float) -> None:
        """Bound one question to one DataNode by `timeout_s`; others do not wait for it."""
        self._client = client
        self._datanodes = datanodes
        self._timeout_s = timeout_s

    async def ask(
        self, storage: StorageId, question: Question, *, timeout_s: float | None = None
    ) -> Answer:
        """Ask one storage; the holders that the question names go along with their addresses."""
        envelope = Envelope(storage, question, self._peers(storage, question))
        answer = await self._call(storage, ACCEPT, envelope, timeout_s or self._timeout_s)
        if not isinstance(answer, Answer) or answer.storage != storage:
            raise ProtocolError(f"storage {storage}: the DataNode answered for somebody else")
        return answer

    async def find_chunk(self, question: FindChunk) -> FoundChunk:
        """Ask one storage about its replica."""
        return await self._call(question.storage, FIND_CHUNK, question, self._timeout_s)

    async def _call(
        self, storage: StorageId, method: Method[Q, A], question: Q, timeout_s: float
    ) -> A:
        address = self._datanodes.address(storage)
        if not address:
            raise UnavailableError(f"storage {storage}: its DataNode is not known yet")
        try:
            return await self._client.call(
                address, method.name, question, method.answer, timeout_s=timeout_s
            )
        except UnavailableError:
            self._datanodes.suspect(storage)
            raise

    def _peers(self, storage: StorageId, question: Question) -> tuple[StorageAddress, ...]:
        if not isinstance(question, RecoveryWrite | Finalize):
            return ()
        known = ((holder, self._datanodes.address(holder)) for holder in question.holders)
        return tuple(
            StorageAddress(holder, address)
            for holder, address in known
            if address and holder != storage
        )
