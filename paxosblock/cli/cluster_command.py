"""`paxosblock cluster`: a cluster on this machine that goes on after the command has ended."""

from __future__ import annotations

from pathlib import Path

import click

from paxosblock.api.status import ClusterStatus, NameNodeStatus, NodeStatus
from paxosblock.cli.descriptions import describe_cluster, describe_datanode
from paxosblock.cli.group import CommandEntry, DashGroup, LocalVerb, output_options
from paxosblock.cli.invocation import Invocation, UserError
from paxosblock.cli.s3_key import exported, variables_of
from paxosblock.client.names.url import NAMENODES_VARIABLE
from paxosblock.local.cluster import LocalCluster
from paxosblock.local.cluster_folder import ClusterFolder, NodeKind
from paxosblock.local.node_process import Node
from paxosblock.net.calls import control

_HERE = "paxosblock.cli.cluster_command"
DEFAULT_FOLDER = "paxosblock-cluster"
NAMENODES = ("1", "3", "5")

cluster = DashGroup(
    "cluster",
    params=output_options(),
    short_help="Run a cluster on this machine: up, down, status, restart, env.",
    help="""Run a cluster on this machine: one process for each node.

\b
  paxosblock cluster up --path ./data
  paxosblock cluster status --path ./data
  paxosblock cluster down --path ./data      # files stay in ./data, up finds them again

With --namenodes 3 the cluster goes on when any one node is lost.
Logs are in PATH/logs. For a cluster that vanishes with your program use paxosblock.LocalCluster.
""",
    entries={
        "up": CommandEntry(_HERE, "Start a cluster, or those of its nodes that are down."),
        "down": CommandEntry(_HERE, "Stop its nodes; the files stay."),
        "status": CommandEntry(_HERE, "Show its nodes."),
        "restart": CommandEntry(_HERE, "Stop and start some of its nodes."),
        "env": CommandEntry(_HERE, "Print the lines with which other commands find it."),
    },
)

_folder = click.option(
    "--path",
    default=DEFAULT_FOLDER,
    show_default=True,
    type=click.Path(file_okay=False),
    help="The folder the cluster lives in.",
)


@click.command(cls=LocalVerb)
@click.option("--datanodes", type=click.IntRange(1), help="Number of DataNodes.  [default: 3]")
@click.option(
    "--namenodes", type=click.Choice(NAMENODES), help="Number of NameNodes.  [default: 1]"
)
@click.option(
    "--gateways",
    type=click.IntRange(0),
    help="Number of gateways, which speak WebHDFS and S3.  [default: as before; for a new cluster "
    "1, with --secure none]",
)
@click.option(
    "--volumes", type=click.IntRange(1), default=1, help="Volumes of each DataNode.  [default: 1]"
)
@click.option(
    "--racks",
    type=click.IntRange(1),
    default=1,
    help="Racks of a new cluster; its DataNodes are put into them in turn.  [default: 1]",
)
@click.option(
    "--base-port",
    type=click.IntRange(0, 65535),
    default=9870,
    show_default=True,
    help="Port of the first NameNode; the other nodes take those after it. 0: any free ports.",
)
@click.option(
    "--grow", is_flag=True, help="With --namenodes 3 or 5: add NameNodes to a cluster of one."
)
@click.option(
    "--secure",
    is_flag=True,
    help="Give each node and yourself a certificate: the nodes speak TLS only, and sign blocks.",
)
@_folder
@click.pass_obj
def up(
    invocation: Invocation,
    *,
    datanodes: int | None,
    namenodes: str | None,
    gateways: int | None,
    volumes: int,
    racks: int,
    base_port: int,
    grow: bool,
    secure: bool,
    path: str,
) -> None:
    """Start a cluster in the background, in a new folder or one that has been up before.

    \b
      $ paxosblock cluster up
      namenode-0    up   127.0.0.1:9870    process 4711
      ...
      gateway-0     up   127.0.0.1:9874    process 4715
      status page   http://127.0.0.1:9870/
      WebHDFS       webhdfs://127.0.0.1:9874/
      S3            http://127.0.0.1:9878
      export PAXOSBLOCK_NAMENODES=127.0.0.1:9870
      export AWS_ACCESS_KEY_ID=me ...

    With --namenodes 3 the cluster goes on when any one node is lost, even a NameNode. A folder
    remembers its nodes and their ports. If the cluster runs already, the nodes that are down are
    started and the others left alone. Returns when every node is ready, and tells on standard
    error what takes two seconds.

    By the gateway come programs for HDFS and for S3; --gateways 0 starts none. A secure cluster has
    no keys of S3: its gateways, if you want some, speak WebHDFS.

    To a stopped cluster of one NameNode you can add two, which copy its catalog, by
    `paxosblock cluster up --namenodes 3 --grow`.

    With --secure nothing is readable on the wire, a caller without a certificate of this cluster
    gets nothing, and DataNodes serve only what a NameNode signed: the lines at the end name your
    certificate. A folder stays secure, and each `up` makes its certificates again.
    """
    if invocation.namenodes is not None:
        raise click.UsageError(_misplaced(invocation.namenodes))
    if grow:
        _grow(path, int(namenodes or 1))
    usual = _usual_counts(path, secure=secure)
    local = LocalCluster(
        datanodes or usual[0],
        int(namenodes or 0) or usual[1],
        path,
        base_port=base_port,
        volumes=volumes,
        racks=racks,
        secure=secure,
        die_with_parent=False,
        gateways=usual[2] if gateways is None else gateways,
    )
    local.while_waiting(invocation.tell_missing)
    (local.start_missing if local.alive else local.start)()
    _tell_all(invocation, local)


