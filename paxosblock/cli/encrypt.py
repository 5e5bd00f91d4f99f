"""`paxosblock admin encrypt`: directories whose files clients encrypt."""

from __future__ import annotations

import click

from paxosblock.api.encryption import (
    ENCRYPT_DIRECTORY,
    ENCRYPTION_ZONES,
    ROLL_MASTER_KEY,
    EncryptDirectory,
    RollMasterKey,
    ZonesRequest,
)
from paxosblock.base.paths import shown
from paxosblock.cli.fs_names import the_one
from paxosblock.cli.group import Verb
from paxosblock.cli.invocation import Invocation
from paxosblock.cli.text import counted


@click.command(cls=Verb)
@click.argument("path", required=False)
@click.option("--list", "lists", is_flag=True, help="Show the encryption zones.")
@click.option("--roll", is_flag=True, help="Wrap the keys of all zones with the first master key.")
@click.pass_obj
def encrypt(invocation: Invocation, path: str | None, *, lists: bool, roll: bool) -> None:
    """Let clients encrypt all files below an empty directory. (HDFS: crypto -createZone)

    \b
      $ paxosblock setup secret /etc/paxosblock/master       # once, the same at all NameNodes
      $ paxosblock admin encrypt /secret
      '/secret' is an encryption zone, its key wrapped by master key 26053eae99cb
      $ paxosblock admin encrypt --list

    The directory becomes an encryption zone: what is written below it is encrypted by the client,
    chunk by chunk, and no DataNode, nor a thief of its disks, can read a byte of it or change one
    unnoticed. Users who may read a file get the key of its blocks from the NameNode, over TLS or on
    the NameNode's machine. Files are neither moved into a zone nor out of it, but copied.

    The keys of zones lie in the catalog, wrapped by the master key: the first line of the
    NameNodes' master_key_file, or of what their master_key_command prints. To replace it, put a new
    line first in that of all NameNodes, run `admin encrypt --roll`, and take the old line away. No
    file is touched. Without the master key nothing in a zone can be read, ever: keep a copy of it
    where the cluster is not. Only a superuser may do this.
    """
    if sum((path is not None, lists, roll)) != 1:
        raise click.UsageError("name a directory, or give --list or --roll")
    if path is not None:
        where = the_one(invocation, path)
        zone = invocation.call(ENCRYPT_DIRECTORY, EncryptDirectory(where))
        text = f"{shown(where)} is an encryption zone, its key wrapped by master key {zone.master}"
        invocation.say(text, zone)
    elif roll:
        rolled = invocation.call(ROLL_MASTER_KEY, RollMasterKey())
        text = f"master key {rolled.master} wraps the keys of all zones"
        invocation.say(f"{text}, {counted(rolled.wrapped, 'zone')} newly", rolled)
    else:
        found = invocation.call(ENCRYPTION_ZONES, ZonesRequest())
        for each in found.zones:
            invocation.say(f"{shown(each.path)}  wrapped by master key {each.master}", each)
        master = f"no master key: {found.why}" if found.why else f"master key {found.master}"
        invocation.say(f"{counted(len(found.zones), 'encryption zone')}, {master}")
