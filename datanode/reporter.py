"""Tells every NameNode that this node lives, and what it holds.

Each NameNode has its own `_Link`, so that one that is down or slow keeps nobody waiting. It
registers, reports every replica, then sends heartbeats; changes go out as they happen. A NameNode
that has forgotten this node asks for all of it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from paxosblock.config import DataNodeConfig
from paxosblock.datanode.block import Block
from paxosblock.datanode_api import ReplicaSummary
from paxosblock.errors import NotFoundError, NotReadyError, PaxosBlockError
from paxosblock.logs import facts
from paxosblock.methods import Method
from paxosblock.namenode_api import REPORT_BAD_REPLICA, BadReplica
from paxosblock.protocol.replica_state import hdfs_state
from paxosblock.protocol.types import BlockId, ReplicaState, StorageId
from paxosblock.report_api import (
    BLOCK_REPORT,
    HEARTBEAT,
    REGISTER,
    BlockReport,
    Heartbeat,
    Register,
    StorageReport,
)
from paxosblock.rpc import RpcClient

Q = TypeVar("Q")
A = TypeVar("A")

CALL_TIMEOUT_S: Final = 5.0
REPORT_TIMEOUT_S: Final = 60.0

_log = logging.getLogger(__name__)


class Holdings(Protocol):
    """What there is to report (the registers and volumes of this node)."""

    def blocks(self) -> Iterable[Block]:
        """Every block."""

    def find(self, block: BlockId, storage: StorageId) -> Block | None:
        """The block, if its replica is at `storage`."""

    def storages(self) -> tuple[StorageReport, ...]:
        """The volumes and their room. Blocks."""


def summarize(block: Block) -> ReplicaSummary | None:
    """A replica as it is reported; None for one that is dead or gone."""
    state, replica = block.state(), block.replica
    if state is None or replica is None:
        return None
    last = replica.log[replica.length - 1] if replica.length else None
    return ReplicaSummary(block.volume.storage, state, hdfs_state(replica).value, last)


class Reporter:
    """Reports to all NameNodes; the `Listener` of the registers."""

    def __init__(
        self,
        node: str,
        namenodes: Sequence[str],
        holdings: Holdings,
        client: RpcClient,
        config: DataNodeConfig,
    ) -> None:
        """Reports from `start` on, under an incarnation that no other process has."""
        sender = _Sender(node, uuid.uuid4().hex, holdings, client, config)
        self._links = [_Link(address, sender) for address in namenodes]
        self._holdings = holdings
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, address: str) -> None:
        """Begin to report; `address` is where this node is reached."""
        for block in self._holdings.blocks():
            if block.corrupt:
                self.replica_corrupt(block.id, block.volume.storage, block.corrupt)
        self._tasks = [asyncio.create_task(link.run(address)) for link in self._links]

    async def close(self) -> None:
        """Stop reporting."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def replica_changed(self, block: BlockId, storage: StorageId) -> None:
        """A replica was made, finalized, deleted, or changed by a recovery."""
        for link in self._links:
            link.note_changed(block, storage)

    def replica_corrupt(self, block: BlockId, storage: StorageId, reason: str) -> None:
        """A replica is dead."""
        for link in self._links:
            link.note_corrupt(BadReplica(block, storage, reason))


@dataclass(frozen=True, slots=True)
class _Sender:
    """What all links share: who reports, what, and how."""

    node: str
    incarnation: str
    holdings: Holdings
    client: RpcClient
    config: DataNodeConfig


