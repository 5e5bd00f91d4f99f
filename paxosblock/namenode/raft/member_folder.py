"""Whether a folder may take part in the cluster, before anything in it is opened.

    members = the addresses of all members, one in each line

A member whose folder was emptied has forgotten whom it voted for and what it confirmed. One that
was told of other members would count another majority, which need not overlap with that of those
who still go by the old list. Both look like a member; so both are asked for here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from paxosblock.disk import Disk, OsDisk, read_file
from paxosblock.errors import ConfigError, NoSpaceError, StorageError
from paxosblock.namenode.kv import mark
from paxosblock.namenode.kv.files import publish
from paxosblock.namenode.raft import vote_file
from paxosblock.namenode.raft.vote_file import Vote, VoteFile

_MEMBERS = "members"


def check_member(folder: Path, members: Sequence[str], *, new_cluster: bool) -> None:
    """Return if the folder is that of a member of this cluster, or make it one where the cluster
    is new.

    Only a word of the operator lets an empty folder in. Every member has a vote from then on,
    before it says anything to anybody. A folder without `members` takes this list.

    Raises:
        ConfigError: the folder is empty and the cluster is not new, or the other way round; or it
            went by another list of members.
        StorageError: it cannot be read or written.
    """
    disk = OsDisk()
    try:
        if new_cluster:
            _make(disk, folder)
        elif not (folder / vote_file.NAME).exists():
            raise ConfigError(
                f"{folder} holds no member of the cluster. Start with --new-cluster if the cluster "
                "is new; a NameNode that lost its folder gets it back as docs/operations.md says"
            )
        _check_list(disk, folder, sorted(members))
    except (NoSpaceError, StorageError):
        raise
    except OSError as error:
        raise StorageError.of(folder, error) from error


def _make(disk: Disk, folder: Path) -> None:
    disk.make_folder(folder)
    of_a_member = ("journal-", "snapshot-", mark.NAME)
    kept = [name for name in disk.names(folder) if name.startswith(of_a_member)]
    if kept or (folder / vote_file.NAME).exists():
        raise ConfigError(f"--new-cluster: {folder} holds a member already; start without it")
    VoteFile(disk, folder).write(Vote(0, None))


def _check_list(disk: Disk, folder: Path, members: list[str]) -> None:
    file = folder / _MEMBERS
    if not file.exists():
        publish(disk, file, [f"{member}\n".encode() for member in members])
    known = read_file(disk, file).decode(errors="replace").split()
    if known != members:
        raise ConfigError(
            f"{folder} is that of a member of {','.join(known)}, not of {','.join(members)}. "
            "docs/operations.md says how to change them: one by one would make two majorities"
        )
