"""The verbs of `paxosblock fs` that move bytes: put, append, truncate, get, cat, head, tail."""

from __future__ import annotations

import contextlib
import enum
import os
import select
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from paxosblock.api.namenode import MKDIRS, Kind, MakeDirectories
from paxosblock.api.transaction import AssertFile, Delete, Rename
from paxosblock.base.replacement import OnFailure, Replacement, WriteOptions
from paxosblock.base.units import MIB
from paxosblock.cli.copy_together import Copied, CopyJob, copy_together
from paxosblock.cli.descriptions import shortfall
from paxosblock.cli.fs_names import (
    for_each_path,
    matching,
    target_is_directory,
    the_one,
    the_one_that_may_be_made,
)
from paxosblock.cli.group import Verb
from paxosblock.cli.invocation import Invocation, UserError, reason_of
from paxosblock.cli.progress_bar import Advance, progress_bar, shows_bar
from paxosblock.client.names.walk import base_name, join
from paxosblock.errors import IsDirectoryError, LeaseError, NotFoundError, PaxosBlockError
from paxosblock.protocol.types import Durability

if TYPE_CHECKING:
    from paxosblock.client import Client
    from paxosblock.client.blocking.sync import FileReader, FileWriter

PIECE_BYTES: Final = 4 * MIB
END_BYTES: Final = 1024
"""Number of bytes that head and tail show."""
COPYING: Final = "._COPYING_"
"""Ends the name of a file that is not complete yet, as with hdfs."""
STREAM: Final = "-"
"""Standard input or output in the place of a local file."""


# --- put -----------------------------------------------------------------------------------------


def _one_of(kind: type[enum.Enum]) -> str:
    """Return how the help shows the names of `kind`; the client refuses others."""
    return f"[{'|'.join(each.value for each in kind)}]"


@click.command(cls=Verb)
@click.option("-f", "force", is_flag=True, help="Replace a file that exists.")
@click.option(
    "-d", "directly", is_flag=True, help="Write to the destination itself from the start."
)
@click.option("--replication", type=click.IntRange(1), help="Replicas of each block.")
@click.option(
    "--durability",
    type=click.Choice([level.value for level in Durability]),
    help="What acknowledged means: on stable storage (disk), or handed to the operating systems "
    "(memory).",
)
@click.option(
    "--on-failure",
    metavar=_one_of(OnFailure),
    help="When a DataNode fails: end the block and begin another (seal), or go on in it with "
    "others (rebuild).",
)
@click.option(
    "--replace-on-failure",
    metavar=_one_of(Replacement),
    help="When another DataNode takes the place of one that failed: HDFS's policies.",
)
@click.argument("sources", nargs=-1, required=True, metavar="LOCAL...")
@click.argument("destination")
@click.pass_obj
def put(
    invocation: Invocation,
    /,
    *,
    force: bool,
    directly: bool,
    sources: tuple[str, ...],
    destination: str,
    on_failure: str | None,
    replace_on_failure: str | None,
    **how: Any,
) -> None:
    """Copy local files and directories into the cluster; - is standard input.

    \b
      $ paxosblock fs put a.log b.log /logs/     # into a directory, under their own names
      $ paxosblock fs put photos /archive/       # a directory becomes /archive/photos
      $ journalctl -f | paxosblock fs put -d - /logs/journal

    The file appears under its name when it is complete; with -d at once, so that others can follow
    it while it grows. Prints nothing when it is done. If the cluster has too few DataNodes for
    the replicas that were asked for, one line on standard error says so.
    """
    how["options"] = WriteOptions(on_failure, replace_on_failure)
    target = invocation.path(destination)
    inside = target_is_directory(invocation, target, destination, len(sources))

    def copy(source: str) -> None:
        if source == STREAM and inside:
            raise UserError(destination, "is a directory: standard input needs a file name")
        wanted = join(target, base_name(os.path.abspath(source))) if inside else target
        if source != STREAM and os.path.isdir(source):
            total = _local_bytes(source) if shown else None
            with progress_bar(base_name(wanted), total, wanted=shown) as advance:
                files = _local_tree(invocation, source, wanted)
                copy_together(invocation, files, copy_file, advance)
            return
        with progress_bar(base_name(wanted), _size_of(source), wanted=shown) as advance:
            copied = copy_file(CopyJob(source, wanted), advance)
        copied.tell(invocation)

    def copy_file(job: CopyJob, advance: Advance) -> Copied:
        _check_free(invocation, job.target, force)
        with (
            _local_source(job.source) as stream,
            _published(invocation, how, job.target, force=force, directly=directly) as out,
        ):
            for piece in _pieces(stream):
                out.write(piece)
                if directly and _pauses(stream):
                    out.hflush()
                advance(len(piece))
        has, asked = out.fewest_replicas, out.status.replication
        short = f"{shortfall(has, asked)}: {out.shortfall}" if has < asked else ""
        return Copied(job, out.tell(), short)

    shown = shows_bar(wanted=not invocation.json)
    invocation.for_each(sources, copy)


