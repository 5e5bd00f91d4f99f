"""`paxosblock admin token`: what a person or a program sends over HTTP instead of the secret."""

from __future__ import annotations

import time

import click

from paxosblock.base.units import parse_duration
from paxosblock.cli.group import LocalVerb
from paxosblock.cli.invocation import Invocation
from paxosblock.errors import ConfigError


@click.command(cls=LocalVerb)
@click.option(
    "--for",
    "lasts",
    default="1h",
    show_default=True,
    metavar="DURATION",
    help="The time for which it is good, by the clock of the node that is asked.",
)
@click.option(
    "--to",
    "purpose",
    type=click.Choice(["rpc", "backup", "page"]),
    default="rpc",
    show_default=True,
    help="The one thing it is good for: POST /rpc/..., GET /backup, or the status page.",
)
@click.pass_obj
def token(invocation: Invocation, *, lasts: str, purpose: str) -> None:
    """Make a token for requests over HTTP to nodes with an access secret.

    \b
      $ export PAXOSBLOCK_ACCESS_FILE=/etc/paxosblock/access
      $ paxosblock admin token --for 10min
      $ curl -H "Authorization: Bearer $(paxosblock admin token --for 10min)" ...

    It is made of the secret, without asking a node, and shows nothing of it. A program that has it
    may do everything of that kind until it ends, at most seven days from now; it can be taken back
    only by another secret.
    """
    from paxosblock.net.port.access import LONGEST_TOKEN_S

    access = invocation.access
    if not access.secrets:
        raise ConfigError("no access secret: name its file with PAXOSBLOCK_ACCESS_FILE")
    if (seconds := parse_duration(lasts)) > LONGEST_TOKEN_S:
        raise ConfigError(f"--for {lasts}: a token is good for at most 7d")
    until_s = int(time.time() + seconds)
    made = access.token(purpose, until_s)
    invocation.say(made, {"token": made, "until_s": until_s})
