"""Many operations as one: all on the same `Draft`, which becomes one entry of the log.

Each operation sees what those before it did. If one is refused, all are: a draft that is not
committed changes nothing. The same draft records the last version of an application, so a
transaction that is sent twice, by any client and to any NameNode, is applied once.
"""

from __future__ import annotations

from collections.abc import Callable

from paxosblock.api.namenode import (
    ApplicationVersion,
    CreateFile,
    DeletePath,
    MakeDirectories,
    Transact,
    Unmasked,
)
from paxosblock.api.transaction import (
    BLOCKS_MOVED_MAX,
    RECORDS_MAX,
    AssertAbsent,
    AssertDirectory,
    AssertFile,
    ChangeAcl,
    Concat,
    Delete,
    MakeDirectory,
    Marker,
    Operation,
    Rename,
    SetAttributes,
    SetOwner,
    SetPermission,
    SetTimes,
    TransactionOutcome,
    Truncate,
)
from paxosblock.base import paths
from paxosblock.base.modes import OF_DIRECTORIES, OF_FILES
from paxosblock.errors import (
    InvalidRequestError,
    NotDirectoryError,
    NotFoundError,
    PaxosBlockError,
)
from paxosblock.namenode.catalog import attributes, blocks, keys, namespace, owners, tree
from paxosblock.namenode.catalog.blocks import Closed
from paxosblock.namenode.catalog.concat import concat
from paxosblock.namenode.catalog.draft import Draft, Reads, Slices
from paxosblock.namenode.catalog.namespace import Context
from paxosblock.namenode.catalog.permissions import Actor
from paxosblock.namenode.catalog.records import (
    Application,
    FileInode,
    decode_application,
    encode,
)
from paxosblock.namenode.catalog.truncate import truncate
from paxosblock.protocol.types import NO_WRITER

MARKER_PERMISSION = 0o644


def transact(
    draft: Draft,
    request: Transact,
    context: Context,
    on_closed: Callable[[Closed], None] = lambda _: None,
) -> Slices[TransactionOutcome]:
    """Decide all operations of a request, or find that its version was applied before.

    `on_closed` is called with each file that the request closes.

    Raises:
        SafeModeError: an operator entered safe mode.
        PaxosBlockError: the first operation that cannot be done raises it; its text says which. Or
            a file cannot be closed: as `blocks.close`.
    """
    namespace.check_names_may_change(draft)
    application = request.application
    if application is None:
        yield from _TransactionRun(draft, request, context).all(on_closed)
        return TransactionOutcome(True, 0)
    last = last_applied(draft, application.app_id)
    if last is not None and last.version >= application.version:
        return TransactionOutcome(last.attempt == application.attempt, last.version)
    yield from _TransactionRun(draft, request, context).all(on_closed)
    _note_applied(draft, application, last, context)
    return TransactionOutcome(True, application.version)


def last_applied(reads: Reads, app_id: str) -> Application | None:
    """Return the last transaction applied for an application."""
    found = reads.get(keys.application(app_id))
    return decode_application(found.value) if found.exists else None


def new_inodes(operations: tuple[Operation, ...]) -> int:
    """Return how many files and directories the operations make at most: a Truncate makes one, of
    the blocks that it cuts off."""
    paths_made = (each.path for each in operations if isinstance(each, MakeDirectory | Marker))
    truncates = sum(isinstance(each, Truncate) for each in operations)
    return truncates + sum(path.count(paths.SEPARATOR) for path in paths_made)


def _note_applied(
    draft: Draft, application: ApplicationVersion, last: Application | None, context: Context
) -> None:
    key = keys.application(application.app_id)
    keep_for_s = application.keep_for_s
    expires_ms = 0 if keep_for_s is None else context.now_ms + round(keep_for_s * 1000)
    draft.move_deadline(key, last.expires_ms if last else 0, expires_ms)
    draft.put(key, encode(Application(application.version, application.attempt, expires_ms)))


