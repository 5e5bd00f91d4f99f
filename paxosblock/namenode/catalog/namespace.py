"""Changing the namespace. Each function decides one operation on a `Draft`; nothing is awaited.

What it reads with the draft (every entry on the way to a path) is a precondition of the commit, so
an operation takes effect exactly as decided or is decided again. No name changes while an operator
wants safe mode, which lasts until an operator ends it, under any leader.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from paxosblock.api import transaction
from paxosblock.api.care import SetReplication
from paxosblock.api.namenode import (
    NO_BLOCK,
    NO_FILE,
    CreateFile,
    DeletePath,
    Deletion,
    FileStatus,
    MakeDirectories,
    RenamePath,
)
from paxosblock.api.snapshot_calls import SNAPSHOT_DIRECTORY
from paxosblock.base import paths
from paxosblock.base.acl_entries import Acl
from paxosblock.base.modes import OF_DIRECTORIES, OF_FILES
from paxosblock.errors import (
    DirectoryNotEmptyError,
    InvalidRequestError,
    PermissionDeniedError,
    SafeModeError,
)
from paxosblock.namenode.catalog import acls, keys, permissions, quotas, snapshots, tree, zones
from paxosblock.namenode.catalog.acls import Bits
from paxosblock.namenode.catalog.boundaries import Boundaries
from paxosblock.namenode.catalog.draft import Draft, Slices
from paxosblock.namenode.catalog.permissions import ITSELF, Action, Actor
from paxosblock.namenode.catalog.records import (
    ROOT_ID,
    DirectoryInode,
    FileInode,
    Inode,
    asked_for,
    encode,
    inode_in,
)
from paxosblock.protocol.types import BlockId

DIRECTORY_PERMISSION = 0o755
_OF_WAY: Final = 0o300
"""The maker of a directory that is made on the way to another one must be able to make that."""
HIDDEN: Final = paths.STAGING.removeprefix(paths.ROOT)
"""The name in the root of the directory in which every user makes names of their own."""
PERMISSION_OF_HIDDEN: Final = stat.S_ISVTX | 0o777
CHECKED_TOGETHER: Final = 500
"""Entries of a directory that a deletion checks before it may be interrupted."""


class Context(msgspec.Struct):
    """All that an operation needs beside the store: new ids, the time, the leases that are live,
    the places where blocks may be cut, and the user for whom it is done.

    `is_held(file)` is True if the writer of an open file still renews its lease.
    """

    numbers: Iterator[int]
    now_ms: int
    is_held: Callable[[FileInode], bool]
    boundaries: Boundaries
    actor: Actor = ITSELF


def enter_safe_mode(draft: Draft, now_ms: int) -> None:
    """Refuse every change of names from now on: each expects the key of safe mode to be absent."""
    if not draft.get(keys.SAFE_MODE).exists:
        draft.put(keys.SAFE_MODE, keys.pack_number(now_ms))


def leave_safe_mode(draft: Draft) -> None:
    """Accept changes of names again."""
    if draft.get(keys.SAFE_MODE).exists:
        draft.delete(keys.SAFE_MODE)


def in_safe_mode(draft: Draft) -> bool:
    """True if an operator entered safe mode; the answer is a precondition, whichever it is."""
    return draft.get(keys.SAFE_MODE).exists


def check_names_may_change(draft: Draft) -> None:
    """Demand that names may be changed, now and when the edit is applied.

    Raises:
        SafeModeError: an operator entered safe mode.
    """
    if in_safe_mode(draft):
        raise SafeModeError(
            "the cluster is in safe mode, which an operator entered: names are not changed until "
            "`paxosblock admin safemode leave`"
        )


def make_directories(draft: Draft, request: MakeDirectories, context: Context) -> FileStatus:
    """`mkdir`: one edit makes all missing directories.

    Raises:
        ExistsError: a file is there; or anything is, and `parents` is not set.
        NotFoundError: the parent is missing and `parents` is not set.
        NotDirectoryError: the path goes through a file.
        InvalidRequestError: a time to live for the root.
        PermissionDeniedError: the actor may not write into the last directory that is there; or the
            time to live is not theirs to set.
    """
    names = paths.split(request.path)
    found = target, depth = tree.descend(draft, names, context.actor)
    if depth == len(names):
        return _find_made(draft, target, request, context)
    if not request.parents:
        tree.find_directory(draft, names[:-1], context.actor)
    made = _make_missing(draft, names, found, context, request)
    if request.ttl_s is not None:
        made = live_until(draft, made, _end_ms(request.ttl_s, context))
    return tree.directory_status(request.path, made, made.created_ms)


def _find_made(
    draft: Draft, target: tree.Target, request: MakeDirectories, context: Context
) -> FileStatus:
    """`mkdir` of a directory that exists: only its time to live may change."""
    if not target.is_directory or not request.parents:
        raise tree.exists(request.path)
    if request.ttl_s is None:
        return tree.status(draft, request.path, _make_explicit(draft, target.number))
    if target.number == ROOT_ID:
        raise InvalidRequestError("'/': the root has no time to live", path="/")
    inode = tree.load(draft.get(keys.inode(target.number)), request.path)
    assert isinstance(inode, DirectoryInode), "an entry holds the kind of what it names"
    names = paths.split(request.path)
    permissions.check_owner(inode, names, context.actor)
    permissions.check_entry(draft, inode, names, context.actor)  # it deletes the directory one day
    inode = live_until(draft, inode, _end_ms(request.ttl_s, context))
    return tree.status(draft, request.path, inode)


def _make_explicit(draft: Draft, number: int) -> Inode:
    """Keep a directory that was made on the way to something else, as its user asks for it now;
    return it."""
    inode = _directory(draft, number)
    if (kept := asked_for(inode)) is not inode:
        draft.put_inode(kept)
    return kept


def _end_ms(ttl_s: float, context: Context) -> int:
    return context.now_ms + round(ttl_s * 1000)


def live_until(draft: Draft, inode: DirectoryInode, expires_ms: int) -> DirectoryInode:
    """Let a directory end at `expires_ms`, or never (0); return it as it is then."""
    draft.move_deadline(keys.inode(inode.number), inode.expires_ms, expires_ms)
    changed = msgspec.structs.replace(inode, expires_ms=expires_ms, implicit=False)
    draft.put_inode(changed)
    return changed


def create(
    draft: Draft, request: CreateFile, context: Context, reserved: BlockId = NO_BLOCK
) -> FileInode:
    """Make an empty file for `request.writer`; the caller starts its lease, and makes the block
    `reserved` ahead for a file that names it then.

    A repeated request finds the file that the first one made and returns it.

    Raises:
        IsDirectoryError: a directory is there.
        ExistsError: a file is there and `overwrite` is not set, or it is the writer's own and has
            changed since the first request made it.
        LeaseError: a file is there that another writer is writing.
        NotFoundError: the parent is missing and `parent_must_exist`.
        NotDirectoryError: the path goes through a file.
        PermissionDeniedError: the actor may not write into the last directory that is there, or not
            replace the file.
    """
    names = paths.split(request.path)
    if not names:
        raise tree.is_directory(request.path)
    if request.parent_must_exist:
        directory = tree.find_directory(draft, names[:-1], context.actor)
        permissions.check_new_entry(draft, directory, names[:-1], context.actor)
    else:
        directory = _parent_directory(draft, names[:-1], request, context)
    if (present := tree.child(draft, directory, names[-1])) is not None:
        if present.is_directory:
            raise tree.is_directory(request.path)
        before = _file(draft, present.number, request.path)
        if before.open and before.writer == request.writer and _has_no_block(draft, before):
            return before
        # A late copy of the request must not replace what the file has received since.
        if before.writer == request.writer or not request.overwrite:
            raise tree.exists(request.path)
        permissions.check(before, Action.WRITE, names, context.actor)
        permissions.check_entry(draft, before, names, context.actor)
        _replace_file(draft, before, request.path, context)
    inode = _new_file(draft, (directory, names[-1]), request, context, reserved)
    link(draft, inode, context)
    draft.put(keys.open_file(inode.number), b"")
    return inode


def rename(draft: Draft, request: RenamePath, context: Context) -> FileStatus:
    """Move a file or directory, in one step whatever hangs below it.

    A directory's time to live does not go with it.

    Raises:
        InvalidRequestError: a path is the root, or the destination is below the source.
        NotFoundError: the source or the destination's parent is missing.
        ExistsError: the destination is there (a file may be replaced with `overwrite`).
        IsDirectoryError, NotDirectoryError: `overwrite`, and only one of the two is a directory.
        LeaseError: another writer is writing the file that would be replaced.
        PermissionDeniedError: the actor may not write into one of the two directories, or not take
            the source or what is replaced out of it.
    """
    moved = move(draft, request, context)
    return tree.status(draft, request.destination, moved)


def move(draft: Draft, request: RenamePath | transaction.Rename, context: Context) -> Inode:
    """Decide a rename and return what is at the destination now; errors like `rename`."""
    source, destination = paths.split(request.source), paths.split(request.destination)
    if not source or not destination:
        raise InvalidRequestError("'/': the root can be neither moved nor replaced", path="/")
    inode, actor = tree.find_inode(draft, request.source, context.actor), context.actor
    permissions.check_entry(draft, inode, source, actor)
    if source == destination:
        return inode
    if destination[: len(source)] == source:
        raise InvalidRequestError(
            f"{paths.shown(request.source)}: cannot be moved below itself "
            f"to {paths.shown(request.destination)}",
            path=request.source,
        )
    directory = tree.find_directory(draft, destination[:-1], actor)
    permissions.check_new_entry(draft, directory, destination[:-1], actor)
    # Another name in the same directory is in no other zone; files in /.staging are of one already.
    if directory != inode.parent and ((zone := _directory(draft, directory).zone) or inode.zone):
        zones.check_goes(draft, inode, request.source, zone)
    _make_way(draft, inode, directory, request, context)
    unlink(draft, inode, context, stays=True)
    if isinstance(inode, DirectoryInode) and inode.expires_ms:
        # It has a time to live in case its maker never comes back, but a rename shows that its
        # maker is back.
        inode = live_until(draft, inode, 0)
    moved = asked_for(msgspec.structs.replace(inode, parent=directory, name=destination[-1]))
    if isinstance(request, transaction.Rename) and request.as_new and isinstance(moved, FileInode):
        permissions.check_owner(inode, source, actor)
        moved = _as_new(draft, moved)
    if draft.has_counters:
        moved = quotas.moved(draft, inode, moved)
    link(draft, moved, context, new=False)
    return moved


def _as_new(draft: Draft, file: FileInode) -> FileInode:
    """Return a file as if it had been made in the directory that it is in now."""
    above = _directory(draft, file.parent)
    own = acls.changed(file, transaction.AclChange.REMOVE, ()).permission
    permission, acl = acls.inherited(above, Bits(own, OF_FILES), directory=False)
    return msgspec.structs.replace(file, group=above.group, permission=permission, acl=acl)


def delete(draft: Draft, request: DeletePath, context: Context) -> Slices[Deletion]:
    """Unlink a file or directory at once; what is below it is swept later (`garbage.py`).

    Raises:
        InvalidRequestError: the path is the root, or the directory, or one below it, has snapshots.
        DirectoryNotEmptyError: the directory has entries and `recursive` is not set.
        PermissionDeniedError: the actor may not take it out of its directory, or not do everything
            with a directory below it that has entries.
    """
    names = paths.split(request.path)
    if not names:
        raise InvalidRequestError("'/': the root cannot be deleted", path="/")
    target, depth = tree.descend(draft, names, context.actor)
    if depth < len(names) or request.file_id not in (NO_FILE, target.number):
        return Deletion(existed=False)
    inode = tree.load(draft.get(keys.inode(target.number)), request.path)
    permissions.check_entry(draft, inode, names, context.actor)
    if isinstance(inode, DirectoryInode) and request.recursive and not context.actor.superuser:
        yield from _check_below(draft, inode, names, context.actor)
    snapshots.check_may_go(draft, inode, request.path)
    try:
        unlink(draft, inode, context)
    except quotas.UncountedError:
        if request.recursive:
            raise
        raise _not_empty(request.path) from None
    if discard(draft, inode) and target.is_directory and not request.recursive:
        raise _not_empty(request.path)
    return Deletion(existed=True)


def _not_empty(path: str) -> DirectoryNotEmptyError:
    return DirectoryNotEmptyError(f"{paths.shown(path)}: directory is not empty", path=path)


def is_let_go(draft: Draft, path: str, context: Context) -> bool:
    """True for a directory with something in it, which is implicit from now on: it goes when what
    is in it is gone (`prune`).

    Raises:
        InvalidRequestError: the directory, or one below it, has snapshots.
        PermissionDeniedError: the actor may not take it out of its directory.
    """
    names = paths.split(path)
    target, depth = tree.descend(draft, names, context.actor)
    if not names or depth < len(names) or not _has_entries(draft, target.number):
        return False
    inode = _directory(draft, target.number)
    permissions.check_entry(draft, inode, names, context.actor)
    snapshots.check_may_go(draft, inode, path)
    assert isinstance(inode, DirectoryInode), "something is in it"
    if not inode.implicit:
        draft.put_inode(msgspec.structs.replace(inode, implicit=True))
    return True


def _has_entries(draft: Draft, directory: int) -> bool:
    """True if something is in a directory, as it must still be when the change is applied."""
    kept = next(draft.scan(*keys.entries(directory), 1), None)
    if kept is not None:
        draft.get(kept[0])
    return kept is not None


def prune(draft: Draft, path: str, context: Context) -> None:
    """Delete each directory above `path`, from below, that is implicit and empty, as far as the
    actor may take it out of the one above it.

    Two that delete the last two names of a directory at once: one of them sees it empty, as what
    keeps a directory is a precondition, too.
    """
    names = paths.split(path)[:-1]
    while names:
        inode = tree.find_inode(draft, paths.join(names), context.actor)
        assert isinstance(inode, DirectoryInode), "something was below it"
        if _has_entries(draft, inode.number) or not inode.implicit:
            return
        try:
            permissions.check_entry(draft, inode, names, context.actor)
        except PermissionDeniedError:
            return
        unlink(draft, inode, context)
        left = discard(draft, inode)
        assert not left, "nothing is in it"
        names = names[:-1]


def _check_below(
    draft: Draft, top: DirectoryInode, names: tuple[str, ...], actor: Actor
) -> Slices[None]:
    """Demand everything on each directory from `top` down that has entries, and, where its bit says
    so, that they are the actor's.

    What each holds decides, and is a precondition by the time at which that changed: an empty one
    of another user may go, and it may have got an entry since.
    """
    left = [(top, names)]
    while left:
        directory, above = left.pop()
        draft.get(keys.touched(directory.number))
        after: str | None = ""
        while after is not None:
            page = list(draft.scan(*keys.entries(directory.number, after), CHECKED_TOGETHER))
            if page and not after:
                permissions.check(directory, Action.ALL, above, actor)
            draft.work += len(page)
            for key, found in page:
                name = keys.name_in(key)
                if tree.names_file(found.value) and not directory.permission & stat.S_ISVTX:
                    continue
                inode = inode_in(draft.get(keys.inode(tree.unpack_target(found.value).number)))
                permissions.check_sticky(directory, inode, (*above, name), actor)
                if isinstance(inode, DirectoryInode):
                    left.append((inode, (*above, name)))
            after = keys.name_in(page[-1][0]) if len(page) == CHECKED_TOGETHER else None
            yield


def set_replication(draft: Draft, request: SetReplication, context: Context) -> FileStatus:
    """Let a file, even one that is being written, ask for another number of replicas.

    Its finalized blocks get or lose members afterwards; an open block keeps its members.

    Raises:
        NotFoundError, IsDirectoryError: there is no file at the path.
        PermissionDeniedError: the actor may not write the file.
    """
    inode = tree.find_inode(draft, request.path, context.actor, Action.WRITE)
    if not isinstance(inode, FileInode):
        raise tree.is_directory(request.path)
    if inode.replication != request.replication:
        before = quotas.charged(draft, inode)
        inode = msgspec.structs.replace(inode, replication=request.replication)
        draft.put_inode(inode)
        quotas.resized(draft, before, inode)
    return tree.status(draft, request.path, inode)


def ensure_directory(
    draft: Draft, request: MakeDirectories, context: Context, *, implicit: bool
) -> None:
    """Make a directory and those above it that are missing; one that is there is fine.

    Raises:
        ExistsError: a file is there.
        NotDirectoryError: the path goes through a file.
        PermissionDeniedError: as `make_directories`.
    """
    names = paths.split(request.path)
    found = target, depth = tree.descend(draft, names, context.actor)
    if depth < len(names):
        _make_missing(draft, names, found, context, request, implicit=implicit)
    elif not target.is_directory:
        raise tree.exists(request.path)
    elif not implicit:
        _make_explicit(draft, target.number)


def put_closed_file(draft: Draft, request: CreateFile, context: Context) -> None:
    """Make an empty closed file; it replaces a closed file.

    Raises:
        IsDirectoryError: a directory is there.
        LeaseError: a file is there that is being written.
        NotDirectoryError: the path goes through a file.
        PermissionDeniedError: as `create`.
    """
    names = paths.split(request.path)
    if not names:
        raise tree.is_directory(request.path)
    directory = _parent_directory(draft, names[:-1], request, context)
    if tree.child(draft, directory, names[-1]) is not None:
        before = tree.find_closed(draft, request.path, context.actor, Action.WRITE)
        permissions.check_entry(draft, before, names, context.actor)
        _replace(draft, before)
    made = _new_file(draft, (directory, names[-1]), request, context)
    link(draft, msgspec.structs.replace(made, open=False), context)


def discard(draft: Draft, inode: Inode) -> bool:
    """Remove an inode that no entry names; True if what is below it is left to the sweep."""
    key = keys.inode(inode.number)
    delete_inode(draft, inode)
    if isinstance(inode, DirectoryInode):
        draft.move_deadline(key, inode.expires_ms, 0)
        left = _discard_touched(draft, inode.number)
    else:
        if inode.open:
            draft.delete(keys.open_file(inode.number))
        left = inode.reserved != NO_BLOCK or not _is_empty(draft, keys.places(inode.number))
    if left:
        draft.put(keys.garbage(inode.number), encode(inode))
    return left


def delete_inode(draft: Draft, inode: Inode) -> None:
    """Remove the record of an inode that was just read, its attributes and its counters."""
    draft.delete(keys.inode(inode.number))
    if draft.has_counters and isinstance(inode, DirectoryInode):
        quotas.forget(draft, inode)
    if inode.attributes:
        for key, _ in list(draft.scan(*keys.attributes(inode.number))):
            draft.delete(key)


def _discard_touched(draft: Draft, directory: int) -> bool:
    """Remove the time at which entries of a directory changed; True if it has any entries."""
    touched = keys.touched(directory)
    if not draft.peek(touched).exists:
        return draft.get(touched).exists  # it must still not be there: it comes with an entry
    draft.delete(touched)
    return not _is_empty(draft, keys.entries(directory))


def _is_empty(draft: Draft, span: keys.Range) -> bool:
    """True if no key is in the range, as it must still be when the change is applied."""
    if next(draft.scan(*span, 1), None) is not None:
        return False
    draft.expect_empty(span)
    return True


def _bits(request: MakeDirectories | CreateFile) -> Bits:
    """Return the bits of what is asked for."""
    given = request.unmasked
    return Bits(request.permission, request.permission if given is None else given.permission)


def _bits_of_way(request: MakeDirectories | CreateFile) -> Bits:
    """Return those of directories that are made on the way to it."""
    given = request.unmasked
    if given is None:
        return Bits(DIRECTORY_PERMISSION, DIRECTORY_PERMISSION)
    of_file = isinstance(request, CreateFile)
    wanted = OF_DIRECTORIES if of_file else given.permission & OF_DIRECTORIES | _OF_WAY
    return Bits(wanted & ~given.umask | _OF_WAY, wanted)


def _parent_directory(
    draft: Draft, names: tuple[str, ...], request: CreateFile, context: Context
) -> int:
    """Make the missing directories on the way; return the id of the last one, into which the actor
    may write."""
    found = target, depth = tree.descend(draft, names, context.actor)
    if not target.is_directory:
        raise tree.not_directory(paths.join(names))
    if depth == len(names):
        permissions.check_new_entry(draft, target.number, names, context.actor)
        return target.number
    return _make_missing(draft, names, found, context, request, implicit=True).number


def _make_missing(
    draft: Draft,
    names: tuple[str, ...],
    found: tuple[tree.Target, int],
    context: Context,
    request: MakeDirectories | CreateFile,
    *,
    implicit: bool = False,
) -> DirectoryInode:
    """Make the directories that `tree.descend` has `found` missing; return the last one.

    The group is that of the directory above, as in HDFS. Each user may make names in `HIDDEN`,
    which is made for all of them.
    """
    target, depth = found
    above, made = permissions.directory_in(draft.get(keys.inode(target.number))), None
    hidden = names[0] == HIDDEN and not depth
    if not (hidden or context.actor.superuser):
        permissions.check(above, Action.WRITE, names[:depth], context.actor)
    owner = _owner_of_new(request.owner, context.actor)
    last = len(names) if isinstance(request, MakeDirectories) else 0
    for place, name in enumerate(names[depth:], depth + 1):
        mode = request.permission if place == last else _bits_of_way(request).masked
        of_all = hidden and place == 1
        acl: Acl | UnsetType = UNSET
        if of_all:
            mode = PERMISSION_OF_HIDDEN
        elif above.acl is not UNSET:
            bits = _bits(request) if place == last else _bits_of_way(request)
            mode, acl = acls.inherited(above, bits, directory=True)
        above = made = DirectoryInode(
            number=next(context.numbers),
            parent=above.number,
            name=name,
            created_ms=context.now_ms,
            owner=above.owner if of_all else owner,
            group=above.group,
            permission=mode,
            acl=acl,
            implicit=implicit and not of_all,
            zone=above.zone,
        )
        link(draft, made, context)
    assert made is not None, "at least the last directory is missing"
    return made


def _owner_of_new(wanted: str, actor: Actor) -> str:
    """Return the owner of what an actor makes; only a superuser gives it to another one."""
    return wanted if wanted and actor.superuser else actor.user


def _directory(draft: Draft, number: int) -> Inode:
    """Return a directory, from which new inodes in it take their group and default entries."""
    return permissions.directory_in(draft.get(keys.inode(number)))


def _new_file(
    draft: Draft,
    place: tuple[int, str],
    request: CreateFile,
    context: Context,
    reserved: BlockId = NO_BLOCK,
) -> FileInode:
    """Return the inode of a new file; its `place` is a directory and a name."""
    directory, name = place
    above = _directory(draft, directory)
    permission: int = request.permission
    acl: Acl | UnsetType = UNSET
    if above.acl is not UNSET:
        permission, acl = acls.inherited(above, _bits(request), directory=False)
    zone = above.zone
    if request.zone_of != request.path:
        zone = zones.of_new(draft, request, above, context.actor)
    return FileInode(
        number=next(context.numbers),
        parent=directory,
        name=name,
        created_ms=context.now_ms,
        modified_ms=context.now_ms,
        owner=_owner_of_new(request.owner, context.actor),
        group=above.group,
        permission=permission,
        replication=request.replication,
        block_size=request.block_size,
        durability=request.durability,
        writer=request.writer,
        reserved=reserved,
        acl=acl,
        zone=zone,
    )


def link(draft: Draft, inode: Inode, context: Context, *, new: bool = True) -> None:
    """Write an inode, and the entry that names it; `new`: it has to be counted for quotas.

    Raises:
        InvalidRequestError: no name may be made like this.
        UncountedError: a quota needs to know what is below it.
    """
    if inode.name == SNAPSHOT_DIRECTORY:
        raise InvalidRequestError(f'"{inode.name}" is a reserved name.')
    if draft.has_counters and new:
        quotas.entered(draft, inode)
    draft.put_inode(inode)
    draft.put(keys.entry(inode.parent, inode.name), tree.pack_target(inode))
    _touch(draft, inode.parent, context)


def unlink(draft: Draft, inode: Inode, context: Context, *, stays: bool = False) -> None:
    """Take away the entry that names `inode`, which is about to be removed, or `stays`.

    Raises:
        UncountedError: a quota needs to know what is below it.
    """
    if draft.has_counters and not stays:
        quotas.left(draft, inode)
    draft.delete(keys.entry(inode.parent, inode.name))
    _touch(draft, inode.parent, context)


def _touch(draft: Draft, directory: int, context: Context) -> None:
    # Not a precondition of anything, so that creates in one directory do not conflict.
    draft.put(keys.touched(directory), keys.pack_number(context.now_ms))


def _file(draft: Draft, number: int, path: str) -> FileInode:
    inode = tree.load(draft.get(keys.inode(number)), path)
    if not isinstance(inode, FileInode):
        raise tree.is_directory(path)
    return inode


def _has_no_block(draft: Draft, inode: FileInode) -> bool:
    return next(draft.scan(*keys.places(inode.number), 1), None) is None


def _make_way(
    draft: Draft,
    inode: Inode,
    directory: int,
    request: RenamePath | transaction.Rename,
    context: Context,
) -> None:
    """Clear the destination of a rename, or raise the error that keeps it."""
    name = paths.split(request.destination)[-1]
    present = tree.child(draft, directory, name)
    if present is None:
        return
    if not request.overwrite:
        raise tree.exists(request.destination)
    if present.is_directory:
        raise tree.is_directory(request.destination)
    if isinstance(inode, DirectoryInode):
        raise tree.not_directory(request.destination)
    before = _file(draft, present.number, request.destination)
    names = paths.split(request.destination)
    permissions.check_entry(draft, before, names, context.actor)
    _replace_file(draft, before, request.destination, context)


def _replace_file(draft: Draft, before: FileInode, path: str, context: Context) -> None:
    """Discard a file whose name another one takes."""
    if before.open and context.is_held(before):
        raise tree.being_written(path, before)
    _replace(draft, before)


def _replace(draft: Draft, before: FileInode) -> None:
    if draft.has_counters:
        quotas.left(draft, before)
    discard(draft, before)


def root(now_ms: int, owner: str = "", group: str = "") -> DirectoryInode:
    """Return the root directory of a new cluster."""
    return DirectoryInode(ROOT_ID, ROOT_ID, "", now_ms, owner, group, DIRECTORY_PERMISSION)
