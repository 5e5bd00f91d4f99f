"""`paxosblock fs usage` and `fs help`, as `hdfs dfs` has them."""

from __future__ import annotations

from collections.abc import Iterator

import click

from paxosblock.cli.group import LocalVerb
from paxosblock.cli.invocation import Invocation

_SHARED = ("--namenodes", "--timeout", "--json", "--debug", "--help")


def _verbs(names: tuple[str, ...]) -> Iterator[tuple[str, click.Command, click.Context]]:
    """Yield the verbs of these names, all if there are none.

    Raises:
        click.UsageError: one is unknown.
    """
    context = click.get_current_context().parent
    assert context is not None
    group = context.command
    assert isinstance(group, click.Group)
    wanted = [name.removeprefix("-") for name in names]
    for name in wanted or sorted(group.list_commands(context), key=str.lower):
        command = group.get_command(context, name)
        if command is None:
            raise click.UsageError(f"'{name}': Unknown command")
        yield name, command, click.Context(command, parent=context, info_name=name)


def _usage(name: str, command: click.Command, context: click.Context) -> str:
    """Return such as "-du [-s] [-h] [-v] [-x] [--at TIME] [PATHS]..."."""
    words = [f"-{name}"]
    for each in command.get_params(context):
        if isinstance(each, click.Argument):
            words.append(each.make_metavar(context))
        elif each.opts[0] not in _SHARED:
            taken = "" if getattr(each, "is_flag", False) else f" {each.make_metavar(context)}"
            words.append(f"[{each.opts[0]}{taken}]")
    return " ".join(words)


@click.command(cls=LocalVerb)
@click.argument("names", nargs=-1, metavar="[VERB]...")
@click.pass_obj
def usage(invocation: Invocation, *, names: tuple[str, ...]) -> None:
    """Show the options and arguments of verbs; without a name, of all.

    \b
      $ paxosblock fs usage du
      Usage: paxosblock fs [OPTIONS] -du [-s] [-h] [-v] [-x] [--at TIME] [PATHS]...
    """
    for name, command, context in _verbs(names):
        line = _usage(name, command, context)
        invocation.say(f"Usage: paxosblock fs [OPTIONS] {line}", {"verb": name, "usage": line})


@click.command(cls=LocalVerb)
@click.argument("names", nargs=-1, metavar="[VERB]...")
@click.pass_obj
def help(invocation: Invocation, *, names: tuple[str, ...]) -> None:
    """Show what verbs do; without a name, the line of each.

    \b
      $ paxosblock fs help du

    The same as `paxosblock fs du --help`.
    """
    for name, command, context in _verbs(names):
        if names:
            text = command.get_help(context)
        else:
            text = f"{_usage(name, command, context)}\n  {command.get_short_help_str(90)}"
        invocation.say(text, {"verb": name, "help": text})
