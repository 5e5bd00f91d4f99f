"""The folder of a member that begins with a catalog: a cluster of one NameNode becomes one of more.

All members begin with the same catalog, as the last entry of a first term in which nobody voted.
So none of them can be elected without it, and nobody has promised anything yet: the very state that
docs/operations.md makes by hand when the members change. The vote is written last; a folder
without it is that of no member, and begun anew.

Such a cluster has a `lineage`, a name drawn once, and its members know each other by a key that
comes from the secret and from it. A NameNode of the same secret that was started empty, as if the
cluster were new, is a stranger to them: two of those could elect each other, with nothing.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from paxosblock.disk import Disk, FileHandle
from paxosblock.namenode.kv.folder import opening
from paxosblock.namenode.kv.rocks_files import remove_database
from paxosblock.namenode.kv.rocks_table import NAME as DATABASE
from paxosblock.namenode.kv.table import Receiver
from paxosblock.namenode.raft import vote_file
from paxosblock.namenode.raft.log import load_tail
from paxosblock.namenode.raft.member_folder import (
    WHEN_DAMAGED,
    Limits,
    read_lines,
    write_lines,
    write_members,
)
from paxosblock.namenode.raft.vote_file import Vote, VoteFile

FIRST_TERM: Final = 1
"""The term of the entry with which a grown cluster begins; the first leader's is the next one."""

LINEAGE: Final = "lineage"
_PURPOSE = b"paxosblock lineage "


def clear(disk: Disk, folder: Path) -> FileHandle:
    """Empty the folder, which must be no member's; return the lock that is held on it.

    Raises:
        ConfigError: the folder is in use.
        StorageError: the disk refuses.
    """
    with opening(disk, folder, WHEN_DAMAGED) as lock:
        _empty(disk, folder)
    return lock


def plant(
    disk: Disk,
    folder: Path,
    receiver: Receiver,
    *,
    members: Sequence[str],
    lineage: str,
    term: int | None = None,
) -> None:
    """Make a folder that is cleared that of a member, and hold it durably on return.

    Args:
        disk: how files are written.
        folder: where they are.
        receiver: has the checkpoint with which the member begins.
        members: the addresses of all.
        lineage: the cluster's.
        term: of the checkpoint's last entry, instead of what that says.

    Raises:
        CorruptionError: the checkpoint is damaged.
        NoSpaceError, StorageError: the disk refuses; the folder is no member's then.
    """
    receiver.check()
    table = receiver.install()
    try:
        if term is not None:
            table.write(table.revision, {}, term)
            table.flush().write()
        write_lines(disk, folder / LINEAGE, [lineage])
        write_members(disk, folder, members)
        _, journal = load_tail(disk, folder, table.revision, table.term, Limits().segment_bytes)
        journal.close()
        VoteFile(disk, folder).write(Vote(table.term, None))
    finally:
        table.close()


def _empty(disk: Disk, folder: Path) -> None:
    """Remove all but the lock; the vote first, without which the rest is nothing."""
    names = [name for name in disk.names(folder) if name != "lock"]
    for name in sorted(names, key=lambda name: name != vote_file.NAME):
        if name.startswith(DATABASE):
            remove_database(disk, folder / name)
        else:
            disk.remove(folder / name)
        if name == vote_file.NAME:
            disk.sync_folder(folder)
    disk.sync_folder(folder)


def read_lineage(disk: Disk, folder: Path) -> str:
    """Return the lineage of a member's folder; "" of a cluster that was several from the start.

    Raises:
        ConfigError, CorruptionError, StorageError: the file cannot be read.
    """
    return "".join(read_lines(disk, folder / LINEAGE)) if LINEAGE in disk.names(folder) else ""


def key_of(secret: bytes, lineage: str) -> bytes:
    """Return what the members of a cluster know each other by; without a lineage the secret."""
    return hmac.digest(secret, _PURPOSE + lineage.encode(), "sha256") if lineage else secret