def _usual_counts(path: str, *, secure: bool) -> tuple[int, int, int | None]:
    """Return how many DataNodes, NameNodes and gateways a cluster has if no number is asked for;
    None: as many gateways as before."""
    known = ClusterFolder(Path(path)).read()
    if known is None:
        return 3, 1, 0 if secure else 1
    return known.count(NodeKind.DATANODE), known.count(NodeKind.NAMENODE), None


def _grow(path: str, namenodes: int) -> None:
    if namenodes == 1:
        raise click.UsageError("--grow goes with --namenodes 3 or 5")
    LocalCluster.grow(path, namenodes)


def _tell_all(invocation: Invocation, local: LocalCluster) -> None:
    for node in local.nodes:
        _tell(invocation, node)
    leader = local.leader or local.namenode  # the page of another would only lead to its own
    page = f"{'https' if local.client_config.tls_cert else 'http'}://{leader.address}/"
    invocation.say(f"{'status page':<13} {page}", {"page": page})
    for gateway in local.gateways:
        door = f"webhdfs://{gateway.address}/"
        invocation.say(f"{'WebHDFS':<13} {door}", {"webhdfs": door})
        if url := _s3_url(local, gateway):
            invocation.say(f"{'S3':<13} {url}", {"s3": url})
    invocation.say(_export(local))
    if lines := _s3_export(local):
        invocation.say(lines)


def _s3_url(local: LocalCluster, gateway: Node) -> str:
    """Return where a gateway answers programs of S3; "" if it does not."""
    place = gateway.member.s3_listen
    return f"http://{place}" if place and local.speaks_s3 else ""


def _s3_export(local: LocalCluster) -> str:
    """Return the lines with which programs of S3 find the first gateway, where their key is your
    name; "" where a key must be made."""
    from paxosblock.gateway.s3.access_keys import KeyMaker
    from paxosblock.host.user import claimed_user

    url = next((url for each in local.gateways if (url := _s3_url(local, each))), "")
    if not url or not local.believes_names:
        return ""
    key = KeyMaker().make(claimed_user(), 0, read_only=False)
    return exported(variables_of(key, url))


def _doors(local: LocalCluster, gateway: Node) -> str:
    url = _s3_url(local, gateway)
    return f"serves WebHDFS, and S3 at {url}" if url else "serves WebHDFS"


def _misplaced(namenodes: str) -> str:
    """Refuse --namenodes before the verb: it says where a cluster is, but `up` makes one."""
    wanted = f"--namenodes {namenodes}" if namenodes in NAMENODES else "--namenodes 1|3|5"
    return (
        f"'--namenodes {namenodes}' before 'cluster' says where a cluster is, not how many "
        f"NameNodes to start: type 'paxosblock cluster up {wanted}'"
    )


def _export(local: LocalCluster) -> str:
    lines = {NAMENODES_VARIABLE: ",".join(local.addresses)}
    if cert := local.client_config.tls_cert:
        lines |= {"PAXOSBLOCK_TLS_CERT": cert, "PAXOSBLOCK_TLS_CA": local.client_config.tls_ca}
    return exported(lines)


