"""Damage, whoever meets it: a reader, a DataNode that fetches, or the scrubber."""

from __future__ import annotations

from paxosblock.datanode.block import Block
from paxosblock.datanode.store import Stored
from paxosblock.disk import is_gone, is_shortage
from paxosblock.errors import CorruptionError, StorageError
from paxosblock.protocol.register import Replica


async def is_damaged(
    block: Block, replica: Replica, files: Stored, error: CorruptionError | StorageError
) -> bool:
    """Take `error` as damage of what was read of `replica` in `files`, and mark the replica as
    dead.

    False, and nothing is marked, where the replica changed meanwhile: a recovery may cut or move a
    file while it is read, which is no corruption; read again.

    Raises:
        StorageError: the volume has failed; or only a descriptor was lacking.
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
        volume.doubted = True  # one bad sector, or a disk that is dying: the next look tells
    return True
