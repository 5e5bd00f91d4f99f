"""Quotas: how many names a directory may hold, and how much room the replicas of its files.

A directory with a quota has two counters of what is at and below it, which a change that adds or
removes something there adds to when it is applied (`counter_sums.py`). So two creates in one
directory do not conflict, and no more is made than a quota lets. Where no directory has counters
nothing is read for them.

*Names* are files and directories, the directory itself included. *Room* is what HDFS charges: the
bytes of a file, as often as it has replicas, and for each block that its writer was given since it
was opened a whole one, until the next one, or the close, tells how long it became. So a writer that
was given a block can fill it, and what is charged changes only where the file's inode or its places
do: never with the record of a block.

What hangs below a directory is known only if it has counters. One that has none, and something in
it, gets some before it leaves, or comes to, a directory that counts (`UncountedError`,
`recounting.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import msgspec
from msgspec import UNSET

from paxosblock.api.namenode import NO_BLOCK
from paxosblock.api.quota import NO_QUOTA, CheckedQuota, QuotaUsage, SetQuota
from paxosblock.base import paths
from paxosblock.base.wording import binary_size
from paxosblock.errors import (
    InvalidRequestError,
    NameQuotaError,
    PaxosBlockError,
    SpaceQuotaError,
)
from paxosblock.namenode.catalog import keys, permissions, tree
from paxosblock.namenode.catalog.counter_sums import NO_LIMIT, Amount, Limit
from paxosblock.namenode.catalog.draft import Draft, Reads, inode_of
from paxosblock.namenode.catalog.permissions import Actor
from paxosblock.namenode.catalog.records import (
    ROOT_ID,
    DirectoryInode,
    FileInode,
    Inode,
    Quota,
    asked_for,
    decode_place,
    inode_in,
)
from paxosblock.namenode.kv.interface import counter_total

Total = Callable[[bytes], int]
"""Returns what a counter has."""

ROOT_NAMES_MAX: Final = (1 << 63) - 1
"""The quota of names that the root has in HDFS: none, but it cannot be cleared."""
ROOT_ENTRIES_MAX: Final = 4096
"""Entries of a root that may get a quota: all are written in one step."""
ONE: Final = Amount(1)
NOTHING: Final = Amount()


class UncountedError(Exception):
    """A decision needs to know how much is below a directory that has no counters, or whose
    counters do not have all yet."""

    def __init__(self, directory: int) -> None:
        super().__init__(f"directory {directory}")
        self.directory = directory


class _Content(msgspec.Struct, frozen=True):
    """Names and room of something."""

    names: Amount
    space: Amount


# --- what is charged ------------------------------------------------------------------------------


def space(reads: Reads, file: FileInode) -> int:
    """Return the room that is charged for a file."""
    charged = _open_bytes(reads, file)[0] if file.open else file.length
    return charged * file.replication


def _open_bytes(reads: Reads, file: FileInode) -> tuple[int, int]:
    """Return the bytes that an open file is charged for, and the place after its last block."""
    charged, following = 0, 0
    for key, found in reads.scan(*keys.places(file.number), 1, reverse=True):
        sequence = keys.place_sequence(key)
        following = sequence + 1
        if sequence < file.appended_from:
            charged = file.length
        else:
            charged = decode_place(found.value).offset + file.block_size
    if file.reserved != NO_BLOCK:
        charged += file.block_size
    return charged, following


def space_now(draft: Draft, file: FileInode) -> int:
    """Return the room that is charged for a file, as it must still be when the edit is applied; the
    inode was read for that."""
    if not file.open:
        return space(draft, file)
    charged, following = _open_bytes(draft, file)
    draft.expect_empty(keys.places(file.number, following))
    return charged * file.replication


def charged(draft: Draft, file: FileInode) -> int | None:
    """Return what directories count for a file that is about to be `resized`; None if none does:
    then nothing more is read."""
    counts = draft.has_counters and next(_counting(draft, file.parent), None) is not None
    return space_now(draft, file) if counts else None


def _content(draft: Draft, inode: Inode) -> _Content:
    """Return what an inode counts for, with all that is below it.

    Raises:
        UncountedError: that is not known.
    """
    if isinstance(inode, FileInode):
        return _Content(ONE, Amount(space_now(draft, inode)))
    if inode.quota is not UNSET and inode.quota.counted:
        names, space_key = _counters(inode, inode.quota)
        return _Content(draft.counters.as_amount(names), draft.counters.as_amount(space_key))
    touched = keys.touched(inode.number)  # a directory that never had an entry has none
    if draft.peek(touched).exists:
        span = keys.entries(inode.number)
        if next(draft.scan(*span, 1), None) is not None:
            raise UncountedError(inode.number)
        draft.expect_empty(span)
    else:
        draft.get(touched)
    return _Content(ONE, NOTHING)


# --- changes of the tree --------------------------------------------------------------------------


def entered(draft: Draft, inode: Inode) -> None:
    """Count an inode that gets a name. Raises UncountedError if it brings something unknown."""
    if above := list(_counting(draft, inode.parent)):
        content = _content(draft, inode)
        for directory in above:
            _add(draft, directory, content)


def left(draft: Draft, inode: Inode) -> None:
    """Count an inode, which is not changed yet, no more. Raises as `entered`."""
    if above := list(_counting(draft, inode.parent)):
        content = _negative(_content(draft, inode))
        for directory in above:
            _add(draft, directory, content)


def moved(draft: Draft, before: Inode, after: Inode) -> Inode:
    """Count an inode where it is after a rename; return it as the caller writes it.

    What is above it before and after has the same count, whatever it is; quotas stick with it.
    Raises as `entered`.
    """
    sources = {each.number: each for each in _counting(draft, before.parent)}
    targets = {each.number: each for each in _counting(draft, after.parent)}
    if sources.keys() == targets.keys():
        return after
    content = _content(draft, before)
    for number, directory in targets.items():
        if number not in sources:
            _add(draft, directory, content)
    for number, directory in sources.items():
        if number not in targets:
            _add(draft, directory, _negative(content))
    if isinstance(after, DirectoryInode) and after.quota is not UNSET and not after.quota.limited:
        forget(draft, after)  # they were only there to move it
        after = msgspec.structs.replace(after, quota=UNSET)
    return after


def resized(draft: Draft, before: int | None, file: FileInode, *, free: bool = False) -> None:
    """Count a file, for which `before` was charged, as it is now; `free`: whatever quotas say."""
    if before is not None and (added := space(draft, file) - before):
        content = _Content(NOTHING, Amount(added))
        for directory in _counting(draft, file.parent):
            _add(draft, directory, content, free=free)


def forget(draft: Draft, directory: DirectoryInode) -> None:
    """Remove the counters of a directory; the caller writes or removes its inode."""
    if directory.quota is not UNSET:
        for key in _counters(directory, directory.quota):
            draft.counters.end(key)


# --- counters that begin --------------------------------------------------------------------------


def begin(draft: Draft, number: int, counter: int) -> Quota | None:
    """Let a directory count from now on, by the number `counter`; return its counters, those that
    it had if it did before. None: it is not there.

    A decision of the state before about what is below it has read its entry or its inode, and is
    made again: so each later change is counted. `complete` adds what was there.
    """
    value = draft.get(keys.inode(number))
    inode = inode_in(value) if value.exists else None
    if not isinstance(inode, DirectoryInode):
        return None
    if inode.quota is not UNSET:
        return inode.quota
    quota = Quota(counter)
    draft.has_counters = True
    for key in _counters(inode, quota):
        draft.counters.begin(key)
    draft.put_inode(msgspec.structs.replace(inode, quota=quota))
    if number == ROOT_ID:
        _write_root_again(draft)
    else:
        tree.write_again(draft, keys.entry(inode.parent, inode.name))
    return quota


def _write_root_again(draft: Draft) -> None:
    """Write all entries of the root, with their inodes, as they are: it has no entry of its own,
    but a way leads through one of these, and who makes one has read its inode for the rights that
    it gives.

    Raises:
        InvalidRequestError: there are too many for one step.
    """
    draft.get(keys.touched(ROOT_ID))  # no entry is made meanwhile
    entries = [key for key, _ in draft.scan(*keys.entries(ROOT_ID), ROOT_ENTRIES_MAX + 1)]
    if len(entries) > ROOT_ENTRIES_MAX:
        raise InvalidRequestError(
            f"'/': has more than {ROOT_ENTRIES_MAX} entries, and so can get no quota"
        )
    for key in entries:
        inode = keys.inode(tree.unpack_target(draft.get(key).value).number)
        draft.put(inode, draft.get(inode).value)
        tree.write_again(draft, key)


class Counted(msgspec.Struct, frozen=True):
    """The count of all at and below a directory at one moment, and what its counters had then."""

    quota: Quota
    names: int
    space: int
    names_counter: int
    space_counter: int

    @property
    def is_exact(self) -> bool:
        """True if the counters had what there was."""
        return (self.names, self.space) == (self.names_counter, self.space_counter)

    def checked(self, path: str, *, repaired: bool) -> CheckedQuota:
        """Return it as an operator sees it."""
        quota = self.quota
        usage = QuotaUsage(
            path, quota.names_max, self.names_counter, quota.space_max, self.space_counter
        )
        return CheckedQuota(usage, self.names, self.space, repaired)


def complete(draft: Draft, number: int, counted: Counted) -> None:
    """Add what the counters of a directory lacked at the moment at which all was counted: from then
    on they have it all, whatever was changed meanwhile."""
    value = draft.get(keys.inode(number))
    inode = inode_in(value) if value.exists else None
    if not isinstance(inode, DirectoryInode) or inode.quota != counted.quota:
        return
    lacking = _Content(
        Amount(counted.names - counted.names_counter), Amount(counted.space - counted.space_counter)
    )
    _add(draft, inode, lacking, free=True)
    quota = msgspec.structs.replace(counted.quota, counted=True)
    draft.put_inode(msgspec.structs.replace(inode, quota=quota))


def totals(total: Total, directory: DirectoryInode) -> tuple[int, int]:
    """Return what the counters of a directory have: names and room."""
    assert directory.quota is not UNSET, "it counts"
    names, space_key = _counters(directory, directory.quota)
    return total(names), total(space_key)


# --- limits ---------------------------------------------------------------------------------------


def directory_of(reads: Reads, path: str, actor: Actor) -> DirectoryInode:
    """Return the directory at a path that may have a quota.

    Raises:
        NotFoundError, NotDirectoryError: there is none.
    """
    inode = tree.find_inode(reads, path, actor)
    if not isinstance(inode, DirectoryInode):
        raise tree.not_directory(path)
    return inode


def set_limits(draft: Draft, request: SetQuota, actor: Actor) -> QuotaUsage:
    """Change the limits of a directory; one without any counts no more. What is there may be more
    than a limit: then nothing is added until it is less.

    Raises:
        UncountedError: it has no counters yet.
        InvalidRequestError: it is the root, whose quota of names can be set but not cleared.
        Others: as `directory_of`.
    """
    inode = directory_of(draft, request.path, actor)
    quota = inode.quota
    names, space_max = request.names, request.space
    if inode.number == ROOT_ID and names is not None:
        if names == NO_QUOTA:
            raise InvalidRequestError(
                f"Cannot clear namespace quota on root; {ROOT_NAMES_MAX} is as good as none"
            )
        names = NO_QUOTA if names == ROOT_NAMES_MAX else names
    if quota is UNSET and not _sets(names) and not _sets(space_max):
        return QuotaUsage(request.path)
    if quota is UNSET or not quota.counted:
        raise UncountedError(inode.number)
    after = msgspec.structs.replace(
        quota,
        names_max=quota.names_max if names is None else names,
        space_max=quota.space_max if space_max is None else space_max,
    )
    if after == quota and quota.limited:
        return usage(draft.counters.total, request.path, inode)
    if after.limited:
        kept = asked_for(msgspec.structs.replace(inode, quota=after))
        draft.put_inode(kept)
        return usage(draft.counters.total, request.path, kept)
    forget(draft, inode)
    draft.put_inode(msgspec.structs.replace(inode, quota=UNSET))
    return QuotaUsage(request.path)


def _sets(limit: int | None) -> bool:
    return limit is not None and limit >= 0


def usage(total: Total, path: str, inode: Inode) -> QuotaUsage:
    """Return the limits of a directory, and how much of them is used, by the `total` of each
    counter."""
    if not isinstance(inode, DirectoryInode) or inode.quota is UNSET or not inode.quota.limited:
        return QuotaUsage(path)
    names, used = totals(total, inode)
    return QuotaUsage(path, inode.quota.names_max, names, inode.quota.space_max, used)


def totals_in(reads: Reads) -> Total:
    """Return the function that reads a counter in what is applied."""
    return lambda key: counter_total(reads.get(key))


def counting(reads: Reads) -> Iterator[DirectoryInode]:
    """Yield the directories that count, and are not deleted."""
    last = 0
    for key, _ in reads.scan(*keys.COUNTERS):
        number = keys.number_of(key)
        if number == last:
            continue
        last = number
        inode = inode_of(reads, number)
        if isinstance(inode, DirectoryInode) and inode.quota is not UNSET:
            yield inode


def lacks_space(draft: Draft) -> bool:
    """True if what the draft's last part does takes more room than a quota lets."""
    return draft.sums is not None and any(not each.of_names for each, _ in draft.sums.exceeded())


