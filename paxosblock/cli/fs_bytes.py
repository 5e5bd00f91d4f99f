"""The verbs of `paxosblock fs` that move bytes: put, append, truncate, get, cat, head, tail."""

from __future__ import annotations

import bz2
import contextlib
import enum
import gzip
import os
import select
import shutil
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

import click

from paxosblock.api.namenode import Kind
from paxosblock.api.transaction import AssertFile, Delete, Rename
from paxosblock.base.replacement import OnFailure, Replacement, WriteOptions
from paxosblock.base.units import KIB, MIB
from paxosblock.cli.descriptions import shortfall
from paxosblock.cli.fs_names import (
    AT,
    for_each_path,
    list_all,
    matching,
    status_of,
    target_is_directory,
    the_one,
    the_one_that_may_be_made,
)
from paxosblock.cli.group import Verb
from paxosblock.cli.invocation import Invocation, UserError, reason_of
from paxosblock.cli.progress_bar import Advance, progress_bar, shows_bar
from paxosblock.client.copies.copy_steps import AT_ONCE, CopyAction, CopyStep
from paxosblock.client.copies.places import draft_of, in_the_way, same_state
from paxosblock.client.names.walk import base_name, join
from paxosblock.errors import LeaseError, NotFoundError, PaxosBlockError
from paxosblock.protocol.types import Durability

if TYPE_CHECKING:
    from paxosblock.client import Client
    from paxosblock.client.blocking.sync import FileReader, FileWriter

PIECE_BYTES: Final = 4 * MIB
END_BYTES: Final = 1024
"""Number of bytes that head and tail show."""
TAIL_BYTES: Final = 64 * KIB
"""Bytes that `tail -n` looks at in one step."""
PRESERVED: Final = "top"
"""The letters of `-p`: times, owner and group, permission."""
_FOREIGN: Final = {b"SEQ": "a SequenceFile", b"Obj\x01": "an Avro file"}
"""Kinds of files that `hdfs dfs -text` reads, and `text` does not, by their first bytes."""
TAKES_BACK_S: Final = 15.0
"""Seconds for which an interrupted copy may remove the files that are not complete."""
STREAM: Final = "-"
"""Standard input or output in the place of a local file."""


# --- put -----------------------------------------------------------------------------------------


