"""The verbs of `paxosblock fs` about all that is below a path: du, df, count, find."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import click
import msgspec

from paxosblock.api.namenode import FileStatus
from paxosblock.api.quota import LIST_QUOTAS, ListQuotas, QuotaUsage
from paxosblock.api.snapshot_calls import (
    KEPT_ROOM,
    REVISION,
    SNAPSHOT_DIRECTORY,
    AskKeptRoom,
    SnapshotRoom,
)
from paxosblock.api.status import CLUSTER_STATUS, ClusterStatusRequest
from paxosblock.api.subtree import (
    LIST_SUBTREE,
    SUM_SUBTREE,
    ContentSummary,
    ListSubtree,
    SubtreeListing,
    SubtreeSums,
    Summed,
    SumSubtree,
    Unread,
)
from paxosblock.cli.fs_names import AT, for_each_path, status_of
from paxosblock.cli.group import Verb
from paxosblock.cli.invocation import Invocation, UserError
from paxosblock.cli.text import aligned, human_size
from paxosblock.client.names.below import (
    AskSums,
    below,
    content_summaries,
    content_summary,
    kept_room,
)
from paxosblock.client.names.glob_pattern import compiled
from paxosblock.client.names.walk import base_name
from paxosblock.errors import PermissionDeniedError

HUMAN: Final = click.option("-h", "human", is_flag=True, help="Show sizes as 1.5 K, 256 M.")
HEADER: Final = click.option("-v", "header", is_flag=True, help="Show a line with the columns.")
_NO_SNAPSHOTS: Final = click.option(
    "-x", "_without_snapshots", is_flag=True, help="Accepted: snapshots are never counted."
)


def sum_of(invocation: Invocation, path: str) -> ContentSummary:
    """Return the sum of what is at and below a path, at one moment."""
    from paxosblock.net.calls.control import run_through

    return run_through(content_summary(_asking(invocation), path))


def sums_in(invocation: Invocation, path: str) -> list[Summed]:
    """Return the sum of each entry of a directory, or of the file at a path, at one moment."""
    from paxosblock.net.calls.control import run_through

    return run_through(content_summaries(_asking(invocation), path))


def _kept_room(invocation: Invocation, path: str, name: str) -> int:
    from paxosblock.net.calls.control import run_through

    async def ask(request: AskKeptRoom) -> SnapshotRoom:
        return invocation.call(KEPT_ROOM, request)

    return run_through(kept_room(ask, path, name))


def _asking(invocation: Invocation) -> AskSums:
    async def ask(request: SumSubtree) -> SubtreeSums:
        return invocation.call(SUM_SUBTREE, request)

    return ask


def _size(size_bytes: int, human: bool) -> str:
    return human_size(size_bytes) if human else str(size_bytes)


# --- du ------------------------------------------------------------------------------------------


@click.command(cls=Verb)
@click.option("-s", "summary", is_flag=True, help="One sum for each path.")
@HUMAN
@HEADER
@_NO_SNAPSHOTS
@AT
@click.argument("paths", nargs=-1)
@click.pass_obj
def du(
    invocation: Invocation,
    *,
    summary: bool,
    human: bool,
    header: bool,
    _without_snapshots: bool,
    paths: tuple[str, ...],
) -> None:
    """Show how many bytes files have, and the room that their replicas take.

    \b
      $ paxosblock fs du -h /logs
      1.2 G  3.6 G  /logs/2024
      256 M  768 M  /logs/a.log

    Of a directory each entry is a line, with all that is below it, as it was at one moment; with -s
    the directory is one. Of a snapshot -s shows the room that goes with it, which nothing else
    keeps. Without a path: your home, /user/NAME.
    """

    def of(path: str) -> list[tuple[str, ContentSummary]]:
        if summary:
            found = sum_of(invocation, path)
            where, name = os.path.split(path)
            if base_name(where) == SNAPSHOT_DIRECTORY and not name.startswith(REVISION):
                room = _kept_room(invocation, os.path.dirname(where), name)
                found = msgspec.structs.replace(found, space=room)
            return [(path, found)]
        return [(each.status.path, each.summary) for each in sums_in(invocation, path)]

    found: list[tuple[str, ContentSummary]] = []
    for_each_path(invocation, paths or (".",), lambda path: found.extend(of(path)))
    for path, each in found:
        invocation.tell({"path": path, **msgspec.to_builtins(each)})
    rows = [(_size(each.size, human), _size(each.space, human), path) for path, each in found]
    if header:
        rows.insert(0, ("SIZE", "DISK_SPACE_CONSUMED_WITH_ALL_REPLICAS", "FULL_PATH_NAME"))
    if rows:
        for line in aligned(rows):
            invocation.say(line)


# --- df ------------------------------------------------------------------------------------------


@click.command(cls=Verb)
@HUMAN
@click.argument("paths", nargs=-1)
@click.pass_obj
def df(invocation: Invocation, *, human: bool, paths: tuple[str, ...]) -> None:
    """Show the room of the cluster: the sum of the volumes of all live DataNodes.

    \b
      $ paxosblock fs df -h
      Filesystem                       Size    Used  Available  Use%
      paxosblock://127.0.0.1:9870   252.0 G  42.6 G    209.4 G   17%

    Used are block files, with all replicas; Available is what further ones may take. The rest
    belongs to others or is kept in reserve.
    """

    def check(path: str) -> None:
        status_of(invocation, path)

    for_each_path(invocation, paths, check)
    if paths and invocation.failures == len(paths):
        return
    room = invocation.call(CLUSTER_STATUS, ClusterStatusRequest()).room
    size, used, free = room.size, room.used, room.free
    percent = round(100 * used / size) if size else 0
    url = f"paxosblock://{','.join(invocation.addresses)}"
    invocation.tell({"filesystem": url, "size_bytes": size, "used_bytes": used, "free_bytes": free})
    rows = [
        ("Filesystem", "Size", "Used", "Available", "Use%"),
        (url, _size(size, human), _size(used, human), _size(free, human), f"{percent}%"),
    ]
    for line in aligned(rows, frozenset({1, 2, 3, 4})):
        invocation.say(line)


# --- count ---------------------------------------------------------------------------------------

QUOTA_HEADS: Final = f"{'QUOTA':>12} {'REM_QUOTA':>15} {'SPACE_QUOTA':>15} {'REM_SPACE_QUOTA':>15} "


def quota_columns(usage: QuotaUsage, human: bool) -> str:
    """Return limits and what is left of them, as hdfs prints them."""

    def shown(limit: int, used: int, widths: tuple[int, int]) -> str:
        texts = ("none", "inf")
        if limit >= 0:
            left = _size(abs(limit - used), human)
            texts = (_size(limit, human), f"-{left}" if used > limit else left)
        return "".join(f"{text:>{width}} " for text, width in zip(texts, widths, strict=True))

    names = shown(usage.names_max, usage.names, (12, 15))
    return names + shown(usage.space_max, usage.space, (15, 15))


_COUNT_HEADS: Final = f"{'DIR_COUNT':>12} {'FILE_COUNT':>12} {'CONTENT_SIZE':>18} "
_CODING_HEAD: Final = f"{'ERASURECODING_POLICY':>20} "
_STORAGE_TYPES: Final = ("SSD", "DISK", "ARCHIVE", "PROVIDED", "NVDIMM")
"""The types of storage that have quotas in HDFS, in its order; here none has one."""
_NAMED_TYPES: Final = frozenset({*_STORAGE_TYPES, "RAM_DISK"})


def _types(written: str) -> tuple[str, ...]:
    """Read types of storage as hdfs does. Raises click.BadParameter for one that is none."""
    if written in ("", "all", "ALL"):
        return _STORAGE_TYPES
    types = tuple(written.upper().rstrip(",").split(","))
    for each in types:
        if each not in _NAMED_TYPES:
            raise click.BadParameter(
                f"{each.lower()!r} is no type of storage: all, or some of"
                f" {','.join(sorted(_NAMED_TYPES)).lower()}",
                param_hint="-t",
            )
    return types


@click.command(cls=Verb)
@click.option("-q", "quotas", is_flag=True, help="Show quotas, and what is left of them.")
@HUMAN
@HEADER
@click.option(
    "-t",
    "written_types",
    is_flag=False,
    flag_value="",
    metavar="[TYPE,...]",
    help="With -q or -u: quotas of types of storage; there are none here.",
)
@click.option("-u", "usage_only", is_flag=True, help="Show quotas, and nothing else.")
@_NO_SNAPSHOTS
@click.option("-e", "coding", is_flag=True, help="Show Replicated for each file, as in HDFS.")
@AT
@click.argument("paths", nargs=-1, required=True)
@click.pass_obj
def count(
    invocation: Invocation,
    *,
    quotas: bool,
    human: bool,
    header: bool,
    written_types: str | None,
    usage_only: bool,
    _without_snapshots: bool,
    coding: bool,
    paths: tuple[str, ...],
) -> None:
    """Count the directories, files and bytes at and below each path, as they were at one moment.

    \b
      $ paxosblock fs count -h -v /logs
         DIR_COUNT   FILE_COUNT       CONTENT_SIZE PATHNAME
                 3         1200              1.5 G /logs

    With -q four columns come before: QUOTA, REM_QUOTA, SPACE_QUOTA, REM_SPACE_QUOTA, as
    `admin quota` sets them.
    """
    limits = quotas or usage_only
    types = _types(written_types) if limits and written_types is not None else None
    counts = not usage_only and types is None
    if limits and _without_snapshots:
        invocation.say("q or u option is given, the -x option is ignored.")
    if header:
        heads = _quota_heads(types) if limits else ""
        heads += _COUNT_HEADS if counts else ""
        invocation.say(f"{heads}{_CODING_HEAD if coding else ''}PATHNAME")

    def show(path: str) -> None:
        found = sum_of(invocation, path)
        fact = {"path": path, **msgspec.to_builtins(found)}
        line = ""
        if limits:
            usage = invocation.call(LIST_QUOTAS, ListQuotas(path)).found[0]
            fact |= {"quota": usage}
            line = quota_columns(usage, human) if types is None else _no_quotas(types)
        if counts:
            size = _size(found.size, human)
            line += f"{found.directories:>12} {found.files:>12} {size:>18} "
        if coding:
            is_file = not found.directories
            fact |= {"erasure_coding": "Replicated" if is_file else ""}
            line += f"{'Replicated' if is_file else 'EC:':>20} "
        invocation.say(f"{line}{path}", fact)

    for_each_path(invocation, paths, show)


def _quota_heads(types: tuple[str, ...] | None) -> str:
    if types is None:
        return QUOTA_HEADS
    return "".join(f"{f'{each}_QUOTA':>14} {f'REM_{each}_QUOTA':>18} " for each in types)


def _no_quotas(types: tuple[str, ...]) -> str:
    return f"{'none':>14} {'inf':>18} " * len(types)


# --- find ----------------------------------------------------------------------------------------

_And = Callable[[FileStatus], bool]


class _Expression:
    """The tests and actions of `find`, one after the other, all joined by "and"."""

    def __init__(self, invocation: Invocation, words: Sequence[str]) -> None:
        """Read the words behind the paths.

        Raises:
            UserError: they are no expression.
        """
        self._invocation = invocation
        self._steps: list[_And] = []
        left, acts, joins = list(words), False, False
        while left:
            word = left.pop(0)
            if word in ("-a", "-and"):
                if not self._steps or joins or not left:
                    raise UserError(word, "joins two expressions")
                joins = True
                continue
            joins = False
            if word in ("-name", "-iname"):
                if not left:
                    raise UserError(word, "needs a pattern")
                self._steps.append(_name_test(left.pop(0), fold=word == "-iname"))
            elif word in ("-print", "-print0"):
                acts = True
                self._steps.append(self._printer("\0" if word == "-print0" else "\n"))
            else:
                raise UserError(word, "unexpected argument: -name, -iname, -print, -print0 or -a")
        if not acts:
            self._steps.append(self._printer("\n"))

    def _printer(self, end: str) -> _And:
        def show(entry: FileStatus) -> bool:
            if end == "\0" and not self._invocation.json:
                click.echo(f"{entry.path}\0", nl=False)
            else:
                self._invocation.say(entry.path, entry)
            return True

        return show

    def apply(self, entry: FileStatus) -> None:
        """Go through the steps, up to the first that is false."""
        for step in self._steps:
            if not step(entry):
                return


def _name_test(pattern: str, *, fold: bool) -> _And:
    wanted = compiled(pattern.lower() if fold else pattern)
    return lambda entry: bool(wanted.fullmatch(entry.name.lower() if fold else entry.name))


@click.command(cls=Verb, context_settings={"ignore_unknown_options": True})
@AT
@click.argument("words", nargs=-1, metavar="[PATH]... [EXPRESSION]", type=click.UNPROCESSED)
@click.pass_obj
def find(invocation: Invocation, words: tuple[str, ...]) -> None:
    """Find files and directories below each path (default: your home, /user/NAME).

    \b
      $ paxosblock fs find /logs -name '*.gz'
      /logs/2024/a.gz

    \b
    EXPRESSION, where all must be true:
      -name PATTERN, -iname PATTERN   the last name matches; -iname: in small or capital letters
      -print, -print0                 show the path; the default if neither is there
      -a, -and                        "and"; it may be left out

    What is found is what was there at one moment. If that is forgotten because the output was not
    read for 30 s, a warning says from where on names are of a later one.
    """
    begin = next((place for place, word in enumerate(words) if word.startswith("-")), len(words))
    expression = _Expression(invocation, words[begin:])
    for_each_path(
        invocation, words[:begin] or (".",), lambda path: _find_in(invocation, path, expression)
    )


def _find_in(invocation: Invocation, path: str, expression: _Expression) -> None:
    for entry in listed_below(invocation, path):
        expression.apply(entry)


def listed_below(invocation: Invocation, path: str) -> Iterator[FileStatus]:
    """Yield what is at `path` and below it at one moment; tell what may not be read."""
    from paxosblock.net.calls.control import each_through

    async def ask(request: ListSubtree) -> SubtreeListing:
        return invocation.call(LIST_SUBTREE, request)

    def unread(directory: Unread) -> None:
        invocation.tell_failure(PermissionDeniedError(directory.reason, path=directory.path))

    def later(after: str) -> None:
        invocation.warn(after, "names behind this one are of a later moment")

    yield from each_through(below(ask, path, unread=unread, later=later))
