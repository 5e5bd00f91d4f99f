"""The first read of replicas when a start found only the names of their files.

A node serves while it reads them: a request for one has it read at once, and the others have their
turn in order of their ids. A volume is neither reported nor scrubbed until all of it was read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from paxosblock.datanode.volumes.volume import Volume
from paxosblock.errors import ConfigError, NoSpaceError, StorageError
from paxosblock.host.disk import is_shortage
from paxosblock.host.logs import facts
from paxosblock.protocol.types import BlockId

SLICE: Final = 64
"""Replicas that are read at a time, in a thread, before a request may need the thread."""
TRY_AGAIN_S: Final = 1.0
"""Seconds to wait for a file descriptor."""

_log = logging.getLogger(__name__)


async def read_first(volume: Volume, blocks: Sequence[BlockId]) -> None:
    """Read those of the blocks that are unread, in a thread of the volume.

    Raises:
        NoSpaceError: no descriptor was left; the others are unread as before.
        StorageError: the volume has failed, now or before.
    """
    with _blaming(volume):
        await volume.run_read_quietly(volume.store.first_read, blocks)
    volume.check()


def read_now(volume: Volume, block: BlockId) -> None:
    """As `read_first`, on the event loop: for what is so rare that it need not wait in line."""
    with _blaming(volume):
        volume.store.first_read([block])


@contextmanager
def _blaming(volume: Volume) -> Iterator[None]:
    """Make the volume fail with an error that is not only the lack of a descriptor; count what was
    read."""
    try:
        yield
    except (ConfigError, NoSpaceError, StorageError) as error:
        if is_shortage(error):
            text = f"storage {volume.storage} cannot read: too many files and connections are open"
            raise NoSpaceError(text, storage=volume.storage) from error
        volume.fail(error)
        volume.check()
    finally:
        volume.used_bytes += volume.store.take_read_bytes()


async def read_all(volume: Volume) -> None:
    """Read all that the start left unread, at most half of the time while clients use the volume.
    Return early if it fails.
    """
    loop, blocks = asyncio.get_running_loop(), volume.unread
    begun_s = loop.time()
    try:
        for start in range(0, len(blocks), SLICE):
            some = blocks[start : start + SLICE]
            while left := [block for block in some if volume.store.is_unread(block)]:
                slice_s = loop.time()
                try:
                    await read_first(volume, left)
                    pause_s = loop.time() - slice_s if volume.serves_clients else 0.0
                except NoSpaceError as error:
                    _log.warning("replicas are not read yet", extra=facts(reason=error))
                    pause_s = TRY_AGAIN_S
                await asyncio.sleep(pause_s)
    except StorageError:
        return  # the failed volume has logged why
    if blocks:
        took_s = round(loop.time() - begun_s, 1)
        about = facts(folder=volume.folder, replicas=len(blocks), seconds=took_s)
        _log.info("all replicas are read", extra=about)
    volume.used_bytes += volume.store.take_read_bytes()  # of a request that was given up
    volume.unread = ()
    volume.all_read.set()
