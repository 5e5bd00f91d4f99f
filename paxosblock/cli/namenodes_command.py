"""`paxosblock admin namenodes`: the list of NameNodes, changed while the cluster runs."""

from __future__ import annotations

import time
from typing import Final

import click
import msgspec

from paxosblock.api.namenode_list import (
    CHANGE_NAMENODES,
    ChangeNameNodes,
    ChangeStep,
    NameNodesChange,
)
from paxosblock.cli.group import Verb
from paxosblock.cli.invocation import Invocation
from paxosblock.cli.text import counted
from paxosblock.errors import DeadlineError, InvalidRequestError, Outcome, PaxosBlockError

ASKS_EVERY_S: Final = 0.5


def _checked(_: click.Context, __: click.Parameter, written: str) -> str:
    from paxosblock.client.names.url import cluster_addresses

    addresses = cluster_addresses(written)
    if len(addresses) != 1:
        raise click.BadParameter(f"{written!r} is not the address of one NameNode")
    return addresses[0]


@click.command("list", cls=Verb)
@click.pass_obj
def show(invocation: Invocation) -> None:
    """Show the NameNodes of the cluster, those that the leader does not hear, and those that wait
    to be added.

    \b
      $ paxosblock admin namenodes list
      nn1:9870  leads
      nn2:9870
      nn3:9870  does not answer
      nn4:9870  waits to be added
    """
    _say(invocation, _now(invocation))


@click.command(cls=Verb)
@click.argument("address", callback=_checked)
@click.pass_obj
def add(invocation: Invocation, address: str) -> None:
    """Add a NameNode, which waits at ADDRESS with an empty folder, while the cluster runs.

    \b
      $ paxosblock namenode --path /srv/nn --listen nn4:9870 --secret-file secret \\
          --peers nn1:9870,nn2:9870,nn3:9870 --join
      $ paxosblock admin namenodes add nn4:9870
      nn1:9870  leads
      nn2:9870
      nn3:9870
      nn4:9870

    It fetches the catalog and the log first, and counts only when it has caught up: then the list
    changes in one step. You may interrupt this at any point, and run it again. With an even number
    of NameNodes no more of them may fail than with one less, so go on to an odd one.

    Afterwards start it without --join, and name it to DataNodes and clients that start later.
    Those that run learn of it by themselves.
    """
    if address in _now(invocation).members:
        click.echo(f"{invocation.verb}: {address} is a NameNode of this cluster already", err=True)
    now = _until_done(invocation, ChangeNameNodes(add=address))
    _tell_even(invocation, now)
    _say(invocation, now)


@click.command(cls=Verb)
@click.argument("address", callback=_checked)
@click.pass_obj
def remove(invocation: Invocation, address: str) -> None:
    """Remove the NameNode at ADDRESS, whether it answers or not, while the cluster runs.

    \b
      $ paxosblock admin namenodes remove nn3:9870
      nn1:9870  leads
      nn2:9870
      nn4:9870

    Its process ends, with exit code 0 and one line, as soon as it hears of it, and does not start
    with that folder again. If it leads, another one does first. Nothing is changed when too few of
    those that would be left answer.
    """
    now = _now(invocation)
    if address not in now.members:
        raise InvalidRequestError(
            f"nothing was changed: {address} is no NameNode of this cluster:"
            f" {', '.join(now.members)} are"
        )
    _say(invocation, _until_done(invocation, ChangeNameNodes(remove=address)))


@click.command(cls=Verb)
@click.argument("old", callback=_checked)
@click.argument("new", callback=_checked)
@click.pass_obj
def replace(invocation: Invocation, old: str, new: str) -> None:
    """Replace the NameNode at OLD by one that waits at NEW with an empty folder.

    \b
      $ paxosblock admin namenodes replace nn3:9870 nn4:9870
      nn1:9870  leads
      nn2:9870
      nn4:9870

    This is how a NameNode that lost its folder comes back, at another address or at its own: it is
    removed, and the empty folder is added as another member. If OLD answers, NEW is added first;
    else OLD is removed as soon as NEW waits. You may interrupt this at any point, and run it again.
    """
    now = _now(invocation)
    # One that was interrupted between its two changes has removed OLD, and NEW waits.
    if old not in now.members and new not in (*now.members, *now.waiting):
        raise InvalidRequestError(
            f"neither {old} nor {new} is a NameNode of this cluster: {', '.join(now.members)} are"
        )
    if new == old or (old in now.silent and new not in now.members):
        if new != old:
            _until_it_waits(invocation, new)
        _until_done(invocation, ChangeNameNodes(remove=old))
        _until_done(invocation, ChangeNameNodes(add=new))
    else:
        _until_done(invocation, ChangeNameNodes(add=new))
        _until_done(invocation, ChangeNameNodes(remove=old))
    _say(invocation, _now(invocation))


