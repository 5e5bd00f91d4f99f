"""Damage that a reader, a DataNode that fetches, or the scrubber finds."""

from __future__ import annotations

from paxosblock.datanode.block import Block
from paxosblock.datanode.store.disk_format import Stored
from paxosblock.errors import CorruptionError, StorageError
from paxosblock.host.disk import is_gone, is_shortage
from paxosblock.protocol.register import Replica


async def is_damaged(
    block: Block, replica: Replica, files: Stored, error: CorruptionError | StorageError
) -> bool:
    """Mark `replica` as dead if `error`, which reading `files` raised, shows damage.

    Return False and mark nothing if the replica changed meanwhile: a recovery may cut or move a
    file while it is read, which is no corruption. Then read again.

    Raises:
        StorageError: the volume has failed, or there was only no descriptor left.
    """
    volume = block.volume
    volume.check()
    if is_shortage(error):
        raise error
    await block.settled()
    now = block.replica
    if block.files != files or now is None or now.registers != replica.registers:
        return False
    block.mark_corrupt(str(error))
    if isinstance(error, StorageError) and not is_gone(error):
        volume.doubted = True  # a bad sector, or a dying disk: the next look finds out
    return True
