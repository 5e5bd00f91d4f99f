"""`paxosblock fs setrep`: sets the number of replicas of files."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import click

from paxosblock.api.care import SET_REPLICATION, SetReplication
from paxosblock.api.namenode import BlockView, FileStatus, Kind
from paxosblock.api.status import CLUSTER_STATUS, ClusterStatusRequest
from paxosblock.cli.fs_names import for_each_path, status_of, walked
from paxosblock.cli.group import Verb
from paxosblock.cli.invocation import Invocation, UserError
from paxosblock.errors import DeadlineError

LOOK_AGAIN_S: Final = 1.0
LIVE: Final = ("live", "stale")
"""States of DataNodes that may get replicas, now or in a moment."""


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
    that takes, at most --timeout without progress if that is given, and needs N live DataNodes:
    with fewer, nothing is changed. A block that is being written keeps its members until it
    is finalized: -w does not wait for it.
    """
    done: list[str] = []

    def change(path: str) -> None:
        if wait:  # asked only now: a path may be a URL, which names the cluster
            _check_enough(invocation, replication)
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
    least, since_s = -1, time.monotonic()
    while lacking := sum(not _has_exactly(each, replication) for each in invocation.blocks(path)):
        if lacking != least:
            least, since_s = lacking, time.monotonic()
        if not invocation.json:
            click.echo(".", nl=False)
        patience_s = invocation.timeout
        if patience_s is not None and time.monotonic() - since_s >= patience_s:
            what = f"blocks without exactly {replication} live replicas: {lacking}"
            if not invocation.json:
                click.echo("")
            raise DeadlineError(f"'{path}': {what}; the cluster goes on with them", path=path)
        _check_enough(invocation, replication)
        time.sleep(LOOK_AGAIN_S)
    invocation.say(" done", {"path": path, "replication": replication, "done": True})


def _check_enough(invocation: Invocation, replication: int) -> None:
    """Raise UserError when there are too few DataNodes: the command must not wait for ever."""
    datanodes = invocation.call(CLUSTER_STATUS, ClusterStatusRequest()).datanodes
    live = sum(node.state in LIVE for node in datanodes)
    if live < replication:
        nodes = "DataNode lives" if live == 1 else "DataNodes live"
        raise UserError(f"{replication}", f"only {live} {nodes}: -w would wait for ever")


def _has_exactly(block: BlockView, replication: int) -> bool:
    live = sum(member.live for member in block.members)
    return not block.record.finalized or live == len(block.members) == replication
