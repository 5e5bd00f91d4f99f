"""Operations of WebHDFS that change nothing."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Final

import msgspec

from paxosblock.api.namenode import Listing
from paxosblock.api.subtree import ContentSummary
from paxosblock.base.paths import ROOT, STAGING
from paxosblock.errors import NotDirectoryError, NotFoundError
from paxosblock.gateway.download import asked_again_if_replaced, begun
from paxosblock.gateway.exchange import Answer, StreamedBody
from paxosblock.gateway.webhdfs.hadoop_json import (
    BYTES_TYPE,
    DifferenceJson,
    FileChecksumJson,
    FileStatusJson,
    RoomJson,
    ServerDefaultsJson,
    SnapshotDiffReportJson,
    answered,
    block_location,
    content_summary,
    done,
    file_status,
    quota_usage,
)
from paxosblock.gateway.webhdfs.operation_table import HadoopCall, operation
from paxosblock.gateway.webhdfs.parameters import invalid
from paxosblock.gateway.webhdfs.remote_exceptions import HadoopError, JavaError
from paxosblock.gateway.webhdfs.two_steps import redirected

_ACTION: Final = re.compile(r"[r-][w-][x-]")
_LIST_HEAD: Final = b'{"FileStatuses":{"FileStatus":['
_LIST_TAIL: Final = b"]}}"


@operation("GETFILESTATUS", "GET")
async def get_file_status(call: HadoopCall) -> Answer:
    """Show a file or directory."""
    return answered({"FileStatus": file_status(await call.fs.stat(call.path))})


@operation("GETFILELINKSTATUS", "GET")
async def get_file_link_status(call: HadoopCall) -> Answer:
    """Show a file or directory: no name is a link."""
    return await get_file_status(call)


@operation("LISTSTATUS", "GET")
async def list_status(call: HadoopCall) -> Answer:
    """Show the entries of a directory; of a file, the file."""
    pages = call.fs.pages(call.path, one_state=False)
    first = await anext(pages)
    if not first.more:
        return answered({"FileStatuses": {"FileStatus": _entries(first, call.path)}})
    return Answer(200, StreamedBody(_listed(first, pages, call.path), None))


async def _listed(first: Listing, pages: AsyncIterator[Listing], path: str) -> AsyncIterator[bytes]:
    listed = _joined(_entries(first, path))
    yield _LIST_HEAD + listed
    async for page in pages:
        if more := _joined(_entries(page, path)):
            yield b"," + more if listed else more
            listed = more
    yield _LIST_TAIL


def _joined(entries: list[FileStatusJson]) -> bytes:
    return msgspec.json.encode(entries)[1:-1]


def _entries(page: Listing, path: str) -> list[FileStatusJson]:
    """Return what a program is shown: not the directory into which no program may look."""
    return [
        file_status(each, each.name if each.path != path else "")
        for each in page.entries
        if each.path != STAGING
    ]


@operation("LISTSTATUS_BATCH", "GET")
async def list_status_batch(call: HadoopCall) -> Answer:
    """Show a thousand entries of a directory that come behind `startafter`."""
    after = call.parameters.text("startafter")
    page = await anext(call.fs.pages(call.path, after, one_state=False))
    listed = {"FileStatuses": {"FileStatus": _entries(page, call.path)}}
    left = int(page.more)  # no more is known of those that follow, and programs ask for no more
    return answered({"DirectoryListing": {"partialListing": listed, "remainingEntries": left}})


@operation("GETCONTENTSUMMARY", "GET")
async def get_content_summary(call: HadoopCall) -> Answer:
    """Count the files, directories and bytes at and below a path, at one moment."""
    summary, usage = await _summary(call), await call.fs.quota_usage(call.path)
    return answered({"ContentSummary": content_summary(summary, usage)})


@operation("GETQUOTAUSAGE", "GET")
async def get_quota_usage(call: HadoopCall) -> Answer:
    """Count the names and bytes at and below a path, and show its limits."""
    summary, usage = await _summary(call), await call.fs.quota_usage(call.path)
    return answered({"QuotaUsage": quota_usage(summary, usage)})


async def _summary(call: HadoopCall) -> ContentSummary:
    """Count what a program is shown at and below the path: not what `_entries` leaves out."""
    if call.path != ROOT:
        return await call.fs.content_summary(call.path)
    summary = ContentSummary(directories=1)  # the root itself
    for each in await call.fs.content_summaries(ROOT):
        if each.status.path != STAGING:
            summary = summary.plus(each.summary)
    return summary


@operation("GETSNAPSHOTDIFF", "GET")
async def get_snapshot_diff(call: HadoopCall) -> Answer:
    """Show what differs between two snapshots (`oldsnapshotname`, `snapshotname`; "" is now)."""
    before, later = call.parameters.text("oldsnapshotname"), call.parameters.text("snapshotname")
    found = await call.fs.snapshot_diff(call.path, before, later)
    told = [DifferenceJson(one.source, one.kind.value, one.target) for one in found]
    report = SnapshotDiffReportJson(told, before, call.path, later)
    return answered({"SnapshotDiffReport": report})


@operation("GETHOMEDIRECTORY", "GET")
async def get_home_directory(call: HadoopCall) -> Answer:
    """Tell where relative paths of the user begin."""
    return answered({"Path": _home(call)})


@operation("GETTRASHROOT", "GET")
async def get_trash_root(call: HadoopCall) -> Answer:
    """Tell where a program may move what its user deletes."""
    return answered({"Path": f"{_home(call)}/.Trash"})


@operation("GETTRASHROOTS", "GET")
async def get_trash_roots(call: HadoopCall) -> Answer:
    """Show the user's directory for what was deleted, if it is there; `allusers` shows no more."""
    try:
        trash = await call.fs.stat(f"{_home(call)}/.Trash")
    except (NotFoundError, NotDirectoryError):
        return answered({"Paths": []})
    return answered({"Paths": [file_status(trash, trash.path)]})


