"""Looks at a volume for the heartbeat, in a thread of its own: one that hangs does not silence
others.

A disk that does not answer has not failed: it dropped nothing, so everything that was promised and
voted on it still holds. While it hangs, the heartbeat says that it failed, so that nothing is
placed there and its blocks are copied; when it answers, it is there again with all it had, like a
DataNode that was cut off. If its answer is an error, it has failed for good.
"""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from msgspec.structs import replace

from paxosblock.api.reports import StorageReport
from paxosblock.datanode.volumes.volume import Volume
from paxosblock.host.logs import facts

PATIENCE_S: Final = 0.5
"""Seconds that a heartbeat waits for a look; after that it reports what the look before saw."""
LATE_S: Final = 3.0
"""Seconds after which a volume that does not answer gets no new blocks: it reports no room. The
same holds when no sync comes back from its disk (`Volume.stands_s`)."""

_log = logging.getLogger(__name__)


class DiskProbe:
    """The looks at one volume, one after the other."""

    def __init__(self, volume: Volume, *, reserved_bytes: int, hung_after_s: float) -> None:
        """`reserved_bytes` as in `Volume.report`; a look that lasts `hung_after_s` has hung."""
        self._volume = volume
        self._reserved_bytes = reserved_bytes
        self._hung_after_s = hung_after_s
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"look-{volume.folder.name}")
        self._under_way: asyncio.Future[StorageReport] | None = None
        self._begun_s = 0.0
        self._begun_at = ""
        self.last: StorageReport | None = None
        """The state that the latest look found; None before the first."""

    @property
    def under_way(self) -> bool:
        """True if a look has not come to its end."""
        return self._under_way is not None and not self._under_way.done()

    async def report(self) -> StorageReport:
        """Return the volume's state for the NameNode within `PATIENCE_S`, at first `LATE_S`."""
        report = await self._report()
        stands = self._volume.stands_s() >= LATE_S
        return replace(report, free_bytes=0) if stands else report

    async def _report(self) -> StorageReport:
        loop = asyncio.get_running_loop()
        if self._under_way is None:
            self._begun_s, self._begun_at = loop.time(), time.strftime("%H:%M:%S")
            self._under_way = loop.run_in_executor(
                self._thread, self._volume.report, self._reserved_bytes
            )
        look = self._under_way
        patience_s = PATIENCE_S if self.last else LATE_S
        left_s = self._begun_s + patience_s - loop.time()
        await asyncio.wait((look,), timeout=max(left_s, 0))
        if not look.done():
            return self._silent(loop.time() - self._begun_s)
        if self._under_way is look:  # otherwise another heartbeat has noted it
            self._under_way = None
            self._answered(look.result())
        return look.result()

    def _answered(self, report: StorageReport) -> None:
        self.last = report
        if self._volume.hung:
            self._volume.hung = ""
            _log.warning("volume answers again", extra=facts(folder=self._volume.folder))

    def _silent(self, silent_s: float) -> StorageReport:
        volume = self._volume
        last = self.last or StorageReport(volume.storage, 0, 0, volume.used_bytes)
        if silent_s >= self._hung_after_s and not volume.hung:
            volume.hung = f"{volume.folder}: it hangs since {self._begun_at}"
            _log.error("volume hangs", extra=facts(folder=volume.folder, since=self._begun_at))
        free_bytes = last.free_bytes if silent_s < LATE_S else 0
        return replace(last, free_bytes=free_bytes, failed=volume.failed or volume.hung)

    def close(self) -> None:
        """Stop looking. The thread ends when the look that is under way does."""
        self._thread.shutdown(wait=False)
