"""The verbs of `paxosblock fs` that only ask the NameNode: ls, mkdir, mv, concat, stat."""

from __future__ import annotations

import re
import stat as unix
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

import click
import msgspec

from paxosblock.api.namenode import (
    CONCAT,
    LIST,
    MKDIRS,
    RENAME,
    STAT,
    ConcatFiles,
    FileStatus,
    Kind,
    ListDirectory,
    Listing,
    PathRequest,
    RenamePath,
)
from paxosblock.api.snapshot_calls import REVISION
from paxosblock.base.paths import ROOT
from paxosblock.cli.group import Verb
from paxosblock.cli.invocation import Invocation, UserError
from paxosblock.cli.text import human_size
from paxosblock.client.names.as_of import as_of
from paxosblock.client.names.glob_pattern import is_pattern
from paxosblock.client.names.walk import base_name, glob, join, pages, walk
from paxosblock.errors import NotFoundError


def status_of(invocation: Invocation, path: str) -> FileStatus:
    """Return the status of `path`. Raises NotFoundError."""
    return invocation.call(STAT, PathRequest(path))


def is_directory(invocation: Invocation, path: str) -> bool:
    """True if `path` is an existing directory."""
    try:
        return status_of(invocation, path).kind is Kind.DIRECTORY
    except NotFoundError:
        return False


class _Names:
    """The names of a cluster as `glob` asks for them; nothing here suspends."""

    def __init__(self, invocation: Invocation) -> None:
        self._invocation = invocation

    async def stat(self, path: str) -> FileStatus:
        return status_of(self._invocation, path)

    async def ls(self, path: str) -> list[FileStatus]:
        return list_all(self._invocation, path)


def _keep_at(ctx: click.Context, _: click.Parameter, value: str) -> None:
    invocation = ctx.find_object(Invocation)
    assert invocation is not None
    invocation.at = value


AT: Final = click.option(
    "--at",
    metavar="TIME",
    default="",
    expose_value=False,
    callback=_keep_at,
    help="As it was then, where a history is kept: 2h (ago), 2026-03-01T12:00, or @REVISION.",
)
"""For verbs that only read what `matching` names."""


def _past(invocation: Invocation, path: str) -> str:
    """Return the path at which is read what --at asks for: one moment for all paths.

    Raises:
        NotFoundError: no history is kept, or it begins later.
        InvalidRequestError: the time is none, or has not come yet.
    """
    if not invocation.at:
        return path
    if not invocation.at.startswith(REVISION):
        invocation.at = base_name(status_of(invocation, as_of(ROOT, invocation.at)).path)
    return as_of(path, invocation.at)


def matching(invocation: Invocation, written: str) -> list[str]:
    """Return the paths that a path or pattern names, in order: the path itself if there is such a
    file, or if nothing matches."""
    from paxosblock.net.calls.control import each_through

    path = _past(invocation, invocation.path(written))
    if not is_pattern(path):
        return [path]
    with suppress(NotFoundError):
        return [status_of(invocation, path).path]

    return [entry.path for entry in each_through(glob(_Names(invocation), path))] or [path]


def the_one(invocation: Invocation, written: str) -> str:
    """Return the one path that a path or pattern names. Raises UserError if it names several."""
    found = matching(invocation, written)
    if len(found) > 1:
        raise UserError(written, f"matches {len(found)} files; name one")
    return found[0]


def the_one_that_may_be_made(invocation: Invocation, written: str) -> str:
    """As `the_one`, for a verb that makes a file that is not there yet: not of a pattern.

    Raises:
        UserError: a pattern that names several, or none.
    """
    path = the_one(invocation, written)
    if is_pattern(path):
        try:
            status_of(invocation, path)
        except NotFoundError:
            raise UserError(written, "a pattern that matches no file") from None
    return path


def for_each_path(
    invocation: Invocation, written: Iterable[str], action: Callable[[str], None]
) -> None:
    """As `Invocation.for_each`, with the paths that the user wrote, and all that patterns match."""

    def for_matching(pattern: str) -> None:
        invocation.for_each(matching(invocation, pattern), action)

    invocation.for_each(written, for_matching)


# --- ls ------------------------------------------------------------------------------------------