PRESERVE: Final = click.option(
    "-p", "preserve", is_flag=True, help="Keep times, owner, group and permission."
)
THREADS: Final = click.option(
    "-t",
    "at_once",
    metavar="THREADS",
    type=click.IntRange(1),
    default=AT_ONCE,
    help=f"Files of a directory, or batches of small ones, copied at once.  [default: {AT_ONCE}]",
)
QUEUE: Final = click.option(
    "-q", "_queue", metavar="SIZE", type=int, hidden=True, help="Accepted, for hdfs's sake."
)


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
@PRESERVE
@click.option(
    "-l", "lazily", is_flag=True, help="As --replication 1 --durability memory: hdfs's lazy writes."
)
@THREADS
@QUEUE
@click.argument("sources", nargs=-1, required=True, metavar="LOCAL...")
@click.argument("destination")
@click.pass_obj
def put(
    invocation: Invocation,
    /,
    *,
    sources: tuple[str, ...],
    destination: str,
    **flags: Any,
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
    put_all(invocation, sources, destination, **flags)


def put_all(
    invocation: Invocation,
    sources: tuple[str, ...],
    destination: str,
    *,
    force: bool = False,
    directly: bool = False,
    preserve: bool = False,
    lazily: bool = False,
    at_once: int = AT_ONCE,
    on_failure: str | None = None,
    replace_on_failure: str | None = None,
    done: Callable[[CopyStep], None] = lambda _: None,
    **how: Any,
) -> None:
    """Do as `put` does; `done` hears of each file, and of each directory behind what is in it."""
    how.pop("_queue", None)
    how["options"] = WriteOptions(on_failure, replace_on_failure)
    if lazily:
        how |= {"replication": 1, "durability": Durability.MEMORY.value}
    target = invocation.path(destination)
    inside = target_is_directory(invocation, target, destination, len(sources))

    def copy(source: str) -> None:
        if source == STREAM and inside:
            raise UserError(destination, "is a directory: standard input needs a file name")
        wanted = join(target, base_name(os.path.abspath(source))) if inside else target
        if source == STREAM or not (os.path.isdir(source) or os.path.isfile(source)):
            copied = _put_stream(invocation, source, wanted, how, force=force, directly=directly)
            tell_copied(invocation, copied, done)
            return
        with copying(invocation, base_name(wanted), partial(local_bytes, source)) as progress:
            invocation.client.upload(
                source,
                wanted,
                overwrite=force,
                preserve=PRESERVED if preserve else "",
                directly=directly,
                at_once=at_once,
                told=lambda step: tell_copied(invocation, step, done),
                progress=progress,
                **how,
            )

    invocation.for_each(sources, copy)


def tell_copied(
    invocation: Invocation, step: CopyStep, done: Callable[[CopyStep], None] = lambda _: None
) -> None:
    """Tell who asked for it what became of a file."""
    if step.error is not None:
        tell_failed(invocation, step.error, step.source)
        return
    if step.replicas < step.replication:
        short = f"{shortfall(step.replicas, step.replication)}: {step.shortfall}"
        invocation.warn(step.path, f"warning: {short}")
    try:
        done(step)
    except (PaxosBlockError, OSError) as error:
        tell_failed(invocation, error, step.source)
    else:
        if step.action is CopyAction.COPIED:
            fact = {"source": step.source, "path": step.path, "size_bytes": step.size}
            invocation.tell(fact)


def tell_failed(invocation: Invocation, error: PaxosBlockError | OSError, path: str) -> None:
    """Tell who asked for it why a file was not copied."""
    invocation.failed(error)
    invocation.tell_failure(error, path)


@contextlib.contextmanager
def copying(invocation: Invocation, what: str, measure: Callable[[], int]) -> Iterator[Advance]:
    """Yield what shows the progress of a copy, which waits for the cluster while nothing goes on;
    `measure` is asked for its bytes if that is shown. Its errors are told one by one."""
    wanted = not invocation.json
    total = measure() if shows_bar(wanted=wanted) else None
    with progress_bar(what, total, wanted=wanted) as advance:
        went_on = time.monotonic()

        def progress(count: int) -> None:
            nonlocal went_on
            went_on = time.monotonic()
            advance(count)

        client = invocation.client
        client.while_waiting(
            lambda _: invocation.tell_waiting(time.monotonic() - went_on), TAKES_BACK_S
        )
        try:
            yield progress
        finally:
            client.while_waiting(invocation.tell_waiting)


def _put_stream(
    invocation: Invocation,
    source: str,
    path: str,
    how: dict[str, Any],
    *,
    force: bool,
    directly: bool,
) -> CopyStep:
    """Put what comes from standard input or a pipe, for which it waits as long as it takes."""
    check_free(invocation, path, force)
    with (
        _local_source(source) as stream,
        progress_bar(base_name(path), None, wanted=not invocation.json) as advance,
        _published(invocation, how, path, force=force, directly=directly) as out,
    ):
        for piece in _pieces(stream):
            out.write(piece)
            if directly and _pauses(stream):
                out.hflush()
            advance(len(piece))
    return CopyStep(
        CopyAction.COPIED, source, path, out.tell(),
        replicas=out.fewest_replicas, replication=out.status.replication, shortfall=out.shortfall,
    )  # fmt: skip


def bytes_at(invocation: Invocation, path: str) -> int:
    """Return the size of a file of the cluster, or of all files of a directory."""
    return invocation.client.content_summary(path).size


def local_bytes(source: str) -> int:
    """Return the size of a local file, or of all files of a directory, as far as it can be told."""
    size = 0 if os.path.isdir(source) else os.stat(source).st_size
    for folder, _, names in os.walk(source):
        for name in names:
            with contextlib.suppress(OSError):
                size += os.stat(os.path.join(folder, name)).st_size
    return size


def check_free(invocation: Invocation, path: str, force: bool) -> None:
    """Refuse a bad target before anything is copied."""
    with contextlib.suppress(NotFoundError):
        status = invocation.client.stat(path)
        if status.kind is Kind.DIRECTORY:
            raise UserError(path, "is a directory")
        if not force:
            raise in_the_way(path)


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
    invocation: Invocation, how: dict[str, Any], wanted: str, *, force: bool, directly: bool
) -> Iterator[FileWriter]:
    """Yield a file to write. It becomes `wanted`, or vanishes if writing fails."""
    how = {"parent_must_exist": True, **how}
    if directly:
        with invocation.client.create(wanted, overwrite=force, **how) as out:
            yield out
        return
    path = draft_of(wanted)
    out = _begun(invocation.client, path, how)
    ours = out.status.file_id  # not a file that another put has begun since
    try:
        with out:
            yield out
            out.close(then=[AssertFile(path, ours), Rename(path, wanted, force)])
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
@click.option("-n", "new_block", is_flag=True, help="Go on in a new block.")
@click.argument("sources", nargs=-1, required=True, metavar="LOCAL...")
@click.argument("destination", metavar="PATH")
@click.pass_obj
def append(
    invocation: Invocation, *, new_block: bool, sources: tuple[str, ...], destination: str
) -> None:
    """Add local files to the end of a file; - is standard input.

    \b
      $ paxosblock fs append a.log b.log /logs/all.log
      $ journalctl -f | paxosblock fs append - /logs/journal

    A file that does not exist is made. What was written can be read at once; when something fails,
    what was written until then stays. Prints nothing when it is done.
    """
    path = the_one_that_may_be_made(invocation, destination)
    with _opened_at_end(invocation.client, path, new_block) as out:

        def copy(source: str) -> None:
            start = out.tell()
            size_bytes = None if source == STREAM else os.stat(source).st_size
            with (
                _local_source(source) as stream,
                progress_bar(source, size_bytes, wanted=not invocation.json) as advance,
            ):
                for piece in _pieces(stream):
                    out.write(piece)
                    if _pauses(stream):
                        out.hflush()
                    advance(len(piece))
            invocation.tell({"source": source, "path": path, "size_bytes": out.tell() - start})

        invocation.for_each(sources, copy)


