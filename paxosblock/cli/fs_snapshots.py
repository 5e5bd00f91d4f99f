"""`paxosblock fs snapshot`: what was in a directory, kept under a name."""

from __future__ import annotations

from datetime import datetime

import click

from paxosblock.api.snapshot_calls import (
    CREATE_SNAPSHOT,
    DELETE_SNAPSHOT,
    LIST_SNAPSHOTS,
    RENAME_SNAPSHOT,
    CreateSnapshot,
    DeleteSnapshot,
    ListSnapshots,
    RenameSnapshot,
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

    What only it shows is gone, and its room comes back little by little. Prints nothing when it is
    done.
    """
    request = DeleteSnapshot(the_one(invocation, path), name)
    invocation.tell(invocation.call_once(DELETE_SNAPSHOT, request))


@click.command(cls=Verb)
@click.argument("path")
@click.argument("name")
@click.argument("new_name")
@click.pass_obj
def rename(invocation: Invocation, *, path: str, name: str, new_name: str) -> None:
    """Give a snapshot another name; the same as `fs snapshot rename`.

    \b
      $ paxosblock fs renameSnapshot /data monday first

    Prints nothing when it is done.
    """
    request = RenameSnapshot(the_one(invocation, path), name, new_name)
    invocation.tell(invocation.call_once(RENAME_SNAPSHOT, request))


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
    commands={"create": create, "delete": delete, "rename": rename, "list": show},
)
