"""`paxosblock setup`: what pip does not install."""

from __future__ import annotations

import importlib
import importlib.util
import shlex
import subprocess
import sys
from pathlib import Path

import click

from paxosblock.cli.group import CommandEntry, LazyGroup, LocalVerb, output_options
from paxosblock.cli.invocation import Invocation, UserError
from paxosblock.errors import ConfigError
from paxosblock.namenode.raft.options import INSTALL, RAFTOS, check_raftos
from paxosblock.net.port.access import make_secret

setup = LazyGroup(
    "setup",
    params=output_options(),
    short_help="Install what pip does not: raft, secrets, certificates, units, man.",
    help="Install what pip does not.",
    entries={
        "secret": CommandEntry("paxosblock.cli.setup", "A new access secret for a cluster."),
        "tls": CommandEntry(
            "paxosblock.cli.setup_tls", "An authority for a cluster, and certificates of nodes."
        ),
        "tls-user": CommandEntry("paxosblock.cli.setup_tls", "The certificate of a user."),
        "node": CommandEntry(
            "paxosblock.cli.setup_node", "A unit of systemd, settings and folders of a node."
        ),
        "raft": CommandEntry("paxosblock.cli.setup", "raftos, for NameNodes of a checkout."),
        "completion": CommandEntry(
            "paxosblock.cli.shell", "Completion of commands with the Tab key."
        ),
        "man": CommandEntry("paxosblock.cli.shell", "Manual pages."),
    },
)


@click.command(cls=LocalVerb)
@click.argument("file", type=click.Path(path_type=Path))
@click.pass_obj
def secret(invocation: Invocation, *, file: Path) -> None:
    """Write a new access secret, 32 random bytes, to a FILE that only you may read.

    \b
      $ paxosblock setup secret /etc/paxosblock/access
      $ export PAXOSBLOCK_ACCESS_FILE=/etc/paxosblock/access

    The nodes of the cluster, and all programs that call them, need the same file: copy it to each
    machine. A FILE that is there stays as it is. To change the secret of a cluster, write a new one
    to another file, and add its line to the old one (paxosblock help operations).
    """
    try:
        make_secret(file)
    except FileExistsError as error:
        raise UserError(str(file), "it is there already, and stays as it is") from error
    except OSError as error:
        raise UserError(str(file), (error.strerror or str(error)).lower()) from error
    invocation.say(f"{file} holds a new secret", {"file": str(file)})


@click.command(cls=LocalVerb)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def raft(invocation: Invocation, *, yes: bool) -> None:
    """Install raftos, which NameNodes need, in a checkout: the package has it.

    \b
      $ paxosblock setup raft

    raftos demands versions of other packages that can no longer be built, and needs none of them
    but msgpack. So the pip of this Python installs it without its dependencies, into the
    environment that this command runs in. The command shows what it will run, and asks first.
    """
    try:
        check_raftos()
    except ConfigError:
        _install(invocation, yes=yes)
    importlib.import_module("paxosblock.namenode.raft.store")
    invocation.say(f"raftos {RAFTOS} is installed: NameNodes can run", {"raftos": RAFTOS})


def _install(invocation: Invocation, *, yes: bool) -> None:
    if importlib.util.find_spec("pip") is None:
        raise UserError("raft", f"{sys.executable} has no pip: run '{sys.executable} -m ensurepip'")
    command = [sys.executable, "-m", "pip", "install", *INSTALL]
    click.echo(shlex.join(command), err=True)
    if not yes:
        if invocation.json or not sys.stdin.isatty():
            raise click.UsageError("asks before it installs: where nobody can be asked, add --yes")
        click.confirm("Run this?", abort=True, err=True)
    if subprocess.run(command, stdout=sys.stderr, check=False).returncode:
        raise UserError("raft", f"failed: {shlex.join(command)}")
    importlib.invalidate_caches()
    check_raftos()
