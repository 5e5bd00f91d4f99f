"""`paxosblock fs cp`, and `checksum`, by which copies are compared."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import click
import msgspec

from paxosblock.api.namenode import MKDIRS, FileStatus, Kind
from paxosblock.api.transaction import Operation, SetOwner, SetPermission, SetTimes
from paxosblock.base.modes import PERMISSION_MAX
from paxosblock.cli.copy_together import Copied, CopyJob, CopyOne, copy_together
from paxosblock.cli.fs_bytes import (
    QUEUE,
    THREADS,
    check_free,
    published,
)
from paxosblock.cli.fs_names import (
    for_each_path,
    matching,
    status_of,
    target_is_directory,
)
from paxosblock.cli.group import Verb
from paxosblock.cli.invocation import Invocation, UserError
from paxosblock.cli.progress_bar import Advance, progress_bar, shows_bar
from paxosblock.client.names.walk import base_name, join
from paxosblock.errors import NotFoundError

_PRESERVE: Final = re.compile(r"-p([topax]*)")
_ALL: Final = "top"


class _CopyVerb(Verb):
    """Takes `-p` with letters behind it, as hdfs does: click would take the next word for them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Write `-ptop` as `--preserve=top`."""
        found = [_PRESERVE.fullmatch(word) for word in args]
        return super().parse_args(
            ctx,
            [
                f"--preserve={match[1] or _ALL}" if match else word
                for word, match in zip(args, found, strict=True)
            ],
        )


def attributes(status: FileStatus, path: str, letters: str) -> list[Operation]:
    """Return what gives a copy at `path` what `letters` name of the original."""
    wanted: list[Operation] = []
    if "t" in letters:
        wanted.append(SetTimes(path, status.modified_s))
    if "p" in letters or "a" in letters:
        wanted.append(SetPermission(path, status.permission & PERMISSION_MAX))
    if "o" in letters:
        wanted.append(SetOwner(path, status.owner, status.group))
    return wanted


@click.command(cls=_CopyVerb)
@click.option("-f", "force", is_flag=True, help="Replace files that exist.")
@click.option(
    "--preserve",
    metavar="[topax]",
    default="",
    help="Or -p[topax]: keep times, owner and group, permission; -p is -ptop.",
)
@click.option("-d", "directly", is_flag=True, help="Write to the destinations themselves.")
@THREADS
@QUEUE
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.argument("destination")
@click.pass_obj
def cp(
    invocation: Invocation,
    /,
    *,
    force: bool,
    preserve: str,
    directly: bool,
    at_once: int,
    sources: tuple[str, ...],
    destination: str,
    **_: Any,
) -> None:
    """Copy files and directories within the cluster.

    \b
      $ paxosblock fs cp -p /logs/2024 /archive/

    The files of a directory are copied eight at once. A file appears under its name when it is
    complete; it gets the replication, block size and durability of the original. Prints nothing
    when it is done.
    """
    target = invocation.path(destination)
    found = [path for source in sources for path in matching(invocation, source)]
    inside = target_is_directory(invocation, target, destination, len(found))
    shown = shows_bar(wanted=not invocation.json)
    copy_file = _copier(invocation, preserve, force=force, directly=directly)

    def copy(source: str) -> None:
        status = status_of(invocation, source)
        wanted = join(target, base_name(source)) if inside else target
        if status.kind is Kind.FILE:
            with progress_bar(base_name(wanted), status.size, wanted=shown) as advance:
                copied = copy_file(CopyJob(source, wanted), advance)
            copied.tell(invocation)
            return
        if f"{wanted.rstrip('/')}/".startswith(f"{source.rstrip('/')}/"):
            raise UserError(source, f"to '{wanted}': is a subdirectory of itself")
        made: list[tuple[FileStatus, str]] = []
        with progress_bar(base_name(wanted), None, wanted=shown) as advance:
            jobs = _tree(invocation, status, wanted, made)
            copy_together(invocation, jobs, copy_file, advance, at_once)
        for original, path in reversed(made) if preserve else ():
            invocation.client.transact(attributes(original, path, preserve))

    invocation.for_each(found, copy)


def _copier(invocation: Invocation, preserve: str, *, force: bool, directly: bool) -> CopyOne:
    """Return what copies one file."""

    def copy_file(job: CopyJob, advance: Advance) -> Copied:
        check_free(invocation, job.target, force)
        with invocation.client.open(job.source) as file:
            status = file.status
            how = {
                "replication": status.replication,
                "block_size": status.block_size,
                "durability": status.durability,
            }
            with published(
                invocation,
                how,
                job.target,
                force=force,
                directly=directly,
                attributes=lambda path: attributes(status, path, preserve),
            ) as out:
                for piece in file.pieces():
                    out.write(piece)
                    advance(len(piece))
        return Copied(job, out.tell())

    return copy_file


def _tree(
    invocation: Invocation, top: FileStatus, target: str, made: list[tuple[FileStatus, str]]
) -> Iterator[CopyJob]:
    """Make the directories of a copy, and yield its files; `made` gets each directory."""
    _make(invocation, target)
    made.append((top, target))
    for entry in invocation.client.walk(top.path):
        place = target.rstrip("/") + entry.path.removeprefix(top.path.rstrip("/"))
        if entry.kind is Kind.FILE:
            yield CopyJob(entry.path, place)
        else:
            _make(invocation, place)
            made.append((entry, place))


def _make(invocation: Invocation, path: str) -> None:
    """Make a directory whose parent is there, unless it is there."""
    try:
        if status_of(invocation, path).kind is Kind.FILE:
            raise UserError(path, "file exists")
    except NotFoundError:
        invocation.call_once(MKDIRS, invocation.new_directory(path, parents=False))


@click.command(cls=Verb)
@click.option("-v", "block_size", is_flag=True, help="Show the block size, too.")
@click.argument("paths", nargs=-1, required=True)
@click.pass_obj
def checksum(invocation: Invocation, *, block_size: bool, paths: tuple[str, ...]) -> None:
    """Show checksums as HDFS has them: of files with the same bytes and blocks they are the same.

    \b
      $ paxosblock fs checksum /logs/a.log
      /logs/a.log  MD5-of-0MD5-of-512CRC32C  000002000000000000000000...

    The columns have tabs between them. All bytes are read, and checked on the way.
    """

    def show(path: str) -> None:
        found = invocation.client.checksum(path)
        line = f"{path}\t{found.algorithm}\t{found.text}"
        size = status_of(invocation, path).block_size
        fact = {"path": path, **msgspec.to_builtins(found), "block_size": size}
        invocation.say(f"{line}\tBlockSize={size}" if block_size else line, fact)

    for_each_path(invocation, paths, show)
