"""Keeping the leases of the files that this client writes, and noticing that one is lost."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeVar
from weakref import WeakMethod

from paxosblock.api.namenode import RENEW_LEASES, OpenBlock, RenewLeases
from paxosblock.client.session.namenodes import NameNodes
from paxosblock.errors import FencedError, LeaseError, NotFoundError, PaxosBlockError
from paxosblock.protocol.types import BlockId, WriterId

WARN_AGAIN_S: Final = 60.0
"""Seconds of failing leases until the log says so again; then twice as long, and so on."""

_log = logging.getLogger(__name__)

T = TypeVar("T")


class _WeakCallbacks(NamedTuple):
    """Methods of a writer: one dropped without `close` must be collected all the same."""

    on_lost: Callable[[], Callable[[], None] | None]
    open_block: Callable[[], Callable[[], OpenBlock | None] | None]
    on_roll: Callable[[], Callable[[BlockId], None] | None]


_UNHEARD: Final = _WeakCallbacks(lambda: None, lambda: None, lambda: None)


def new_writer() -> WriterId:
    """Return the name of one instance of a writer, never reused."""
    return WriterId(uuid.uuid4().hex)


class LeaseKeeper:
    """Renews the leases of all open writers of a client in one call, every `interval_s`.

    A client that dies stops renewing, and the NameNode closes its files (K11: only the progress of
    a writer depends on its lease, never safety). The same goes for a writer object that was
    dropped without `close`: it is only referred to weakly here.
    """

    def __init__(self, namenodes: NameNodes, interval_s: float) -> None:
        self._namenodes = namenodes
        self._interval_s = interval_s
        self._kept: dict[WriterId, _WeakCallbacks] = {}
        self._task: asyncio.Task[None] | None = None
        self._trouble = _RenewalOutage()

    def keep(
        self,
        writer: WriterId,
        on_lost: Callable[[], None],
        open_block: Callable[[], OpenBlock | None],
        on_roll: Callable[[BlockId], None],
    ) -> None:
        """Renew this writer's lease from now on, until the object that `open_block` belongs to is
        collected.

        `on_lost` is called when the lease is gone. `open_block` tells the block that the writer
        could leave for another one, and `on_roll` is called with it when it should.
        """
        gone = WeakMethod(open_block, lambda _: self.drop(writer))
        self._kept[writer] = _WeakCallbacks(WeakMethod(on_lost), gone, WeakMethod(on_roll))
        self._begin()

    def _begin(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._renew(), name="paxosblock-leases")

    def keep_unheard(self, writer: WriterId) -> None:
        """Renew this writer's lease until `drop`, and call nothing if it is lost."""
        self._kept[writer] = _UNHEARD
        self._begin()

    def drop(self, writer: WriterId) -> None:
        """Stop renewing the lease of this writer."""
        self._kept.pop(writer, None)

    async def close(self) -> None:
        """Stop renewing anything."""
        self._kept.clear()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            if self._kept:
                await self._renew_once()

    async def _renew_once(self) -> None:
        writers, open_blocks = tuple(self._kept), self._open_blocks()
        try:
            answer = await self._namenodes.call(
                RENEW_LEASES,
                RenewLeases(writers, tuple(found for found, _ in open_blocks)),
                retry_for_s=self._interval_s,
            )
        except PaxosBlockError as error:
            self._trouble.goes_on(len(writers), error)
            return
        self._trouble.is_over()
        for writer in answer.lost:
            kept = self._kept.pop(writer, None)
            if kept is not None and (on_lost := kept.on_lost()) is not None:
                on_lost()
        for found, kept in open_blocks:
            if found.block in answer.roll and (on_roll := kept.on_roll()) is not None:
                on_roll(found.block)

    def _open_blocks(self) -> list[tuple[OpenBlock, _WeakCallbacks]]:
        asked = ((kept.open_block(), kept) for kept in tuple(self._kept.values()))
        kept_open = ((open_block(), kept) for open_block, kept in asked if open_block is not None)
        return [(found, kept) for found, kept in kept_open if found is not None]


class _RenewalOutage:
    """A time in which leases cannot be renewed; the log says when it begins, lasts and ends.

    Standard error belongs to the user of the application; a line for each try would say nothing
    more.
    """

    def __init__(self) -> None:
        self._began_s: float | None = None
        self._tell_after_s = WARN_AGAIN_S

    def goes_on(self, writers: int, error: PaxosBlockError) -> None:
        now_s = time.monotonic()
        if self._began_s is None:
            self._began_s, self._tell_after_s = now_s, WARN_AGAIN_S
            _log.warning("cannot renew leases (open: %d): %s", writers, error)
        elif (lasts_s := now_s - self._began_s) >= self._tell_after_s:
            self._tell_after_s = 2 * lasts_s
            text = "could not renew leases (open: %d) for %.0f s: %s"
            _log.warning(text, writers, lasts_s, error)
        else:
            _log.debug("leases (open: %d) are not renewed yet: %s", writers, error)

    def is_over(self) -> None:
        if self._began_s is not None:
            _log.info("leases are renewed again, after %.1f s", time.monotonic() - self._began_s)
            self._began_s = None


class Fence:
    """Goes up once a writer has heard that its file has another writer now, or none; it never comes
    down.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._error: FencedError | None = None

    @property
    def is_up(self) -> bool:
        """True once the writer has heard so."""
        return self._error is not None

    def check(self) -> None:
        """Raises FencedError once the file is not ours any more."""
        if self._error is not None:
            raise self._error.with_traceback(None)  # else each raise would add to the one before

    def lease_lost(self) -> None:
        """Note that the NameNode knows no lease of the writer."""
        if self._error is None:
            self._error = self._fenced("its lease is gone: it was taken over, or closed")

    async def guard(self, request: Awaitable[T]) -> T:
        """Return the result of `request`; remember an answer that the file has another writer.

        Raises:
            FencedError: it said so, in whatever words.
            Others: as `request`.
        """
        try:
            return await request
        except (FencedError, LeaseError) as error:
            self._error = self._fenced(str(error))
            raise self._error from error
        except NotFoundError as error:
            raise self.deleted() from error

    def deleted(self) -> FencedError:
        """Note that the file is gone; return the error that says so."""
        self._error = self._fenced("was deleted")
        return self._error

    def _fenced(self, why: str) -> FencedError:
        ours = f"'{self._path}': "  # the words of the NameNode begin with it, too
        return FencedError(
            f"{ours}{why.removeprefix(ours)}; what was not flushed has an unknown outcome",
            path=self._path,
        )
