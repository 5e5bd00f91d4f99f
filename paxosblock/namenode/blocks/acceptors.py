"""Asking DataNodes: the one place where protocol messages of the NameNode meet the network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, TypeVar

from msgspec.structs import replace

from paxosblock.api.capability import Right
from paxosblock.api.datanode import (
    ACCEPT,
    ACCEPT_ALL,
    FIND_CHUNK,
    PROCESS,
    AskProcess,
    Envelope,
    Envelopes,
    FindChunk,
    FoundChunk,
    NoAnswer,
    StorageAddress,
)
from paxosblock.api.methods import Method
from paxosblock.errors import PaxosBlockError, ProtocolError, UnavailableError
from paxosblock.namenode.blocks.datanodes import DataNodes
from paxosblock.net.calls.rpc import RpcClient
from paxosblock.net.wire import decode_error
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

PROCESS_S: Final = 2.0
"""Seconds in which a process has to say that it lives: less than a registration waits."""
_READ: Final = int(Right.READ)
_DECIDE: Final = int(Right.DECIDE)
Question = NextGS | RecoveryWrite | Finalize | Delete
Answer = LastVote | RecoveryVote | Finalized | Short | Deleted | Nack
Heard = Answer | PaxosBlockError | None
"""The answer to one of several questions; None: it takes longer, and `ask` waits for it."""


class Acceptors(Protocol):
    """The calls that the recoverer and the finalizer need of the network."""

    async def ask(
        self, storage: StorageId, question: Question, *, timeout_s: float | None = None
    ) -> Answer:
        """Ask one storage; `timeout_s` is for questions that may take longer than others.

        Raises:
            PaxosBlockError: no answer came (the question may have arrived), or the node's own one.
        """

    async def ask_all(self, storage: StorageId, questions: Sequence[Question]) -> Sequence[Heard]:
        """Ask one storage several questions at once, and hear of each by itself.

        Raises:
            PaxosBlockError: as `ask`; this came of all questions.
        """

    async def find_chunk(self, question: FindChunk) -> FoundChunk:
        """Ask a storage for the byte at which a chunk begins. Raises as `ask`."""

    async def process_at(self, address: str) -> str:
        """Return the incarnation of the DataNode process at `address`; "" if no process listens
        there.

        Raises:
            PaxosBlockError: there is no telling.
        """


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
        envelope = self._envelope(storage, question)
        answer = await self._call(storage, ACCEPT, envelope, timeout_s or self._timeout_s)
        return _checked(storage, answer)

    async def ask_all(self, storage: StorageId, questions: Sequence[Question]) -> list[Heard]:
        """Ask one storage by one call."""
        envelopes = Envelopes(tuple(self._envelope(storage, each) for each in questions))
        answers = await self._call(storage, ACCEPT_ALL, envelopes, self._timeout_s)
        if len(answers.each) != len(questions):
            raise ProtocolError(f"storage {storage}: the DataNode answered something else")
        return [_heard(storage, each) for each in answers.each]

    async def find_chunk(self, question: FindChunk) -> FoundChunk:
        """Ask one storage about its replica."""
        storage = question.storage
        capability = self._datanodes.signed(storage, question.block, _READ)
        signed = replace(question, capability=capability)
        return await self._call(storage, FIND_CHUNK, signed, self._timeout_s)

    async def process_at(self, address: str) -> str:
        """Ask which process answers there."""
        question = AskProcess()
        try:
            found = await self._client.call(
                address, PROCESS.name, question, PROCESS.answer, timeout_s=PROCESS_S
            )
        except UnavailableError as error:
            if error.details.get("nobody_listens"):
                return ""
            raise
        return found.incarnation

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

    def _envelope(self, storage: StorageId, question: Question) -> Envelope:
        signed = self._datanodes.signed(storage, question.block, _DECIDE)
        return Envelope(storage, question, self._peers(storage, question), signed)

    def _peers(self, storage: StorageId, question: Question) -> tuple[StorageAddress, ...]:
        if not isinstance(question, RecoveryWrite | Finalize):
            return ()
        known = ((holder, self._datanodes.address(holder)) for holder in question.holders)
        return tuple(
            StorageAddress(holder, address, self._datanodes.signed(holder, question.block, _READ))
            for holder, address in known
            if address and holder != storage
        )


def _checked(storage: StorageId, answer: object) -> Answer:
    if not isinstance(answer, Answer) or answer.storage != storage:
        raise ProtocolError(f"storage {storage}: the DataNode answered for another one")
    return answer


def _heard(storage: StorageId, answer: object) -> Heard:
    if not isinstance(answer, NoAnswer):
        return _checked(storage, answer)
    return decode_error(answer.error) if answer.error else None
