"""Disks that hang: they are told from slow ones, and left out when a node starts.

A sync that takes seconds tells nothing by itself, as it may have much to write. So when none of a
volume's syncs has ended for a moment, a few bytes are written and synced beside them. The disk
stands as long as these do not come back either, and no other sync does. A disk whose every sync
takes that long cannot be told from one that hangs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paxosblock.api.reports import StorageReport
from paxosblock.datanode.store.identity import VERSION
from paxosblock.errors import StorageError
from paxosblock.host.disk import Disk, opened
from paxosblock.host.logs import facts
from paxosblock.protocol.types import StorageId

_log = logging.getLogger(__name__)

ASKED_AFTER_S: Final = 0.25
"""Seconds without the end of a sync after which the disk is asked."""
LONGEST_STEP_S: Final = 0.25
"""Seconds that count between two looks, however long it was: this process may not have run."""


class Standstill:
    """Counts how long nothing has come back from one disk. It lives on the event loop."""

    def __init__(
        self, clock_s: Callable[[], float], ended: Callable[[], int], ask: Callable[[], None]
    ) -> None:
        """`ended` counts the syncs that have ended; `ask` begins another one, and `answered` is
        called at its end."""
        self.seconds = 0.0
        self._clock_s = clock_s
        self._ended = ended
        self._ask = ask
        self._asking = False
        self._answers = 0
        self._seen = 0
        self._looked_s = clock_s()

    def measure(self, *, waiting: bool) -> float:
        """Return the seconds; to be called again and again. Not `waiting`: no caller waits for the
        disk."""
        now_s, seen = self._clock_s(), self._ended() + self._answers
        if waiting and seen == self._seen:
            self.seconds += min(now_s - self._looked_s, LONGEST_STEP_S)
        else:
            self.seconds = 0.0
        self._looked_s, self._seen = now_s, seen
        if self.seconds >= ASKED_AFTER_S and not self._asking:
            self._asking = True
            self._ask()
        return self.seconds

    def answered(self) -> None:
        """Note that the disk has answered."""
        self._asking = False
        self._answers += 1


@dataclass(frozen=True, slots=True)
class LostVolume:
    """A volume whose disk failed or hung when the node started: it is not known what it holds."""

    folder: Path
    reason: str

    def report(self, node: str) -> StorageReport:
        """Return its state for the NameNode, named by its folder: its id cannot be read."""
        return StorageReport(StorageId(f"{node}:{self.folder}"), 0, 0, 0, self.reason)


async def answers(disk: Disk, folder: Path, within_s: float) -> bool:
    """True if the disk of a volume answers, even with an error. The end of the process does not
    wait for the thread that asks."""
    answered, loop = asyncio.Event(), asyncio.get_running_loop()

    def ask() -> None:
        # Bytes that the system has in memory would not show if the disk works.
        with contextlib.suppress(StorageError), opened(disk, folder / VERSION) as file:
            disk.read_stored(file, disk.size(file), 0)
        with contextlib.suppress(RuntimeError):  # the loop is closed: no caller waits
            loop.call_soon_threadsafe(answered.set)

    threading.Thread(target=ask, name=f"ask-{folder.name}", daemon=True).start()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(answered.wait(), within_s)
    return answered.is_set()


def hangs(folder: Path, silent_s: float) -> StorageError:
    """Return the error of a volume whose disk did not answer for so long while a node started."""
    return StorageError(f"{folder}: it hangs: no answer in {silent_s:g} s")


async def find_hung(disk: Disk, folders: Sequence[Path], hung_after_s: float) -> list[LostVolume]:
    """Return the volumes whose disks do not answer for `hung_after_s`: opening one would block the
    node."""
    answering = await asyncio.gather(*(answers(disk, each, hung_after_s) for each in folders))
    lost = [each for each, answered in zip(folders, answering, strict=True) if not answered]
    for folder in lost:
        _log.error("volume hangs", extra=facts(folder=folder))
    return [LostVolume(folder, str(hangs(folder, hung_after_s))) for folder in lost]
