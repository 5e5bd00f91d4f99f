"""Keeping the leases of the files that this client writes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from weakref import WeakMethod

from paxosblock.client.namenode import NameNodes
from paxosblock.errors import PaxosBlockError
from paxosblock.namenode_api import RENEW_LEASES, RenewLeases
from paxosblock.protocol.types import WriterId

_log = logging.getLogger(__name__)


class LeaseKeeper:
    """Renews the leases of all open writers of a client in one call, every `interval_s`.

    A client that dies stops renewing, and the NameNode closes its files (K11: only the progress of
    a writer depends on its lease, never safety). The same goes for a writer object that was
    dropped without `close`: it is only referred to weakly here.
    """

    def __init__(self, namenodes: NameNodes, interval_s: float) -> None:
        self._namenodes = namenodes
        self._interval_s = interval_s
        self._on_lost: dict[WriterId, WeakMethod[Callable[[], None]]] = {}
        self._task: asyncio.Task[None] | None = None

    def keep(self, writer: WriterId, on_lost: Callable[[], None]) -> None:
        """Renew this writer's lease from now on; `on_lost`, a method, is called when it is gone."""
        self._on_lost[writer] = WeakMethod(on_lost, lambda _: self.drop(writer))
        if self._task is None:
            self._task = asyncio.create_task(self._renew(), name="paxosblock-leases")

    def drop(self, writer: WriterId) -> None:
        """Stop renewing the lease of this writer."""
        self._on_lost.pop(writer, None)

    async def close(self) -> None:
        """Stop renewing anything."""
        self._on_lost.clear()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            if self._on_lost:
                await self._renew_once()

    async def _renew_once(self) -> None:
        writers = tuple(self._on_lost)
        try:
            answer = await self._namenodes.call(
                RENEW_LEASES, RenewLeases(writers), retry_for_s=self._interval_s
            )
        except PaxosBlockError as error:
            _log.warning("could not renew the leases of %d writers: %s", len(writers), error)
            return
        for writer in answer.lost:
            reference = self._on_lost.pop(writer, None)
            on_lost = None if reference is None else reference()
            if on_lost is not None:
                on_lost()