def check(draft: Draft) -> None:
    """Demand that the draft's last part exceeds no quota.

    Raises:
        NameQuotaError, SpaceQuotaError: it does. The words are HDFS's.
    """
    for limit, total in draft.counters.exceeded():
        raise _exceeded(draft, limit, total)


def _exceeded(draft: Draft, limit: Limit, total: int) -> PaxosBlockError:
    path, most = _path(draft, limit.directory), limit.most
    if limit.of_names:
        return NameQuotaError(
            f"The NameSpace quota (directories and files) of directory {path} is exceeded: "
            f"quota={most} file count={total}",
            path=path,
        )
    return SpaceQuotaError(
        f"The DiskSpace quota of {path} is exceeded: quota = {most} B = {binary_size(most)} "
        f"but diskspace consumed = {total} B = {binary_size(total)}",
        path=path,
    )


def _path(draft: Draft, number: int) -> str:
    names: list[str] = []
    while number != ROOT_ID:
        inode = inode_in(draft.peek(keys.inode(number)))
        names.append(inode.name)
        number = inode.parent
    return paths.join(tuple(reversed(names)))


def _counting(draft: Draft, number: int) -> Iterator[DirectoryInode]:
    """Yield the directories from `number` up that have counters; none if one of them was deleted.

    They are no preconditions: each decision expects the way to what it changes, by its entries or
    its inodes, to stay as it is, and counters begin with a change of both.
    """
    found: list[DirectoryInode] = []
    while True:
        value = draft.peek(keys.inode(number))
        if not value.exists:
            return
        inode = permissions.directory_in(value)
        assert isinstance(inode, DirectoryInode), "only a directory is above something"
        if inode.quota is not UNSET:
            found.append(inode)
        if number == ROOT_ID:
            break
        number = inode.parent
    yield from found


def _add(draft: Draft, directory: DirectoryInode, content: _Content, *, free: bool = False) -> None:
    quota, sums = directory.quota, draft.counters
    assert quota is not UNSET, "it counts"
    names, space_key = _counters(directory, quota)
    number = directory.number
    for key, amount, most in (
        (names, content.names, quota.names_max),
        (space_key, content.space, quota.space_max),
    ):
        if amount.number or amount.of:
            limit = NO_LIMIT if free else most
            sums.add(key, amount, Limit(limit, number, of_names=key == names))


def _negative(content: _Content) -> _Content:
    return _Content(NOTHING.plus(content.names, -1), NOTHING.plus(content.space, -1))


def _counters(directory: DirectoryInode, quota: Quota) -> tuple[bytes, bytes]:
    """Return the keys of the counters of names and of room of a directory."""
    number, counter = directory.number, quota.counter
    return keys.name_counter(number, counter), keys.space_counter(number, counter)
