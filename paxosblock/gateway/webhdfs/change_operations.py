"""Operations of WebHDFS that change names, attributes or bytes."""

from __future__ import annotations

from typing import Final

from paxosblock.api.namenode import FileStatus, Kind
from paxosblock.api.quota import NO_QUOTA
from paxosblock.api.transaction import Delete, Operation, Rename
from paxosblock.base.paths import ROOT, STAGING
from paxosblock.errors import (
    DirectoryNotEmptyError,
    ExistsError,
    InvalidRequestError,
    IsDirectoryError,
    NotDirectoryError,
    NotFoundError,
)
from paxosblock.gateway.exchange import Answer
from paxosblock.gateway.upload import Upload, append
from paxosblock.gateway.webhdfs.hadoop_json import answered, done, truth
from paxosblock.gateway.webhdfs.operation_table import HadoopCall, operation
from paxosblock.gateway.webhdfs.parameters import LONG_MAX, invalid
from paxosblock.gateway.webhdfs.remote_exceptions import HadoopError, JavaError, as_hadoop_error
from paxosblock.gateway.webhdfs.two_steps import is_first_step, redirected

_RENAME_OPTIONS: Final = frozenset({"NONE", "OVERWRITE", "TO_TRASH"})
_FLAGS: Final = frozenset({"CREATE", "OVERWRITE", "LAZY_PERSIST", "SYNC_BLOCK", "NO_LOCAL_WRITE"})


# -- bytes -----------------------------------------------------------------------------------------


@operation("CREATE", "PUT")
async def create(call: HadoopCall) -> Answer:
    """Make a file of the bytes that come; the first request, without them, names the address."""
    upload = _upload(call)
    if is_first_step(call):
        return redirected(call)
    await call.hold_to_write()
    try:
        await upload.run(call.client, call.exchange.body())
    except ExistsError:
        words = f"{call.path} for client {call.exchange.address} already exists"
        raise HadoopError(JavaError.FILE_EXISTS, words) from None
    except IsDirectoryError:
        words = f"{call.path} already exists as a directory"
        raise HadoopError(JavaError.FILE_EXISTS, words) from None
    except NotDirectoryError:
        raise _parent_is_file(call.path) from None
    except NotFoundError:
        if not upload.parent_must_exist:
            raise
        words = f"Parent directory doesn't exist: {_parent(call.path)}"
        raise HadoopError(JavaError.FILE_NOT_FOUND, words) from None
    return Answer(201, b"", {"Location": _hdfs_url(call)})


def _upload(call: HadoopCall) -> Upload:
    parameters = call.parameters
    flags = {flag.strip().upper() for flag in parameters.text("createflag").split(",")} - {""}
    if unknown := flags - _FLAGS:
        words = ", ".join(sorted(unknown))[:100].encode("unicode_escape").decode()
        raise invalid("createflag", f"not supported: {words}")
    permission, umask = _bits(call, 0o644)
    return Upload(
        call.path,
        overwrite=parameters.flag("overwrite") or "OVERWRITE" in flags,
        permission=permission,
        umask=umask,
        replication=parameters.number("replication", least=1),
        block_size=parameters.number("blocksize", least=1),
        parent_must_exist=not parameters.flag("createparent", default=True),
    )


def _bits(call: HadoopCall, default: int) -> tuple[int, int]:
    """Return the permission from which no umask was taken, and the umask of the program. It has
    taken its umask off what it calls the permission already."""
    permission = call.parameters.permission("permission", default)
    unmasked = call.parameters.permission("unmaskedpermission", permission) | permission
    return unmasked, unmasked & ~permission


@operation("APPEND", "POST")
async def append_bytes(call: HadoopCall) -> Answer:
    """Write the bytes that come behind those of a file; steps as for CREATE."""
    if is_first_step(call):
        _check_appended(await call.fs.stat(call.path))
        return redirected(call)
    await call.hold_to_write()
    try:
        await append(call.client, call.path, call.exchange.body())
    except IsDirectoryError:
        raise _append_to_directory(call.path) from None
    return done()


def _check_appended(status: FileStatus) -> None:
    if status.kind is Kind.DIRECTORY:
        raise _append_to_directory(status.path)


def _append_to_directory(path: str) -> HadoopError:
    words = f"Cannot append to directory {path}; already exists as a directory."
    return HadoopError(JavaError.FILE_EXISTS, words)


@operation("CONCAT", "POST", lambda _: done())
async def concat(call: HadoopCall) -> Answer:
    """Move the blocks of the files `sources`, whose names have commas between them, to the end of
    a file, in one step. The sources are gone then."""
    sources = [each for each in call.parameters.text("sources").split(",") if each]
    if not all(each.startswith("/") for each in sources):
        raise invalid("sources", "each is an absolute path")
    try:
        await call.fs.concat(call.path, sources)
    except NotFoundError as error:
        words = f"File does not exist: {error.details.get('path', call.path)}"
        raise HadoopError(JavaError.FILE_NOT_FOUND, words) from None
    return done()