def _opened_at_end(client: Client, path: str, new_block: bool) -> FileWriter:
    """Open the file at its end, or make a new one; as hdfs does."""
    try:
        return client.append(path, new_block=new_block)
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


@click.command(cls=Verb)
@click.option("-f", "force", is_flag=True, help="Replace a file that exists.")
@PRESERVE
@click.option("-l", "lazily", is_flag=True, help="As --replication 1 --durability memory for put.")
@click.option("-d", "directly", is_flag=True, help="Write to the destination itself.")
@click.argument("sources", nargs=-1, required=True, metavar="LOCAL...")
@click.argument("destination")
@click.pass_obj
def moveFromLocal(
    invocation: Invocation, /, *, sources: tuple[str, ...], destination: str, **flags: Any
) -> None:
    """Copy local files and directories into the cluster as `put` does, and delete them here.

    \b
      $ paxosblock fs moveFromLocal a.log /logs/

    A local file goes when its copy has its name in the cluster; one that was changed meanwhile
    stays, and so does a directory with something in it. Prints nothing when it is done.
    """
    if STREAM in sources:
        raise click.UsageError("standard input cannot be moved; use put")

    def done(step: CopyStep) -> None:
        if step.action is not CopyAction.COPIED:
            with contextlib.suppress(OSError):
                os.rmdir(step.source)
        elif isinstance(step.original, os.stat_result):
            if not same_state(step.original, os.stat(step.source)):
                raise UserError(step.source, "was changed while it was copied, and stays")
            os.unlink(step.source)

    put_all(invocation, sources, destination, done=done, **flags)