@click.command(cls=Verb)
@click.option("-R", "recursive", is_flag=True, help="List directories below, too.")
@click.option("-h", "human", is_flag=True, help="Show sizes as 1.5 K, 256 M.")
@click.option("-d", "itself", is_flag=True, help="Show a directory itself, not what is in it.")
@click.option("-C", "only_paths", is_flag=True, help="Show paths only.")
@click.option("-t", "by_time", is_flag=True, help="Newest first.")
@click.option("-S", "by_size", is_flag=True, help="Largest first.")
@click.option("-r", "reverse", is_flag=True, help="Reverse the order.")
@click.option("-q", "printable", is_flag=True, help="Show ? for signs that cannot be printed.")
@AT
@click.argument("paths", nargs=-1)
@click.pass_obj
def ls(
    invocation: Invocation,
    *,
    recursive: bool,
    human: bool,
    itself: bool,
    only_paths: bool,
    by_time: bool,
    by_size: bool,
    reverse: bool,
    printable: bool,
    paths: tuple[str, ...],
) -> None:
    """List a directory (default: /), or show a file.

    \b
      $ paxosblock fs ls /logs
      Found 1 items
      -rw-r--r--   3 ada staff       1024 2025-03-01 12:00 /logs/a.log

    The columns are type and permission, replicas, owner, group, bytes, last change and path. The
    length of a file that is being written counts its finished blocks.
    """
    key = _order(by_time, by_size)

    def print_entries(entries: list[FileStatus]) -> None:
        _print_entries(invocation, entries, human, only_paths, printable)

    def order(entries: list[FileStatus]) -> list[FileStatus]:
        return sorted(entries, key=key, reverse=reverse)

    def show(path: str) -> None:
        status = status_of(invocation, path)
        if status.kind is Kind.FILE or itself:
            return print_entries([status])
        if recursive:
            for entry in walked(invocation, path, order):
                print_entries([entry])
            return None
        entries = order(list_all(invocation, path))
        if entries and not only_paths:
            invocation.say(f"Found {len(entries)} items")
        return print_entries(entries)

    for_each_path(invocation, paths or (ROOT,), show)


def _order(by_time: bool, by_size: bool) -> Callable[[FileStatus], float | str]:
    """Return what entries, which come in order of name, are sorted by: those that are alike stay
    so, as in hdfs, in a reverse order, too."""
    if by_size:
        return lambda entry: -entry.size
    if by_time:
        return lambda entry: -entry.modified_s
    return lambda entry: entry.path


def walked(
    invocation: Invocation,
    path: str,
    order: Callable[[list[FileStatus]], Iterable[FileStatus]] = iter,
) -> Iterator[FileStatus]:
    """Yield all that is below a directory, depth first like hdfs, each directory in this order."""
    from paxosblock.net.calls.control import each_through

    return each_through(walk(_Names(invocation), path, order))


def list_all(invocation: Invocation, path: str) -> list[FileStatus]:
    """Return every entry of a directory, as it was at one time."""
    from paxosblock.net.calls.control import each_through

    async def ask(request: ListDirectory) -> Listing:
        return invocation.call(LIST, request).of(path)

    return [entry for page in each_through(pages(ask, path)) for entry in page.entries]


def _print_entries(
    invocation: Invocation,
    entries: list[FileStatus],
    human: bool,
    only_paths: bool,
    printable: bool,
) -> None:

    def say(line: str) -> None:
        shown = (each if each.isprintable() else "?" for each in line)
        invocation.say("".join(shown) if printable else line)

    if invocation.json:
        for entry in entries:
            invocation.tell(entry)
    elif only_paths:
        for entry in entries:
            say(entry.path)
    else:
        for line in listing(entries, human):
            say(line)


def listing(entries: list[FileStatus], human: bool) -> list[str]:
    """Lines as `hdfs dfs -ls` prints them: columns as wide as their longest value."""
    rows = [
        (
            mode(entry) + ("+" if entry.has_acl else " "),
            str(entry.replication) if entry.kind is Kind.FILE else "-",
            entry.owner or "-",
            entry.group or "-",
            human_size(entry.size) if human else str(entry.size),
            time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.modified_s)),
            entry.path,
        )
        for entry in entries
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(5)] if rows else []
    return [
        f"{mode_text}{replicas:>{max(3, widths[1])}} {owner:<{widths[2]}} {group:<{widths[3]}} "
        f"{size:>{max(10, widths[4])}} {changed} {path}"
        for mode_text, replicas, owner, group, size, changed, path in rows
    ]


def mode(entry: FileStatus) -> str:
    """Such as "drwxr-xr-x"."""
    kind = unix.S_IFDIR if entry.kind is Kind.DIRECTORY else unix.S_IFREG
    return unix.filemode(kind | entry.permission)


# --- mkdir, mv -----------------------------------------------------------------------------------


@click.command(cls=Verb)
@click.option("-p", "parents", is_flag=True, help="Make missing parents; no error if it exists.")
@click.argument("paths", nargs=-1, required=True)
@click.pass_obj
def mkdir(invocation: Invocation, parents: bool, paths: tuple[str, ...]) -> None:
    """Make directories.

    \b
      $ paxosblock fs mkdir -p /logs/2025/03

    Prints nothing when it is done.
    """

    def make(written: str) -> None:
        request = invocation.new_directory(invocation.path(written), parents=parents)
        invocation.tell(invocation.call_once(MKDIRS, request))

    invocation.for_each(paths, make)


