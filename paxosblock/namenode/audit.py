"""The audit log: who changed what, and who was refused it, in HDFS's format.

A line tells of each change that a call asked for, and of each refusal::

    2026-11-27 11:00:00,123 INFO paxosblock.audit: allowed=true ugi=me (auth:SIMPLE)
    ip=/127.0.0.1 cmd=rename src=/a dst=/b perm=me:staff:rwxr-xr-x proto=rpc request=...

A copy of a request whose answer was lost is a line, too, as the NameNode that did what it asks may
have ended before it wrote one. The parts are separated by tabs. A transaction has a line for each
operation that changes something. A file that is known by its id stands as `/.reserved/.inodes/ID`,
a block as `blk_ID`. The logger is `paxosblock.audit`: what it has no handler for is not even put
together.
"""

from __future__ import annotations

import functools
import logging
import stat
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import msgspec

from paxosblock.api import (
    care,
    encryption,
    lease_call,
    namenode_list,
    ownership,
    path_attributes,
    quota,
    rebuild,
    snapshot_calls,
    status,
    user_tokens,
)
from paxosblock.api import namenode as api
from paxosblock.api.namenode import FileStatus
from paxosblock.api.snapshot_calls import SNAPSHOT_DIRECTORY, CreateSnapshot, DeleteSnapshot
from paxosblock.api.transaction import (
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
    Truncate,
)
from paxosblock.host.logs import BatchHandler, RotatedFile, one_line, stamp
from paxosblock.net.port.caller import CALLER, HERE, REQUEST_ID, Caller, CallerRole

AUDIT_LOG: Final = logging.getLogger("paxosblock.audit")
AUDIT_LOG.propagate = False  # the log of the node has the same changes in its own form
AUDIT_LOG.setLevel(logging.CRITICAL)


class Deed(msgspec.Struct, frozen=True, gc=False):
    """One change, by HDFS's name for it, and the paths that it is about."""

    command: str
    source: str
    destination: str | None = None


Deeds = tuple[Deed, ...]


def _file_id(number: int) -> str:
    return f"/.reserved/.inodes/{number}"


def _added(request: api.AddBlock) -> Deeds:
    return (Deed("addBlock", _file_id(request.file_id) if request.file_id else ""),)


def _named_paths(paths: tuple[str, ...]) -> str:
    return f"[{', '.join(paths)}]"


def deed_of(operation: Operation) -> Deed | None:
    """Return what an operation of a transaction changes; None if it only checks."""
    match operation:
        case AssertAbsent() | AssertFile() | AssertDirectory():
            return None
        case MakeDirectory(path):
            return Deed("mkdirs", path)
        case Rename(source, destination):
            return Deed("rename", source, destination)
        case Concat(target, sources):
            return Deed("concat", _named_paths(sources), target)
        case Truncate(path):
            return Deed("truncate", path)
        case Delete(path):
            return Deed("delete", path)
        case Marker(path):
            return Deed("create", path)
        case SetPermission(path):
            return Deed("setPermission", path)
        case SetOwner(path):
            return Deed("setOwner", path)
        case SetAttributes(path):
            return Deed("setXAttr", path)
        case SetTimes(path):
            return Deed("setTimes", path)
        case ChangeAcl(path, change):
            return Deed(change.value, path)


def _closed(request: api.CloseFile) -> Deed:
    return Deed("completeFile", _file_id(request.file_id))


def _transacted(request: api.Transact) -> Deeds:
    closed = () if request.close is None else (_closed(request.close),)
    deeds = (deed for each in request.operations if (deed := deed_of(each)) is not None)
    return (*closed, *deeds)


def _safe_mode(request: status.SafeModeRequest) -> Deeds:
    if request.action is status.SafeModeAction.GET:
        return ()
    return (Deed(f"safemode_{request.action.value}", ""),)


def _of_path(command: str) -> Callable[[Any], Deeds]:
    return lambda request: (Deed(command, request.path),)


def _of_block(command: str) -> Callable[[Any], Deeds]:
    return lambda request: (Deed(command, f"blk_{request.block}"),)


def _of_snapshot(verb: str, request: CreateSnapshot | DeleteSnapshot) -> Deed:
    return Deed(f"{verb}Snapshot", _in_snapshots(request.path, request.name))


