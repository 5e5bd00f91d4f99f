"""The verbs of `paxosblock fs` that make, test and remove what is empty: touch, touchz, test and
rmdir."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, TypeVar

import click

from paxosblock.api.namenode import DELETE, DeletePath, FileStatus, Kind
from paxosblock.api.ownership import CHECK_ACCESS, SET_TIMES, CheckAccess, SetPathTimes
from paxosblock.cli.fs_names import AT, for_each_path, status_of, the_one
from paxosblock.cli.group import Verb
from paxosblock.cli.invocation import Invocation, UserError
from paxosblock.errors import (
    DirectoryNotEmptyError,
    NotDirectoryError,
    NotFoundError,
    PermissionDeniedError,
)

F = TypeVar("F", bound=Callable[..., Any])
_STAMP: Final = "%Y%m%d:%H%M%S"


class StampType(click.ParamType[float]):
    """A time as `hdfs dfs -touch -t` takes it, in seconds since the epoch."""

    name = "timestamp"

    def convert(
        self, value: str | float, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read what was written, as a time of this machine's time zone."""
        if not isinstance(value, str):
            return value
        try:
            return datetime.strptime(value, _STAMP).timestamp()
        except (ValueError, OverflowError):
            wrong = f"Unable to parse the specified timestamp {value}."
            return self.fail(f"{wrong} The expected format is yyyyMMdd:HHmmss", param, ctx)


def _make_empty(invocation: Invocation, path: str) -> FileStatus:
    with invocation.client.create(path, parent_must_exist=True) as out:
        return out.status


@click.command(cls=Verb)
@click.option("-c", "only_there", is_flag=True, help="Make no file.")
@click.option("-m", "_modified", is_flag=True, help="Accepted: this is the time that is set.")
@click.option("-a", "accessed", is_flag=True, help="Refused unless -m is there, too.")
@click.option(
    "-t", "stamp", metavar="yyyyMMdd:HHmmss", type=StampType(), help="This time in place of now."
)
@click.argument("paths", nargs=-1, required=True)
@click.pass_obj
def touch(
    invocation: Invocation,
    *,
    only_there: bool,
    _modified: bool,
    accessed: bool,
    stamp: float | None,
    paths: tuple[str, ...],
) -> None:
    """Say that files and directories were changed now, and make files that are missing.

    \b
      $ paxosblock fs touch -t 20250301:120000 /logs/a.log

    When a file was last read is not kept. Prints nothing when it is done.
    """
    if accessed and not _modified:
        raise UserError("-a", "the time of the last access is not kept")

    def set_time(path: str) -> None:
        try:
            status_of(invocation, path)
        except NotFoundError:
            if only_there:
                return
            _make_empty(invocation, path)
        modified_s = time.time() if stamp is None else stamp
        invocation.tell(invocation.call_once(SET_TIMES, SetPathTimes(path, modified_s)))

    for_each_path(invocation, paths, set_time)


@click.command(cls=Verb)
@click.argument("paths", nargs=-1, required=True)
@click.pass_obj
def touchz(invocation: Invocation, *, paths: tuple[str, ...]) -> None:
    """Make empty files; an empty file that is there gets the time of now.

    \b
      $ paxosblock fs touchz /logs/_SUCCESS

    Prints nothing when it is done.
    """

    def make(path: str) -> None:
        try:
            status = status_of(invocation, path)
        except NotFoundError:
            invocation.tell(_make_empty(invocation, path))
            return
        if status.kind is Kind.DIRECTORY:
            raise UserError(path, "is a directory")
        if status.size or status.open:
            raise UserError(path, "not a zero-length file")
        invocation.tell(invocation.call_once(SET_TIMES, SetPathTimes(path, time.time())))

    for_each_path(invocation, paths, make)


@click.command(cls=Verb)
@click.option(
    "--ignore-fail-on-non-empty",
    "ignore_full",
    is_flag=True,
    help="No error for a directory with something in it, which stays.",
)
@click.argument("paths", nargs=-1, required=True)
@click.pass_obj
def rmdir(invocation: Invocation, *, ignore_full: bool, paths: tuple[str, ...]) -> None:
    """Delete empty directories.

    \b
      $ paxosblock fs rmdir /logs/2023

    Prints nothing when it is done.
    """

    def remove(path: str) -> None:
        status = status_of(invocation, path)
        if status.kind is not Kind.DIRECTORY:
            raise NotDirectoryError(f"'{path}': is not a directory", path=path)
        try:
            request = DeletePath(path, file_id=status.file_id)
            invocation.tell(invocation.call_once(DELETE, request))
        except DirectoryNotEmptyError:
            if not ignore_full:
                raise

    for_each_path(invocation, paths, remove)


def _asks(letter: str, answer: str) -> Callable[[F], F]:
    return click.option(f"-{letter}", f"asks_{letter}", is_flag=True, help=answer)


@click.command(cls=Verb)
@_asks("d", "It is a directory.")
@_asks("e", "It exists.")
@_asks("f", "It is a file.")
@_asks("s", "It has bytes.")
@_asks("w", "It exists, and you may write it.")
@_asks("r", "It exists, and you may read it.")
@_asks("z", "It has no bytes.")
@AT
@click.argument("path")
@click.pass_obj
def test(invocation: Invocation, /, *, path: str, **asked: bool) -> int:
    """Ask one question about a path: exit code 0 for yes, 1 for no.

    \b
      $ paxosblock fs test -e /logs/_SUCCESS && echo done

    Prints nothing; with --json the answer.
    """
    letters = [name[-1] for name, wanted in asked.items() if wanted]
    if len(letters) != 1:
        wrong = "Only one test flag is allowed" if letters else "No test flag given"
        raise click.UsageError(wrong)
    name = the_one(invocation, path)
    try:
        answer = _answer(invocation, status_of(invocation, name), letters[0])
    except (NotFoundError, NotDirectoryError):
        answer = False
    invocation.tell({"path": name, "test": letters[0], "answer": answer})
    return 0 if answer else 1


def _answer(invocation: Invocation, status: FileStatus, letter: str) -> bool:
    match letter:
        case "d":
            return status.kind is Kind.DIRECTORY
        case "f":
            return status.kind is Kind.FILE
        case "s":
            return status.size > 0
        case "z":
            return status.size == 0
        case "r" | "w":
            request = CheckAccess(status.path, read=letter == "r", write=letter == "w")
            try:
                invocation.call(CHECK_ACCESS, request)
            except PermissionDeniedError:
                return False
    return True
