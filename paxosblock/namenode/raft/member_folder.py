"""The folder of one member: its lock, vote and table, and the log after that. All calls block.

folder/lock                     locked while a process has the folder open
folder/members                  its format, and the names of all members with which it began, one
                                in each line; none of a cluster's only one, which may move to
                                another address. An operator who changes the list by hand removes
                                it: then `since=` says which entry the list counts after
folder/removed                  of a member that was removed from the list: it starts no more
folder/newborn                  of a folder that is on its way into a cluster (folder_admission.py)
folder/lineage                  the name that the folders of the cluster share (folder_admission.py)
folder/joined                   in a cluster that grew: whom this one let in, or heard of (seed.py)
folder/vote                     term and vote (vote_file.py)
folder/spare                    room for the next votes on a full disk (vote_file.py)
folder/db                       the map, as the last flush left it (kv/rocks_table.py)
folder/journal-<position>       records of the log from that position on (log.py)

`check_member` checks that a folder may take part in the cluster before anything in it is opened. A
member whose folder was emptied has forgotten its votes and what it confirmed. A member with another
list of members would count another majority, which need not overlap with that of the old list. Both
would otherwise look like any member.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paxosblock.base.formats import FROM_A_COPY, refuse_later
from paxosblock.base.units import MIB
from paxosblock.errors import (
    ConfigError,
    CorruptionError,
    NoSpaceError,
    PaxosBlockError,
    StorageError,
)
from paxosblock.host.disk import Disk, FileHandle, OsDisk, read_file
from paxosblock.journal.record_log import MARK_NAME
from paxosblock.namenode.kv.files import publish, remove_drafts
from paxosblock.namenode.kv.journal import Journal, check_formats
from paxosblock.namenode.kv.rocks_table import ROCKS, databases
from paxosblock.namenode.kv.table import Receiver, Table, Tables
from paxosblock.namenode.raft import vote_file
from paxosblock.namenode.raft.folder_admission import LOST, NOBODYS, Lineage, Newborn
from paxosblock.namenode.raft.log import Tail, has_journal, load_tail
from paxosblock.namenode.raft.machine import ReplicatedMachine
from paxosblock.namenode.raft.roster import ListEntry, Roster, address_of
from paxosblock.namenode.raft.vote_file import ElectionVote, VoteFile

MEMBER: Final = "raft"
"""The folder of a member inside a NameNode's own."""
WHEN_DAMAGED = "replace the folder as `paxosblock help operations` says, never by an older copy"
WHEN_ALONE = "restore the folder from a copy, or a backup"
LINEAGE: Final = "lineage"
NEWBORN: Final = "newborn"
OWNER: Final = "owner"
_BORN = "born"
"""The second line of the lineage of a cluster whose members all began empty."""
REMOVED: Final = "removed"
_MEMBERS = "members"
_FORMAT = "format="
_SINCE = "since="
_UNKNOWN = "?"
_KNOWN_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes that files may reach, in bytes; `trailing_entries` of at most `trailing_bytes` stay in
    memory after a flush, so that a member that is a little behind needs no copy of the map.

    A flush is due when the log has grown by `flush_bytes` since the last one, in this process and
    earlier ones.
    """

    segment_bytes: int = 16 * MIB
    flush_bytes: int = 64 * MIB
    trailing_entries: int = 10_000
    trailing_bytes: int = 32 * MIB


@dataclass(frozen=True, slots=True)
class OpenedFolder:
    """An open folder and what it held. The methods block."""

    disk: Disk
    folder: Path
    lock: FileHandle
    votes: VoteFile
    machine: ReplicatedMachine
    tail: Tail
    journal: Journal
    tables: Tables

    def receive(self) -> Receiver:
        """Begin to take the map of another member; a draft that was begun before is dropped."""
        return self.tables.receive(self.disk, self.folder)

    def close(self) -> None:
        """Close the files and release the folder. If the durable map has all that is in the log,
        the records of the log are removed, so that the next start need not read them."""
        flushed, tail, journal = self.machine.close(), self.tail, self.journal
        is_all = 0 < flushed == tail.last_index and tail.last_position == journal.next_index - 1
        if is_all and journal.log.guard.failure is None:
            # A record that stays is in the way of nothing.
            with suppress(NoSpaceError, StorageError):
                journal.remove_all()
        self.journal.close()
        self.disk.close(self.lock)


@contextmanager
def opening(disk: Disk, folder: Path, when_damaged: str) -> Iterator[FileHandle]:
    """Lock the folder, which is created if need be; release it again only if the body fails.

    A report of damage ends with `when_damaged`, which tells the operator what to do.

    Raises:
        ConfigError: the folder is in use.
    """
    disk.make_folder(folder)
    lock = disk.lock(folder / "lock")
    try:
        yield lock
    except BaseException as error:
        disk.close(lock)
        if isinstance(error, CorruptionError):
            raise error.reworded(f"{error}; {when_damaged}") from error
        raise


def open_folder(
    disk: Disk, folder: Path, segment_bytes: int, tables: Tables = ROCKS, *, alone: bool = False
) -> OpenedFolder:
    """Lock and load the folder of a member, or create it.

    If it is the member of a group of one, `alone`, all entries of its log are committed, since no
    other can be elected: they are applied before this returns, and kept on the disk only.

    Raises:
        ConfigError: the folder is in use, or of another version; or that of one of several, and is
            opened `alone`.
        CorruptionError: a file is damaged where it had been durable.
        StorageError: the disk refuses.
    """
    with opening(disk, folder, WHEN_ALONE if alone else WHEN_DAMAGED) as lock:
        if alone and (others := known_members(disk, folder)):
            raise ConfigError(f"{folder} is that of one of {','.join(others)}")
        opened = _load(disk, folder, lock, segment_bytes, tables)
        if alone:
            try:
                _apply_all(folder, opened)
            except BaseException:
                opened.journal.close()
                opened.machine.close()
                raise
        return opened


def _apply_all(folder: Path, opened: OpenedFolder) -> None:
    """Apply the log, and drop its entries from memory."""
    machine, tail = opened.machine, opened.tail
    for index, entry in enumerate(tail.entries, tail.base_index + 1):
        try:
            machine.apply_whole(index, entry)
        except CorruptionError as error:
            raise CorruptionError(f"{folder}: entry {index}: {error}") from error
    tail.drop_through(tail.last_index)
    tail.base_position = opened.journal.next_index - 1


def _load(
    disk: Disk, folder: Path, lock: FileHandle, segment_bytes: int, tables: Tables
) -> OpenedFolder:
    votes = VoteFile(disk, folder)
    _check_journal(disk, folder, votes)
    check_formats(disk, folder)
    machine = ReplicatedMachine(_open_table(disk, folder, votes, tables))
    try:
        # Not earlier: only by now the checks have shown that this program may change the folder.
        remove_drafts(disk, folder)
        votes.spare.give_back()
        tail, journal = load_tail(disk, folder, machine.revision, machine.term, segment_bytes)
        try:
            _check_terms(folder, votes, tail)
            # A crash may have come between a flush and the removal of the records it covers.
            first = tail.positions[0] if tail.positions else journal.next_index
            journal.remove_through(first - 1)
            votes.keep_room()
        except BaseException:
            journal.close()
            raise
    except BaseException:
        machine.close()
        raise
    return OpenedFolder(disk, folder, lock, votes, machine, tail, journal, tables)


def _open_table(disk: Disk, folder: Path, votes: VoteFile, tables: Tables) -> Table:
    """Open the table; on a full disk, in the room that is kept for votes."""
    try:
        return tables.open(disk, folder)
    except NoSpaceError:
        votes.spare.give_back()
        return tables.open(disk, folder)


def _check_journal(disk: Disk, folder: Path, votes: VoteFile) -> None:
    """Raise CorruptionError if the journal is missing: a member that knows a term has one."""
    if votes.vote.term > 0 and not has_journal(disk, folder):
        raise CorruptionError(f"{folder}: the journal is missing, and with it confirmed entries")


def _check_terms(folder: Path, votes: VoteFile, tail: Tail) -> None:
    """Raise CorruptionError if the log knows a later term than the vote, which is written first."""
    last = tail.term_at(tail.last_index) or 0
    if last > votes.vote.term:
        known = f"the log knows term {last}, the vote only {votes.vote.term}"
        raise CorruptionError(f"{folder}: {known}: a vote may be lost")


def check_member(
    folder: Path,
    address: str,
    members: Sequence[str],
    *,
    new_cluster: bool,
    disk: Disk | None = None,
) -> Newborn | None:
    """Return None if the folder is that of the member at `address` of this cluster; what it says of
    its birth if that is under way.

    Only the operator's `new_cluster` begins a birth (birth.py). Without `members` the cluster has
    no other NameNode, and an empty folder begins one. A folder without a list of members takes
    `members`. `disk` has the folder.

    Raises:
        ConfigError: the folder is empty and the cluster of several is not new, or the other way
            round; or it has no lineage, or another list of members, or is a copy of another
            member's; or a later version wrote it.
        StorageError: the folder cannot be read or written.
    """
    disk = disk or OsDisk()
    try:
        if new_cluster:
            disk.make_folder(folder)
        names = _names(disk, folder)
        if REMOVED in names:
            raise ConfigError(
                f"{folder} is that of a NameNode that was removed from the list: if it is to come"
                " back, empty it, and start with --join"
            )
        if vote_file.NAME not in names:
            if not members:
                _begin_alone(disk, folder)
                return None
            return _check_newborn(disk, folder, address, new_cluster=new_cluster)
        if new_cluster:
            raise ConfigError(f"--new-cluster: {folder} holds a member already; start without it")
        if not read_lineage(disk, folder).name:
            raise ConfigError(
                f"{folder} has no lineage, as an earlier version made it: take a backup with that "
                "version, and restore it with this one"
            )
        if members:
            check_owner(disk, folder, address)
        _check_list(disk, folder, members)
    except PaxosBlockError:
        raise
    except OSError as error:
        raise StorageError.of(folder, error) from error
    return None


def check_owner(disk: Disk, folder: Path, address: str) -> None:
    """Write down at the first start whose folder this is. The vote and the entries of a copy would
    count twice.

    Raises:
        ConfigError: it is another member's.
        NoSpaceError, StorageError: the disk refuses.
    """
    if OWNER not in disk.names(folder):
        write_lines(disk, folder / OWNER, [address])
    known = address_of(",".join(read_lines(disk, folder / OWNER)))
    if known != address:
        raise ConfigError(
            f"{folder} is a copy of the folder of {known}, not that of {address}; {LOST}"
        )


def name_in(disk: Disk, folder: Path, address: str) -> str:
    """Return the name of the member at `address` whose folder this is. Raises as `read_lines`."""
    if OWNER not in _names(disk, folder):
        return address
    return ",".join(read_lines(disk, folder / OWNER))


def write_name(disk: Disk, folder: Path, name: str) -> None:
    """Record durably the name of the member whose folder this is."""
    write_lines(disk, folder / OWNER, [name])


def _check_newborn(disk: Disk, folder: Path, address: str, *, new_cluster: bool) -> Newborn:
    """Return what a folder without a vote says of its birth, which begins if the cluster is new."""
    names = _names(disk, folder)
    if _has_entries(names):
        if new_cluster:
            raise ConfigError(f"--new-cluster: {folder} holds a member already; start without it")
    elif new_cluster or NEWBORN in names:
        check_owner(disk, folder, address)
        return begin_newborn(disk, folder)
    raise ConfigError(
        f"{folder} holds no member of the cluster. Start with --new-cluster if the cluster is new, "
        f"with --join if it had a single NameNode and this one comes to it; {LOST}"
    )


def _begin_alone(disk: Disk, folder: Path) -> None:
    """Make an empty folder that of a cluster's only NameNode; durable on return.

    Raises:
        ConfigError: it is not empty, or in use.
        NoSpaceError, StorageError: the disk refuses.
    """
    with opening(disk, folder, WHEN_ALONE) as lock:  # else another process may have begun, too
        names = disk.names(folder)
        if NEWBORN in names:
            raise ConfigError(
                f"{folder} is that of one of several NameNodes: start it with --peers"
            )
        if _has_entries(names):
            raise ConfigError(f"{folder} lacks its vote, so entries may be missing; {WHEN_ALONE}")
        if vote_file.NAME not in names:
            lineage = Lineage(secrets.token_hex(16), born=True)
            make_member(disk, folder, (), lineage, ElectionVote(0, None))
        disk.close(lock)


def _has_entries(names: Sequence[str]) -> bool:
    of_a_member = ("journal-", MARK_NAME)
    return any(name.startswith(of_a_member) for name in names) or bool(databases(names))


def _names(disk: Disk, folder: Path) -> list[str]:
    """Return the names in the folder; none if it is not there."""
    try:
        return disk.names(folder)
    except StorageError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return []
        raise


def begin_newborn(disk: Disk, folder: Path) -> Newborn:
    """Return what the empty folder says of its way into a cluster: a fresh token, unless that way
    had been begun; durable on return."""
    if NEWBORN not in disk.names(folder):
        write_newborn(disk, folder, Newborn(secrets.token_hex(16)))
    return read_newborn(disk, folder)


def read_newborn(disk: Disk, folder: Path) -> Newborn:
    """Return what the folder says of its way into a cluster. Raises as `read_lines`."""
    token, chosen, *_ = [*read_lines(disk, folder / NEWBORN), "", ""]
    return Newborn(token, chosen)


def write_newborn(disk: Disk, folder: Path, newborn: Newborn) -> None:
    """Record a token and choice durably."""
    lines = [newborn.token, *([newborn.chosen] if newborn.chosen else [])]
    write_lines(disk, folder / NEWBORN, lines)


def make_member(
    disk: Disk, folder: Path, members: Sequence[str], lineage: Lineage, vote: ElectionVote
) -> None:
    """Make the folder, whose other files are durable, that of a member; durable on return.

    The vote comes last: a folder without one belongs to no member.
    """
    write_lineage(disk, folder, lineage)
    write_members(disk, folder, members)
    VoteFile(disk, folder).write(vote)
    # After the vote: a crash between would lose the token by which the others know this folder.
    if NEWBORN in disk.names(folder):
        disk.remove(folder / NEWBORN)


def write_lineage(disk: Disk, folder: Path, lineage: Lineage) -> None:
    """Record the lineage durably."""
    write_lines(disk, folder / LINEAGE, [lineage.name, *([_BORN] if lineage.born else [])])


def read_lineage(disk: Disk, folder: Path) -> Lineage:
    """Return the lineage of the folder; `NOBODYS` if it has none.

    Raises:
        ConfigError, CorruptionError, StorageError: the file cannot be read.
    """
    if LINEAGE not in disk.names(folder):
        return NOBODYS
    name, *rest = [*read_lines(disk, folder / LINEAGE), ""]
    return Lineage(name, born=_BORN in rest)


def _check_list(disk: Disk, folder: Path, members: Sequence[str]) -> None:
    """Raise ConfigError if the folder is that of a single NameNode, and this is one of several, or
    the other way round. Of several it is the folder that says which (`first_list`)."""
    if _MEMBERS not in disk.names(folder):
        write_members(disk, folder, members, _UNKNOWN)
    known = read_members(disk, folder)
    if bool(known) == bool(members):
        return
    if not known:
        raise ConfigError(
            f"{folder} is that of a cluster's only NameNode: `paxosblock admin grow` makes it the "
            "first of several"
        )
    raise ConfigError(f"{folder} is that of one of {','.join(known)}: start it with --peers")


def write_members(disk: Disk, folder: Path, members: Sequence[str], since: int | str = 0) -> None:
    """Record the list of members durably; any list of an entry up to `since` does not count."""
    line = [f"{_SINCE}{since}"] if since else []
    write_lines(disk, folder / _MEMBERS, [*sorted(members), *line])


def read_members(disk: Disk, folder: Path) -> list[str]:
    """Return the members with which the folder began, sorted; none of a cluster's only NameNode.
    Raises as `read_lines`."""
    lines = read_lines(disk, folder / _MEMBERS)
    return [line for line in lines if not line.startswith(_SINCE)]


def first_list(opened: OpenedFolder) -> ListEntry | None:
    """Return the list with which an open folder began, and the entry after which it counts; None if
    it has none, or is that of a cluster's only NameNode.

    Raises:
        ConfigError, CorruptionError, StorageError: it cannot be read, or written.
    """
    disk, folder, last = opened.disk, opened.folder, opened.tail.last_index
    members = known_members(disk, folder)
    if not members:
        return None
    line = next((each for each in read_lines(disk, folder / _MEMBERS) if _SINCE in each), "")
    since = line.removeprefix(_SINCE) or "0"
    if since == _UNKNOWN:  # removed by an operator: whatever the log says of lists is older
        write_members(disk, folder, members, last)
        since = str(last)
    return ListEntry(int(since), Roster(tuple(members)))


def known_members(disk: Disk, folder: Path) -> list[str]:
    """Return the same; none, too, if the folder has no list. Raises as `read_lines`."""
    return read_members(disk, folder) if _MEMBERS in disk.names(folder) else []


def write_removed(disk: Disk, folder: Path) -> None:
    """Record durably that the member whose folder this is was removed from the list."""
    write_lines(disk, folder / REMOVED, [])


def write_lines(disk: Disk, file: Path, lines: Sequence[str]) -> None:
    """Replace a text file durably; its first line is the format."""
    with_format = (f"{_FORMAT}{_KNOWN_FORMAT}", *lines)
    publish(disk, file, [f"{line}\n".encode() for line in with_format])


def read_lines(disk: Disk, file: Path) -> list[str]:
    """Return the lines of a text file, behind the one with its format.

    Raises:
        ConfigError: a later version wrote the file.
        CorruptionError: its format is missing, or not a number.
        StorageError: it cannot be read.
    """
    lines = read_file(disk, file).decode(errors="replace").split()
    first = lines[0] if lines else ""
    found = first.removeprefix(_FORMAT)
    if found == first or not found.isdecimal():
        raise CorruptionError(f"{file}: damaged: its first line is {first!r}", file=str(file))
    refuse_later(file, int(found), _KNOWN_FORMAT, FROM_A_COPY)
    return lines[1:]
