"""`paxosblock bench`: the benchmarks of a checkout."""

from __future__ import annotations

import subprocess
import sys

import click

from paxosblock.cli.group import LocalVerb


@click.command(
    cls=LocalVerb, context_settings={"ignore_unknown_options": True}, add_help_option=False
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def bench(ctx: click.Context, arguments: tuple[str, ...]) -> None:
    """Run `python -m benchmarks` with these arguments."""
    ctx.exit(subprocess.call([sys.executable, "-m", "benchmarks", *arguments]))