@operation("TRUNCATE", "POST")
async def truncate(call: HadoopCall) -> Answer:
    """Cut a file to its first `newlength` bytes, in one step."""
    size = call.parameters.number("newlength")
    if size is None:
        raise invalid("newlength", "it is missing")
    await call.fs.truncate(call.path, size)
    return truth(True)


def _hdfs_url(call: HadoopCall) -> str:
    host = call.exchange.origin.partition("://")[2]
    return f"webhdfs://{host}{call.exchange.target.partition('?')[0].removeprefix('/webhdfs/v1')}"


# -- names -----------------------------------------------------------------------------------------


@operation("MKDIRS", "PUT")
async def mkdirs(call: HadoopCall) -> Answer:
    """Make a directory, and those above it; an existing one is fine."""
    permission, umask = _bits(call, 0o755)
    try:
        await call.fs.mkdirs(call.path, permission=permission, umask=umask)
    except ExistsError:
        raise HadoopError(JavaError.FILE_EXISTS, f"Path is not a directory: {call.path}") from None
    except NotDirectoryError:
        raise _parent_is_file(call.path) from None
    return truth(True)


@operation("DELETE", "DELETE", lambda _: truth(True))
async def delete(call: HadoopCall) -> Answer:
    """Delete a file, or a directory with all that is in it where `recursive` says so."""
    recursive = call.parameters.flag("recursive")
    if call.path == ROOT:
        if not recursive and await _root_has_entries(call):
            raise as_hadoop_error(DirectoryNotEmptyError("it has entries"), ROOT)
        return truth(False)
    try:
        return truth(await call.fs.delete(call.path, recursive=recursive))
    except (NotFoundError, NotDirectoryError):
        return truth(False)


async def _root_has_entries(call: HadoopCall) -> bool:
    """True if a program sees any entry there."""
    async for page in call.fs.pages(ROOT, one_state=False):
        if any(each.path != STAGING for each in page.entries):
            return True
    return False


def _renamed_well(call: HadoopCall) -> Answer:
    return done() if call.parameters.has("renameoptions") else truth(True)


@operation("RENAME", "PUT", _renamed_well)
async def rename(call: HadoopCall) -> Answer:
    """Move a file or directory; with `renameoptions` as Hadoop's `FileContext` does."""
    destination = call.parameters.absolute_path("destination")
    options = {each.upper() for each in call.parameters.text("renameoptions").split(",")} - {""}
    if unknown := options - _RENAME_OPTIONS:
        shown = ", ".join(sorted(unknown))[:100].encode("unicode_escape").decode()
        raise invalid("renameoptions", f"there is no {shown}")
    if options:
        await _rename_or_raise(call, destination, overwrite="OVERWRITE" in options)
        return done()
    return truth(await _renamed(call, destination))


async def _renamed(call: HadoopCall, destination: str) -> bool:
    """Move it, into `destination` if that is a directory; False where HDFS does not."""
    fs, source = call.fs, call.path
    if source == "/" or not await fs.exists(source):
        return False
    there = await _found(call, destination)
    if there is not None and there.kind is Kind.DIRECTORY:
        destination = f"{destination.rstrip('/')}/{source.rpartition('/')[2]}"
    if destination == source:
        return True
    if destination.startswith(f"{source}/"):
        return False
    try:
        await fs.rename(source, destination)
    except (NotFoundError, ExistsError, NotDirectoryError, IsDirectoryError):
        return False
    return True


async def _rename_or_raise(call: HadoopCall, destination: str, *, overwrite: bool) -> None:
    fs, source = call.fs, call.path
    moved = await fs.stat(source)
    if source == destination:
        words = f"The source {source} and destination {destination} are the same"
        raise HadoopError(JavaError.FILE_EXISTS, words)
    there = await _found(call, destination)
    if there is not None and not overwrite:
        raise _exists_already(destination)
    steps: list[Operation] = [Rename(source, destination, overwrite)]
    if there is not None and there.kind is not moved.kind:
        words = f"Source {source} and destination {destination} must both be directories or files"
        raise HadoopError(JavaError.IO, words)
    if there is not None and there.kind is Kind.DIRECTORY:
        steps = [Delete(destination), Rename(source, destination)]
    try:
        await fs.transact(steps)
    except ExistsError:
        raise _exists_already(destination) from None
    except DirectoryNotEmptyError:
        words = f"rename destination directory is not empty: {destination}"
        raise HadoopError(JavaError.IO, words) from None
    except NotDirectoryError:
        raise _parent_is_file(destination) from None
    except NotFoundError:
        words = f"Rename destination parent {_parent(destination)} not found."
        raise HadoopError(JavaError.FILE_NOT_FOUND, words) from None


