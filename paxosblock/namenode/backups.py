"""A backup: the catalog as files in a folder, and the folder of a new cluster that is made of one.

    FOLDER/db/       the database, as one consistent state (kv/rocks_files.py)
    FOLDER/backup    JSON: the format, the entry that it is after, the cluster. It is written last:
                     a folder without it is no backup

A catalog that was brought back does not know what happened since, but DataNodes may. So

- it begins in safe mode: no replica is taken away until an operator has looked;
- ids of files go on far behind those that it knows, and blocks get another tag (catalog/ids.py), so
  that none that was given since is given again;
- each record of a block says that it is of a backup, and nothing is allocated or decided by it
  before the DataNodes were asked what became of the block (PROTOCOL.md K14, blocks/learner.py);
- its folder has a lineage of its own (raft/new_member.py), so that members of the cluster that was
  are strangers to it.

The folder is made under another name, and gets its own when it is whole and durable.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from paxosblock.base.encoding import json_decoder
from paxosblock.base.formats import FROM_A_COPY, refuse_later
from paxosblock.base.units import MIB
from paxosblock.errors import (
    AccessDeniedError,
    ConfigError,
    CorruptionError,
    PaxosBlockError,
    StorageError,
    UnavailableError,
)
from paxosblock.host.disk import Disk, OsDisk, read_file
from paxosblock.namenode.catalog import ids, keys
from paxosblock.namenode.catalog.catalog import wall_clock_ms
from paxosblock.namenode.catalog.records import decode_entry, encode
from paxosblock.namenode.kv.files import publish
from paxosblock.namenode.kv.interface import ABSENT, Versioned
from paxosblock.namenode.kv.rocks_files import FileCheckpoint, FileReceiver
from paxosblock.namenode.kv.rocks_table import ROCKS, check_apart
from paxosblock.namenode.kv.table import Receiver, Table, pieces
from paxosblock.namenode.raft.folder_admission import Lineage
from paxosblock.namenode.raft.list_change import check_members
from paxosblock.namenode.raft.machine import LIST_KEY
from paxosblock.namenode.raft.member_folder import MEMBER
from paxosblock.namenode.raft.new_member import FIRST_TERM, clear, make_of_catalog
from paxosblock.net.port.access import OPEN, Access, Introduction, dialled
from paxosblock.net.port.upgrade import MAX_HANDSHAKE_BYTES, dial, is_hidden, split_address
from paxosblock.net.wire import decode_error
from paxosblock.protocol.finalize import bring_back

BACKUP_PATH: Final = "/backup"
"""The path at which a NameNode gives its catalog, as the stream of a checkpoint."""

RESTORING: Final = "restoring"
"""The part of a NameNode's folder that is being made of a backup."""

COMMAND: Final = "paxosblock admin restore"

_SILENCE_S: Final = 60.0
_PIECE_BYTES: Final = MIB
_DATABASE: Final = "db"
_DRAFT: Final = "db.new"
_NOTE: Final = "backup"
_FORMAT: Final = 1
_BLOCKS_AT_ONCE: Final = 50_000
"""Records of blocks that are in memory at a time."""


class Backup(msgspec.Struct, frozen=True):
    """The state that a backup holds: the catalog of a `cluster` after log entry `entry`."""

    entry: int
    cluster: str
    format: int = _FORMAT


_BACKUP: Final = json_decoder(Backup)


def take_backup(address: str, folder: Path, cluster: str, access: Access = OPEN) -> Backup:
    """Write what the NameNode at `address` has applied to a folder, and read it back; blocks.

    Args:
        address: host:port of a NameNode, which may lead or not.
        folder: new, or empty.
        cluster: the id of its cluster.
        access: has the secret that the NameNode may demand, and must then prove to know.

    Raises:
        ConfigError: the folder is not empty.
        AccessDeniedError: the NameNode has a secret that we lack, or lacks ours.
        UnavailableError: the NameNode does not answer, or cannot give it now; or the process that
            read what came was ended.
        CorruptionError: what came is damaged.
        NoSpaceError, StorageError: the disk refuses.
    """
    disk = OsDisk()
    _check_empty(folder, "a backup goes to a new one")
    disk.make_folder(folder)
    receiver = FileReceiver(disk, folder / _DRAFT)
    try:
        _fetch(address, receiver, access)
        receiver.finish()
        found = Backup(check_apart(receiver.folder), cluster)
        disk.rename(receiver.folder, folder / _DATABASE)
    except BaseException:
        with suppress(PaxosBlockError):
            receiver.discard()
        raise
    disk.sync_folder(folder)
    publish(disk, folder / _NOTE, [msgspec.json.encode(found)])
    return found


def restore(backup: Path, folder: Path, members: Sequence[str] = ()) -> Backup:
    """Make the folder of a new cluster's only NameNode, or of the first of several `members`.

    Args:
        backup: what `take_backup` wrote, which stays as it is.
        folder: new, or empty, or one in which this was cut short.
        members: host:port of all NameNodes, this one too; none if it will be the only one.

    Raises:
        ConfigError: `backup` holds no backup, or one of a later version; `folder` is not empty; or
            the list of members makes no sense.
        CorruptionError: the backup is damaged.
        NoSpaceError, StorageError: the disk refuses. Do it again.
        UnavailableError: the process that read the copy was ended. Do it again.
    """
    disk = OsDisk()
    if members:
        check_members(members)
    found = _read(disk, backup)
    _check_empty(folder, "a backup is brought back to a new one", but=RESTORING)
    disk.make_folder(folder)
    draft = folder / RESTORING
    lock = clear(disk, draft)
    try:
        receiver = ROCKS.receive(disk, draft)
        for piece in pieces(FileCheckpoint(disk, backup / _DATABASE), _PIECE_BYTES):
            receiver.write(piece)
        fill(disk, draft, receiver, found=found, members=members, lineage=secrets.token_hex(16))
    finally:
        disk.close(lock)
    disk.rename(draft, folder / MEMBER)
    disk.sync_folder(folder)
    return found


