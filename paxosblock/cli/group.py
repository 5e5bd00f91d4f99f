"""Groups of commands that are imported when they are asked for, and verbs that fail in one line."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, TypeVar

import click

from paxosblock.base.settings import did_you_mean
from paxosblock.base.units import parse_duration
from paxosblock.cli.invocation import Invocation
from paxosblock.errors import ConfigError, PaxosBlockError

T = TypeVar("T")

TERMINATE: Final = (signal.SIGTERM, signal.SIGHUP)
"""Signals that tell a program to end; the second says that its terminal is gone."""


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A command of a group, and what it does; the module defines it under its name, "_" for "-",
    or under that of the command which it is `another_name` of.

    The summary stands here too so that `--help` need not import the command.
    """

    module: str
    summary: str
    another_name: str = ""


class LazyGroup(click.Group):
    """Imports the module of a command when the command is used."""

    def __init__(
        self,
        *args: Any,
        entries: Mapping[str, CommandEntry],
        elsewhere: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        """`elsewhere` maps commands of other programs to those of this one."""
        super().__init__(*args, **kwargs)
        self.entries = entries
        self._elsewhere = elsewhere or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names, in the order of the table."""
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; return None if there is none of that name."""
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        defined = entry.another_name or cmd_name
        command = getattr(import_module(entry.module), defined.replace("-", "_"))
        assert isinstance(command, click.Command)
        if entry.another_name:
            command = copy(command)
            example = f"{self.name} {defined} "
            command.help = (command.help or "").replace(example, f"{self.name} {cmd_name} ")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Raise click.UsageError with the nearest command if there is none of that name."""
        if args[0] not in self.entries:
            near = did_you_mean(args[0], self.entries, **self._elsewhere)
            raise click.UsageError(f"No such command '{args[0]}'{near}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table, without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in self.entries.items()])


class DashGroup(LazyGroup):
    """Takes its commands with a leading dash too, as `hdfs dfs -ls` writes them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Strip the dash of the command; the options of such a group begin with two."""
        for place, word in enumerate(args):
            if word in self.entries:
                break
            if word.startswith("-") and word[1:2].isalpha():
                args = [*args[:place], word[1:], *args[place + 1 :]]
                break
        return super().parse_args(ctx, args)


class ReaderLeftError(Exception):
    """The reader of our output is gone, as in `cat | head`. (click would exit with 1 for EPIPE.)"""


class TerminatedError(BaseException):
    """This process was told to end, by Ctrl-C, by SIGTERM or because its terminal is gone: what was
    begun is taken back."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = number


@contextlib.contextmanager
def _ending_in_order() -> Iterator[None]:
    """Raise TerminatedError where such a signal comes, unless the process ignores it. Before and
    after that they end the process at once: there is nothing to take back, and nothing is printed.
    """

    def end(number: int, _: object) -> None:
        raise TerminatedError(number)

    if threading.current_thread() is not threading.main_thread():
        yield  # where no signal is handled
        return
    # `asyncio` takes over Ctrl-C from this one alone.
    handlers = {signal.SIGINT: signal.default_int_handler} | dict.fromkeys(TERMINATE, end)
    usual = [number for number in handlers if signal.getsignal(number) is signal.SIG_DFL]
    for number in usual:
        signal.signal(number, handlers[number])
    try:
        yield
    except KeyboardInterrupt:
        if sys.stderr.isatty():
            click.echo(err=True)  # ends the line on which the terminal shows ^C
        raise TerminatedError(signal.SIGINT) from None
    finally:
        for number in usual:
            signal.signal(number, signal.SIG_DFL)


class Verb(click.Command):
    """A command whose expected failures are one line each and exit code 1."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += self.shared_options()

    @staticmethod
    def shared_options() -> list[click.Parameter]:
        """Add the options that every verb of this kind has."""
        return common_options()

    def invoke(self, ctx: click.Context) -> Any:
        """Run it; print a failure as `verb: 'path': reason`."""
        invocation = ctx.find_object(Invocation)
        assert invocation is not None
        invocation.verb = ctx.info_name or ""
        try:
            invocation.check_environment()
            with _ending_in_order():
                result = super().invoke(ctx)
        except BrokenPipeError as error:
            raise ReaderLeftError from error
        except (PaxosBlockError, OSError) as error:
            invocation.tell_failure(error)
            result = None
        finally:
            invocation.close()
        if invocation.failures:
            ctx.exit(1)
        return result


class LocalVerb(Verb):
    """A verb that is not about the cluster of --namenodes."""

    @staticmethod
    def shared_options() -> list[click.Parameter]:
        """Without --namenodes."""
        return output_options()


def common_options() -> list[click.Parameter]:
    """Options that stand before or after a verb."""
    namenodes = click.Option(
        ["--namenodes"],
        metavar="HOST:PORT[,...]",
        expose_value=False,
        callback=_keep("namenodes"),
        help="The NameNodes of the cluster.  [default: PAXOSBLOCK_NAMENODES, or 127.0.0.1:9870]",
    )
    timeout = click.Option(
        ["--timeout"],
        metavar="DURATION",
        expose_value=False,
        callback=_keep("timeout", seconds),
        help="How long to wait without progress, such as 500ms or 1min.  [default: 10s]",
    )
    return [namenodes, timeout, *output_options()]


def seconds(written: str) -> float:
    """Read a duration of an option. Raises click.BadParameter if it is none."""
    return read_option(parse_duration, written)


def read_option(parse: Callable[[str], T], written: str) -> T:
    """Read an option as `parse` does. Raises click.BadParameter if `parse` raised ConfigError."""
    try:
        return parse(written)
    except ConfigError as error:
        raise click.BadParameter(str(error)) from error


def output_options() -> list[click.Parameter]:
    """Return the options that say how to print results and failures."""
    return [
        click.Option(
            ["--json"],
            is_flag=True,
            default=None,
            expose_value=False,
            callback=_keep("json"),
            help="One JSON object per line instead of text.",
        ),
        click.Option(
            ["--debug"],
            is_flag=True,
            default=None,
            expose_value=False,
            callback=_keep("debug"),
            help="Show the traceback of a failure.",
        ),
    ]


def _keep(attribute: str, read: Callable[[Any], Any] = lambda value: value) -> Any:
    def callback(ctx: click.Context, option: click.Parameter, value: Any) -> Any:
        if value is not None:
            setattr(ctx.ensure_object(Invocation), attribute, read(value))
        return value

    return callback
