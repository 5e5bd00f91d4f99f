"""`paxosblock demo`: a command of a checkout."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import click

from paxosblock.base.units import MIB, format_size, parse_size
from paxosblock.cli.group import LocalVerb, read_option
from paxosblock.cli.invocation import Invocation, UserError

LEAST_BYTES = 16 * MIB


def _size(ctx: click.Context, option: click.Parameter, value: str) -> int:
    size_bytes = read_option(parse_size, value)
    if size_bytes < LEAST_BYTES:
        least = format_size(LEAST_BYTES)
        raise click.BadParameter(f"the demo needs at least {least}, to kill nodes in mid-write")
    return size_bytes


@click.command(cls=LocalVerb)
@click.option("--file", "chosen", type=click.Path(), help="What to write, instead of --size.")
@click.option(
    "--size",
    default="256MiB",
    show_default=True,
    callback=_size,
    help="How much to write, taken from files of this Python installation.",
)
@click.option("--path", type=click.Path(), help="Keep the cluster's folder, here.")
@click.pass_obj
def demo(invocation: Invocation, *, chosen: str | None, size: int, path: str | None) -> None:
    """Write a real file while nodes are killed, and verify every byte.

    Starts three NameNodes and four DataNodes, then

    \b
    1. writes a file while a second process follows it; kills a DataNode in mid-write with SIGKILL,
       later the NameNode that leads, goes on with the others, starts each of them again;
    2. has a second file written by a process of its own, kills that with SIGKILL, takes the file
       over: everything that was acknowledged must be there;
    3. kills a DataNode for good, and waits until what it held is there again, on another one;
    4. compares SHA-256 of what was sent, followed, and read back.

    \b
      $ paxosblock demo --size 1GiB

    Prints what happened, in milliseconds since the start, and who voted for what in the recovered
    blocks. Exit code 1 when any byte differs.
    """
    from examples.demo.show import Show

    with TemporaryDirectory(prefix="paxosblock-demo-") as scratch:
        show = Show(invocation)
        source = show.source(chosen, size, Path(scratch))
        if source.size_bytes < LEAST_BYTES:
            raise UserError(str(chosen), f"too short: the demo needs {format_size(LEAST_BYTES)}")
        invocation.failures += not show.play(source, path)