@click.command(cls=Verb)
@click.argument("source", metavar="PATH")
@click.argument("local")
@click.pass_obj
def moveToLocal(invocation: Invocation, *, source: str, local: str) -> None:
    """Not implemented, as in hdfs.

    \b
      $ paxosblock fs moveToLocal /logs/a.log .
      moveToLocal: '/logs/a.log': option '-moveToLocal' is not implemented yet: use get, then rm
    """
    raise UserError(source, "option '-moveToLocal' is not implemented yet: use get, then rm")


# --- get -----------------------------------------------------------------------------------------


@click.command(cls=Verb)
@click.option("-f", "force", is_flag=True, help="Replace a local file that exists.")
@PRESERVE
@click.option("-ignoreCrc", "_ignore", is_flag=True, help="Accepted: bytes are always checked.")
@click.option("-crc", "_crc", is_flag=True, help="Accepted: no file of checksums is written.")
@THREADS
@QUEUE
@AT
@click.argument("words", nargs=-1, required=True, metavar="PATH... [LOCAL]")
@click.pass_obj
def get(
    invocation: Invocation,
    /,
    *,
    force: bool,
    preserve: bool,
    at_once: int,
    words: tuple[str, ...],
    **_: Any,
) -> None:
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
        if destination == STREAM:
            with invocation.client.open(path) as file, _standard_output() as out:
                _copy(file, out)
            return
        local = os.path.join(destination, base_name(path)) if inside else destination
        with copying(invocation, base_name(path), partial(bytes_at, invocation, path)) as progress:
            invocation.client.download(
                path,
                local,
                overwrite=force,
                preserve=PRESERVED if preserve else "",
                at_once=at_once,
                told=lambda step: tell_copied(invocation, step),
                progress=progress,
            )

    invocation.for_each(sources, copy)


@contextlib.contextmanager
def _merged(local: str) -> Iterator[BinaryIO]:
    """Yield a stream for the bytes; the local file appears when all of them have come."""
    if os.path.isdir(local):
        raise UserError(local, "is a directory")
    scratch = Path(draft_of(local))
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
@click.option("-ignoreCrc", "_ignore", is_flag=True, help="Accepted: bytes are always checked.")
@AT
@click.argument("paths", nargs=-1, required=True)
@click.pass_obj
def cat(invocation: Invocation, *, _ignore: bool, paths: tuple[str, ...]) -> None:
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
@click.option("-ignoreCrc", "_ignore", is_flag=True, help="Accepted: bytes are always checked.")
@AT
@click.argument("paths", nargs=-1, required=True)
@click.pass_obj
def text(invocation: Invocation, *, _ignore: bool, paths: tuple[str, ...]) -> None:
    """Write files to standard output, unpacked if they are gzip, bzip2 or zlib.

    \b
      $ paxosblock fs text /logs/a.log.gz | head

    gzip is known by its first bytes, the others by .bz2 and .deflate. SequenceFiles and Avro files
    are not read.
    """
    with _standard_output() as out:

        def copy(path: str) -> None:
            with invocation.client.open(path) as file:
                first = file.pread(0, 4)
                kind = _FOREIGN.get(first[:3]) or _FOREIGN.get(first)
                if kind is not None:
                    raise UserError(path, f"is {kind}, which is not read here")
                unpacked: BinaryIO | None = None
                if first.startswith(b"\x1f\x8b"):
                    unpacked = cast(BinaryIO, gzip.GzipFile(fileobj=file))
                elif path.endswith(".bz2"):
                    unpacked = cast(BinaryIO, bz2.BZ2File(file))
                try:
                    if path.endswith(".deflate"):
                        _inflate(file, out)
                    elif unpacked is not None:
                        shutil.copyfileobj(unpacked, out, PIECE_BYTES)
                    else:
                        _copy_decided(file, out)
                except (EOFError, zlib.error) as error:
                    raise UserError(path, f"cannot be unpacked: {error}") from error

        for_each_path(invocation, paths, copy)