def _home(call: HadoopCall) -> str:
    return f"/user/{call.user}"


@operation("GETSERVERDEFAULTS", "GET")
async def get_server_defaults(call: HadoopCall) -> Answer:
    """Tell the gateway's block size and replication."""
    config = call.fs.config
    defaults = ServerDefaultsJson(config.block_size, config.replication)
    return answered({"FsServerDefaults": defaults})


@operation("GETSTATUS", "GET")
async def get_status(call: HadoopCall) -> Answer:
    """Tell the room of the cluster."""
    room = await call.fs.room()
    return answered({"FsStatus": RoomJson(room.size, room.used, room.free)})


@operation("CHECKACCESS", "GET")
async def check_access(call: HadoopCall) -> Answer:
    """Ask if the user may read, write or execute what is at a path."""
    wanted = call.parameters.text("fsaction", "---")
    if not _ACTION.fullmatch(wanted):
        raise invalid("fsaction", f"{wanted[:40]!r} is not of the form [r-][w-][x-]")
    read, write, execute = (letter in wanted for letter in "rwx")
    await call.fs.check_access(call.path, read=read, write=write, execute=execute)
    return done()


@operation("GETFILEBLOCKLOCATIONS", "GET")
async def get_file_block_locations(call: HadoopCall) -> Answer:
    """Tell where the blocks of a file are."""
    offset, length = call.parameters.number("offset") or 0, call.parameters.number("length")
    status = await call.fs.stat(call.path)
    places = await call.fs.locations(status.path, offset, length)
    return answered({"BlockLocations": {"BlockLocation": [*map(block_location, places)]}})


@operation("OPEN", "GET")
async def open_file(call: HadoopCall) -> Answer:
    """Send the bytes of a file, from `offset` on, at most `length` of them.

    They come at once: no other address is named, unless `noredirect` asks for one.
    """
    if call.parameters.flag("noredirect"):
        await call.fs.stat(call.path)
        return redirected(call)
    return await asked_again_if_replaced(
        call.stack, lambda stack: _opened_and_sent(replace(call, stack=stack))
    )


async def _opened_and_sent(call: HadoopCall) -> Answer:
    offset = call.parameters.number("offset", least=-(1 << 63)) or 0
    length = call.parameters.number("length")
    reader = await call.stack.enter_async_context(call.fs.open(call.path))
    size = await reader.decide()
    if offset < 0 or (offset >= size > 0):
        words = f"Offset={offset} out of the range [0, {size}); OPEN, path={call.path}"
        raise HadoopError(JavaError.IO, words)
    left = size - offset
    sent = left if length is None else min(length, left)
    typed = {"Content-Type": BYTES_TYPE}
    if not sent:
        return Answer(200, b"", typed)
    await call.hold_to_read(sent)
    return Answer(200, StreamedBody(await begun(reader, offset, sent), sent), typed)


@operation("GETFILECHECKSUM", "GET")
async def get_file_checksum(call: HadoopCall) -> Answer:
    """Tell the checksum of a file that HDFS would tell. All of it is read for that, at once: no
    other address is named."""
    await call.hold_to_read()
    found = await call.fs.checksum(call.path)
    told = FileChecksumJson(found.algorithm, found.text, len(found.text) // 2)
    return answered({"FileChecksum": told})
