"""Listens to the words of a cluster's parts to each other, which must hold together.

Hears every control call with its answer, and every chunk that is sent to a DataNode:

- a Grant, and a block, has one writer (K1, K3, K7);
- a generation has one proposer, who proposes one log (P3, K2 to K4), and one writer (W2);
- a writer who was told "fenced" about a block is not told "done" about it afterwards;
- whoever does not know the secret is refused at the door, whatever they ask for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from paxosblock.api.datanode import ACCEPT, ACCEPT_ALL, Envelope
from paxosblock.api.methods import Method
from paxosblock.api.namenode import (
    ADD_BLOCK,
    CLOSE_FILE,
    CREATE,
    FINALIZE_BLOCK,
    REOPEN_BLOCK,
    SEAL_BLOCK,
    BlockView,
    CreatedFile,
    Reopened,
)
from paxosblock.api.rebuild import REBUILD_BLOCK
from paxosblock.errors import (
    AccessDeniedError,
    FencedError,
    PaxosBlockError,
    UnavailableError,
)
from paxosblock.net.wire import Header
from paxosblock.protocol.messages import NextGS, RecoveryWrite
from paxosblock.protocol.types import BlockId, Generation, WriterId
from tests.lives.pairs import Pairs
from tests.raft.virtual_time import Host

_GRANTING = {each.name: each for each in (CREATE, ADD_BLOCK, REOPEN_BLOCK, REBUILD_BLOCK)}
_OF_BLOCKS = frozenset(each.name for each in (FINALIZE_BLOCK, SEAL_BLOCK, REBUILD_BLOCK))
_OF_FILES = frozenset(each.name for each in (ADD_BLOCK, REOPEN_BLOCK, CLOSE_FILE))


@dataclass(slots=True)
class Promises:
    """Hears what is said in one life; `mistake` is told what may not be."""

    mistake: Callable[[str], None]
    pairs: Pairs
    """It counts there the services that it hears at work."""
    counts: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    """The number of times that each control call was made."""
    hears: list[Callable[[Host | None, str, object], None]] = field(default_factory=list)
    """Others that are told of each request."""
    _granted: dict[tuple[BlockId, Generation], WriterId] = field(default_factory=dict)
    _sends: dict[tuple[BlockId, Generation], Host | None] = field(default_factory=dict)
    _proposes: dict[tuple[BlockId, Generation], Host | None] = field(default_factory=dict)
    _proposed: dict[tuple[BlockId, Generation], object] = field(default_factory=dict)
    _appended: set[tuple[BlockId, Generation]] = field(default_factory=set)
    """Epochs of blocks that were opened again."""
    _last_of: dict[BlockId, tuple[BlockId, Generation]] = field(default_factory=dict)
    _fenced: set[tuple[object, ...]] = field(default_factory=set)

    # -- control calls ----------------------------------------------------------------------------

    def asked(self, host: Host | None, method: str, request: Any) -> bool:
        """A process asks; a request to a DataNode may propose a generation.

        Returns True for a writer that was told before that it is fenced.
        """
        self.calls[method] += 1
        for each in self.hears:
            each(host, method, request)
        if method == ACCEPT.name:
            self._propose(host, request)
        elif method == ACCEPT_ALL.name:
            for each in request.each:
                self._propose(host, each)
        return self._about(method, request) in self._fenced

    def answered(
        self, host: Host | None, method: str, request: Any, answer: Any, *, fenced_before: bool
    ) -> None:
        """It gets this answer, or does not: it may be lost, and is true all the same."""
        fenced = self._about(method, request)
        if isinstance(answer, PaxosBlockError):
            told = isinstance(answer, FencedError) and f"closed by {request.writer}" not in str(
                answer
            )
            if told and fenced is not None:  # not one who asks for more of what they have closed
                self.counts["writers told that they are fenced"] += fenced not in self._fenced
                self._fenced.add(fenced)
            return
        granting = _GRANTING.get(method)
        if granting is not None:
            view = _view(_decoded(granting, answer))
            if view is None:
                return  # it was left alone, or no block was asked for
            self._grant(host, method, request.writer, view)
        if fenced_before:
            self.mistake(f"{method} was done for {request.writer}, who was told that he is fenced")

    def _about(self, method: str, request: Any) -> tuple[object, ...] | None:
        """Return what a writer that is fenced may not be told any more."""
        if method in _OF_BLOCKS and request.writer:
            return method, request.writer, request.block
        return (request.writer,) if method in _OF_FILES else None

    def _grant(self, host: Host | None, method: str, writer: WriterId, view: BlockView) -> None:
        record = view.record
        epoch = record.block, record.writer_generation
        self.counts["grants"] += epoch not in self._granted
        if self._granted.setdefault(epoch, writer) != writer:
            self.mistake(
                f"block {record.block} generation {record.writer_generation} was granted to "
                f"{writer}, and to {self._granted[epoch]} before"
            )
        self._sends.setdefault(epoch, host)
        if method == REOPEN_BLOCK.name or self._last_of.get(record.block) in self._appended:
            self._appended.add(epoch)
        self._last_of[record.block] = epoch

    # -- proposals --------------------------------------------------------------------------------

    def _propose(self, host: Host | None, envelope: Envelope) -> None:
        message = envelope.message
        self.pairs.heard(host, message)
        if not isinstance(message, NextGS | RecoveryWrite):
            return
        ballot = message.block, message.generation
        self.counts["generations proposed"] += ballot not in self._proposes
        if self._proposes.setdefault(ballot, host) is not host:
            self.mistake(f"block {message.block}: two propose generation {message.generation}")
        if isinstance(message, RecoveryWrite):
            log = message.length, message.size_bytes, message.tail, message.base
            if self._proposed.setdefault(ballot, log) != log:
                self.mistake(
                    f"block {message.block}: two logs are proposed in generation "
                    f"{message.generation}: {log} and {self._proposed[ballot]}"
                )

    def chunk(self, host: Host | None, header: Header) -> None:
        """A process sends a chunk to a DataNode."""
        epoch = header.block, header.generation
        self.pairs.touch("append" if epoch in self._appended else "write", header.block, host)
        if self._sends.setdefault(epoch, host) is not host:
            self.mistake(f"block {header.block}: two write in generation {header.generation}")

    # -- strangers --------------------------------------------------------------------------------

    def stranger(self, what: str, said: object) -> None:
        """A stranger without the secret asked, and this came of it."""
        if isinstance(said, AccessDeniedError):
            self.counts["strangers refused"] += 1
        elif not isinstance(said, UnavailableError):
            self.mistake(f"a stranger asked for {what} and was answered {said!r}")


def _decoded(method: Method[Any, Any], answer: Any) -> Any:
    if isinstance(answer, msgspec.Raw):
        return msgspec.msgpack.decode(answer, type=method.answer)
    return answer


def _view(answer: Any) -> BlockView | None:
    """Return the block that is granted with an answer."""
    if isinstance(answer, CreatedFile):
        return answer.first
    return answer.view if isinstance(answer, Reopened) else answer
