"""The folder of a cluster's only NameNode becomes that of the first of several.

The catalog is copied as the checkpoint with which a member begins (raft/planting.py), read back,
and then a file in the old part says that it no longer counts. That is the one step that matters:
before it the folder is a single NameNode's, and after it a member's, whatever else is in it. A
conversion that was cut short before it begins again. The old part stays as it was.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paxosblock.base.units import MIB
from paxosblock.errors import ConfigError, CorruptionError
from paxosblock.host.disk import Disk, OsDisk
from paxosblock.namenode.kv.folder import FolderLimits, open_store
from paxosblock.namenode.kv.rocks_table import ROCKS
from paxosblock.namenode.kv.state_machine import StateMachine
from paxosblock.namenode.kv.table import Receiver, Table, Tables, pieces
from paxosblock.namenode.raft import member_folder, vote_file
from paxosblock.namenode.raft.folder_admission import Lineage
from paxosblock.namenode.raft.member_folder import read_members, write_lines
from paxosblock.namenode.raft.planting import FIRST_TERM, clear, plant

ALONE: Final = "kv"
REPLICATED: Final = "raft"
"""Folders of the two engines inside a NameNode's own."""

CONVERTED: Final = "converted"
"""The file in `kv` that says that the catalog is now in `raft`."""

COMMAND: Final = "paxosblock admin grow"

COPIED_BYTES: Final = 4 * MIB
"""Bytes copied at a time."""


@dataclass(frozen=True, slots=True)
class Grown:
    """A folder was converted: `keys` of the catalog, up to its log entry `revision`. Both are 0 if
    that had been done before.
    """

    keys: int = 0
    revision: int = 0


def is_converted(folder: Path) -> bool:
    """True if the part of a NameNode's folder that is a single one's no longer counts."""
    return (folder / ALONE / CONVERTED).exists()


def is_unfinished(folder: Path) -> bool:
    """True if a conversion was cut short, and the folder is still that of a single NameNode."""
    vote = folder / REPLICATED / vote_file.NAME
    return (folder / ALONE).exists() and not is_converted(folder) and not vote.exists()


def grow_folder(folder: Path, members: Sequence[str]) -> Grown:
    """Convert a NameNode's folder; `members` are the host:port of all NameNodes, this one too.

    Raises:
        ConfigError: the folder is not that of a cluster's only NameNode, or is in use, or was
            converted for other members; or the list of members makes no sense.
        CorruptionError: the catalog is damaged.
        NoSpaceError, StorageError: the disk refuses.
        UnavailableError: the process that read the copy was ended.

    Until a repetition succeeds, the folder is as it was.
    """
    check_members(members)
    if not (folder / ALONE).exists():
        what = "one of several NameNodes already" if (folder / REPLICATED).exists() else "none"
        raise ConfigError(f"{folder} is not the folder of a cluster's only NameNode, but of {what}")
    return grow(OsDisk(), folder, members, secrets.token_hex(16))


def check_members(members: Sequence[str]) -> None:
    """Raise ConfigError if a cluster cannot have these NameNodes."""
    if len(members) < 3 or len(members) % 2 == 0 or len(set(members)) < len(members):
        raise ConfigError(
            f"--peers {','.join(members)}: name three or five NameNodes, each once, this one too"
        )


def grow(
    disk: Disk,
    folder: Path,
    members: Sequence[str],
    lineage: str,
    tables: Tables = ROCKS,
) -> Grown:
    """Convert the folder of a cluster's only NameNode, which is there, under a fresh `lineage`.

    Raises as `grow_folder`.
    """
    alone, replicated = folder / ALONE, folder / REPLICATED
    if CONVERTED in disk.names(alone):
        known = read_members(disk, replicated)
        if known != sorted(members):
            raise ConfigError(f"{folder} is that of one of {','.join(known)} already")
        return Grown()
    store = open_store(disk, alone, FolderLimits(), tables.open)
    try:
        machine = store.machine
        if not machine.revision:
            raise ConfigError(f"{folder} holds no catalog yet: start all with --new-cluster")
        lock = clear(disk, replicated)
        try:
            receiver = tables.receive(disk, replicated)
            _copy(machine, receiver)
            plant(
                disk,
                replicated,
                receiver,
                members=members,
                lineage=Lineage(lineage, born=False),
                first=True,
                prepare=_begin,
            )
        finally:
            disk.close(lock)
        _check_same(disk, replicated, machine, tables)
        write_lines(disk, alone / CONVERTED, sorted(members))
        return Grown(len(machine), machine.revision)
    finally:
        store.close()


def _copy(machine: StateMachine, receiver: Receiver) -> None:
    with closing(machine.checkpoint().make()) as checkpoint:
        for piece in pieces(checkpoint, COPIED_BYTES):
            receiver.write(piece)


def _begin(table: Table) -> None:
    """The catalog is the last entry of the first term."""
    table.write(table.revision, {}, FIRST_TERM)
    table.flush().write()


def _check_same(disk: Disk, folder: Path, machine: StateMachine, tables: Tables) -> None:
    """Read the new folder back, as a start would, before any process relies on it."""
    segment_bytes = member_folder.Limits().segment_bytes
    member = member_folder.open_folder(disk, folder, segment_bytes, tables)
    try:
        read = member.machine
        if (read.revision, len(read)) != (machine.revision, len(machine)):
            raise CorruptionError(f"{folder}: what was written reads as {read}, not as {machine}")
    finally:
        member.close()
