"""`paxosblock fs setrep`: sets the number of replicas of files."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import click

from paxosblock.api.care import SET_REPLICATION, SetReplication
from paxosblock.api.namenode import BlockView, FileStatus, Kind
from paxosblock.cli.fs_names import for_each_path, status_of, walked
from paxosblock.cli.group import Verb
from paxosblock.cli.invocation import Invocation

LOOK_AGAIN_S: Final = 1.0


@click.command(cls=Verb)
@click.option(
    "-R", "_recursive", is_flag=True, help="Accepted, but directories are always recursed."
)
@click.option("-w", "wait", is_flag=True, help="Wait until every block has exactly N members.")
@click.argument("replication", metavar="N", type=click.IntRange(min=1))
@click.argument("paths", nargs=-1, required=True)
@click.pass_obj
def setrep(
    invocation: Invocation,
    *,
    _recursive: bool,
    wait: bool,
    replication: int,
    paths: tuple[str, ...],
) -> None:
    """Set how many replicas files have; for a directory, all files below it.

    \b
      $ paxosblock fs setrep -w 2 /big
      Replication 2 set: /big
      Waiting for /big ... done

    The cluster copies blocks, or takes replicas away, in the background; -w waits for as long as
    that takes, and needs N live DataNodes. A block that is being written keeps its members until it
    is finalized: -w does not wait for it.
    """
    done: list[str] = []

    def change(path: str) -> None:
        invocation.for_each(_files(invocation, status_of(invocation, path)), change_one)

    def change_one(path: str) -> None:
        status = invocation.call_once(SET_REPLICATION, SetReplication(path, replication))
        invocation.say(f"Replication {replication} set: {path}", status)
        if wait:
            done.append(path)

    for_each_path(invocation, paths, change)
    invocation.for_each(done, lambda path: _wait(invocation, path, replication))


def _files(invocation: Invocation, status: FileStatus) -> Iterator[str]:
    """Yield the paths of a file, or of all files below a directory."""
    if status.kind is Kind.FILE:
        yield status.path
        return
    below = walked(invocation, status.path)
    yield from (entry.path for entry in below if entry.kind is Kind.FILE)


def _wait(invocation: Invocation, path: str, replication: int) -> None:
    """Wait until all finalized blocks of a file have `replication` members that live."""
    if not invocation.json:
        click.echo(f"Waiting for {path} ...", nl=False)
    while not all(_has_exactly(block, replication) for block in invocation.blocks(path)):
        if not invocation.json:
            click.echo(".", nl=False)
        time.sleep(LOOK_AGAIN_S)
    invocation.say(" done", {"path": path, "replication": replication, "done": True})


def _has_exactly(block: BlockView, replication: int) -> bool:
    live = sum(member.live for member in block.members)
    return not block.record.finalized or live == len(block.members) == replication