def _now(invocation: Invocation) -> NameNodesChange:
    return invocation.call(CHANGE_NAMENODES, ChangeNameNodes())


def _until_it_waits(invocation: Invocation, address: str) -> None:
    """Wait until a NameNode waits at the address, so that none is removed for one that never comes.

    Raises:
        DeadlineError: none does within --timeout.
    """
    until_s = time.monotonic() + invocation.timeout_s
    while address not in (now := _now(invocation)).waiting:
        if time.monotonic() >= until_s:
            raise _nothing_changed(_absent(address, now))
        time.sleep(ASKS_EVERY_S)


def _until_done(invocation: Invocation, asked: ChangeNameNodes) -> NameNodesChange:
    """Ask until the change is done, and say on standard error how far it is.

    Raises:
        DeadlineError: within --timeout nothing went on.
    """
    seen, since_s = "", time.monotonic()
    while True:
        now = invocation.call(CHANGE_NAMENODES, asked)
        if now.step is ChangeStep.DONE:
            return now
        if (text := _described(asked.add, now)) != seen:
            seen, since_s = text, time.monotonic()
            line = f"{invocation.verb}: {text}"
            click.echo(msgspec.json.encode(now) if invocation.json else line, err=True)
        if time.monotonic() - since_s >= invocation.timeout_s:
            raise _nothing_changed(text)
        time.sleep(ASKS_EVERY_S)


def _nothing_changed(why: str) -> PaxosBlockError:
    return DeadlineError(f"nothing was changed: {why}").with_outcome(Outcome.NEVER)


def _absent(address: str, now: NameNodesChange) -> str:
    return (
        f"no NameNode waits at {address}: start it with an empty folder, --join and"
        f" --peers {','.join(now.members)}"
    )


def _described(address: str, now: NameNodesChange) -> str:
    if now.step is ChangeStep.ABSENT:
        return _absent(address, now)
    if now.lacks is None:
        return f"{address} fetches the catalog"
    return f"{address} catches up: it lacks {counted(now.lacks, 'entry', 'entries')}"


def _tell_even(invocation: Invocation, now: NameNodesChange) -> None:
    """Say that one more would help, if their number is even."""
    if len(now.members) % 2 == 0:
        many = len(now.members)
        text = f"{many} NameNodes: no more of them may fail than of {many - 1}; add another one"
        click.echo(f"{invocation.verb}: {text}", err=True)


def _say(invocation: Invocation, now: NameNodesChange) -> None:
    width = max(map(len, (*now.members, *now.waiting)), default=0)
    for address in (*now.members, *now.waiting):
        leads, silent, waits = (
            address == now.leader,
            address in now.silent,
            address not in now.members,
        )
        what = "does not answer" if silent else "leads" if leads else ""
        what = "waits to be added" if waits else what
        fact = {"namenode": address, "leads": leads, "silent": silent, "waits": waits}
        invocation.say(f"{address:<{width}}  {what}".rstrip(), fact)


class _ListedFirst(click.Group):
    """Shows the list if it is asked for nothing else."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take no verb for `list`, also before its options."""
        no_verb = not args or (args[0].startswith("-") and args[0] != "--help")
        return super().parse_args(ctx, ["list", *args] if no_verb else args)


namenodes = _ListedFirst(
    "namenodes",
    short_help="Show, add, remove or replace NameNodes while the cluster runs.",
    help="""Show or change the list of NameNodes, while the cluster runs and whichever leads.

    \b
      $ paxosblock admin namenodes
      nn1:9870  leads
      nn2:9870
      nn3:9870  does not answer
      $ paxosblock admin namenodes replace nn3:9870 nn4:9870
    """,
    commands={"list": show, "add": add, "remove": remove, "replace": replace},
)
