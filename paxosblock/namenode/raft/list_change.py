"""A cluster's only NameNode becomes the first of several: its folder gets the longer list.

The others begin with a copy of its map (seed.py), which must have all that was ever answered. So
the whole log is applied and flushed first: of a NameNode that is alone every entry is committed.
Then the folder gets a lineage of its own, so that copies of it from before are strangers, and at
last the list. That is the one step that matters: before it the folder is a single NameNode's, and
after it that of the first of several. If it is cut short, it begins again.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paxosblock.errors import ConfigError
from paxosblock.host.disk import Disk, OsDisk
from paxosblock.namenode.kv.rocks_table import ROCKS
from paxosblock.namenode.kv.table import Tables
from paxosblock.namenode.raft import vote_file
from paxosblock.namenode.raft.admissions_file import UNNAMED, write_admissions
from paxosblock.namenode.raft.folder_admission import Admissions, Lineage
from paxosblock.namenode.raft.member_folder import (
    MEMBER,
    OWNER,
    Limits,
    known_members,
    open_folder,
    write_lineage,
    write_members,
)

COMMAND: Final = "paxosblock admin grow"


@dataclass(frozen=True, slots=True)
class Grown:
    """A folder got its list: with `keys` of the catalog, up to its log entry `revision`. Both are 0
    if it had that list before.
    """

    keys: int = 0
    revision: int = 0


def grow_folder(folder: Path, members: Sequence[str]) -> Grown:
    """Make a NameNode's folder that of the first of `members`, the host:port of all NameNodes.

    Raises:
        ConfigError: the folder is not that of a cluster's only NameNode, or is in use, or has
            another list; or the list of members makes no sense.
        CorruptionError: the catalog is damaged.
        NoSpaceError, StorageError: the disk refuses.

    Until a repetition succeeds, the folder is as it was.
    """
    check_members(members)
    if not (folder / MEMBER / vote_file.NAME).exists():
        raise ConfigError(f"{folder} is not the folder of a cluster's only NameNode")
    return grow(OsDisk(), folder / MEMBER, members, secrets.token_hex(16))


def check_members(members: Sequence[str]) -> None:
    """Raise ConfigError if a cluster cannot have these NameNodes."""
    if len(members) < 3 or len(members) % 2 == 0 or len(set(members)) < len(members):
        raise ConfigError(
            f"--peers {','.join(members)}: name three or five NameNodes, each once, this one too"
        )


def grow(
    disk: Disk, folder: Path, members: Sequence[str], lineage: str, tables: Tables = ROCKS
) -> Grown:
    """Change the list in the folder of a cluster's only member, under a fresh `lineage`.

    Raises as `grow_folder`.
    """
    if known_members(disk, folder) == sorted(members):
        return Grown()
    opened = open_folder(disk, folder, Limits().segment_bytes, tables, alone=True)
    try:
        machine = opened.machine
        if not machine.revision:
            raise ConfigError(f"{folder} holds no catalog yet: start all with --new-cluster")
        machine.flush().write()
        write_admissions(disk, folder, Admissions(UNNAMED, {}))
        write_lineage(disk, folder, Lineage(lineage, born=False))
        if OWNER in disk.names(folder):  # of an earlier life as one of several, at another address
            disk.remove(folder / OWNER)
            disk.sync_folder(folder)
        write_members(disk, folder, members, machine.revision)
        return Grown(len(machine), machine.revision)
    finally:
        opened.close()
