"""`paxosblock admin decommission|maintenance|recommission|leaving`: DataNodes that leave."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Final

import click

from paxosblock.api.care import (
    LEAVING,
    SET_ADMIN_STATE,
    AdminState,
    AdminStatus,
    HeldUp,
    HoldUp,
    LeavingNode,
    LeavingRequest,
    SetAdminState,
)
from paxosblock.cli.descriptions import name_and_place
from paxosblock.cli.group import Verb, seconds
from paxosblock.cli.invocation import Invocation, UserError
from paxosblock.cli.progress_bar import count_bar
from paxosblock.cli.text import counted

LOOK_AGAIN_S: Final = 0.5


def _leaves(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that the verbs which let nodes leave have in common."""
    wait = click.option(
        "--wait", is_flag=True, help="Wait until it may be stopped, and show progress."
    )
    return wait(click.argument("nodes", nargs=-1, required=True, metavar="NODE...")(function))


@click.command(cls=Verb)
@_leaves
@click.pass_obj
def decommission(invocation: Invocation, wait: bool, nodes: tuple[str, ...]) -> None:
    """Let DataNodes leave for good, while every block keeps its number of replicas.

    \b
      $ paxosblock admin decommission --wait datanode-1
      datanode-1 at 127.0.0.1:9872 is to leave: no new block goes there
      datanode-1: decommissioned, enough replicas of its 14 blocks are elsewhere

    NODE is a DataNode's id or host:port, as `admin report` shows them. It takes no new block; its
    blocks are copied to others, and writers go on elsewhere. It may be stopped when that is done.
    --wait waits for it; `admin leaving` shows how far it is, and what holds it up. It never ends
    if a file asks for more replicas than there are other DataNodes. `admin recommission` takes it
    back.

    The cluster remembers it across restarts and fail-overs.
    """
    _let_leave(invocation, AdminState.DECOMMISSIONED, 0, nodes, wait)


@click.command(cls=Verb)
@click.option(
    "--for",
    "for_s",
    required=True,
    metavar="DURATION",
    callback=lambda _context, _option, written: seconds(written),
    help="How long it may be away, such as 30min or 2h; after that it counts like any other.",
)
@_leaves
@click.pass_obj
def maintenance(invocation: Invocation, for_s: float, wait: bool, nodes: tuple[str, ...]) -> None:
    """Let DataNodes be away for a while without having their blocks copied.

    \b
      $ paxosblock admin maintenance --for 2h datanode-1
      datanode-1 at 127.0.0.1:9872 is in maintenance until 2025-03-01 14:00: no new block goes there

    NODE is a DataNode's id or host:port. Its replicas count even while it is stopped, as long as
    each block has min_replication replicas on other DataNodes; if they are missing they are made
    first, and --wait waits for that. `admin recommission` ends it early.
    """
    _let_leave(invocation, AdminState.IN_MAINTENANCE, for_s, nodes, wait)


@click.command(cls=Verb)
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...")
@click.pass_obj
def recommission(invocation: Invocation, nodes: tuple[str, ...]) -> None:
    """Take back DataNodes that were to leave.

    \b
      $ paxosblock admin recommission datanode-1
      datanode-1 at 127.0.0.1:9872 is in service

    Where blocks now have more replicas than they should, some are taken away again.
    """

    def take_back(written: str) -> None:
        status = _set(invocation, written, AdminState.IN_SERVICE, 0)
        invocation.say(f"{name_and_place(status)} is in service", status)

    invocation.for_each(nodes, take_back)


@click.command(cls=Verb)
@click.pass_obj
def leaving(invocation: Invocation) -> None:
    """Show the DataNodes that are to leave, how far they are, and what holds them up.

    \b
      $ paxosblock admin leaving
      datanode-1 at 127.0.0.1:9872: decommissioning, 2 of 14 blocks wait, 1 being written
        '/logs/a.log' block 7: is being written
        '/big' block 9: only 2 other DataNodes live for replication 3

    At most the first hundred blocks are shown.
    """
    nodes = invocation.call(LEAVING, LeavingRequest()).nodes
    for node in nodes:
        invocation.say(f"{name_and_place(node.status)}: {describe_progress(node)}", node)
        for block in node.held_up:
            invocation.say(f"  {describe_hold_up(node, block)}")
    if not nodes:
        invocation.say("no DataNode is to leave")


def describe_progress(node: LeavingNode) -> str:
    """Return the progress of a DataNode that is leaving."""
    progress = f"{node.progress}{_until(node.status)}"
    if not node.known or node.done:
        return progress
    blocks = counted(node.blocks, "block")
    writing = f", {node.open_blocks} being written" if node.open_blocks else ""
    return f"{progress}, {node.waiting} of {blocks} wait{writing}"


def describe_hold_up(node: LeavingNode, block: HeldUp) -> str:
    """Return the reason why a block still needs a DataNode that is leaving."""
    where = f"'{block.path}' block {block.block}" if block.path else f"block {block.block}"
    return f"{where}: {node.reason(block)}"


def _let_leave(
    invocation: Invocation, admin: AdminState, for_s: float, nodes: tuple[str, ...], wait: bool
) -> None:
    asked: list[AdminStatus] = []

    def leave(written: str) -> None:
        status = _set(invocation, written, admin, for_s)
        what = "is in maintenance" if status.until_ms else "is to leave"
        invocation.say(
            f"{name_and_place(status)} {what}{_until(status)}: no new block goes there", status
        )
        asked.append(status)

    invocation.for_each(nodes, leave)
    if wait:
        invocation.for_each(asked, lambda status: _wait(invocation, status))


def _wait(invocation: Invocation, status: AdminStatus) -> None:
    """Wait until a DataNode may go; print once what holds it up for good."""
    said: set[str] = set()
    node = LeavingNode(status, known=False)
    with count_bar(status.node, wanted=not invocation.json) as show:
        for node in _until_done(invocation, status):
            show(node.blocks - node.waiting, node.blocks)
            stuck = [each for each in node.held_up if each.why is not HoldUp.TOO_FEW]
            if node.known and len(stuck) == node.waiting:
                for reason in (describe_hold_up(node, each) for each in stuck):
                    if reason not in said:
                        invocation.warn(status.node, f"waits for {reason}")
                        said.add(reason)
    enough = f"enough replicas of its {counted(node.blocks, 'block')} are elsewhere"
    invocation.say(f"{status.node}: {node.progress}{_until(status)}, {enough}", node)


def _until_done(invocation: Invocation, status: AdminStatus) -> Iterator[LeavingNode]:
    """Yield the progress of a DataNode, repeatedly until it may go.

    Raises:
        UserError: an operator took it back, or its maintenance is over.
    """
    while True:
        nodes = invocation.call(LEAVING, LeavingRequest()).nodes
        found = [node for node in nodes if node.status.node == status.node]
        if not found or found[0].status.admin is not status.admin:
            why = "an operator took it back, or its maintenance is over"
            raise UserError(status.node, f"does not leave any more: {why}")
        yield found[0]
        if found[0].done:
            return
        time.sleep(LOOK_AGAIN_S)


def _set(invocation: Invocation, written: str, admin: AdminState, for_s: float) -> AdminStatus:
    return invocation.call_once(SET_ADMIN_STATE, SetAdminState(written, admin, for_s))


def _until(status: AdminStatus) -> str:
    if not status.until_ms:
        return ""
    return datetime.fromtimestamp(status.until_ms / 1000).strftime(" until %Y-%m-%d %H:%M")