def _in_snapshots(path: str, name: str) -> str:
    return f"{path.rstrip('/')}/{SNAPSHOT_DIRECTORY}/{name}"


DEEDS: Final[dict[str, Callable[[Any], Deeds]]] = {
    api.MKDIRS.name: _of_path("mkdirs"),
    api.CREATE.name: _of_path("create"),
    api.APPEND.name: _of_path("append"),
    api.RENAME.name: lambda request: (Deed("rename", request.source, request.destination),),
    api.DELETE.name: _of_path("delete"),
    api.CONCAT.name: lambda request: (
        Deed("concat", _named_paths(request.sources), request.target),
    ),
    snapshot_calls.CREATE_SNAPSHOT.name: lambda request: (_of_snapshot("create", request),),
    snapshot_calls.DELETE_SNAPSHOT.name: lambda request: (_of_snapshot("delete", request),),
    snapshot_calls.RENAME_SNAPSHOT.name: lambda request: (
        Deed(
            "renameSnapshot",
            _in_snapshots(request.path, request.name),
            _in_snapshots(request.path, request.new_name),
        ),
    ),
    snapshot_calls.UNDELETE.name: _of_path("undelete"),
    care.SET_REPLICATION.name: _of_path("setReplication"),
    ownership.SET_PERMISSION.name: _of_path("setPermission"),
    ownership.SET_OWNER.name: _of_path("setOwner"),
    path_attributes.SET_ATTRIBUTES.name: _of_path("setXAttr"),
    ownership.SET_TIMES.name: _of_path("setTimes"),
    ownership.CHANGE_ACL.name: lambda request: (Deed(request.change.value, request.path),),
    api.TRANSACT.name: _transacted,
    api.TAKE_OVER.name: _of_path("takeOver"),
    lease_call.RECOVER_LEASE.name: _of_path("recoverLease"),
    api.ADD_BLOCK.name: _added,
    api.REOPEN_BLOCK.name: _of_block("reopenBlock"),
    api.FINALIZE_BLOCK.name: _of_block("finalizeBlock"),
    api.SEAL_BLOCK.name: _of_block("sealBlock"),
    rebuild.REBUILD_BLOCK.name: _of_block("rebuildBlock"),
    api.DELETE_BLOCK.name: _of_block("deleteBlock"),
    api.CLOSE_FILE.name: lambda request: (_closed(request),),
    care.SET_ADMIN_STATE.name: lambda request: (
        Deed(f"setAdminState_{request.admin.value}", request.node),
    ),
    encryption.ENCRYPT_DIRECTORY.name: _of_path("createEncryptionZone"),
    encryption.ROLL_MASTER_KEY.name: lambda _: (Deed("rollMasterKey", ""),),
    quota.SET_QUOTA.name: _of_path("setQuota"),
    quota.CHECK_QUOTAS.name: lambda request: (
        (Deed("repairQuota", request.path),) if request.repair else ()
    ),
    care.BALANCE.name: lambda _: (Deed("balance", ""),),
    status.SAFE_MODE.name: _safe_mode,
    user_tokens.ISSUE_TOKEN.name: lambda request: (Deed("getDelegationToken", request.user),),
    user_tokens.REVOKE_TOKEN.name: lambda request: (
        Deed("cancelDelegationToken", user_tokens.serial_text(request.serial)),
    ),
    namenode_list.CHANGE_NAMENODES.name: lambda _: (Deed("changeNameNodes", ""),),
}
"""Finds what a request of each call asks to change. No user asks the other calls for a change."""


def note_done(name: str, request: object, answer: object) -> None:
    """Write a line for each change that a call has made."""
    if (deeds := DEEDS.get(name)) is None:
        return
    if isinstance(answer, FileStatus):
        shown: FileStatus | None = answer
    elif getattr(answer, "existed", True) and getattr(answer, "applied", True):
        found = getattr(answer, "status", None)
        shown = found if isinstance(found, FileStatus) else None
    else:
        return
    for deed in deeds(request):
        _write(deed, shown, allowed=True)