def _size_of(source: str) -> int | None:
    """Return the size of a local file; None for standard input."""
    return None if source == STREAM else os.stat(source).st_size


def _local_bytes(source: str) -> int:
    """Return the size of all files of a local directory, as far as it can be told."""
    size = 0
    for folder, _, names in os.walk(source):
        for name in names:
            with contextlib.suppress(OSError):
                size += os.stat(os.path.join(folder, name)).st_size
    return size


def _local_tree(invocation: Invocation, source: str, wanted: str) -> Iterator[CopyJob]:
    """Make the directories of a local directory, and yield its files, each with its target."""
    for folder, below, names in os.walk(source, onerror=invocation.tell_failure):
        place = wanted + folder.removeprefix(source.rstrip("/")).rstrip("/")
        request = MakeDirectories(place, parents=True)
        invocation.call_once(MKDIRS, request)
        below.sort()
        # Links to directories are not followed: they might lead round in a circle.
        links = [name for name in below if os.path.islink(os.path.join(folder, name))]
        for name in sorted([*names, *links]):
            file = os.path.join(folder, name)
            if os.path.exists(file) and not (os.path.isfile(file) or os.path.isdir(file)):
                # Opening a pipe would wait for its writer.
                invocation.tell_failure(UserError(file, "is neither a file nor a directory"))
                continue
            yield CopyJob(file, join(place, name))


def _check_free(invocation: Invocation, path: str, force: bool) -> None:
    """Refuse a bad target before anything is copied."""
    with contextlib.suppress(NotFoundError):
        status = invocation.client.stat(path)
        if status.kind is Kind.DIRECTORY:
            raise UserError(path, "is a directory")
        if not force:
            raise UserError(path, "file exists (replace it with -f)")


@contextlib.contextmanager
def _local_source(source: str) -> Iterator[BinaryIO]:
    """Yield a local file or standard input."""
    if source == STREAM:
        yield sys.stdin.buffer
        return
    if os.path.isdir(source):
        raise UserError(source, "is a directory")
    with open(source, "rb") as stream:
        yield stream


@contextlib.contextmanager
def _published(
    invocation: Invocation,
    how: dict[str, Any],
    wanted: str,
    *,
    force: bool,
    directly: bool,
) -> Iterator[FileWriter]:
    """Yield a file to write. It becomes `wanted`, or vanishes if writing fails."""
    how = {"parent_must_exist": True, **how}
    if directly:
        with invocation.client.create(wanted, overwrite=force, **how) as out:
            yield out
        return
    path = wanted + COPYING
    out = _begun(invocation.client, path, how)
    ours = out.status.file_id  # not a file that another put has begun since
    try:
        with out:
            yield out
        invocation.client.transact([AssertFile(path, ours), Rename(path, wanted, force)])
    except BaseException as error:
        invocation.failed(error)
        # It may still be open: a file whose last bytes found no place cannot be closed.
        with contextlib.suppress(PaxosBlockError):
            invocation.client.transact([Delete(path, file_id=ours)])
        raise


def _begun(client: Client, path: str, how: dict[str, Any]) -> FileWriter:
    """Begin the file that gets its name at the end. What another put has begun there goes, as with
    hdfs: one that was killed keeps its lease for a minute, and one at work ends with an error.
    """
    try:
        return client.create(path, overwrite=True, **how)
    except LeaseError:
        client.delete(path)
        return client.create(path, overwrite=True, **how)


