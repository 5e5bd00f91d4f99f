"""`paxosblock admin grow`: one NameNode becomes several."""

from __future__ import annotations

from pathlib import Path

import click

from paxosblock.cli.group import LocalVerb
from paxosblock.cli.invocation import Invocation
from paxosblock.cli.text import counted


@click.command(cls=LocalVerb)
@click.option(
    "--path",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder of the NameNode, which must be stopped.",
)
@click.option(
    "--peers",
    required=True,
    metavar="HOST:PORT,...",
    help="All NameNodes that the cluster is to have, including this one.",
)
@click.pass_obj
def grow(invocation: Invocation, *, path: Path, peers: str) -> None:
    """Make a cluster's only NameNode the first of three or more: its folder gets the longer list.

    \b
      $ paxosblock admin grow --path /srv/nn --peers nn1:9870,nn2:9870,nn3:9870
      /srv/nn is that of one of 3 NameNodes now: 1204 records, up to entry 4711

    Stop it first. Afterwards start it with --peers and --secret-file, and start the others, each
    with an empty folder, with the same options and, this once, with --join: they fetch the catalog.
    Name all of them to DataNodes and clients with --namenodes.

    You may interrupt it at any point, and run it again: until it is done, the folder is that of a
    cluster's only NameNode.
    """
    from paxosblock.client.names.url import cluster_addresses
    from paxosblock.namenode.raft.list_change import grow_folder

    members = cluster_addresses(peers)
    done = grow_folder(path, members)
    whose = f"{path} is that of one of {len(members)} NameNodes"
    amount = f" now: {counted(done.keys, 'record')}, up to entry {done.revision}"
    invocation.say(f"{whose}{amount if done.keys else ' already'}", done)