class _Link:
    """What one NameNode was told and has yet to be told."""

    def __init__(self, address: str, sender: _Sender) -> None:
        self._address = address
        self._node = sender.node
        self._incarnation = sender.incarnation
        self._holdings = sender.holdings
        self._client = sender.client
        self._config = sender.config
        self._changed: dict[tuple[StorageId, BlockId], None] = {}
        self._bad: dict[tuple[StorageId, BlockId], BadReplica] = {}
        self._news = asyncio.Event()
        self._registered = False
        self._up = True
        self._next_full_s = 0.0

    def note_changed(self, block: BlockId, storage: StorageId) -> None:
        """Report this replica soon."""
        self._changed[storage, block] = None
        self._news.set()

    def note_corrupt(self, bad: BadReplica) -> None:
        """Report this damage soon."""
        self._bad[bad.storage, bad.block] = bad
        self._news.set()

    async def run(self, here: str) -> None:
        """Report for ever; a failure is tried again after a heartbeat's time."""
        loop = asyncio.get_running_loop()
        next_beat_s = loop.time()
        while True:
            try:
                await self._round(here, loop.time() >= next_beat_s)
                self._note_up(None)
            except NotReadyError:
                self._registered = False
            except PaxosBlockError as error:
                self._note_up(error)
                self._news.clear()
            if loop.time() >= next_beat_s:
                next_beat_s = loop.time() + self._config.heartbeat_interval_s
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(next_beat_s):
                    await self._news.wait()

    async def _round(self, here: str, beat: bool) -> None:
        now_s = asyncio.get_running_loop().time()
        if not self._registered:
            await self._register(here)
        elif beat:
            await self._beat()
        if now_s >= self._next_full_s:
            await self._report_all()
            self._next_full_s = now_s + self._config.block_report_interval_s
        await self._report_news()

    async def _register(self, here: str) -> None:
        storages = await asyncio.to_thread(self._holdings.storages)
        request = Register(self._node, here, self._incarnation, storages)
        await self._call(REGISTER, request)
        self._registered, self._next_full_s = True, 0.0

    async def _beat(self) -> None:
        storages = await asyncio.to_thread(self._holdings.storages)
        open_blocks = sum(
            block.replica is not None and block.replica.state is ReplicaState.RBW
            for block in self._holdings.blocks()
        )
        answer = await self._call(
            HEARTBEAT, Heartbeat(self._node, self._incarnation, storages, open_blocks)
        )
        if answer.register:
            raise NotReadyError(f"{self._address} asks this node to register")
        if answer.report:
            self._next_full_s = 0.0

    async def _report_all(self) -> None:
        """Everything each storage holds. What changes meanwhile stays noted and follows."""
        self._changed.clear()
        found: dict[StorageId, list[ReplicaSummary]] = {}
        for storage in await asyncio.to_thread(self._holdings.storages):
            if not storage.failed:
                found[storage.storage] = []
        for block in self._holdings.blocks():
            summary = summarize(block)
            if summary is not None and summary.storage in found:
                found[summary.storage].append(summary)
        for storage_id, summaries in found.items():
            await self._report(storage_id, summaries, full=True)

    async def _report_news(self) -> None:
        self._news.clear()
        for key in tuple(self._bad):
            bad = self._bad.pop(key)
            try:
                with contextlib.suppress(NotFoundError):
                    await self._call(REPORT_BAD_REPLICA, bad)
            except PaxosBlockError:
                self._bad.setdefault(key, bad)
                raise
        for storage in dict.fromkeys(storage for storage, _ in self._changed):
            # Taken out first: what changes during the call is noted again.
            ids = [block for owner, block in self._changed if owner == storage]
            for block in ids:
                del self._changed[storage, block]
            try:
                await self._report_changed(storage, ids)
            except PaxosBlockError:
                self._changed.update(((storage, block), None) for block in ids)
                raise

    async def _report_changed(self, storage: StorageId, ids: list[BlockId]) -> None:
        summaries, deleted = [], []
        for block_id in ids:
            block = self._holdings.find(block_id, storage)
            summary = summarize(block) if block is not None else None
            if summary is not None:
                summaries.append(summary)
            else:
                deleted.append(block_id)
        await self._report(storage, summaries, full=False, deleted=tuple(deleted))

    async def _report(
        self,
        storage: StorageId,
        summaries: list[ReplicaSummary],
        *,
        full: bool,
        deleted: tuple[BlockId, ...] = (),
    ) -> None:
        report = BlockReport(
            node=self._node,
            incarnation=self._incarnation,
            storage=storage,
            full=full,
            replicas=tuple(summaries),
            deleted=deleted,
        )
        await self._call(BLOCK_REPORT, report, REPORT_TIMEOUT_S)

    async def _call(self, method: Method[Q, A], request: Q, timeout_s: float = CALL_TIMEOUT_S) -> A:
        return await self._client.call(
            self._address, method.name, request, method.answer, timeout_s
        )

    def _note_up(self, error: PaxosBlockError | None) -> None:
        """One line when a NameNode goes away or comes back, not one for every attempt."""
        if (error is None) != self._up:
            self._up = error is None
            state = "answers" if error is None else "does not answer"
            _log.warning(f"NameNode {state}", extra=facts(address=self._address, reason=error))
