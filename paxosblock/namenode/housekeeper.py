"""Work that no call asks a NameNode for: expired leases and directories, deleted trees."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from paxosblock.api.namenode import NO_FILE
from paxosblock.errors import NotFoundError
from paxosblock.host.logs import facts
from paxosblock.namenode.background import Background
from paxosblock.namenode.blocks.datanodes import DataNodes
from paxosblock.namenode.blocks.finalizer import Finalizer
from paxosblock.namenode.blocks.recoverer import Recoverer
from paxosblock.namenode.catalog import keys
from paxosblock.namenode.catalog.catalog import Catalog
from paxosblock.namenode.catalog.deadlines import Ended
from paxosblock.namenode.catalog.records import RECOVERY_WRITER
from paxosblock.namenode.closer import Closer
from paxosblock.namenode.leases import Leases
from paxosblock.protocol.types import BlockId

EXPIRIES_AT_ONCE = 32
RETRY_S = 5.0
"""Pause before the recovery of a file that failed is tried again."""
FORGET_AFTER_S = 60.0
"""A session is forgotten when its deadline has been over for this long. Its time is that of a wall
clock, which may jump, or be another machine's after a fail-over: a client that still repeats its
request must find the answer."""

HISTORY_PAUSE_S: Final = 1.0
"""Pause between two looks at the window of history: how exactly it knows a time."""
VOTES_S: Final = 3600.0
"""Pause between two looks at how old the kept votes are; their number is looked at all the time."""

_log = logging.getLogger(__name__)


class Housekeeper:
    """The loops of one NameNode."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        leases: Leases,
        block_leases: Leases,
        recoverer: Recoverer,
        datanodes: DataNodes,
        closer: Closer,
        finalizer: Finalizer,
        background: Background,
        clock_s: Callable[[], float],
        votes_kept_s: float,
        history_s: float,
    ) -> None:
        """Use these parts of the node; `clock_s` is the clock of its leases and DataNodes."""
        self._catalog = catalog
        self._leases = leases
        self._block_leases = block_leases
        self._recoverer = recoverer
        self._datanodes = datanodes
        self._closer = closer
        self._finalizer = finalizer
        self._background = background
        self._clock_s = clock_s
        self._garbage = asyncio.Event()
        self._expiring: dict[str, float] = {}
        """Things that are being ended (infinity) or could not be ended: the time to try them again.
        """
        self._over_since: dict[bytes, float] = {}
        self._votes_kept_s, self._votes_due_s = votes_kept_s, 0.0
        self._history_s = history_s
        self._lanes = asyncio.Semaphore(EXPIRIES_AT_ONCE)

    def start(self, interval_s: float) -> None:
        """Start the loops; the quick ones look every `interval_s`."""
        self._garbage.set()  # an earlier leader may have left some
        self._expiring.clear()
        self._over_since.clear()
        loops: tuple[tuple[str, Callable[[], Awaitable[None]], float], ...] = (
            ("leases", self.check_leases, interval_s),
            ("deadlines", self.check_deadlines, interval_s),
            ("sweep", self.sweep, 0),
            ("history", self.keep_history, HISTORY_PAUSE_S),
        )
        for name, work, pause_s in loops:
            self._background.repeat(name, work, pause_s)

    def garbage_waits(self) -> None:
        """Note that something was unlinked, which may have left something behind."""
        if self._catalog.has_garbage:
            self._garbage.set()

    async def check_leases(self) -> None:
        """Close files, and end blocks without files, whose writers are gone."""
        now_s = self._clock_s()
        self._datanodes.watch(now_s)
        for expired in self._leases.expired(now_s):
            work = partial(self._closer.expire, expired, now_s)
            self._end(f"expiry of file {expired.file}", work)
        for expired in self._block_leases.expired(now_s):
            block = BlockId(expired.file)
            self._end(f"expiry of block {block}", partial(self._end_block, block))

    def _end(self, what: str, work: Callable[[], Awaitable[None]]) -> None:
        """Begin to end something expired, unless that is under way or failed less than `RETRY_S`
        ago.

        There may be thousands that cannot be ended now, and each attempt may take seconds to fail.
        """
        now_s = self._clock_s()
        if now_s >= self._expiring.get(what, now_s):
            self._expiring[what] = math.inf
            self._background.start(self._try_to_end(what, work), what)

    async def _try_to_end(self, what: str, work: Callable[[], Awaitable[None]]) -> None:
        try:
            async with self._lanes:
                await work()
        except BaseException:
            self._expiring[what] = self._clock_s() + RETRY_S
            raise
        self._expiring.pop(what, None)

    async def check_deadlines(self) -> None:
        """Delete directories, forget applications and sessions whose time is over."""
        after, before = b"", self._over_since
        self._over_since = {}
        while page := await self._catalog.due(after):
            for deadline in page:
                if self._is_early(deadline, before):
                    continue
                ended = await self._catalog.end(deadline)
                if ended is Ended.DELETED:
                    number = keys.number_of(keys.deadline_subject(deadline))
                    _log.info(
                        "directory deleted: its time to live is over", extra=facts(directory=number)
                    )
                    self.garbage_waits()
            after = page[-1]
        await self._forget_votes()

    def _is_early(self, deadline: bytes, before: dict[bytes, float]) -> bool:
        """True if this deadline should wait for the next look."""
        if not keys.is_session(keys.deadline_subject(deadline)):
            return False
        now_s = self._clock_s()
        since_s = self._over_since[deadline] = before.get(deadline, now_s)
        return now_s - since_s < FORGET_AFTER_S

    async def keep_history(self) -> None:
        """Note the time, and let the window of history move on."""
        if await self._catalog.keep_history(round(self._history_s * 1000)):
            self.garbage_waits()

    async def sweep(self) -> None:
        """Wait for garbage and sweep all of it, one edit after the other."""
        await self._garbage.wait()
        self._garbage.clear()
        try:
            while (swept := await self._catalog.sweep()) is not None:
                for entry in swept.removed:
                    self._finalizer.delete_everywhere(entry)
                for entry in swept.unended:
                    self._block_leases.open(RECOVERY_WRITER, entry.record.block, self._clock_s())
        except Exception:
            self._garbage.set()
            raise

    async def _forget_votes(self) -> None:
        """Forget the votes of old decisions, once an hour, or at once if there are too many."""
        now_s = self._clock_s()
        early = now_s < self._votes_due_s
        await self._catalog.forget_votes(self._votes_kept_s, if_too_many=early)
        if not early:
            self._votes_due_s = now_s + VOTES_S

    async def _end_block(self, block: BlockId) -> None:
        """Recover a block without a file whose writer is gone, or one that only a snapshot shows,
        unless it was deleted."""
        with contextlib.suppress(NotFoundError):
            ended = await self._recoverer.finalize(block)
            if ended.file != NO_FILE:
                await self._catalog.note_ended(block)
        self._block_leases.release(block)
