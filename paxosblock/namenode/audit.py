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

from paxosblock.api import namenode as api
from paxosblock.api.namenode import FileStatus
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


GATHER_S: Final = 0.2
"""Lines of this many seconds are written together. At some hundred changes in a second the thread
that writes costs as much for each time that it wakes as for ten lines."""


class Deed(msgspec.Struct, frozen=True, gc=False):
    """One change, by HDFS's name for it, and the paths that it is about."""

    command: str
    source: str
    destination: str | None = None


Deeds = tuple[Deed, ...]
DeedsOf = Callable[[Any], Deeds]
"""Finds what a request asks to change; a row of `CALLS` says it for its call."""


def of_path(command: str) -> DeedsOf:
    """Return what finds a change of the request's `path`, by HDFS's name for it."""
    return lambda request: (Deed(command, request.path),)


def of_block(command: str) -> DeedsOf:
    """Return what finds a change of the request's `block`."""
    return lambda request: (Deed(command, f"blk_{request.block}"),)


def of_file(command: str) -> DeedsOf:
    """Return what finds a change of the file that the request has by its id."""
    return lambda request: (Deed(command, f"/.reserved/.inodes/{request.file_id}"),)


def of_nothing_named(command: str) -> DeedsOf:
    """Return what finds a change that is of no path."""
    return lambda _: (Deed(command, ""),)


def concatenation(target: str, sources: tuple[str, ...]) -> Deed:
    """Return the change by which files become the end of another one."""
    return Deed("concat", f"[{', '.join(sources)}]", target)


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
            return concatenation(target, sources)
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


of_close: Final = of_file("completeFile")
"""Finds the change of a request that closes a file, by itself or with a transaction."""


def of_files_made(request: api.CreateFiles) -> Deeds:
    """Return what the making of many files changes: each as if it was made by itself."""
    made = () if request.directory is None else (Deed("mkdirs", request.directory.path),)
    return (*made, *(Deed("create", each.path) for each in request.files))


def of_transaction(request: api.Transact) -> Deeds:
    """Return what a transaction changes: the files that it closes, then by its operations."""
    closed = [deed for each in request.all_closes for deed in of_close(each)]
    deeds = (deed for each in request.operations if (deed := deed_of(each)) is not None)
    return (*closed, *deeds)


def note_done(find: DeedsOf, request: object, answer: object) -> None:
    """Write a line for each change that a call has made; `find` is of the call's row."""
    shown = answer if isinstance(answer, FileStatus) else getattr(answer, "status", None)
    if getattr(answer, "applied", True):
        for deed in find(request):
            _write(deed, shown if isinstance(shown, FileStatus) else None, allowed=True)


def note_refused(name: str, find: DeedsOf | None, request: object, error: Exception) -> None:
    """Write a line for each change, or the look, that a user was refused, if that is the `error` of
    the call `name`; `find` is of its row."""
    if AUDIT_LOG.level > logging.INFO or not isinstance(error, PermissionError):
        return
    number = getattr(error, "details", {}).get("operation")
    if isinstance(request, api.Transact) and isinstance(number, int):
        operation = request.operations[number - 1]
        refused: Deeds = (deed_of(operation) or Deed("check", getattr(operation, "path", "")),)
    elif find is not None:
        refused = find(request)
    else:
        refused = (Deed(name, str(getattr(request, "path", ""))),)
    for deed in refused:
        _write(deed, None, allowed=False)


def _write(deed: Deed, shown: FileStatus | None, *, allowed: bool) -> None:
    if AUDIT_LOG.isEnabledFor(logging.INFO):
        AUDIT_LOG.callHandlers(_AuditRecord(deed, shown, allowed=allowed))


class _AuditRecord(logging.LogRecord):
    """All that a line tells; it becomes text in the thread that writes it. What all records have in
    common it has from its class: to write that into each took a quarter of the time of a line.
    """

    def __init__(self, deed: Deed, shown: FileStatus | None, *, allowed: bool) -> None:
        self.deed, self.shown, self.allowed = deed, shown, allowed
        self.caller, self.request_id = CALLER.get(), REQUEST_ID.get("")
        stamp(self)

    def getMessage(self) -> str:
        """Return the line, for a usual formatter: it asks for this first, and then for what a usual
        record has in its dict."""
        vars(self).update(_USUAL | vars(self))
        return self.text()

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


_USUAL: Final = vars(logging.LogRecord(AUDIT_LOG.name, logging.INFO, "", 0, "audit", (), None))
"""The attributes of all records; the usual way finds them out of each."""
for _name, _value in _USUAL.items():
    setattr(_AuditRecord, _name, _value)


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
        said = record.text() if isinstance(record, _AuditRecord) else one_line(record.getMessage())
        when = _second(int(record.created))
        return f"{when},{int(record.msecs):03d} {record.levelname} {record.name}: {said}"


def keep_audit(stack: AsyncExitStack, file: Path, bytes_max: int, files: int) -> None:
    """Write the audit log to a file until `stack` ends; `files` are kept, of some `bytes_max` each.

    Raises:
        ConfigError: the file cannot be written.
    """
    out = RotatedFile(file, bytes_max, files)
    stack.callback(out.close)
    handler = BatchHandler(out, gather_s=GATHER_S)
    stack.callback(handler.close)
    handler.setFormatter(AuditFormatter())
    AUDIT_LOG.addHandler(handler)
    stack.callback(AUDIT_LOG.removeHandler, handler)
    AUDIT_LOG.setLevel(logging.INFO)
    stack.callback(AUDIT_LOG.setLevel, logging.CRITICAL)