def note_refused(name: str, request: object, error: Exception) -> None:
    """Write a line for each change, or the look, that a user was refused."""
    number = getattr(error, "details", {}).get("operation")
    if isinstance(request, api.Transact) and isinstance(number, int):
        operation = request.operations[number - 1]
        refused: Deeds = (deed_of(operation) or Deed("check", getattr(operation, "path", "")),)
    elif name in DEEDS:
        refused = DEEDS[name](request)
    else:
        refused = (Deed(name, str(getattr(request, "path", ""))),)
    for deed in refused:
        _write(deed, None, allowed=False)


def _write(deed: Deed, shown: FileStatus | None, *, allowed: bool) -> None:
    line = _AuditLine(allowed, CALLER.get(), deed, shown, REQUEST_ID.get(""))
    if AUDIT_LOG.isEnabledFor(logging.INFO):
        AUDIT_LOG.callHandlers(_AuditRecord(line))


class _AuditLine(msgspec.Struct, frozen=True, gc=False):
    """All that a line tells; it becomes text in the thread that writes it."""

    allowed: bool
    caller: Caller
    deed: Deed
    shown: FileStatus | None
    request_id: str

    def text(self) -> str:
        """Return the line as HDFS has it; no name in it can pass for another part or line."""
        deed, shown = self.deed, self.shown
        source, destination = deed.source or "null", deed.destination or "null"
        of_caller, perm = _of_caller(self.caller), "null"
        if shown is not None:
            perm = f"{shown.owner}:{shown.group}:{_bits(shown.permission)}"
        request_id = self.request_id or "null"
        if not f"{source}{destination}{perm}{request_id}".isprintable():
            told = map(one_line, (source, destination, perm, request_id))
            source, destination, perm, request_id = told
        return (
            f"allowed={'true' if self.allowed else 'false'}\t{of_caller}\tcmd={deed.command}\t"
            f"src={source}\tdst={destination}\tperm={perm}\tproto=rpc\t"
            f"request={request_id}"
        )


class _AuditRecord(logging.LogRecord):
    """The record of a line."""

    def __init__(self, line: _AuditLine) -> None:
        vars(self).update(_USUAL)
        stamp(self)
        self.line = line


_USUAL: Final = vars(logging.LogRecord(AUDIT_LOG.name, logging.INFO, "", 0, "audit", (), None))
"""The attributes of all records; the usual way finds them out of each."""


@functools.lru_cache(4096)
def _of_caller(caller: Caller) -> str:
    """Return the parts of a line about who asks, whose names a connection has checked."""
    proof = "SIMPLE" if caller.role in (CallerRole.CLAIMED, CallerRole.NODE) else "TLS"
    proof = "TOKEN" if caller.token is not None else proof
    proof = "LOCAL" if caller == HERE else proof
    address = f"/{caller.address}" if caller.address else "null"
    return f"ugi={caller.user or caller.role.value} (auth:{proof})\tip={address}"


@functools.lru_cache(1024)
def _bits(permission: int) -> str:
    return stat.filemode(permission)[1:]


@functools.lru_cache(1)
def _second(since_epoch: int) -> str:
    """A busy node writes thousands of lines in the same second."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(since_epoch))


class AuditFormatter(logging.Formatter):
    """Formats a line as the log4j of HDFS does, with the time in UTC."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of one deed; of anything else, its words."""
        if isinstance(record, _AuditRecord):
            said = record.line.text()
        else:
            said = one_line(record.getMessage())
        when = _second(int(record.created))
        return f"{when},{int(record.msecs):03d} {record.levelname} {record.name}: {said}"


def keep_audit(stack: AsyncExitStack, file: Path, bytes_max: int, files: int) -> None:
    """Write the audit log to a file until `stack` ends; `files` are kept, of some `bytes_max` each.

    Raises:
        ConfigError: the file cannot be written.
    """
    out = RotatedFile(file, bytes_max, files)
    stack.callback(out.close)
    handler = BatchHandler(out)
    stack.callback(handler.close)
    handler.setFormatter(AuditFormatter())
    AUDIT_LOG.addHandler(handler)
    stack.callback(AUDIT_LOG.removeHandler, handler)
    AUDIT_LOG.setLevel(logging.INFO)
    stack.callback(AUDIT_LOG.setLevel, logging.CRITICAL)
