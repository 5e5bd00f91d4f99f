"""Opens the last block of a file again for a writer that appends: K4, an APPEND, K7.

The APPEND begins when the file is opened to append to it, and is installed when the writer asks for
the block with its first chunk. It pays only while it is faster than a new block: after `SET_UP_S`
it is given up (K9), and the writer begins a new block; if the writer has not asked by then, its
request begins another APPEND. If this NameNode stops in between, the block is still FINALIZED, and
the next leader gives the APPEND up (`leftovers.py`), as do the close of the file and another block
(`catalog/blocks.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from paxosblock.api.care import AdminState
from paxosblock.api.namenode import Appendable, AppendFile, Excluded, ReopenBlock
from paxosblock.errors import NotFoundError, PaxosBlockError
from paxosblock.namenode.background import Background
from paxosblock.namenode.blocks.datanodes import DataNodes
from paxosblock.namenode.blocks.finalizer import Finalizer
from paxosblock.namenode.blocks.history import History
from paxosblock.namenode.blocks.placement import Wish, is_placed_fresh
from paxosblock.namenode.blocks.replicas import Replicas
from paxosblock.namenode.blocks.runner import Attempt, Runner
from paxosblock.namenode.catalog import reopening
from paxosblock.namenode.catalog.catalog import Catalog
from paxosblock.namenode.catalog.draft import in_one
from paxosblock.namenode.catalog.kept_votes import OPENED
from paxosblock.namenode.catalog.records import BlockEntry, FileInode
from paxosblock.protocol import finalize, recovery
from paxosblock.protocol.finalize import BlockRecord, Refused
from paxosblock.protocol.recovery import Phase, Proposer
from paxosblock.protocol.types import BlockId, StorageId, WriterId

SET_UP_S: Final = 1.0
"""Seconds after which a writer is better off with a new block."""


@dataclass(frozen=True, slots=True)
class Targets:
    """Chooses the members with which a block goes on, by what is known of them."""

    datanodes: DataNodes
    replicas: Replicas
    min_replication: int
    holds: Callable[[], bool]
    """Returns True while safe mode holds, in which nothing is taken away."""
    is_copied: Callable[[BlockId], bool]
    """Returns True while a copy of a block is being made."""

    def choose(
        self, record: BlockRecord, failed: Collection[StorageId], now_s: float
    ) -> tuple[StorageId, ...]:
        """Return those that live, are not damaged and have not `failed` the writer.

        They need not have reported the block: a member that votes for it holds it (D4).
        """
        left_out = {*failed, *self.replicas.damaged(record)}
        return tuple(
            member
            for member in record.members
            if member not in left_out and self.datanodes.lives(member, now_s)
        )

    def objection(
        self,
        record: BlockRecord,
        targets: tuple[StorageId, ...],
        wish: Wish,
        excluded: tuple[Excluded, ...],
        now_s: float,
    ) -> str:
        """Return why the block should not be opened again at `targets`; "" if it may be.

        Members that are not targets leave the block. Until others have copied what they held, the
        block has fewer replicas than before, so only a minority may leave, and none where the next
        block gets more members (`wish` is that block, `excluded` failed its writer). A log would
        stay short for as long as it is appended to: each APPEND begins a new epoch, in which what
        was copied before counts for nothing.
        """
        count = len(record.members)
        needed = count if self.holds() else max(self.min_replication, count // 2 + 1)
        if len(targets) < needed:
            in_safe_mode = " in safe mode" if self.holds() else ""
            return f"{len(targets)} of {count} members can go on, {needed} needed{in_safe_mode}"
        for member in targets:
            if self.datanodes.admin_state(member, now_s) is not AdminState.IN_SERVICE:
                return f"{member} is to leave"
        if self.is_copied(record.block):
            return "it is being copied"
        if len(targets) < wish.replication:
            better = replace(wish, min_replication=len(targets) + 1)
            if is_placed_fresh(better, self.datanodes.candidates(now_s, excluded)):
                return f"{len(targets)} of {count} members can go on, a new block gets more"
        return ""


@dataclass(frozen=True, slots=True)
class _Begun:
    """An APPEND that was begun when the file was opened."""

    record: BlockRecord
    targets: tuple[StorageId, ...]
    attempt: Attempt
    run: asyncio.Task[Proposer]


class Reopener:
    """Opens blocks again for their writers."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        runner: Runner,
        finalizer: Finalizer,
        history: History,
        background: Background,
        targets: Targets,
        set_up_s: float = SET_UP_S,
    ) -> None:
        """Use these parts of the node. It gives a block up after `set_up_s` seconds."""
        self.set_up_s = set_up_s
        self._catalog = catalog
        self._runner = runner
        self._finalizer = finalizer
        self._history = history
        self._background = background
        self._targets = targets
        self._running: dict[tuple[BlockId, WriterId], asyncio.Task[BlockEntry | str]] = {}
        self._begun: dict[tuple[BlockId, WriterId], _Begun] = {}
        """The APPENDs whose writers have not asked for their blocks yet."""

    async def append(self, request: AppendFile, now_s: float) -> Appendable:
        """Open a file for `request.writer`, and begin to open its last block if it may be opened.

        Raises: as `blocks.append`.
        """

        def may(record: BlockRecord, file: FileInode) -> bool:
            targets = self._targets.choose(record, (), now_s)
            return not self._targets.objection(record, targets, _next_block(file), (), now_s)

        decision = in_one(partial(reopening.append, may=may))
        opened = (await self._catalog.decide(reopening.Opened, decision, request)).value
        if opened.begun is not None:
            self._begin(opened.begun, request.writer, now_s)
        return opened.file

    def _begin(self, record: BlockRecord, writer: WriterId, now_s: float) -> None:
        loop, key = asyncio.get_running_loop(), (record.block, writer)
        self._finalizer.withhold(record)
        targets = self._targets.choose(record, (), now_s)
        attempt = self._runner.attempt(recovery.append(record, targets))
        attempt.begin()  # before the writer is answered: the members take longer than it does
        work = attempt.run(loop.time() + self.set_up_s)
        run = self._background.start(work, f"beginning to open block {record.block} again")
        self._begun[key] = _Begun(record, targets, attempt, run)
        loop.call_later(self.set_up_s, self._end_unasked, key)

    def _end_unasked(self, key: tuple[BlockId, WriterId]) -> None:
        """Give an APPEND up whose writer has not asked, lest its block be between two states."""
        begun = self._begun.pop(key, None)
        if begun is not None:
            begun.attempt.stop()
            self._background.start(self.give_up(begun.record), f"block {key[0]} stays closed")

    async def reopen(self, request: ReopenBlock, now_s: float) -> BlockEntry | str:
        """Return the block as it was granted to the writer, or why it is left alone.

        A copy of the request joins the first one, or gets what that installed (P6).

        Raises:
            NotFoundError, FencedError, InvalidRequestError: as `reopening.requested`.
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
        begun = self._begun.pop((request.block, request.writer), None)
        try:
            return await self._granted(request, now_s, begun)
        finally:
            if begun is not None:
                begun.attempt.stop()

    async def _granted(
        self, request: ReopenBlock, now_s: float, begun: _Begun | None
    ) -> BlockEntry | str:
        deadline_s = asyncio.get_running_loop().time() + self.set_up_s
        entry, file = reopening.requested(await self._catalog.view(), request)
        record = entry.record
        if not record.finalized:
            return entry  # the writer has it already: by K1, or by K7 in a copy of this request
        failed = frozenset(each.storage for each in request.excluded)
        targets = self._targets.choose(record, failed, now_s)
        why = reopening.left_alone(record, file, request)
        if begun is not None and (begun.record, begun.targets) != (record, targets):
            begun = None
        wish, excluded = _next_block(file), request.excluded
        while not (why := why or self._targets.objection(record, targets, wish, excluded, now_s)):
            if begun is not None:
                attempt, proposer, begun = begun.attempt, await begun.run, None
            else:
                allocated = await self._catalog.allocate_append(request, record)
                if allocated is None:
                    return "another caller changed it"
                record = allocated.record
                self._finalizer.withhold(record)
                attempt = self._runner.attempt(recovery.append(record, targets))
                proposer = await attempt.run(deadline_s)
            if proposer.phase is Phase.DECIDED:
                installed = await self._install(request, proposer, record)
                if installed is not None:
                    return installed
                why = "another caller changed it"
            elif not attempt.refused or asyncio.get_running_loop().time() >= deadline_s:
                why = f"its members did not take it in {self.set_up_s:g} s"
            targets = tuple(each for each in targets if each not in attempt.refused)
            excluded += tuple(Excluded(each, 0.0) for each in attempt.refused)
        if record.reopening:
            await self.give_up(record)
        return why

    async def _install(
        self, request: ReopenBlock, proposer: Proposer, allocated: BlockRecord
    ) -> BlockEntry | None:
        """K7; None when another request was faster."""
        detail = f"for {request.writer}, from {allocated.size_bytes} bytes on"
        block, generation = proposer.block, proposer.generation
        grounds = self._history.grounds(block, generation, OPENED, detail)
        try:
            installed = await self._catalog.install_append(request, proposer, grounds)
        except PaxosBlockError:
            with contextlib.suppress(PaxosBlockError):
                await self.give_up(allocated)
            raise
        if isinstance(installed, Refused):
            return None
        self._history.opened_again(block, grounds)
        return installed

    async def give_up(self, allocated: BlockRecord) -> None:
        """Give the APPEND up (K9) unless it has ended, and finalize again the members that accepted
        it (P5).

        If this fails, the next AddBlock or the close of the file gives the APPEND up, and so does
        the next leader.
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


def _next_block(file: FileInode) -> Wish:
    """Return the block that follows if the last one of a file is left alone."""
    return Wish(file.replication, 1, file.block_size)
