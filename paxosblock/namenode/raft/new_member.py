"""The folder of a member that begins with a catalog: one that is let in, or that of a backup.

The catalog is the last entry of a term in which this member has not voted. So no member of its
lineage can be elected without it, and it has promised nothing yet: the same state that
docs/operations.md makes by hand when the members change. The vote is written last; a folder without
it is not that of a member, and is made again from its beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from paxosblock.host.disk import Disk, FileHandle
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
    opening,
)
from paxosblock.namenode.raft.vote_file import ElectionVote

FIRST_TERM: Final = 1
"""The term of the entry with which a restored catalog begins; the first leader's is the next one.
"""


def clear(disk: Disk, folder: Path) -> FileHandle:
    """Empty the folder, which is not to be a member's any more; return the lock held on it.

    Raises:
        ConfigError: the folder is in use.
        StorageError: the disk refuses.
    """
    with opening(disk, folder, WHEN_DAMAGED) as lock:
        _empty(disk, folder)
    return lock


def make_of_catalog(
    disk: Disk,
    folder: Path,
    receiver: Receiver,
    *,
    members: Sequence[str],
    lineage: Lineage,
    first: bool,
    vote: ElectionVote | None = None,
    prepare: Callable[[Table], None] = lambda table: None,
) -> None:
    """Make a cleared folder that of a member; it is durable on return.

    Args:
        disk: writes the files.
        folder: gets them.
        receiver: has the checkpoint with which the member begins.
        members: the addresses of all members; none if it is the only one.
        lineage: the cluster's lineage.
        first: this member had the catalog first, and lets the others in.
        vote: the member's; none in the term of the checkpoint if it is not given.
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
        make_member(disk, folder, members, lineage, vote or ElectionVote(table.term, None))
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
