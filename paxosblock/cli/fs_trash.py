"""`paxosblock fs rm`, and `expunge`: what is deleted may go to the user's trash first."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import click

from paxosblock.api.namenode import (
    DELETE,
    MKDIRS,
    RENAME,
    DeletePath,
    FileStatus,
    Kind,
    MakeDirectories,
    RenamePath,
)
from paxosblock.base.paths import is_below
from paxosblock.cli.fs_names import for_each_path, list_all, status_of
from paxosblock.cli.group import Verb
from paxosblock.cli.invocation import Invocation, UserError, reason_of
from paxosblock.client.names.walk import join
from paxosblock.errors import ExistsError, NotDirectoryError, NotFoundError, PaxosBlockError

_FOLDER: Final = ".Trash"
_CURRENT: Final = "Current"
_CHECKPOINT: Final = "%y%m%d%H%M%S"
_OF_ITS_OWNER: Final = 0o700
_HOMES: Final = "/user"


@click.command(cls=Verb)
@click.option(
    "-r", "-R", "recursive", is_flag=True, help="Delete directories, with all that is in them."
)
@click.option("-f", "force", is_flag=True, help="No error if a path does not exist.")
@click.option("-skipTrash", "skip_trash", is_flag=True, help="Delete at once, trash or not.")
@click.argument("paths", nargs=-1, required=True)
@click.pass_obj
def rm(
    invocation: Invocation, recursive: bool, force: bool, skip_trash: bool, paths: tuple[str, ...]
) -> None:
    """Delete files, and directories with -r.

    \b
      $ paxosblock fs rm -r /logs/2024
      Deleted /logs/2024

    There is no trash, unless the environment sets an interval:

    \b
      $ export PAXOSBLOCK_CLIENT_TRASH_INTERVAL=1d
      $ paxosblock fs rm -r /logs/2024
      Moved: '/logs/2024' to trash at: /user/me/.Trash/Current/logs/2024

    What is in the trash is deleted by `rm`, and by `expunge` once it is old enough.
    """
    has_trash = not skip_trash and invocation.trash_interval_s > 0
    trash = f"{invocation.home}/{_FOLDER}"

    def remove(path: str) -> None:
        try:
            _check_deletable(invocation, path, recursive)
        except NotFoundError:
            if not force:
                raise
            return
        if has_trash and not is_below(path, trash):
            moved = _moved(invocation, path, trash)
            text = f"Moved: '{path}' to trash at: {moved}"
            invocation.say(text, {"moved": path, "trash": moved})
            return
        invocation.call_once(DELETE, DeletePath(path, recursive=recursive))
        invocation.say(f"Deleted {path}", {"deleted": path})

    for_each_path(invocation, paths, remove)


def _check_deletable(invocation: Invocation, path: str, recursive: bool) -> None:
    """Refuse a directory without -r, even an empty one, as hdfs does."""
    if status_of(invocation, path).kind is Kind.DIRECTORY and not recursive:
        raise UserError(path, "is a directory (delete it with -r)")


def _moved(invocation: Invocation, path: str, trash: str) -> str:
    """Move it to the trash; return its place there.

    Raises:
        UserError: it cannot be moved, so it stays.
    """
    if is_below(trash, path):
        raise UserError(path, "cannot be moved to the trash, as it contains the trash")
    try:
        return _moved_to(invocation, path, trash)
    except PaxosBlockError as error:
        invocation.failed(error)
        text = f"cannot be moved to the trash: {reason_of(error)}. Consider -skipTrash"
        raise UserError(path, text) from error


def _moved_to(invocation: Invocation, path: str, trash: str) -> str:
    invocation.call_once(MKDIRS, invocation.new_directory(invocation.home, parents=True))
    parent, _, name = path.rpartition("/")
    folder = _made(invocation, trash, parent)
    target = join(folder, name)
    while True:
        try:
            status_of(invocation, target)
            target = join(folder, f"{name}{_now_ms()}")
        except NotFoundError:
            try:
                return invocation.call_once(RENAME, RenamePath(path, target)).path
            except ExistsError:  # another `rm` took the name
                target = join(folder, f"{name}{_now_ms()}")


def _made(invocation: Invocation, trash: str, parent: str) -> str:
    """Make the directory `parent` in the trash; where a file is in its way, one beside that."""
    _make(invocation, trash)
    folder = join(trash, _CURRENT)
    _make(invocation, folder)
    for name in filter(None, parent.split("/")):
        place = join(folder, name)
        try:
            _make(invocation, place)
        except (ExistsError, NotDirectoryError):
            place += str(_now_ms())
            _make(invocation, place)
        folder = place
    return folder


def _make(invocation: Invocation, path: str) -> None:
    request = MakeDirectories(path, parents=True, permission=_OF_ITS_OWNER)
    invocation.call_once(MKDIRS, request)


def _now_ms() -> int:
    return round(time.time() * 1000)


# --- expunge -------------------------------------------------------------------------------------


@click.command(cls=Verb)
@click.option("-immediate", "immediate", is_flag=True, help="Delete all that is in the trash.")
@click.option(
    "--all", "every", is_flag=True, help="For all users, /user/*/.Trash: for a superuser."
)
@click.pass_obj
def expunge(invocation: Invocation, *, immediate: bool, every: bool) -> None:
    """Delete what has been in the trash for longer than its interval.

    \b
      $ paxosblock fs expunge
      Deleted /user/me/.Trash/250301120000
      Created /user/me/.Trash/250302120000

    What `rm` has moved to .Trash/Current since the last time gets a name of its own, a checkpoint
    that says when that was. A later `expunge` deletes it when that is an interval ago. Nothing else
    empties the trash: let cron do it.
    """
    homes = [invocation.home]
    if every:
        homes = [entry.path for entry in list_all(invocation, _HOMES)]
    before_s = float("inf") if immediate else time.time() - invocation.trash_interval_s

    def empty(home: str) -> None:
        try:
            found = list_all(invocation, f"{home}/{_FOLDER}")
        except NotFoundError:
            return
        current = [entry for entry in found if entry.name == _CURRENT]
        gone = [entry for entry in found if _made_at(entry.name) < before_s]
        for entry in [*gone, *(current if immediate else [])]:
            invocation.call_once(DELETE, DeletePath(entry.path, recursive=True))
            invocation.say(f"Deleted {entry.path}", {"deleted": entry.path})
        if current and not immediate:
            _check_point(invocation, current[0])

    invocation.for_each(homes, empty)


def _check_point(invocation: Invocation, current: FileStatus) -> None:
    folder = current.path.rpartition("/")[0]
    for name in _checkpoint_names():
        try:
            made = invocation.call_once(RENAME, RenamePath(current.path, join(folder, name)))
        except ExistsError:
            continue
        invocation.say(f"Created {made.path}", {"created": made.path})
        return


def _checkpoint_names() -> Iterator[str]:
    """Yield names of one second, in HDFS's form."""
    name = time.strftime(_CHECKPOINT)
    yield name
    for number in range(1, 1000):
        yield f"{name}-{number}"


def _made_at(name: str) -> float:
    """Return when a checkpoint was made; never for other names."""
    try:
        return time.mktime(time.strptime(name.partition("-")[0], _CHECKPOINT))
    except ValueError:
        return float("inf")
