"""Rebuild(b): the writer of a block goes on with it when a member fails (HDFS: pipeline recovery).

A try chooses members by the file's policy, allocates a generation (K3), has all of them accept the
longest log of a quorum (P2 to P4) and installs them (K7). If a target fails, another try with
another generation leaves it out. Every copy of the request, and no other request, is answered with
the config that was installed (P6).
"""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import Final

from paxosblock.api.namenode import Excluded
from paxosblock.api.rebuild import RebuildBlock
from paxosblock.base.replacement import Failed
from paxosblock.errors import FencedError, NotReadyError
from paxosblock.namenode.background import Background
from paxosblock.namenode.blocks.datanodes import DataNodes
from paxosblock.namenode.blocks.history import History
from paxosblock.namenode.blocks.placement import Wish
from paxosblock.namenode.blocks.replacing import members_after
from paxosblock.namenode.blocks.runner import Runner, copy_s
from paxosblock.namenode.catalog import protocol_errors
from paxosblock.namenode.catalog.catalog import Catalog
from paxosblock.namenode.catalog.records import BlockEntry
from paxosblock.protocol import finalize, recovery
from paxosblock.protocol.finalize import Refused
from paxosblock.protocol.recovery import Phase, Proposer
from paxosblock.protocol.types import BlockId, Generation, Reason, StorageId, WriterId

BACKOFF_S: Final = 0.1

_Question = tuple[BlockId, WriterId, Generation]
"""Requests that are equal in these are copies of one."""


class Rebuilder:
    """Rebuilds blocks for their writers."""

    def __init__(
        self,
        catalog: Catalog,
        runner: Runner,
        datanodes: DataNodes,
        history: History,
        background: Background,
        *,
        timeout_s: float,
        jitter: random.Random,
    ) -> None:
        """Bound one call of `rebuild` by `timeout_s`, without the time that copies take."""
        self._catalog = catalog
        self._runner = runner
        self._datanodes = datanodes
        self._history = history
        self._background = background
        self._timeout_s = timeout_s
        self._jitter = jitter
        self._running: dict[_Question, asyncio.Task[None]] = {}

    async def rebuild(self, request: RebuildBlock, now_s: float) -> BlockEntry:
        """Return the block with the config that its writer goes on with; safe to repeat.

        A copy that comes while the block is being rebuilt for the same request gets the same
        result.

        Raises:
            FencedError: the block is no longer the writer's, or is about to be sealed.
            NoSpaceError: too few DataNodes for the policy; nothing was done.
            NotReadyError: no quorum of its members answered, or each choice of targets failed.
        """
        # Another request about the block is checked by itself meanwhile (K3): the Grant would make
        # its sender a second writer of the generation.
        question = request.block, request.writer, request.generation
        task = self._running.get(question)
        if task is None:
            work = self._try_until(request, now_s)
            task = self._background.start(work, f"rebuild of block {request.block}")
            self._running[question] = task
            task.add_done_callback(lambda _: self._running.pop(question, None))
        await asyncio.shield(task)
        entry = await self._catalog.get_block(request.block)
        granted = finalize.granted(entry.record, request.writer, request.generation)
        if isinstance(granted, Refused):
            raise protocol_errors.refusal(granted)
        return entry

    async def _try_until(self, request: RebuildBlock, now_s: float) -> None:
        """K3 to K7, until a later generation than the request's is installed, be it by another."""
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        deadline_s = started_s + self._timeout_s
        failed: dict[StorageId, None] = dict.fromkeys(request.failed)
        proposer: Proposer | None = None
        while True:
            entry = await self._catalog.get_block(request.block)
            if entry.record.writer_generation > request.generation:
                return
            targets, block_size = await self._targets(
                request, tuple(failed), now_s + loop.time() - started_s
            )
            if proposer is not None and loop.time() >= deadline_s:
                raise _not_rebuilt(proposer, self._timeout_s)
            done = await self._catalog.change_block(
                request.block,
                partial(
                    finalize.allocate_rebuild, writer=request.writer, generation=request.generation
                ),
            )
            if isinstance(done, Refused):
                raise protocol_errors.refusal(done)
            attempt = self._runner.attempt(recovery.rebuild(done.record, targets))
            proposer = await attempt.run(deadline_s + copy_s(block_size))
            if proposer.phase is Phase.DECIDED and await self._install(proposer):
                return
            failed |= dict.fromkeys(sorted(attempt.refused - _lacking(proposer)))
            await asyncio.sleep(self._jitter.uniform(0, BACKOFF_S))

    async def _targets(
        self, request: RebuildBlock, failed: tuple[StorageId, ...], now_s: float
    ) -> tuple[tuple[StorageId, ...], int]:
        """Return the members that are left with those that replace the others, and the block size
        of the file.
        """
        found = await self._catalog.written((request.block,))
        if not found:
            raise FencedError(
                f"block {request.block}: is not being written any more", block=request.block
            )
        ((entry, inode),) = found
        members = entry.record.members
        left = tuple(
            member
            for member in members
            if member not in failed and self._datanodes.is_reachable(member, now_s)
        )
        if not left:
            raise NotReadyError(
                f"block {request.block}: none of its members is left", block=request.block
            )
        excluded = {each.storage for each in request.excluded}
        news = tuple(Excluded(each, 0.0, resting=True) for each in failed if each not in excluded)
        candidates = self._datanodes.candidates(now_s, (*request.excluded, *news))
        wish = Wish(inode.replication, 1, inode.block_size, seed=request.block)
        failure = Failed(request.policy, len(members), left, request.flushed)
        targets = members_after(wish, candidates, failure)
        added = tuple(each for each in targets if each not in members)
        self._datanodes.note_placed(request.block, added, inode.block_size)
        return targets, inode.block_size

    async def _install(self, proposer: Proposer) -> bool:
        """K7; False if another change came first."""
        choice = proposer.choice
        assert choice is not None, "what was decided was chosen"
        detail = f"length {choice.length}, members {', '.join(proposer.targets)}"
        grounds = self._history.grounds(proposer.block, proposer.generation, "rebuilt", detail)
        done = await self._catalog.change_block(
            proposer.block,
            partial(
                finalize.install_rebuild,
                base=proposer.base,
                generation=proposer.generation,
                members=proposer.targets,
                length=choice.length,
            ),
            grounds,
        )
        if isinstance(done, Refused):
            self._history.add(proposer.block, proposer.generation, "rebuild was overtaken")
            return False
        self._history.decided(proposer.block, grounds)
        return True


def _lacking(proposer: Proposer) -> set[StorageId]:
    """Return members that could not fetch what they lack, which is not their fault (HDFS-6937).

    The next choice may be another log, or its holder may answer.
    """
    gaps = (nack for nack in proposer.refusals if nack.reason is Reason.GAP)
    return {nack.storage for nack in gaps if nack.storage in proposer.members}


def _not_rebuilt(proposer: Proposer, timeout_s: float) -> NotReadyError:
    return NotReadyError(
        f"block {proposer.block}: not rebuilt in {timeout_s:g} s: promises from "
        f"{len(proposer.replies)} of {len(proposer.members)} members, votes from "
        f"{len(proposer.votes)} of {len(proposer.targets)} targets",
        block=proposer.block,
    )
