"""The options of `paxosblock datanode` about the snapshot of an upgrade."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from paxosblock.cli.invocation import Invocation
from paxosblock.errors import ConfigError


def upgrade_options(function: Any) -> Any:
    """Add the options of an upgrade to a command."""
    options: tuple[Callable[[Any], Any], ...] = (
        click.option(
            "--upgrade",
            is_flag=True,
            help="Keep a snapshot of each volume first, unless there is one; then run as usual.",
        ),
        click.option(
            "--rollback",
            is_flag=True,
            help="Go back to the snapshots, and end. What was written since is gone; NameNodes and "
            "all other DataNodes must go back, too.",
        ),
        click.option(
            "--finalize-upgrade",
            is_flag=True,
            help="Remove the snapshots, and end. The node may run meanwhile.",
        ),
        click.option("--yes", is_flag=True, help="With --rollback: do not ask."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def check_upgrade_options(*, upgrade: bool, rollback: bool, finalize: bool, yes: bool) -> None:
    """Raise click.UsageError for options that do not go together."""
    flags = {"--upgrade": upgrade, "--rollback": rollback, "--finalize-upgrade": finalize}
    chosen = [flag for flag, given in flags.items() if given]
    if len(chosen) > 1:
        raise click.UsageError(f"{' and '.join(chosen)} exclude each other")
    if yes and not rollback:
        raise click.UsageError("--yes goes with --rollback")


def end_upgrade(
    invocation: Invocation, volumes: tuple[Path, ...], *, rollback: bool, yes: bool
) -> None:
    """Go back to the snapshots of a node's volumes, or remove them."""
    if rollback:
        _roll_back(invocation, volumes, yes=yes)
    else:
        _finalize(invocation, volumes)


def _roll_back(invocation: Invocation, volumes: tuple[Path, ...], *, yes: bool) -> None:
    """Go back to the snapshots of a node's volumes, with the user's yes."""
    from paxosblock.datanode.volumes import volume_snapshot
    from paxosblock.host.disk import OsDisk

    if not yes and (invocation.json or not sys.stdin.isatty()):
        raise click.UsageError("--rollback asks for a yes: where nobody can be asked, add --yes")
    disk = OsDisk()
    volume_snapshot.check_rollback(disk, volumes)
    made = {folder: _made(folder) for folder in volumes}
    if not yes:
        for folder, when in made.items():
            click.echo(f"{folder}: all that was written since {when} will be gone", err=True)
        if not click.confirm("Go back to the snapshots?", err=True):
            raise ConfigError("nothing was rolled back")
    volume_snapshot.roll_back(disk, volumes)
    for folder, when in made.items():
        fact = {"volume": str(folder), "rolled_back_to": when}
        invocation.say(f"{folder}: rolled back to {when}; what was written since is gone", fact)
    invocation.say("It is taken in again by NameNodes that were rolled back, too.")


def _finalize(invocation: Invocation, volumes: tuple[Path, ...]) -> None:
    """Remove the snapshots of a node's volumes."""
    from paxosblock.datanode.volumes import volume_snapshot
    from paxosblock.host.disk import OsDisk

    for folder in volume_snapshot.finalize(OsDisk(), volumes):
        invocation.say(f"{folder}: the snapshot is removed", {"volume": str(folder)})


def _made(folder: Path) -> str:
    """Return the time of a volume's snapshot, by the file that makes it whole."""
    from paxosblock.datanode.volumes.volume_snapshot import marker

    try:
        seconds = marker(folder).stat().st_mtime
    except FileNotFoundError:
        return "its snapshot"  # this one also finishes a rollback that was interrupted
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
