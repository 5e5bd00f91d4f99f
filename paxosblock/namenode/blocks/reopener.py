"""Opens the last block of a file again for a writer that appends: K4, an APPEND, K7.

It must be faster than a new block is worth: after `SET_UP_S` it is given up (K9), and the writer
begins one. Whatever ends this NameNode in between, a block that is being opened is still FINALIZED,
and ends that way when its file is closed or gets another block (`catalog/blocks.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from paxosblock.api.care import AdminState
from paxosblock.api.namenode import ReopenBlock
from paxosblock.errors import NotFoundError, PaxosBlockError
from paxosblock.namenode.background import Background
from paxosblock.namenode.blocks.datanodes import DataNodes, Liveness
from paxosblock.namenode.blocks.finalizer import Finalizer
from paxosblock.namenode.blocks.history import History
from paxosblock.namenode.blocks.replicas import Replicas
from paxosblock.namenode.blocks.runner import Runner
from paxosblock.namenode.catalog import reopening
from paxosblock.namenode.catalog.catalog import Catalog
from paxosblock.namenode.catalog.records import BlockEntry, FileInode
from paxosblock.protocol import finalize, recovery
from paxosblock.protocol.finalize import BlockRecord, Refused
from paxosblock.protocol.recovery import Phase
from paxosblock.protocol.types import BlockId, StorageId, WriterId

SET_UP_S: Final = 1.0
"""Seconds after which a writer is better off with a new block."""


@dataclass(frozen=True, slots=True)
class Targets:
    """The members of a block that would go on, by what is known of them."""

    datanodes: DataNodes
    replicas: Replicas
    min_replication: int

    def choose(self, record: BlockRecord, failed: frozenset[StorageId], now_s: float) -> Chosen:
        """Return who would be the members of a block that is opened again.

        Those are left out that do not live, are damaged or have `failed` the writer. They must be
        a minority: until somebody has copied what they held, there are fewer replicas than before.
        """
        left_out = {*failed, *self.replicas.damaged(record)}
        targets = tuple(
            member
            for member in record.members
            if member not in left_out and self._lives(member, now_s)
        )
        whole = self.replicas.whole(record)
        for member in targets:
            if member not in whole:
                return Chosen((), f"{member} has not reported it yet")
            if self.datanodes.admin_state(member, now_s) is not AdminState.IN_SERVICE:
                return Chosen((), f"{member} is to leave")
        needed = max(self.min_replication, len(record.members) // 2 + 1)
        if len(targets) < needed:
            known = f"{len(targets)} of {len(record.members)} members can go on"
            return Chosen((), f"{known}, {needed} needed")
        return Chosen(targets)

    def _lives(self, member: StorageId, now_s: float) -> bool:
        home = self.datanodes.home(member)
        if home is None or home.storages[member].failed:
            return False
        return self.datanodes.liveness(home, now_s) is Liveness.LIVE


@dataclass(frozen=True, slots=True)
class Chosen:
    """The targets of an APPEND; if there are none, the reason `why`."""

    targets: tuple[StorageId, ...]
    why: str = ""


class Reopener:
    """Opens blocks again."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        runner: Runner,
        finalizer: Finalizer,
        history: History,
        background: Background,
        holds: Callable[[], bool],
        targets: Targets,
    ) -> None:
        """Use these parts of the node; `holds` tells whether safe mode does."""
        self._catalog = catalog
        self._runner = runner
        self._finalizer = finalizer
        self._history = history
        self._background = background
        self._holds = holds
        self._targets = targets
        self._running: dict[tuple[BlockId, WriterId], asyncio.Task[BlockEntry | str]] = {}

    async def reopen(self, request: ReopenBlock, now_s: float) -> BlockEntry | str:
        """Return the block as it was granted to the writer, or why it is left alone.

        A copy of the request joins the first one, or gets what that installed (P6).

        Raises:
            NotFoundError, FencedError, InvalidRequestError: as `reopening.asked`.
        """
        key = request.block, request.writer
        task = self._running.get(key)
        if task is None:
            work = self._reopen(request, now_s)
            task = self._background.start(work, f"opening block {request.block} again")
            self._running[key] = task
            task.add_done_callback(lambda _: self._running.pop(key, None))
        return await asyncio.shield(task)

    async def _reopen(self, request: ReopenBlock, now_s: float) -> BlockEntry | str:
        deadline_s = asyncio.get_running_loop().time() + SET_UP_S
        entry, file = reopening.asked(await self._catalog.view(), request)
        record = entry.record
        if not record.finalized:
            return entry  # its last block is the writer's: K1, or K7 for a copy of this request
        chosen = self._chosen(record, file, request, now_s)
        if not chosen.targets:
            if record.reopening:  # another leader had begun
                await self._give_up(record)
            return chosen.why
        allocated = await self._catalog.allocate_append(request, record)
        if allocated is None:
            return "somebody else changed it"
        record = allocated.record
        attempt = self._runner.attempt(recovery.append(record, chosen.targets))
        proposer = await attempt.run(deadline_s)
        try:
            if proposer.phase is Phase.DECIDED:
                installed = await self._catalog.install_append(request, proposer)
                if not isinstance(installed, Refused):
                    self._note_installed(installed.record)
                    return installed
        except PaxosBlockError:
            with contextlib.suppress(PaxosBlockError):
                await self._give_up(record)
            raise
        await self._give_up(record)
        return f"its members did not take it in {SET_UP_S:g} s"

    def _chosen(
        self, record: BlockRecord, file: FileInode, request: ReopenBlock, now_s: float
    ) -> Chosen:
        if self._holds():
            return Chosen((), "safe mode holds")
        if why := reopening.left_alone(record, file, request):
            return Chosen((), why)
        failed = frozenset(each.storage for each in request.excluded)
        return self._targets.choose(record, failed, now_s)

    def _note_installed(self, record: BlockRecord) -> None:
        detail = f"for {record.writer}, from {record.size_bytes} bytes on"
        self._history.add(record.block, record.writer_generation, "opened again", detail=detail)

    async def _give_up(self, allocated: BlockRecord) -> None:
        """K9, unless it was ended before, and P5: who has accepted the APPEND is finalized again.

        If this fails, the next AddBlock or the close of the file does it.
        """

        def rule(record: BlockRecord) -> BlockRecord | Refused:
            ours = record.generation == allocated.generation
            return finalize.give_up_append(record) if ours else record

        with contextlib.suppress(NotFoundError):  # it was deleted meanwhile
            entry = await self._catalog.change_block(allocated.block, rule)
            if not isinstance(entry, Refused) and entry.record.finalized:
                ended = entry.record
                self._history.add(ended.block, ended.finalized_generation, "append was given up")
                self._finalizer.spread(ended)
