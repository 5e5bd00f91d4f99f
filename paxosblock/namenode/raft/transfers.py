"""Both ends of the transfer of a table to a member that the log no longer reaches.

The leader makes a checkpoint of its table and sends it from the disk in pieces: each one when the
follower says that the one before is stored. A transfer has a number in its term. The follower
writes the pieces beside its own table; once all are checked and durable, they replace that table.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Final, Protocol, TypeVar

from paxosblock.errors import (
    ConfigError,
    CorruptionError,
    NoSpaceError,
    PaxosBlockError,
    StorageError,
    UnavailableError,
)
from paxosblock.namenode.kv.table import Checkpoint, Receiver
from paxosblock.namenode.raft.contract import MemberLog
from paxosblock.namenode.raft.log import ROOM_POLL_S
from paxosblock.namenode.raft.machine import ReplicatedMachine
from paxosblock.namenode.raft.raft_messages import InstallSnapshot, Received, Send
from paxosblock.namenode.raft.roles import RaftFollower
from paxosblock.namenode.raft.state import RaftState

T = TypeVar("T")

CHECKS_MAX: Final = 3
"""Attempts to check a table that came, before all of it is fetched again: the process that reads it
may have been killed for lack of memory, or because of what it read."""

_log = logging.getLogger(__name__)


class Outgoing:
    """The leader's end."""

    def __init__(
        self, state: RaftState, peer: str, number: int, failed: Callable[[], None]
    ) -> None:
        """Begin to make the checkpoint.

        Args:
            state: the leader's.
            peer: the member that gets the table.
            number: a number that this leader has given to no other transfer.
            failed: is called when the disk refuses; `end` follows.
        """
        self._state = state
        self._peer = peer
        self.number = number
        self._failed = failed
        copy = state.state_machine.checkpoint()
        self.index = copy.revision
        """The table is as it was after this entry, or after a later one."""
        self._checkpoint: Checkpoint | None = None
        self._offset = 0
        self._piece = b""
        """The bytes that are being sent; empty while they are being read."""
        self._sent_at = 0.0
        self._ended = False
        state.server.in_thread(copy.make, self._made)

    def stored(self, offset: int) -> None:
        """Send the next piece, as the member has stored the bytes before `offset`."""
        checkpoint = self._checkpoint
        if checkpoint is None or not self._piece or offset in (self._offset, checkpoint.size_bytes):
            return  # the answer came twice, or the member has all bytes and is reading them
        self._offset = offset
        self._read(checkpoint)

    def send_again(self) -> None:
        """Send the piece again if it has not been answered for a while."""
        patience = self._state.options.election_min_s
        if self._piece and self._state.loop.time() - self._sent_at >= patience:
            self._send()

    def end(self) -> None:
        """Send nothing more, and give back the room that the checkpoint takes."""
        self._ended = True
        self._piece = b""
        if self._checkpoint is not None:
            self._state.server.in_thread(self._checkpoint.close, lambda closed: None)

    def _made(self, checkpoint: Checkpoint | None) -> None:
        self._checkpoint = checkpoint
        if self._ended:
            self.end()
        elif checkpoint is None:
            self._failed()
        else:
            self._read(checkpoint)

    def _read(self, checkpoint: Checkpoint) -> None:
        self._piece = b""
        size = self._state.options.snapshot_chunk_bytes
        self._state.server.in_thread(partial(checkpoint.read, size, self._offset), self._got)

    def _got(self, piece: bytes | None) -> None:
        if self._ended:
            return
        if piece is None:
            self._failed()
        else:
            self._piece = piece
            self._send()

    def _send(self) -> None:
        assert self._checkpoint is not None, "a piece of the checkpoint was read"
        self._sent_at = self._state.loop.time()
        piece = InstallSnapshot(
            self._state.storage.term,
            self._state.id,
            self.number,
            self.index,
            self._checkpoint.size_bytes,
            self._offset,
            self._piece,
        )
        self._state.carry_out(Send(self._peer, piece))


