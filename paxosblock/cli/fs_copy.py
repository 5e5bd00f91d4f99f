"""`paxosblock fs cp`, and `checksum`, by which copies are compared."""

from __future__ import annotations

import re
from functools import partial
from typing import Any, Final

import click
import msgspec

from paxosblock.cli.fs_bytes import PRESERVED, QUEUE, THREADS, bytes_at, copying, tell_copied
from paxosblock.cli.fs_names import (
    AT,
    for_each_path,
    matching,
    status_of,
    target_is_directory,
)
from paxosblock.cli.group import Verb
from paxosblock.cli.invocation import Invocation
from paxosblock.client.names.walk import base_name, join

_PRESERVE: Final = re.compile(r"-p([topax]*)")


class _CopyVerb(Verb):
    """Takes `-p` with letters behind it, as hdfs does: click would take the next word for them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Write `-ptop` as `--preserve=top`."""
        found = [_PRESERVE.fullmatch(word) for word in args]
        return super().parse_args(
            ctx,
            [
                f"--preserve={match[1] or PRESERVED}" if match else word
                for word, match in zip(args, found, strict=True)
            ],
        )


@click.command(cls=_CopyVerb)
@click.option("-f", "force", is_flag=True, help="Replace files that exist.")
@click.option(
    "--preserve",
    metavar="[topax]",
    default="",
    help="Or -p[topax]: keep times, owner and group, permission; -p is -ptop.",
)
@click.option("-d", "directly", is_flag=True, help="Write to the destinations themselves.")
@THREADS
@QUEUE
@AT
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.argument("destination")
@click.pass_obj
def cp(
    invocation: Invocation,
    /,
    *,
    force: bool,
    preserve: str,
    directly: bool,
    at_once: int,
    sources: tuple[str, ...],
    destination: str,
    **_: Any,
) -> None:
    """Copy files and directories within the cluster.

    \b
      $ paxosblock fs cp -p /logs/2024 /archive/

    The files of a directory are copied eight at once. A file appears under its name when it is
    complete; it gets the replication, block size and durability of the original. Prints nothing
    when it is done.
    """
    target = invocation.path(destination)
    found = [path for source in sources for path in matching(invocation, source)]
    inside = target_is_directory(invocation, target, destination, len(found))

    def copy(source: str) -> None:
        wanted = join(target, base_name(source)) if inside else target
        measure = partial(bytes_at, invocation, source)
        with copying(invocation, base_name(wanted), measure) as progress:
            invocation.client.copy(
                source,
                wanted,
                overwrite=force,
                preserve=preserve,
                directly=directly,
                at_once=at_once,
                told=lambda step: tell_copied(invocation, step),
                progress=progress,
            )

    invocation.for_each(found, copy)


@click.command(cls=Verb)
@click.option("-v", "block_size", is_flag=True, help="Show the block size, too.")
@AT
@click.argument("paths", nargs=-1, required=True)
@click.pass_obj
def checksum(invocation: Invocation, *, block_size: bool, paths: tuple[str, ...]) -> None:
    """Show checksums as HDFS has them: of files with the same bytes and blocks they are the same.

    \b
      $ paxosblock fs checksum /logs/a.log
      /logs/a.log  MD5-of-0MD5-of-512CRC32C  000002000000000000000000...

    The columns have tabs between them. All bytes are read, and checked on the way.
    """

    def show(path: str) -> None:
        found = invocation.client.checksum(path)
        line = f"{path}\t{found.algorithm}\t{found.text}"
        size = status_of(invocation, path).block_size
        fact = {"path": path, **msgspec.to_builtins(found), "block_size": size}
        invocation.say(f"{line}\tBlockSize={size}" if block_size else line, fact)

    for_each_path(invocation, paths, show)
