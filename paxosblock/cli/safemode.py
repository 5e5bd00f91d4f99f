"""`paxosblock admin safemode`, and the line that describes safe mode, wherever it is shown."""

from __future__ import annotations

import time
from typing import Final

import click

from paxosblock.api.status import SAFE_MODE, SafeModeAction, SafeModeRequest, SafeModeStatus
from paxosblock.base.units import format_duration
from paxosblock.cli.group import Verb
from paxosblock.cli.invocation import Invocation
from paxosblock.cli.text import counted
from paxosblock.errors import DeadlineError, Outcome

LOOKS_EVERY_S: Final = 0.5
WAIT: Final = "wait"


@click.command(cls=Verb)
@click.argument("action", type=click.Choice([*(each.value for each in SafeModeAction), WAIT]))
@click.pass_obj
def safemode(invocation: Invocation, action: str) -> None:
    """Show safe mode, enter or leave it, or wait until it is off. (HDFS: dfsadmin -safemode)

    \b
      $ paxosblock admin safemode get
      Safe mode is ON: DataNodes have reported 1000 of 1000 blocks, it ends in 12 s
      $ paxosblock admin safemode wait --timeout 5min && run-my-jobs

    After a NameNode was started, or another one leads, nothing is copied or taken away until the
    DataNodes have reported nearly all blocks (safe_mode_threshold) and a moment has passed
    (safe_mode_extension). Readers and writers do not wait for that. If what is missing does not
    come back, `leave` ends it, until the next start or fail-over.

    `enter` turns it on until `leave`, and a fail-over does not end it. Changes of names are then
    refused, too: create, append, mkdir, rename, delete and the like try again until their time is
    over. Open files can be written and closed, and all files can be read.

    `wait` has no end of its own: with --timeout it fails, exit code 1, when safe mode is still on
    after that time.
    """
    if action == WAIT:
        status = _until_off(invocation)
    else:
        status = invocation.call(SAFE_MODE, SafeModeRequest(SafeModeAction(action)))
    invocation.say(describe_safe_mode(status), status)


def _until_off(invocation: Invocation) -> SafeModeStatus:
    began_s, said = time.monotonic(), False
    while (status := invocation.call(SAFE_MODE, SafeModeRequest())).on:
        if invocation.timeout is not None and time.monotonic() - began_s >= invocation.timeout:
            over = f"after {format_duration(invocation.timeout)}: {describe_safe_mode(status)}"
            raise DeadlineError(over).with_outcome(Outcome.NEVER)
        if not said and not invocation.json:
            click.echo(f"{invocation.verb}: waiting: {describe_safe_mode(status)}", err=True)
            said = True
        time.sleep(LOOKS_EVERY_S)
    return status


def describe_safe_mode(status: SafeModeStatus) -> str:
    """Return the state of safe mode and its reason, in a line that begins as that of hdfs."""
    if not status.on:
        return "Safe mode is OFF"
    if status.by_hand:
        return "Safe mode is ON: entered by hand, until `paxosblock admin safemode leave`"
    blocks = counted(status.blocks, "block")
    seen = f"Safe mode is ON: DataNodes have reported {status.reported} of {blocks}"
    if status.left_s is None:
        share = f"{seen}, {status.threshold * 100:g} % are needed"
        return f"{share}; without the rest: `paxosblock admin safemode leave`"
    return f"{seen}, it ends in {status.left_s:.0f} s"