@click.command(cls=LocalVerb)
@_folder
@click.pass_obj
def env(invocation: Invocation, path: str) -> None:
    """Print the lines with which a shell's other commands find the cluster.

    \b
      $ eval "$(paxosblock cluster env)"
      $ paxosblock cluster env
      export PAXOSBLOCK_NAMENODES=127.0.0.1:9870
    """
    local = LocalCluster.at(path)
    if not any(node.alive for node in local.namenodes):
        raise UserError(path, "its cluster is not running: start it with 'paxosblock cluster up'")
    config = local.client_config
    fact = {"namenodes": local.addresses, "tls_cert": config.tls_cert, "tls_ca": config.tls_ca}
    invocation.say(_export(local), fact)


@click.command(cls=LocalVerb)
@_folder
@click.argument("names", nargs=-1, required=True, metavar="NODE...")
@click.pass_obj
def restart(invocation: Invocation, path: str, names: tuple[str, ...]) -> None:
    """Stop nodes and start them again, one after the other; one that is down is started.

    \b
      $ paxosblock cluster restart datanode-1
      datanode-1    up   127.0.0.1:9872    process 4720

    Returns when every running NameNode counts the running DataNodes as live.
    """
    local = LocalCluster.at(path)
    local.while_waiting(invocation.tell_missing)
    nodes = {node.name: node for node in local.nodes}

    def again(name: str) -> None:
        if (node := nodes.get(name)) is None:
            raise UserError(name, f"no such node: there are {', '.join(nodes)}")
        if node.alive:
            node.stop()
        node.start()
        local.wait_registered()
        _tell(invocation, node)

    invocation.for_each(names, again)


@click.command(cls=LocalVerb)
@_folder
@click.pass_obj
def down(invocation: Invocation, path: str) -> None:
    """Stop the nodes of a cluster. What it stores stays in its folder.

    \b
      $ paxosblock cluster down
      4 nodes stopped
    """
    local = LocalCluster.at(path)
    running = sum(node.alive for node in local.nodes)
    if not running:
        raise UserError(path, "its cluster is not running")
    clean = local.close()
    forced = "" if clean else ", some by force: they did not end in time"
    invocation.say(f"{running} nodes stopped{forced}", {"stopped": running, "clean": clean})


@click.command(cls=LocalVerb)
@_folder
@click.pass_obj
def status(invocation: Invocation, path: str) -> None:
    """Show the nodes of a cluster: their processes, and what the NameNode says of them.

    \b
      $ paxosblock cluster status
      namenode-0    up   127.0.0.1:9870    process 4711  12 files (1 being written), 14 blocks
      datanode-0    up   127.0.0.1:9871    process 4712  live, 14 blocks, 1.2 G used, 80 G free ...
      ...

    For a node that is down it says why: the node's own last words, or that it ended without any, as
    by SIGKILL. Exit code 1 when a node is down or a gateway does not answer,
    when a NameNode's disk is full, or when the NameNode that leads does not count a DataNode as
    live.
    """
    local = LocalCluster.at(path)
    standings = {node.name: local.namenode_status(node) for node in local.namenodes if node.alive}
    leads = any(seen is not None and seen.serves for seen in standings.values())
    seen = local.status() if leads else None
    reports = {node.address: node for node in seen.datanodes} if seen else {}
    for node in local.nodes:
        if node.member.role is NodeKind.NAMENODE:
            standing = standings.get(node.name)
            text = _describe_namenode(standing, seen) if node.alive else node.why_down
            _tell(invocation, node, standing, text)
            invocation.failures += standing is None or bool(standing.trouble)
        elif node.member.role is NodeKind.GATEWAY:
            serves = node.alive and control.healthy(node.address)
            _tell(invocation, node, None, _doors(local, node) if serves else node.why_down)
            invocation.failures += not serves
        else:
            report = reports.get(node.address)
            text = describe_datanode(report) if report and node.alive else node.why_down
            _tell(invocation, node, report, text)
            serves = node.alive and report is not None and report.state == "live"
            invocation.failures += not serves


def _tell(
    invocation: Invocation,
    node: Node,
    report: NameNodeStatus | NodeStatus | None = None,
    text: str = "",
) -> None:
    pid = node.pid
    process = f"process {pid}" if pid else ""
    line = f"{node.name:<13} {'up' if pid else 'down':<4} {node.address:<17} {process}  {text}"
    fact = {"name": node.name, "address": node.address, "process": pid, "report": report}
    invocation.say(line.rstrip(), fact)


def _describe_namenode(standing: NameNodeStatus | None, seen: ClusterStatus | None) -> str:
    """Return the role of one of several NameNodes, and for the leader the size of the cluster."""
    parts = [standing.role] if standing and standing.members else []
    parts += [standing.trouble] if standing and standing.trouble else []
    if standing and standing.serves and seen:
        parts.append(describe_cluster(seen))
    return ", ".join(parts)