def _inflate(file: FileReader, out: BinaryIO) -> None:
    unpacking = zlib.decompressobj()
    for piece in file.pieces():
        out.write(unpacking.decompress(piece))
    out.write(unpacking.flush())
    if not unpacking.eof:
        raise EOFError("it ends too early")


@click.command(cls=Verb)
@click.option("-nl", "newline", is_flag=True, help="A newline behind each file.")
@click.option("-skip-empty-file", "skip_empty", is_flag=True, help="None behind empty ones.")
@AT
@click.argument("sources", nargs=-1, required=True, metavar="PATH...")
@click.argument("local")
@click.pass_obj
def getmerge(
    invocation: Invocation,
    *,
    newline: bool,
    skip_empty: bool,
    sources: tuple[str, ...],
    local: str,
) -> None:
    """Copy files, and those of directories, one after the other into one local file.

    \b
      $ paxosblock fs getmerge -nl /logs/2024 all.log

    Of a directory the files in it are taken, by name, not those of directories below. If one cannot
    be read there is no local file. Prints nothing when it is done.
    """
    files: list[str] = []

    def add(path: str) -> None:
        status = status_of(invocation, path)
        found = [status] if status.kind is Kind.FILE else list_all(invocation, path)
        files.extend(entry.path for entry in found if entry.kind is Kind.FILE)

    for_each_path(invocation, sources, add)
    if invocation.failures:
        return
    with _merged(local) as out:
        for path in files:
            with invocation.client.open(path) as file:
                size = 0
                for piece in file.pieces():
                    size += out.write(piece)
                if newline and (size or not skip_empty):
                    out.write(b"\n")
    invocation.tell({"sources": files, "path": local})


@click.command(cls=Verb)
@AT
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
@click.option("-n", "lines", type=click.IntRange(0), metavar="LINES", help="So many lines.")
@click.option("-s", "_interval", type=int, metavar="MS", help="Accepted: what comes is shown.")
@AT
@click.argument("path")
@click.pass_obj
def tail(
    invocation: Invocation, *, follow: bool, lines: int | None, _interval: int | None, path: str
) -> None:
    """Write the last kilobyte of a file, or its last lines.

    \b
      $ paxosblock fs tail -f /logs/a.log

    With -f every byte follows as soon as it is decided, even if it is appended after the file was
    closed. Ctrl-C ends it; so does truncating, deleting or replacing the file.
    """
    if follow and invocation.at:
        raise click.UsageError("-f follows what is there now, not what was --at a time")
    name = the_one(invocation, path)
    client = invocation.client
    with _standard_output() as out:
        with client.open(name) as file:
            start = file.seek(_tail_start(file, lines))
            if not follow:
                _copy_decided(file, out)
                return
        client.while_waiting(None)  # its writer may take any time
        for piece in client.follow(name, start, past_close=True):
            out.write(piece)
            out.flush()


def _tail_start(file: FileReader, lines: int | None) -> int:
    """Return where the last kilobyte begins, or the last lines."""
    end = file.decided_size
    if lines is None:
        return max(0, end - END_BYTES)
    left, place = lines, end
    while place:
        begin = max(0, place - TAIL_BYTES)
        piece = file.pread(begin, place - begin)
        if place == end:
            piece = piece.removesuffix(b"\n")  # it ends the last line, and begins none
        at = len(piece)
        while (at := piece.rfind(b"\n", 0, at)) >= 0:
            left -= 1
            if not left:
                return begin + at + 1
        if not lines:
            return end
        place = begin
    return 0 if lines else end


def _copy(file: FileReader, out: BinaryIO) -> None:
    """Copy the rest of a file of known length, through one buffer."""
    buffer = memoryview(bytearray(min(file.size, PIECE_BYTES)))
    while count := file.readinto(buffer):
        out.write(buffer[:count])


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
