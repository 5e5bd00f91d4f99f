"""The folder of a member that begins with a catalog, when a single NameNode becomes several.

All members begin with the same catalog, as the last entry of a first term in which no member voted.
So no member can be elected without it, and no member has promised anything yet: the same state that
docs/operations.md makes by hand when the members change. The vote is written last; a folder without
it is not that of a member, and is made again from its beginning.

Members know each other by a key that is made from the secret and the cluster's lineage
(folder_admission.py), so that no folder of another lineage takes part.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from paxosblock.host.disk import Disk, FileHandle
from paxosblock.namenode.kv.folder import opening
from paxosblock.namenode.kv.rocks_files import remove_database
from paxosblock.namenode.kv.rocks_table import NAME as DATABASE
from paxosblock.namenode.kv.table import Receiver, Table
from paxosblock.namenode.raft import vote_file
from paxosblock.namenode.raft.admissions_file import UNNAMED, write_admissions
from paxosblock.namenode.raft.folder_admission import Admissions, Lineage
from paxosblock.namenode.raft.log import load_tail
from paxosblock.namenode.raft.member_folder import (
    NEWBORN,
    OWNER,
    WHEN_DAMAGED,
    Limits,
    make_member,
)
from paxosblock.namenode.raft.vote_file import ElectionVote

FIRST_TERM: Final = 1
"""The term of the entry with which a grown cluster begins; the first leader's is the next one."""

_PURPOSE = b"paxosblock lineage "


def clear(disk: Disk, folder: Path) -> FileHandle:
    """Empty the folder, which is not to be a member's any more; return the lock held on it.

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
    lineage: Lineage,
    first: bool,
    prepare: Callable[[Table], None] = lambda table: None,
) -> None:
    """Make a cleared folder that of a member; it is durable on return.

    Args:
        disk: writes the files.
        folder: gets them.
        receiver: has the checkpoint with which the member begins.
        members: the addresses of all members.
        lineage: the cluster's lineage.
        first: this member had the catalog first, and lets the others in.
        prepare: changes durably what the checkpoint held; what it raises is raised.

    Raises:
        CorruptionError: the checkpoint is damaged.
        NoSpaceError, StorageError: the disk refuses; the folder is not a member's.
        UnavailableError: the process that read the checkpoint was ended; the folder is not a
            member's.
    """
    receiver.check()
    table = receiver.install()
    try:
        prepare(table)
        if first:
            write_admissions(disk, folder, Admissions(UNNAMED, {}))
        _, journal = load_tail(disk, folder, table.revision, table.term, Limits().segment_bytes)
        journal.close()
        make_member(disk, folder, members, lineage, ElectionVote(table.term, None))
    finally:
        table.close()


def _empty(disk: Disk, folder: Path) -> None:
    """Remove all files but the lock, the token and the owner: first the vote, without which the
    rest does not count."""
    names = [name for name in disk.names(folder) if name not in ("lock", NEWBORN, OWNER)]
    for name in sorted(names, key=lambda name: name != vote_file.NAME):
        if name.startswith(DATABASE):
            remove_database(disk, folder / name)
        else:
            disk.remove(folder / name)
        if name == vote_file.NAME:
            disk.sync_folder(folder)
    disk.sync_folder(folder)


def key_of(secret: bytes, lineage: str) -> bytes:
    """Return the key by which the members of this lineage know each other."""
    return hmac.digest(secret, _PURPOSE + lineage.encode(), "sha256")