class _TransactionRun:
    """The operations of one request, one after the other."""

    def __init__(self, draft: Draft, request: Transact, context: Context) -> None:
        self._draft = draft
        self._request = request
        self._context = context
        self._blocks_left = BLOCKS_MOVED_MAX

    def all(self, on_closed: Callable[[Closed], None]) -> Slices[None]:
        operations = self._request.operations
        for wanted in self._request.all_closes:
            on_closed(blocks.close(self._draft, wanted, self._context.now_ms))
            yield
        for number, operation in enumerate(operations, 1):
            try:
                yield from self._one(operation)
            except PaxosBlockError as error:
                error.details["operation"] = number
                if len(operations) == 1:
                    raise
                text = f"operation {number} of {len(operations)}: {error}"
                raise error.reworded(text) from error
            if self._draft.changes > RECORDS_MAX:
                raise InvalidRequestError(
                    f"operation {number} of {len(operations)}: one transaction changes at most "
                    f"{RECORDS_MAX} records of the catalog (a directory takes three): split it"
                )
            yield

    def _one(self, operation: Operation) -> Slices[None]:
        draft, context = self._draft, self._context
        match operation:
            case AssertAbsent() | AssertFile() | AssertDirectory():
                _check(draft, operation, context.actor)
            case MakeDirectory(path, implicit):
                made = self._directory(path)
                namespace.ensure_directory(draft, made, context, implicit=implicit)
            case Rename():
                _check_closed(draft, operation.source, context.actor)
                namespace.move(draft, operation, context)
            case Concat(target, sources):
                left = self._blocks_left
                self._blocks_left -= yield from concat(draft, target, sources, context, left)
            case Truncate():
                left = self._blocks_left
                self._blocks_left -= yield from truncate(draft, operation, context, left)
            case Delete():
                yield from _delete(draft, operation, context)
            case Marker(path):
                namespace.put_closed_file(draft, self._marker(path), context)
            case SetPermission() | SetOwner() | SetAttributes() | SetTimes() | ChangeAcl():
                _change_inode(draft, operation, context.actor)

    def _directory(self, path: str) -> MakeDirectories:
        request, umask = self._request, self._request.umask
        if umask is None:
            return MakeDirectories(path, owner=request.owner)
        unmasked = Unmasked(OF_DIRECTORIES, umask)
        masked = OF_DIRECTORIES & ~umask
        return MakeDirectories(path, True, masked, request.owner, unmasked=unmasked)

    def _marker(self, path: str) -> CreateFile:
        request, umask = self._request, self._request.umask
        return CreateFile(
            path,
            NO_WRITER,
            overwrite=True,
            replication=request.replication,
            block_size=request.block_size,
            durability=request.durability,
            permission=MARKER_PERMISSION if umask is None else OF_FILES & ~umask,
            owner=request.owner,
            unmasked=None if umask is None else Unmasked(OF_FILES, umask),
            zone_of=path,
        )


def _delete(draft: Draft, wanted: Delete, context: Context) -> Slices[None]:
    path = wanted.path
    if wanted.file_id is not None:
        _check_id(tree.find_inode(draft, path, context.actor).number, path, wanted.file_id)
    if wanted.prune and not wanted.recursive and namespace.is_let_go(draft, path, context):
        return
    request = DeletePath(path, wanted.recursive)
    deletion = yield from namespace.delete(draft, request, context)
    if wanted.must_exist and not deletion.existed:
        raise tree.missing(path)
    if wanted.prune and deletion.existed:
        namespace.prune(draft, path, context)


def _change_inode(
    draft: Draft,
    operation: SetPermission | SetOwner | SetAttributes | SetTimes | ChangeAcl,
    actor: Actor,
) -> None:
    match operation:
        case SetPermission():
            owners.set_permission(draft, operation, actor)
        case SetOwner():
            owners.set_owner(draft, operation, actor)
        case SetAttributes():
            attributes.set_attributes(draft, operation, actor)
        case SetTimes():
            owners.set_times(draft, operation, actor)
        case ChangeAcl():
            owners.change_acl(draft, operation, actor)


def _check(draft: Draft, wanted: AssertAbsent | AssertFile | AssertDirectory, actor: Actor) -> None:
    match wanted:
        case AssertAbsent(path):
            _check_absent(draft, path, actor)
        case AssertFile():
            _check_file(draft, wanted, actor)
        case AssertDirectory(path, file_id):
            directory = tree.find_directory(draft, paths.split(path), actor)
            if file_id is not None:
                _check_id(directory, path, file_id)


def _check_absent(draft: Draft, path: str, actor: Actor) -> None:
    try:
        tree.find(draft, path, actor)
    except (NotFoundError, NotDirectoryError):
        return
    raise tree.exists(path)


def _check_file(draft: Draft, wanted: AssertFile, actor: Actor) -> None:
    inode = tree.find_closed(draft, wanted.path, actor)
    if wanted.file_id is not None:
        _check_id(inode.number, wanted.path, wanted.file_id)
    if wanted.size not in (None, inode.length):
        shown = paths.shown(wanted.path)
        raise InvalidRequestError(
            f"{shown}: has {inode.length} bytes, not {wanted.size}", path=wanted.path
        )
    if wanted.truncations not in (None, inode.truncations):
        shown = paths.shown(wanted.path)
        raise InvalidRequestError(f"{shown}: was truncated meanwhile", path=wanted.path)


def _check_id(number: int, path: str, file_id: int) -> None:
    if number != file_id:
        text = f"{paths.shown(path)}: is file {number}, not file {file_id}"
        raise NotFoundError(text, path=path)


def _check_closed(draft: Draft, path: str, actor: Actor) -> None:
    """Demand that a file which is published is complete; a directory may hold open files."""
    inode = tree.find_inode(draft, path, actor)
    if isinstance(inode, FileInode) and inode.open:
        raise tree.being_written(path, inode)