def fill(
    disk: Disk,
    folder: Path,
    receiver: Receiver,
    *,
    found: Backup,
    members: Sequence[str],
    lineage: str,
) -> None:
    """Make a cleared folder that of a NameNode with the catalog of a backup; durable on return.

    Args:
        disk: writes the files.
        folder: gets them.
        receiver: has the catalog that was backed up.
        found: what the backup says of itself.
        members: as `restore` takes them.
        lineage: of the cluster that begins.

    Raises:
        CorruptionError: the backup is damaged.
        NoSpaceError, StorageError: the disk refuses.
        UnavailableError: the process that read the copy was ended.
    """
    make_of_catalog(
        disk,
        folder,
        receiver,
        members=members,
        lineage=Lineage(lineage, born=not members),
        first=bool(members),
        prepare=partial(begin, found),
    )


def begin(found: Backup, table: Table) -> None:
    """Write, durably, what a catalog that was brought back begins with.

    Raises:
        CorruptionError: it is another state than that of the backup `found`.
        NoSpaceError, StorageError: the disk refuses.
    """
    if table.revision != found.entry:
        raise CorruptionError(
            f"damaged: its files are of entry {table.revision}, its note of entry {found.entry}"
        )
    revision = table.revision + 1
    now = keys.pack_number(wall_clock_ms())
    values = {keys.SAFE_MODE: now, keys.RESTORED: now} | ids.skipped(table)
    # A reader of the backup has its keys, and it does not know what was revoked since. DataNodes
    # have later keys of blocks than these, so they would refuse them; for new ones they wait.
    values[keys.TOKENS_AT] = now
    changes = {key: Versioned(value, revision) for key, value in values.items()}
    gone = {key: ABSENT for span in (keys.TOKENS, keys.REVOKED) for key, _ in table.scan(*span)}
    gone |= {LIST_KEY: ABSENT, keys.TOKEN_KEYS: ABSENT, keys.BLOCK_KEYS: ABSENT}
    table.write(revision, {**changes, **gone}, FIRST_TERM)
    after = keys.BLOCKS[0]
    while page := tuple(islice(table.scan(after, keys.BLOCKS[1]), _BLOCKS_AT_ONCE)):
        changes = {key: Versioned(_brought_back(found.value), revision) for key, found in page}
        table.write(revision, changes, FIRST_TERM)
        table.flush().write()
        after = page[-1][0] + b"\0"
    table.flush().write()


def _brought_back(value: bytes) -> bytes:
    """Return a block's entry with the record of a restored catalog (K14)."""
    entry = decode_entry(value)
    return encode(replace(entry, record=bring_back(entry.record)))


def _check_empty(folder: Path, why: str, but: str = "") -> None:
    try:
        names = [each.name for each in folder.iterdir()] if folder.exists() else []
    except OSError as error:
        raise StorageError.of(folder, error) from error
    if names not in ([], [but]):
        raise ConfigError(f"{folder} is not empty: {why}")


def _read(disk: Disk, folder: Path) -> Backup:
    """Return what the backup in `folder` says of itself. Raises as `restore`."""
    note = folder / _NOTE
    if not note.is_file() or _DATABASE not in disk.names(folder):
        raise ConfigError(f"{folder} holds no backup, or one that was cut short")
    try:
        found = _BACKUP.decode(read_file(disk, note))
    except msgspec.MsgspecError as error:
        raise CorruptionError(f"{note}: damaged: {error}", file=str(note)) from error
    refuse_later(note, found.format, _FORMAT, FROM_A_COPY)
    return found


def _fetch(address: str, receiver: FileReceiver, access: Access) -> None:
    """Write to `receiver` what the NameNode gives. Raises as `take_backup`."""
    try:
        with closing(HTTPConnection(*split_address(address))) as connection:
            connection.sock = dial(address, _SILENCE_S, access.tls)
            to = dialled(*split_address(address), connection.sock.getpeername())
            hidden = is_hidden(connection.sock)
            asking = access.introduction(BACKUP_PATH, to, hidden=hidden)
            proof = asking.proof_header(BACKUP_PATH[1:], wall_clock_ms() / 1000)
            connection.request("GET", BACKUP_PATH, headers=asking.headers | proof)
            with connection.getresponse() as answer:  # it keeps the socket open, too
                for piece in _body(address, answer, asking):
                    receiver.write(piece)
    except PaxosBlockError:
        raise
    except (OSError, HTTPException) as error:
        words = str(error) or type(error).__name__
        raise UnavailableError(f"{address} gives no whole backup: {words}; try again") from error


def _body(address: str, answer: HTTPResponse, asking: Introduction) -> Iterator[bytes]:
    """Yield what the NameNode gives, once it has proven itself. Raises as `take_backup`."""
    if answer.status == AccessDeniedError.http_status:
        raise decode_error(answer.read(MAX_HANDSHAKE_BYTES))
    if answer.status != 200:
        words = " ".join(answer.read(1000).decode(errors="replace").split())
        raise UnavailableError(f"{address} gives no backup: {words} ({answer.status})")
    # A catalog that a stranger made would be brought back one day.
    asking.proof(address, {name.lower(): value for name, value in answer.getheaders()})
    left = answer.length or 0
    while piece := answer.read(_PIECE_BYTES):
        left -= len(piece)
        yield piece
    if left:
        raise UnavailableError(f"{address} gives no whole backup: {left} bytes are missing")