@click.command(cls=Verb)
@click.option("-f", "force", is_flag=True, help="Replace a file that exists.")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.argument("destination")
@click.pass_obj
def mv(invocation: Invocation, *, force: bool, sources: tuple[str, ...], destination: str) -> None:
    """Rename a file or directory, or move several into an existing directory.

    \b
      $ paxosblock fs mv /logs/a.log /archive/

    Replaces a file only with -f, a directory never. Prints nothing when it is done.
    """
    target = invocation.path(destination)
    found = [path for source in sources for path in matching(invocation, source)]
    inside = target_is_directory(invocation, target, destination, len(found))

    def move(source: str) -> None:
        wanted = join(target, base_name(source)) if inside else target
        invocation.tell(invocation.call_once(RENAME, RenamePath(source, wanted, force)))

    invocation.for_each(found, move)


def target_is_directory(invocation: Invocation, target: str, written: str, count: int) -> bool:
    """True if sources go *into* the target and keep their names.

    Raises:
        UserError: they must, and it is no directory.
    """
    if is_directory(invocation, target):
        return True
    if count > 1 or written.endswith("/"):
        raise UserError(written, "no such directory")
    return False


# --- concat --------------------------------------------------------------------------------------


@click.command(cls=Verb)
@click.argument("target")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.pass_obj
def concat(invocation: Invocation, target: str, sources: tuple[str, ...]) -> None:
    """Move what is in the SOURCE files, in order, to the end of TARGET, in one step.

    \b
      $ paxosblock fs concat /logs/all.log /logs/monday.log /logs/tuesday.log

    No byte is copied. All files must be there and none may be open for writing; the sources are
    gone afterwards. Prints nothing when it is done.
    """
    into = invocation.path(target)
    found = tuple(path for source in sources for path in matching(invocation, source))
    request = ConcatFiles(into, found)
    invocation.tell(invocation.call_once(CONCAT, request))


# --- stat ----------------------------------------------------------------------------------------


@click.command(cls=Verb)
@AT
@click.argument("words", nargs=-1, required=True, metavar="[FORMAT] PATH...")
@click.pass_obj
def stat(invocation: Invocation, words: tuple[str, ...]) -> None:
    """Show facts about files and directories, as FORMAT says (default: %y).

    \b
      $ paxosblock fs stat "%F %b bytes, %r replicas, %n" /logs/a.log
      regular file 1024 bytes, 3 replicas, a.log

    \b
    %b bytes        %F type           %n name        %o block size   %r replicas asked for
    %m members of the block that has the fewest: less than %r while DataNodes are missing
    %R racks of the block that is in the fewest: two, where there are two (and %r is not 1)
    %u owner        %g group          %a mode (octal)                %A mode (symbolic)
    %y changed, UTC %Y the same in ms %%  a percent sign

    With --json everything is shown, including the durability and whether the file is being written.
    """
    has_format = "%" in words[0] and not words[0].startswith("/")
    template, paths = (words[0], words[1:]) if has_format else ("%y", words)
    if not paths:
        raise click.UsageError("Missing argument 'PATH...'.")

    def show(path: str) -> None:
        status = status_of(invocation, path)
        asked = invocation.json or "%m" in template or "%R" in template
        replicas, racks = _fewest(invocation, status) if asked else (0, 0)
        fewest = {"fewest_replicas": replicas, "fewest_racks": racks}
        fact = msgspec.to_builtins(status) | fewest
        invocation.say(formatted(template, status, replicas, racks), fact)

    for_each_path(invocation, paths, show)


def _fewest(invocation: Invocation, status: FileStatus) -> tuple[int, int]:
    """Return the members of the block that has the fewest (fewer than `replication` is a
    shortfall), and the racks of the one that is in the fewest; unknown racks are not counted.
    """
    if status.kind is Kind.DIRECTORY:
        return 0, 0
    replicas, racks = status.replication, 0
    for number, block in enumerate(invocation.blocks(status.path)):
        found = len({member.rack for member in block.members if member.rack})
        replicas = min(replicas, len(block.members)) if number else len(block.members)
        racks = min(racks, found) if number else found
    return replicas, racks


def formatted(
    template: str, status: FileStatus, fewest_replicas: int, fewest_racks: int = 0
) -> str:
    """`template` with its %-letters filled in; unknown ones stay."""
    changed = datetime.fromtimestamp(status.modified_s, UTC)
    values = {
        "b": str(status.size),
        "F": "directory" if status.kind is Kind.DIRECTORY else "regular file",
        "n": status.name,
        "o": str(status.block_size),
        "r": str(status.replication),
        "m": str(fewest_replicas),
        "R": str(fewest_racks),
        "u": status.owner,
        "g": status.group,
        "a": f"{status.permission:o}",
        "A": mode(status)[1:],
        "y": changed.strftime("%Y-%m-%d %H:%M:%S"),
        "Y": str(round(status.modified_s * 1000)),
        "%": "%",
    }
    return re.sub("%(.)", lambda match: values.get(match[1], match[0]), template)
