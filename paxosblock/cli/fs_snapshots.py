"""`paxosblock fs snapshot`: what was in a directory, kept under a name."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import click

from paxosblock.api.snapshot_calls import (
    CREATE_SNAPSHOT,
    DELETE_SNAPSHOT,
    DIFF_SNAPSHOTS,
    LIST_SNAPSHOTS,
    RENAME_SNAPSHOT,
    SNAPSHOT_DIRECTORY,
    UNDELETE,
    CreateSnapshot,
    DeleteSnapshot,
    Difference,
    DiffSnapshots,
    ListSnapshots,
    RenameSnapshot,
    SnapshotDifferences,
    Undelete,
)
from paxosblock.cli.fs_names import the_one
from paxosblock.cli.group import Verb
from paxosblock.cli.invocation import Invocation


@click.command(cls=Verb)
@click.argument("path")
@click.argument("name", default="")
@click.pass_obj
def create(invocation: Invocation, *, path: str, name: str) -> None:
    """Take a snapshot of a directory; the same as `fs snapshot create`.

    \b
      $ paxosblock fs createSnapshot /data monday
      Created snapshot /data/.snapshot/monday

    Nothing is copied: what is changed or deleted from now on keeps its room until the snapshot is
    deleted. Without a name it gets one of this time. The directory's owner may do this, and no
    `allowSnapshot` comes first. A directory that has snapshots cannot be deleted.
    """
    taken = invocation.call_once(CREATE_SNAPSHOT, CreateSnapshot(the_one(invocation, path), name))
    invocation.say(f"Created snapshot {taken.path}", taken)


@click.command(cls=Verb)
@click.argument("path")
@click.argument("name")
@click.pass_obj
def delete(invocation: Invocation, *, path: str, name: str) -> None:
    """Delete a snapshot of a directory; the same as `fs snapshot delete`.

    \b
      $ paxosblock fs deleteSnapshot /data monday
      Deleted snapshot monday under /data

    What only it shows is gone, and its room comes back little by little.
    """
    request = DeleteSnapshot(the_one(invocation, path), name)
    deleted = invocation.call_once(DELETE_SNAPSHOT, request)
    invocation.say(f"Deleted snapshot {name} under {request.path}", deleted)


@click.command(cls=Verb)
@click.argument("path")
@click.argument("name")
@click.argument("new_name")
@click.pass_obj
def rename(invocation: Invocation, *, path: str, name: str, new_name: str) -> None:
    """Give a snapshot another name; the same as `fs snapshot rename`.

    \b
      $ paxosblock fs renameSnapshot /data monday first
      Renamed snapshot monday to first under /data
    """
    request = RenameSnapshot(the_one(invocation, path), name, new_name)
    renamed = invocation.call_once(RENAME_SNAPSHOT, request)
    invocation.say(f"Renamed snapshot {name} to {new_name} under {request.path}", renamed)


@click.command("list", cls=Verb)
@click.argument("path")
@click.pass_obj
def show(invocation: Invocation, *, path: str) -> None:
    """Show the snapshots of a directory, the oldest first. (HDFS: hdfs lsSnapshot)

    \b
      $ paxosblock fs snapshot list /data
      2026-11-27 18:20 ada /data/.snapshot/monday
    """
    request = ListSnapshots(the_one(invocation, path))
    for each in invocation.call(LIST_SNAPSHOTS, request).snapshots:
        when = datetime.fromtimestamp(each.created_s).strftime("%Y-%m-%d %H:%M")
        invocation.say(f"{when} {each.owner} {each.path}", each)


@click.command(cls=Verb)
@click.argument("paths", nargs=-1, required=True)
@click.pass_obj
def undelete(invocation: Invocation, paths: tuple[str, ...]) -> None:
    """Bring back what was removed, with all that was below it.

    \b
      $ paxosblock fs undelete /data/table
      Undeleted /data/table

    It needs a history: the setting `history` of the NameNodes. What was removed last under this
    name comes back in one step, however much it is, and nothing is copied. A name that is taken, or
    was renamed, is refused, and nothing is changed.
    """

    def bring_back(path: str) -> None:
        status = invocation.call_once(UNDELETE, Undelete(path))
        invocation.say(f"Undeleted {status.path}", status)

    invocation.for_each([invocation.path(each) for each in paths], bring_back)


_LETTERS: Final = {
    Difference.CREATE: "+",
    Difference.MODIFY: "M",
    Difference.DELETE: "-",
    Difference.RENAME: "R",
}


@click.command(cls=Verb)
@click.argument("path")
@click.argument("before", metavar="FROM")
@click.argument("later", metavar="TO", default=".")
@click.pass_obj
def diff(invocation: Invocation, *, path: str, before: str, later: str) -> None:
    """Show what differs between two snapshots of a directory. (HDFS: hdfs snapshotDiff)

    \b
      $ paxosblock fs snapshotDiff /data monday .
      Difference between snapshot monday and current directory under directory /data:
      M       .
      +       ./new.csv
      -       ./old.csv
      R       ./table.csv -> ./tables/1.csv

    `.` is what is there now; `.snapshot/monday` is a name, too. Paths are those of the earlier
    state.
    """
    from paxosblock.client.names.below import snapshot_diff
    from paxosblock.net.calls.control import run_through

    directory = the_one(invocation, path)
    before, later = _state(before), _state(later)

    async def ask(request: DiffSnapshots) -> SnapshotDifferences:
        return invocation.call(DIFF_SNAPSHOTS, request)

    found = run_through(snapshot_diff(ask, directory, before, later))
    invocation.say(
        f"Difference between {_named(before)} and {_named(later)} under directory {directory}:"
    )
    for one in found:
        to = f" -> {_shown(one.target)}" if one.kind is Difference.RENAME else ""
        invocation.say(f"{_LETTERS[one.kind]}\t{_shown(one.source)}{to}", one)
    invocation.say("")


def _state(name: str) -> str:
    """Return the name of a snapshot as it was typed; "" for what is there now."""
    return "" if name == "." else name.removeprefix("/").removeprefix(f"{SNAPSHOT_DIRECTORY}/")


def _named(name: str) -> str:
    return f"snapshot {name}" if name else "current directory"


def _shown(path: str) -> str:
    return f"./{path}" if path else "."


snapshot = click.Group(
    "snapshot",
    short_help="Keep what is in a directory, to be read later.",
    help="""Keep what is in a directory under a name, to be read later.

    \b
      $ paxosblock fs snapshot create /data monday
      $ paxosblock fs cat /data/.snapshot/monday/table.csv      # as it was
      $ paxosblock fs cp -r /data/.snapshot/monday /restored
      $ paxosblock fs snapshot list /data
    """,
    commands={"create": create, "delete": delete, "rename": rename, "list": show, "diff": diff},
)
