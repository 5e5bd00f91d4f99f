"""`paxosblock admin`: the commands of an operator of a running cluster."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TypeVar

import click
import msgspec

from paxosblock.api.care import LEAVING, LeavingRequest
from paxosblock.api.methods import Method
from paxosblock.api.status import (
    CLUSTER_STATUS,
    NAMENODE_STATUS,
    ClusterStatus,
    ClusterStatusRequest,
    NameNodeStatus,
    NameNodeStatusRequest,
)
from paxosblock.cli.decommissioning import describe_progress
from paxosblock.cli.descriptions import (
    describe_cluster,
    describe_datanode,
    describe_past,
    describe_replication,
    describe_scrubbing,
    name_and_place,
)
from paxosblock.cli.group import CommandEntry, DashGroup, Verb, common_options
from paxosblock.cli.invocation import Invocation
from paxosblock.cli.safemode import describe_safe_mode
from paxosblock.cli.text import counted
from paxosblock.errors import AccessDeniedError, PaxosBlockError, UnavailableError
from paxosblock.net.port.access import Access

Q = TypeVar("Q")
A = TypeVar("A")

ANSWER_WITHIN_S = 2.0
_LEAVING_NODES = "paxosblock.cli.decommissioning"

admin = DashGroup(
    "admin",
    params=common_options(),
    short_help="Look after a cluster: report, safemode, balancer, decommission, fsck.",
    help="Look after a cluster, whichever of its NameNodes leads.",
    entries={
        "report": CommandEntry("paxosblock.cli.admin", "Show every NameNode and DataNode."),
        "backup": CommandEntry("paxosblock.cli.backup", "Write the catalog to files in a folder."),
        "restore": CommandEntry("paxosblock.cli.backup", "Make a NameNode's folder from a backup."),
        "grow": CommandEntry("paxosblock.cli.grow", "Make a single NameNode the first of several."),
        "namenodes": CommandEntry(
            "paxosblock.cli.namenodes_command",
            "Show, add, remove or replace NameNodes, while all runs.",
        ),
        "safemode": CommandEntry(
            "paxosblock.cli.safemode", "Show, enter or leave safe mode, or wait."
        ),
        "balancer": CommandEntry(
            "paxosblock.cli.balancer_command", "Make storages about equally full."
        ),
        "decommission": CommandEntry(_LEAVING_NODES, "Let DataNodes leave for good."),
        "maintenance": CommandEntry(_LEAVING_NODES, "Let DataNodes be away for a while."),
        "recommission": CommandEntry(_LEAVING_NODES, "Take back DataNodes that were to leave."),
        "leaving": CommandEntry(_LEAVING_NODES, "Show who is to leave, and what holds it up."),
        "fsck": CommandEntry(
            "paxosblock.cli.fsck_command", "Check the blocks of files, as the NameNode knows them."
        ),
        "encrypt": CommandEntry(
            "paxosblock.cli.encrypt", "Let clients encrypt all files below a directory."
        ),
        "quota": CommandEntry(
            "paxosblock.cli.quota_command", "Limit what directories may hold, and show it."
        ),
        "token": CommandEntry("paxosblock.cli.token", "Issue, list or revoke tokens of users."),
        "s3-key": CommandEntry("paxosblock.cli.s3_key", "Make or revoke an access key of S3."),
        "recover-lease": CommandEntry("paxosblock.cli.lease", "End the writing of a file."),
    },
)


@click.command(cls=Verb)
@click.pass_obj
def report(invocation: Invocation) -> None:
    """Show the NameNodes of a cluster with their roles, and its DataNodes.

    \b
      $ paxosblock admin report
      NameNode  127.0.0.1:9870  leader    term 3, commit 4711, applied 4711
      NameNode  127.0.0.1:9871  follower  term 3, commit 4711, applied 4711, 0 entries behind
      NameNode  127.0.0.1:9872  does not answer, 12 entries behind
      Replicas  3 blocks wait for a copy, 2 are being copied
      DataNode  datanode-0 at 127.0.0.1:9873  live, 14 blocks, 1.2 G used, 80 G free of 99 G ...
      12 files (1 being written), 14 blocks, 0 being recovered

    One NameNode's address is enough. "Behind" is what the leader knows: entries of its log that the
    other one has not stored yet. "Used" is what the blocks take; what is neither used nor free
    holds files of others. A rack is shown where one was chosen. A volume that failed and a NameNode
    whose disk is full are shown with the reason. An alarm is for an operator to look at: a broken
    invariant, a damaged replica, a DataNode that was refused. The latest ones since the NameNodes
    were started are shown. The line "Replicas" appears while blocks lack replicas: it counts the
    blocks that wait for a copy or are being copied, that are missing (no readable replica is left),
    that have a damaged replica, and that are being written with too few replicas. The line
    "Snapshots", or "History" where it is kept, says what only the past keeps. The line "Restored"
    appears after `admin restore`, until DataNodes have told of every block. Safe mode is shown
    while it is on; nothing is copied or taken away then, see `admin safemode`. A DataNode that
    is to leave is shown with its progress, see `admin leaving`. With --json the last line is
    what the status page of the NameNode that leads shows, all of it (`/page.json`).

    Exit code 1 when a node does not answer, is not live (unless it is to leave) or cannot store
    changes, and when a block is missing.
    """
    standings = ask_all(invocation)
    lag = next((seen.lag for seen in standings.values() if seen and seen.serves), {})
    for address, standing in standings.items():
        text = ", ".join(_describe_standing(standing) + _describe_lag(lag.get(address)))
        fact = {"namenode": address, "standing": standing, "behind": lag.get(address)}
        invocation.say(f"NameNode  {address:<15}  {text}", fact)
        invocation.failures += standing is None or bool(standing.trouble)
    _say_of_all(invocation, standings.values())
    seen = invocation.call(CLUSTER_STATUS, ClusterStatusRequest())
    _say_of_blocks(invocation, seen)
    invocation.failures += bool(seen.replication.missing)
    leaves = {node.status.node: node for node in invocation.call(LEAVING, LeavingRequest()).nodes}
    for datanode in sorted(seen.datanodes, key=lambda each: each.node):
        is_to = leaves.pop(datanode.node, None)
        plans = [] if is_to is None else [describe_progress(is_to)]
        heard = f"heard {datanode.seconds_since_heartbeat:.1f} s ago"
        text = ", ".join([describe_datanode(datanode), describe_scrubbing(datanode), heard, *plans])
        fact = msgspec.to_builtins(datanode) | {"leaving": is_to}
        invocation.say(f"DataNode  {name_and_place(datanode)}  {text}", fact)
        invocation.failures += datanode.state != "live" and is_to is None
    for is_to in leaves.values():
        text = f"not heard of, {describe_progress(is_to)}"
        invocation.say(f"DataNode  {name_and_place(is_to.status)}  {text}", {"leaving": is_to})
    text = f"{describe_cluster(seen)}, {seen.recoveries} being recovered"
    invocation.say(text, _overview(invocation, standings, seen) if invocation.json else None)


def _say_of_blocks(invocation: Invocation, seen: ClusterStatus) -> None:
    """Print the lines that are there only sometimes."""
    if seen.safe_mode.on:
        invocation.say(describe_safe_mode(seen.safe_mode))
    if text := describe_replication(seen.replication):
        invocation.say(f"Replicas  {text}")
    if seen.to_learn:
        waits = "waits" if seen.to_learn == 1 else "wait"
        whose = f"{counted(seen.to_learn, 'block')} of the backup {waits}"
        invocation.say(f"Restored  {whose} until its DataNodes have told what became of it")
    if seen.past.snapshots or seen.past.since_s:
        invocation.say(describe_past(seen.past))


@dataclass(frozen=True, slots=True)
class _ReportCalls:
    """Answers the calls of the status page's struct with what the report has asked already, or by
    asking the NameNode that leads."""

    invocation: Invocation
    standings: dict[str, NameNodeStatus | None]
    seen: ClusterStatus

    async def call(self, method: Method[Q, A], request: Q) -> A:
        if isinstance(self.seen, method.answer):
            return self.seen
        return self.invocation.call(method, request)

    async def ask(self, address: str, method: Method[Q, A], request: Q) -> A:
        del request  # its answer is here already
        found = self.standings.get(address)
        if not isinstance(found, method.answer):
            raise UnavailableError(f"{address} does not answer")
        return found


def _overview(
    invocation: Invocation, standings: dict[str, NameNodeStatus | None], seen: ClusterStatus
) -> ClusterStatus:
    """Return what the page of the NameNode that leads shows; without one, what is known."""
    import asyncio

    from paxosblock.page.views import overview

    leads = next((each for each in standings.values() if each and each.serves), None)
    if leads is None:
        return seen
    return asyncio.run(overview(_ReportCalls(invocation, standings, seen), leads, recent=False))


def _say_of_all(invocation: Invocation, standings: Collection[NameNodeStatus | None]) -> None:
    for alarm in _alarms(standings):
        invocation.say(f"Alarm     {alarm}")
    if any(standing and standing.access_open for standing in standings):
        invocation.say("Access    open: whoever reaches the ports is served; see access_file")


def _alarms(standings: Iterable[NameNodeStatus | None]) -> list[str]:
    """Return the latest alarms of all NameNodes; one that several of them saw counts once."""
    return list(dict.fromkeys(alarm for each in standings if each for alarm in each.alarms))


def ask_all(invocation: Invocation) -> dict[str, NameNodeStatus | None]:
    """Ask all NameNodes, given ones and those that they name; None for each that is silent."""
    standings: dict[str, NameNodeStatus | None] = {}
    waiting = list(invocation.addresses)
    while waiting:
        address = waiting.pop(0)
        if address not in standings:
            standings[address] = found = _ask(address, invocation.access)
            waiting += found.members if found else ()
    return standings


def _ask(address: str, access: Access) -> NameNodeStatus | None:
    from paxosblock.net.calls.control import call

    try:
        return call(address, NAMENODE_STATUS, NameNodeStatusRequest(), ANSWER_WITHIN_S, access)
    except AccessDeniedError:
        raise
    except PaxosBlockError:
        return None


def _describe_standing(standing: NameNodeStatus | None) -> list[str]:
    if standing is None:
        return ["does not answer"]
    trouble = [standing.trouble] if standing.trouble else []
    progress = f"commit {standing.commit_index}, applied {standing.applied_index}"
    if not standing.members:
        return [", ".join((f"alone     {progress}", *trouble))]
    beginning = standing.role == "leader" and not standing.serves
    return [
        f"{standing.role:<8}  term {standing.term}",
        progress,
        *(["only beginning to lead"] if beginning else []),
        *trouble,
    ]


def _describe_lag(behind: int | None) -> list[str]:
    return [] if behind is None else [f"{counted(behind, 'entry', 'entries')} behind"]
