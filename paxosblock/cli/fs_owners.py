"""`paxosblock fs chmod`, `chown` and `chgrp`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import click

from paxosblock.api.namenode import FileStatus, Kind
from paxosblock.api.ownership import SET_OWNER, SET_PERMISSION, SetPathOwner, SetPathPermission
from paxosblock.base.modes import Mode
from paxosblock.cli.fs_names import for_each_path, status_of, walked
from paxosblock.cli.group import Verb
from paxosblock.cli.invocation import Invocation

_NAME: Final = "[-_./@a-zA-Z0-9]"
_OWNER: Final = re.compile(rf"\s*({_NAME}+)?(?::({_NAME}*))?\s*")
_GROUP: Final = re.compile(rf"\s*({_NAME}+)\s*")


class ModeType(click.ParamType[Mode]):
    """A mode as `hdfs dfs -chmod` takes it."""

    name = "mode"

    def convert(
        self, value: str | Mode, param: click.Parameter | None, ctx: click.Context | None
    ) -> Mode:
        """Read what was written."""
        try:
            return value if isinstance(value, Mode) else Mode(value)
        except ValueError:
            self.fail(f"mode '{value}' does not match the expected pattern.", param, ctx)


def changed_each(
    invocation: Invocation,
    paths: tuple[str, ...],
    recursive: bool,
    change: Callable[[FileStatus], FileStatus | None],
) -> None:
    """Change what each path names, and with `recursive` all that is below it, the directory first.

    `change` returns None where there is nothing to do.
    """

    def one(status: FileStatus) -> None:
        after = change(status)
        if after is not None:
            invocation.tell(after)

    for_each_below(invocation, paths, recursive, one)


def for_each_below(
    invocation: Invocation,
    paths: tuple[str, ...],
    recursive: bool,
    action: Callable[[FileStatus], None],
) -> None:
    """Do it for what each path names, and with `recursive` for all that is below it, the directory
    first.
    """

    def named(path: str) -> None:
        status = status_of(invocation, path)
        invocation.for_each((status,), action)
        if recursive and status.kind is Kind.DIRECTORY:
            invocation.for_each(walked(invocation, path), action)

    for_each_path(invocation, paths, named)


RECURSIVE: Final = click.option("-R", "recursive", is_flag=True, help="Also all that is below.")


@click.command(cls=Verb)
@RECURSIVE
@click.argument("mode", metavar="MODE[,MODE]...|OCTAL", type=ModeType())
@click.argument("paths", nargs=-1, required=True)
@click.pass_obj
def chmod(invocation: Invocation, *, recursive: bool, mode: Mode, paths: tuple[str, ...]) -> None:
    """Change what the owner, the group and others may do.

    \b
      $ paxosblock fs chmod -R u+rwX,go-rwx /private
      $ paxosblock fs chmod 1777 /tmp

    OCTAL has three digits, or four with the sticky bit. MODE is [ugoa...] with +, - or = and some
    of rwxXt; as in hdfs, of two clauses for the same class the last one counts. Prints nothing
    when it is done.
    """

    def change(status: FileStatus) -> FileStatus | None:
        wanted = mode.applied(status.permission, directory=status.kind is Kind.DIRECTORY)
        if wanted == status.permission:
            return None
        return invocation.call_once(SET_PERMISSION, SetPathPermission(status.path, wanted))

    changed_each(invocation, paths, recursive, change)


@click.command(cls=Verb)
@RECURSIVE
@click.argument("owner", metavar="[OWNER][:[GROUP]]")
@click.argument("paths", nargs=-1, required=True)
@click.pass_obj
def chown(invocation: Invocation, *, recursive: bool, owner: str, paths: tuple[str, ...]) -> None:
    """Change the owner, the group, or both.

    \b
      $ paxosblock fs chown -R ada:staff /logs

    Prints nothing when it is done.
    """
    found = _OWNER.fullmatch(owner)
    if found is None:
        raise click.UsageError(f"'{owner}' does not match expected pattern for [owner][:group].")
    if not (found[1] or found[2]):
        raise click.UsageError(f"'{owner}' does not specify owner and group.")
    _change_owner(invocation, recursive, paths, found[1] or "", found[2] or "")


@click.command(cls=Verb)
@RECURSIVE
@click.argument("group")
@click.argument("paths", nargs=-1, required=True)
@click.pass_obj
def chgrp(invocation: Invocation, *, recursive: bool, group: str, paths: tuple[str, ...]) -> None:
    """Change the group.

    \b
      $ paxosblock fs chgrp -R staff /logs

    Prints nothing when it is done.
    """
    found = _GROUP.fullmatch(group)
    if found is None:
        raise click.UsageError(f"'{group}' does not match expected pattern for group")
    _change_owner(invocation, recursive, paths, "", found[1])


def _change_owner(
    invocation: Invocation, recursive: bool, paths: tuple[str, ...], owner: str, group: str
) -> None:
    def change(status: FileStatus) -> FileStatus | None:
        if owner in ("", status.owner) and group in ("", status.group):
            return None
        return invocation.call_once(SET_OWNER, SetPathOwner(status.path, owner, group))

    changed_each(invocation, paths, recursive, change)
