"""The folder of a member that begins with a catalog: a cluster of one NameNode becomes one of more.

All members begin with the same snapshot, as the last entry of a first term in which nobody voted.
So none of them can be elected without it, and nobody has promised anything yet: the very state that
docs/operations.md makes by hand when the members change. The vote is written last; a folder
without it is that of no member, and begun anew.

Such a cluster has a `lineage`, a name drawn once, and its members know each other by a key that
comes from the secret and from it. A NameNode of the same secret that was started empty, as if the
cluster were new, is a stranger to them: two of those could elect each other, with nothing.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from paxosblock.checksum import Buffer
from paxosblock.disk import Disk
from paxosblock.namenode.kv.files import numbered, publish
from paxosblock.namenode.kv.folder import opening
from paxosblock.namenode.raft import vote_file
from paxosblock.namenode.raft.log import load_tail
from paxosblock.namenode.raft.member_folder import (
    WHEN_DAMAGED,
    Limits,
    read_lines,
    write_lines,
    write_members,
)
from paxosblock.namenode.raft.snapshot_file import KIND
from paxosblock.namenode.raft.vote_file import Vote, VoteFile

FIRST_TERM: Final = 1
"""The term of the entry with which a grown cluster begins; the first leader's is the next one."""

LINEAGE: Final = "lineage"
_PURPOSE = b"paxosblock lineage "


def plant(
    disk: Disk,
    folder: Path,
    snapshot: Iterable[Buffer],
    *,
    index: int,
    term: int,
    members: Sequence[str],
    lineage: str,
) -> None:
    """Make the folder of a member that begins with a snapshot, and hold it durably on return.

    What is there is removed first: it must be no member's.

    Args:
        snapshot: the pieces of a snapshot file of the entry `index`, which is of `term`.

    Raises:
        ConfigError: the folder is in use.
        NoSpaceError, StorageError: the disk refuses; the folder is no member's then.
    """
    with opening(disk, folder, WHEN_DAMAGED) as lock:
        _empty(disk, folder)
        publish(disk, numbered(folder, KIND, index), snapshot)
        write_lines(disk, folder / LINEAGE, [lineage])
        write_members(disk, folder, members)
        _, journal = load_tail(disk, folder, index, term, Limits().segment_bytes)
        journal.close()
        VoteFile(disk, folder).write(Vote(term, None))
    disk.close(lock)


def _empty(disk: Disk, folder: Path) -> None:
    """Remove all but the lock; the vote first, without which the rest is nothing."""
    names = [name for name in disk.names(folder) if name != "lock"]
    for name in sorted(names, key=lambda name: name != vote_file.NAME):
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