def _pieces(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the bytes as they come: from a pipe no more than it holds now."""
    read = getattr(stream, "read1", stream.read)
    while piece := read(PIECE_BYTES):
        yield piece


def _pauses(stream: BinaryIO) -> bool:
    """True if there is nothing to read right now, as in a pipe that waits for its writer."""
    return not select.select([stream], [], [], 0)[0]


# --- append --------------------------------------------------------------------------------------


@click.command(cls=Verb)
@click.argument("sources", nargs=-1, required=True, metavar="LOCAL...")
@click.argument("destination", metavar="PATH")
@click.pass_obj
def append(invocation: Invocation, sources: tuple[str, ...], destination: str) -> None:
    """Add local files to the end of a file; - is standard input.

    \b
      $ paxosblock fs append a.log b.log /logs/all.log
      $ journalctl -f | paxosblock fs append - /logs/journal

    A file that does not exist is made. What was written can be read at once; when something fails,
    what was written until then stays. Prints nothing when it is done.
    """
    path = the_one_that_may_be_made(invocation, destination)
    with _opened_at_end(invocation.client, path) as out:

        def copy(source: str) -> None:
            start = out.tell()
            with (
                _local_source(source) as stream,
                progress_bar(source, _size_of(source), wanted=not invocation.json) as advance,
            ):
                for piece in _pieces(stream):
                    out.write(piece)
                    if _pauses(stream):
                        out.hflush()
                    advance(len(piece))
            invocation.tell({"source": source, "path": path, "size_bytes": out.tell() - start})

        invocation.for_each(sources, copy)


def _opened_at_end(client: Client, path: str) -> FileWriter:
    """Open the file at its end, or make a new one; as hdfs does."""
    try:
        return client.append(path)
    except NotFoundError:
        return client.create(path, parent_must_exist=True)


# --- truncate ------------------------------------------------------------------------------------


@click.command(cls=Verb, context_settings={"ignore_unknown_options": True})  # a length of -1
@click.option("-w", "_wait", is_flag=True, help="Accepted, but there is nothing to wait for.")
@click.argument("length", metavar="LENGTH")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.pass_obj
def truncate(invocation: Invocation, *, _wait: bool, length: str, paths: tuple[str, ...]) -> None:
    """Cut files to their first LENGTH bytes.

    \b
      $ paxosblock fs truncate 1024 /logs/a.log
      Truncated /logs/a.log to length: 1024

    This is one step and takes effect at once: a truncated file can be read and appended to. A
    program that is reading it gets an error that says so. A file that is being written is left as
    it is.
    """
    if not length.removeprefix("-").isdecimal():
        raise UserError(length, "is no length: write a number of bytes, as in `truncate 1024 /a`")

    def cut(path: str) -> None:
        status = invocation.client.truncate(path, int(length))
        invocation.say(f"Truncated {path} to length: {status.size}", status)

    for_each_path(invocation, paths, cut)


# --- get -----------------------------------------------------------------------------------------


@click.command(cls=Verb)
@click.option("-f", "force", is_flag=True, help="Replace a local file that exists.")
@click.argument("words", nargs=-1, required=True, metavar="PATH... [LOCAL]")
@click.pass_obj
def get(invocation: Invocation, *, force: bool, words: tuple[str, ...]) -> None:
    """Copy files and directories to this machine; the last argument is the place, - is standard
    output.

    \b
      $ paxosblock fs get /logs/a.log /logs/b.log backup/
      $ paxosblock fs get /logs/a.log - | wc -l

    A local file appears under its name when it is complete. Prints nothing when it is done.
    """
    written, destination = (words[:-1], words[-1]) if len(words) > 1 else (words, ".")
    sources = [path for each in written for path in matching(invocation, each)]
    inside = destination != STREAM and os.path.isdir(destination)
    if not inside and len(sources) > 1 and destination != STREAM:
        raise UserError(destination, "no such directory")

    def copy(path: str) -> None:
        local = os.path.join(destination, base_name(path)) if inside else destination
        shown = shows_bar(wanted=not invocation.json and local != STREAM)
        try:
            with invocation.client.open(path) as file:
                with progress_bar(base_name(path), file.size, wanted=shown) as advance:
                    copied = copy_opened(file, local, advance)
                if local != STREAM:
                    copied.tell(invocation)
        except IsDirectoryError:
            if local == STREAM:
                raise
            client = invocation.client
            total = sum(entry.size for entry in client.walk(path)) if shown else None
            with progress_bar(base_name(path), total, wanted=shown) as advance:
                copy_together(invocation, _tree(client, path, local), copy_file, advance)

    def copy_file(job: CopyJob, advance: Advance) -> Copied:
        with invocation.client.open(job.source) as file:
            return copy_opened(file, job.target, advance)

    def copy_opened(file: FileReader, local: str, advance: Advance) -> Copied:
        with _local_target(local, force) as out:
            _copy(file, out, advance)
        return Copied(CopyJob(file.name, local), file.size)

    invocation.for_each(sources, copy)


def _tree(client: Client, path: str, local: str) -> Iterator[CopyJob]:
    """Make the directories of a remote one here, and yield its files, each with its target."""
    os.makedirs(local, exist_ok=True)
    for entry in client.walk(path):
        place = local.rstrip("/") + entry.path.removeprefix(path.rstrip("/"))
        if entry.kind is Kind.DIRECTORY:
            os.makedirs(place, exist_ok=True)
        else:
            yield CopyJob(entry.path, place)


@contextlib.contextmanager
def _local_target(local: str, force: bool) -> Iterator[BinaryIO]:
    """Yield a stream for the bytes; the local file appears when all of them have come."""
    if local == STREAM:
        with _standard_output() as out:
            yield out
        return
    if os.path.isdir(local):
        raise UserError(local, "is a directory")
    if os.path.lexists(local) and not force:
        raise UserError(local, "file exists (replace it with -f)")
    scratch = Path(local + COPYING)
    try:
        scratch.touch()
    except OSError as error:  # name the user's file in the error, not our draft
        raise UserError(local, reason_of(error)) from error
    try:
        with open(scratch, "wb") as out:
            yield out
        scratch.replace(local)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise


# --- cat, head, tail -----------------------------------------------------------------------------


@click.command(cls=Verb)
@click.argument("paths", nargs=-1, required=True)
@click.pass_obj
def cat(invocation: Invocation, paths: tuple[str, ...]) -> None:
    """Write files to standard output, one after the other.

    \b
      $ paxosblock fs cat /logs/a.log /logs/b.log | sort

    Of a file that is being written you get all that was acknowledged when it was opened. If the
    length of its last block is not known, you get what comes before that block, then an error.
    """
    with _standard_output() as out:

        def copy(path: str) -> None:
            with invocation.client.open(path) as file:
                _copy_decided(file, out)

        for_each_path(invocation, paths, copy)


@click.command(cls=Verb)
@click.argument("path")
@click.pass_obj
def head(invocation: Invocation, path: str) -> None:
    """Write the first kilobyte of a file.

    \b
      $ paxosblock fs head /logs/a.log
    """
    name = the_one(invocation, path)
    with invocation.client.open(name) as file, _standard_output() as out:
        left = END_BYTES
        while data := file.read(left):
            left -= out.write(data)


@click.command(cls=Verb)
@click.option("-f", "follow", is_flag=True, help="Go on as the file grows, until Ctrl-C.")
@click.argument("path")
@click.pass_obj
def tail(invocation: Invocation, *, follow: bool, path: str) -> None:
    """Write the last kilobyte of a file.

    \b
      $ paxosblock fs tail -f /logs/a.log

    With -f every byte follows as soon as it is decided, even if it is appended after the file was
    closed. Ctrl-C ends it; so does truncating, deleting or replacing the file.
    """
    name = the_one(invocation, path)
    client = invocation.client
    with _standard_output() as out:
        with client.open(name) as file:
            start = file.seek(max(0, file.decided_size - END_BYTES))
            if not follow:
                _copy_decided(file, out)
                return
        client.while_waiting(None)  # its writer may take any time
        for piece in client.follow(name, start, past_close=True):
            out.write(piece)
            out.flush()


def _copy(file: FileReader, out: BinaryIO, advance: Advance) -> None:
    """Copy the rest of a file of known length, through one buffer."""
    buffer = memoryview(bytearray(min(file.size, PIECE_BYTES)))
    while count := file.readinto(buffer):
        out.write(buffer[:count])
        advance(count)


def _copy_decided(file: FileReader, out: BinaryIO) -> None:
    """Copy the rest of a file. If an error ends it, the bytes before are written first."""
    try:
        for piece in file.pieces():
            out.write(piece)
    finally:
        out.flush()


@contextlib.contextmanager
def _standard_output() -> Iterator[BinaryIO]:
    """Standard output for bytes. Buffered, so that no write is partial, even under python -u."""
    sys.stdout.flush()
    with open(sys.stdout.fileno(), "wb", closefd=False) as out:
        yield out
