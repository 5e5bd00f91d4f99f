"""The blocks of a file that lost a member: rebuilt, or sealed and followed by another (W4).

`on_failure` of the file says which. A block that cannot be rebuilt is sealed, but for one thing: as
long as the file's policy asks for more DataNodes than there are, the writer waits for them.
"""

from __future__ import annotations

import logging
from typing import Final

from paxosblock.api.namenode import BlockView, FileStatus
from paxosblock.api.rebuild import REBUILD_BLOCK, RebuildBlock
from paxosblock.base.replacement import Failed, OnFailure, Policy, Replacement, WriteOptions
from paxosblock.client.session.backoff import Backoff
from paxosblock.client.session.lease_keeper import Fence
from paxosblock.client.session.shared_session import SharedSession
from paxosblock.client.writing.block_writer import BlockFailed, BlockWriter, Sealed
from paxosblock.client.writing.exclusions import Exclusions
from paxosblock.client.writing.next_block import NextBlock
from paxosblock.errors import (
    CorruptionError,
    InvalidRequestError,
    NoSpaceError,
    NotReadyError,
    PaxosBlockError,
)
from paxosblock.protocol.types import FIRST_GENERATION, WriterId

REBUILD_FOR_S: Final = 10.0
"""Seconds after which a block that cannot be rebuilt, though the policy would allow it, is sealed.
"""

_log = logging.getLogger(__name__)


class Failures:
    """Handles DataNodes that fail one file."""

    def __init__(
        self,
        session: SharedSession,
        status: FileStatus,
        writer: WriterId,
        options: WriteOptions,
        *,
        exclusions: Exclusions,
        fence: Fence,
        following: NextBlock,
    ) -> None:
        self._namenodes = session.namenodes
        self._path = status.path
        self._writer = writer
        self._replication = status.replication
        config = session.config
        way = config.on_failure if options.on_failure is None else options.on_failure
        named = options.replace_on_failure or config.replace_on_failure
        best = options.best_effort
        best = config.replace_best_effort if best is None else best
        self._rebuilds = way is OnFailure.REBUILD
        self._named = named is not None or best
        """Without a policy the block after one that was sealed is placed like any other, and a
        block is rebuilt by DEFAULT."""
        replacement = Replacement(named or Replacement.DEFAULT)
        if replacement is Replacement.DISABLE:
            replacement = Replacement.NEVER  # seed 004: a client does so
        self._policy = Policy(replacement, best)
        self._exclusions = exclusions
        self._fence = fence
        self._next = following

    def is_short(self, block: BlockWriter) -> bool:
        """True if the block has fewer members than the file wants now (HDFS-6867)."""
        count = len(block.members)
        if self._named or self._rebuilds:
            return self._policy.missing(self._replication, count, flushed=block.flushed) > 0
        return count < self._replication

    def grows(self, block: BlockWriter) -> bool:
        """True if a block that is short is rebuilt with more members, instead of followed."""
        return self._rebuilds and self.is_short(block)

    async def handled(
        self, block: BlockWriter, failure: BlockFailed, retry_for_s: float
    ) -> Sealed | None:
        """W4: have the block rebuilt, or else sealed; None: it goes on.

        A block that was only being set up is abandoned, whatever the policy (seed 004).

        Raises:
            NoSpaceError: the policy asks for more DataNodes than there are. It may be tried again.
            CorruptionError: chunks are lost that all members had voted for.
            Others: as `BlockWriter.seal`.
        """
        begun = block.sent > 0 or block.generation > FIRST_GENERATION
        if begun and await self._rebuilt(block, failure, retry_for_s):
            _log.warning("'%s': %s; goes on at %s", self._path, failure, ", ".join(block.members))
            return None
        sealed = await self._fence.guard(block.seal(retry_for_s=retry_for_s))
        failure = block.failure or failure
        if self._named and begun:
            left = tuple(member for member in block.members if member not in failure.failed)
            self._next.after = Failed(self._policy, len(block.members), left, block.flushed)
        length, rest = sealed.view.record.length, len(sealed.rest)
        text = "'%s': %s; sealed with %d chunks, %d go to the next block"
        _log.warning(text, self._path, failure, length, rest)
        return sealed

    async def _rebuilt(self, block: BlockWriter, failure: BlockFailed, retry_for_s: float) -> bool:
        """W5: True if the block goes on with other members; False: it must be sealed."""
        if not self._rebuilds:
            return False
        policy_may_wait, rebuild_may_take = Backoff(retry_for_s), Backoff(REBUILD_FOR_S)
        while set(block.members) - set(failure.failed):
            try:
                await block.regrant(await self._granted(block, failure, retry_for_s))
            except BlockFailed as again:
                failure = again
            except NoSpaceError as error:
                if error.of_namenode or policy_may_wait.exhausted:
                    raise
                self._exclusions.end_rest()
                await policy_may_wait.pause()
                continue
            except (CorruptionError, InvalidRequestError):
                raise
            except NotReadyError as error:  # such as: it has just started, and knows no DataNode
                _log.info("'%s': block %d waits: %s", self._path, block.block, error)
            except PaxosBlockError as error:
                _log.info("'%s': block %d is sealed: %s", self._path, block.block, error)
                return False
            else:
                return True
            if rebuild_may_take.exhausted:
                return False
            await rebuild_may_take.pause()
        return False

    async def _granted(
        self, block: BlockWriter, failure: BlockFailed, retry_for_s: float
    ) -> BlockView:
        failed = tuple(member for member in block.members if member in failure.failed)
        return await self._namenodes.call_anew(
            REBUILD_BLOCK,
            lambda: RebuildBlock(
                block.block, self._writer, block.generation, failed, self._policy,
                block.flushed, self._exclusions.excluded(),
            ),
            retry_for_s=min(retry_for_s, REBUILD_FOR_S),
        )  # fmt: skip
