"""`paxosblock fs watch`: a line for each change of names below a path."""

from __future__ import annotations

from typing import Final

import click

from paxosblock.api.watching import ChangeKind, NameChange
from paxosblock.cli.fs_names import the_one_that_may_be_made
from paxosblock.cli.group import Verb
from paxosblock.cli.invocation import Invocation

HIDDEN: Final = "(not shown)"
"""In the place of a path that the user may not see."""


@click.command(cls=Verb)
@click.option(
    "--after",
    metavar="REVISION",
    type=click.IntRange(0),
    help="Begin behind this revision, the number before each line.",
)
@click.option(
    "--listed", is_flag=True, help="Begin with what is there, and list it again after a gap."
)
@click.argument("path")
@click.pass_obj
def watch(invocation: Invocation, *, after: int | None, listed: bool, path: str) -> None:
    """Show each change of names at a path and below it, once and in order.

    \b
      $ paxosblock fs watch /logs
      1042 created /logs/a.log
      1045 closed /logs/a.log 1048576
      1047 renamed /logs/a.log -> /logs/old/a.log

    Nothing need be at the path. Ctrl-C ends it; --after with the last revision that was shown goes
    on from there, at any NameNode, for as long as they remember it (the last 8 MiB of the log at
    least); after that it fails, and with --listed shows what is there now. What is in a directory
    that is renamed or removed goes with it, without lines of its own.
    """
    if listed and after is not None:
        raise click.UsageError("--listed begins with what is there now: leave --after out.")
    name = the_one_that_may_be_made(invocation, path)
    client = invocation.client
    client.while_waiting(None)  # a NameNode says for itself that nothing has happened
    for change in client.watch(name, after=after, listed=listed):
        invocation.say(described(change), change)


def described(change: NameChange) -> str:
    """Return a change in words."""
    words = [str(change.revision), change.kind.value]
    if change.kind is ChangeKind.RENAMED:
        words += [_shown(change, change.source), "->"]
    words.append(_shown(change, change.path))
    if change.size is not None:
        words.append(str(change.size))
    if change.traits:
        words.append(",".join(trait.value for trait in change.traits))
    return " ".join(words)


def _shown(change: NameChange, path: str) -> str:
    if not path:
        return HIDDEN
    return f"{path.rstrip('/')}/" if change.is_directory else path