class Member(Protocol):
    """The member that takes a table, as far as a transfer knows it (`RaftNode`)."""

    name: str
    machine: ReplicatedMachine
    log: MemberLog

    @property
    def role(self) -> object:
        """Return its role; None once it has stopped."""

    @property
    def free_for_table(self) -> bool:
        """True if nothing is being done with the table on the disk."""

    def work_on_table(self, work: Coroutine[object, object, None]) -> None:
        """Do this `work` while no other is done with the table."""

    def run(self, step: Callable[[], T]) -> asyncio.Future[T]:
        """Run a step that blocks in a thread."""

    async def install(self, receiver: Receiver) -> None:
        """Go on from the table that came, which is checked."""

    def refuse(self, what: str) -> None:
        """Count a message that no member of this cluster sends."""

    def fail(self, error: Exception) -> None:
        """Stop for good because of an error of the disk, or a mistake of our own."""


class Incoming:
    """The follower's end."""

    def __init__(self, node: Member, receive: Callable[[], Receiver]) -> None:
        """Begin without a transfer; `receive` begins a draft, and blocks."""
        self._node = node
        self._receive = receive
        self._receiver: Receiver | None = None
        self._transfer = 0, 0
        """Term and number of the latest transfer."""
        self._stored = 0

    def take(self, piece: Received[InstallSnapshot]) -> None:
        """Store the piece if it is the next one. While other work is done with the table, the piece
        is dropped, as it comes again."""
        said = piece.message
        transfer = said.term, said.number
        if transfer < self._transfer or not self._node.free_for_table:
            return
        # Pieces of two transfers are of two checkpoints: together they would make no table.
        if transfer != self._transfer:
            self._transfer, self._stored = transfer, 0
        if said.offset == self._stored:
            self._node.work_on_table(self._take(piece))
        else:
            self._answer(piece)

    def give_up(self) -> None:
        """Discard the pieces that were stored, as the log has brought this member further."""
        if self._receiver is not None and self._node.free_for_table:
            self._node.work_on_table(self._discard())

    async def _take(self, piece: Received[InstallSnapshot]) -> None:
        try:
            self._stored = await self._store(piece.message)
            if self._stored < piece.message.size:
                self._answer(piece)
            else:
                await self._go_on_from_it(piece)
        except (ConfigError, CorruptionError) as error:
            self._node.refuse(f"a snapshot: {error}")
            await self._discard()
        except (NoSpaceError, UnavailableError) as error:
            # The leader sends all again. Until this task ends, no piece is taken.
            _log.warning("%s: cannot take the leader's table now: %s", self._node.name, error)
            await self._discard()
            await asyncio.sleep(ROOM_POLL_S)
        except StorageError as error:
            self._node.fail(error)

    async def _store(self, piece: InstallSnapshot) -> int:
        """Store a piece; return how many bytes there are with it."""
        if piece.offset == 0:
            self._receiver = await self._node.run(self._receive)
        assert self._receiver is not None, "the stored bytes begin with the first one"
        await self._node.run(partial(self._receiver.write, piece.data))
        return piece.offset + len(piece.data)

    async def _go_on_from_it(self, piece: Received[InstallSnapshot]) -> None:
        receiver = self._receiver
        assert receiver is not None, "all of it has come"
        index = await self._check(receiver)
        if self._node.role is None:
            return
        # The log may have brought this member further meanwhile, and a table must not go back.
        if index > self._node.machine.revision:
            self._receiver, self._stored = None, 0
            await self._node.install(receiver)
        else:
            await self._discard()
        role = self._node.role
        if isinstance(role, RaftFollower) and piece.message.index <= self._node.log.commit_index:
            role.snapshot_installed(piece)

    async def _check(self, receiver: Receiver, attempts: int = CHECKS_MAX) -> int:
        """Check what came, again if the process that checked it was killed; return the entry of the
        table."""
        try:
            return await self._node.run(receiver.check)
        except UnavailableError as error:
            _log.warning("%s: the leader's table is not checked: %s", self._node.name, error)
            await asyncio.sleep(ROOM_POLL_S)
            if attempts == 1 or self._node.role is None:
                raise
        return await self._check(receiver, attempts - 1)

    async def _discard(self) -> None:
        receiver, self._receiver, self._stored = self._receiver, None, 0
        if receiver is not None:
            try:
                await self._node.run(receiver.discard)
            except PaxosBlockError as error:
                _log.warning("%s: %s", self._node.name, error)

    def _answer(self, piece: Received[InstallSnapshot]) -> None:
        role = self._node.role
        if isinstance(role, RaftFollower):
            role.answer_snapshot(piece, self._stored)