async def _found(call: HadoopCall, path: str) -> FileStatus | None:
    try:
        return await call.fs.stat(path)
    except (NotFoundError, NotDirectoryError):
        return None


def _exists_already(path: str) -> HadoopError:
    return HadoopError(JavaError.FILE_EXISTS, f"rename destination {path} already exists")


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _parent_is_file(path: str) -> HadoopError:
    words = f"Parent path is not a directory: {_parent(path)}"
    return HadoopError(JavaError.PARENT_NOT_DIRECTORY, words)


# -- what belongs to names -------------------------------------------------------------------------


@operation("SETREPLICATION", "PUT")
async def set_replication(call: HadoopCall) -> Answer:
    """Let a file have another number of replicas; false for a directory."""
    wanted = call.parameters.number("replication", least=1)
    if wanted is None:
        wanted = call.fs.config.replication
    try:
        await call.fs.set_replication(call.path, wanted)
    except IsDirectoryError:
        return truth(False)
    except InvalidRequestError as error:
        raise HadoopError(JavaError.IO, error.message) from None
    return truth(True)


@operation("SETQUOTA", "PUT")
async def set_quota(call: HadoopCall) -> Answer:
    """Limit the names (`namespacequota`) and the room (`storagespacequota`) of a directory; -1
    takes a limit away."""
    names, space = (
        None if (limit := call.parameters.number(name, least=NO_QUOTA)) == LONG_MAX else limit
        for name in ("namespacequota", "storagespacequota")
    )
    await call.fs.set_quota(call.path, names=names, space=space)
    return done()


@operation("SETPERMISSION", "PUT")
async def set_permission(call: HadoopCall) -> Answer:
    """Give a file or directory other permission bits."""
    await call.fs.set_permission(call.path, call.parameters.permission("permission", 0o755))
    return done()


@operation("SETOWNER", "PUT")
async def set_owner(call: HadoopCall) -> Answer:
    """Give a file or directory another owner, group, or both."""
    owner, group = call.parameters.text("owner"), call.parameters.text("group")
    if not (owner or group):
        raise HadoopError(JavaError.ILLEGAL_ARGUMENT, "Both owner and group are empty.")
    await call.fs.set_owner(call.path, owner or None, group or None)
    return done()


@operation("SETTIMES", "PUT")
async def set_times(call: HadoopCall) -> Answer:
    """Say when a file or directory was changed last. Times of access are not kept: a request for
    such a time alone is refused."""
    modified_ms = call.parameters.number("modificationtime", least=-1)
    accessed_ms = call.parameters.number("accesstime", least=-1)
    if modified_ms in (None, -1):
        if accessed_ms not in (None, -1):
            raise HadoopError(JavaError.IO, "Access time for hdfs is not configured.")
        await call.fs.stat(call.path)
        return done()
    assert modified_ms is not None, "it is looked at"
    await call.fs.set_times(call.path, modified_ms / 1000)
    return done()


# -- snapshots -------------------------------------------------------------------------------------


@operation("ALLOWSNAPSHOT", "PUT")
async def allow_snapshot(call: HadoopCall) -> Answer:
    """Check that there is a directory: snapshots may be taken of each, by its owner."""
    if (await call.fs.stat(call.path)).kind is not Kind.DIRECTORY:
        raise HadoopError(JavaError.NOT_DIRECTORY, f"`{call.path}': Is not a directory")
    return done()


@operation("CREATESNAPSHOT", "PUT")
async def create_snapshot(call: HadoopCall) -> Answer:
    """Take a snapshot of a directory (`snapshotname`; else it gets a name of this time)."""
    name = call.parameters.text("snapshotname")
    return answered({"Path": await call.fs.create_snapshot(call.path, name)})


@operation("RENAMESNAPSHOT", "PUT", lambda _: done())
async def rename_snapshot(call: HadoopCall) -> Answer:
    """Give a snapshot (`oldsnapshotname`) another name (`snapshotname`)."""
    before, name = call.parameters.text("oldsnapshotname"), call.parameters.text("snapshotname")
    await call.fs.rename_snapshot(call.path, before, name)
    return done()


@operation("DELETESNAPSHOT", "DELETE", lambda _: done())
async def delete_snapshot(call: HadoopCall) -> Answer:
    """Delete a snapshot (`snapshotname`)."""
    await call.fs.delete_snapshot(call.path, call.parameters.text("snapshotname"))
    return done()
