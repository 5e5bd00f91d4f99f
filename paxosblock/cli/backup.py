"""`paxosblock admin backup` and `restore`: the catalog as files in a folder, and back."""

from __future__ import annotations

from pathlib import Path

import click

from paxosblock.cli.admin import ask_all
from paxosblock.cli.group import LocalVerb, Verb
from paxosblock.cli.invocation import Invocation
from paxosblock.errors import ConfigError, UnavailableError

_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command(cls=Verb)
@click.argument("folder", type=_FOLDER)
@click.option(
    "--from",
    "source",
    metavar="HOST:PORT",
    help="Take the catalog from this NameNode even if it does not lead, as when no majority is up.",
)
@click.pass_obj
def backup(invocation: Invocation, *, folder: Path, source: str | None) -> None:
    """Write the catalog, as it is at one moment, to files in a FOLDER on this machine.

    \b
      $ paxosblock admin backup /backups/monday
      /backups/monday holds the catalog up to entry 4711

    FOLDER must be new or empty. The cluster goes on meanwhile. The backup has every change that was
    answered before, unless --from names a NameNode that is behind. It does not have the bytes of
    files, which are on the DataNodes. All of it is read back before the command says that it is
    done. `admin restore` makes a cluster from it.
    """
    from paxosblock.client.names.url import cluster_addresses
    from paxosblock.namenode.backups import take_backup

    invocation.namenodes = source or invocation.namenodes
    standings = {at: seen for at, seen in ask_all(invocation).items() if seen}
    chosen = [at for at, seen in standings.items() if seen.serves]
    if source is not None:
        chosen = [at for at in cluster_addresses(source) if at in standings]
        if not chosen:
            raise UnavailableError(f"{source} does not answer")
    if not chosen:
        raise UnavailableError("no NameNode leads: wait, or name one with --from")
    leader = chosen[0]
    found = take_backup(leader, folder, standings[leader].cluster, invocation.access)
    invocation.say(f"{folder} holds the catalog up to entry {found.entry}", found)


@click.command(cls=LocalVerb)
@click.argument("folder", type=_FOLDER)
@click.option("--path", required=True, type=_FOLDER, help="The new folder of a NameNode.")
@click.option(
    "--peers",
    metavar="HOST:PORT,...",
    help="All NameNodes of the new cluster, including this one, unless it is the only one.",
)
@click.option(
    "--yes-lose-data",
    is_flag=True,
    help="Needed: names that were made or changed since the backup are lost.",
)
@click.pass_obj
def restore(
    invocation: Invocation, *, folder: Path, path: Path, peers: str | None, yes_lose_data: bool
) -> None:
    """Make a NameNode's folder from a backup in FOLDER, which stays as it is.

    \b
      $ paxosblock admin restore /backups/monday --path /srv/nn --yes-lose-data
      /srv/nn holds the catalog up to entry 4711: start it, then `paxosblock admin safemode leave`

    Use it when the catalog is lost on all NameNodes. The DataNodes keep their folders. Files come
    back as they were at the backup; what was made or appended since is lost. Never start one of the
    old NameNodes again.

    Start it as the only NameNode, or with the same --peers as here; then the others, each with an
    empty folder and, this once, with --join. The cluster is in safe mode until you end that with
    `admin safemode leave`. Look at `admin report` and `admin fsck` first: replicas that the backup
    does not know are removed after that.

    All of the backup is read. You may interrupt the command at any point, and run it again.
    """
    from paxosblock.client.names.url import cluster_addresses
    from paxosblock.namenode.backups import restore as bring_back

    if not yes_lose_data:
        raise ConfigError(
            "all names that were made or changed since the backup are lost, also where another "
            "NameNode still has them: with --yes-lose-data it is done all the same"
        )
    found = bring_back(folder, path, cluster_addresses(peers) if peers else ())
    then = "start it, then `paxosblock admin safemode leave`"
    invocation.say(f"{path} holds the catalog up to entry {found.entry}: {then}", found)
