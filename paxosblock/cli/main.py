"""The `paxosblock` command. Every family of verbs is a module that is imported when used."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import click

from paxosblock.base.settings import did_you_mean
from paxosblock.cli.group import (
    CommandEntry,
    LazyGroup,
    ReaderLeftError,
    TerminatedError,
    common_options,
)
from paxosblock.cli.invocation import Invocation, reason_of

ENTRIES = {
    "cluster": CommandEntry(
        "paxosblock.cli.cluster_command", "Run a cluster: up, down, status, restart, env."
    ),
    "admin": CommandEntry(
        "paxosblock.cli.admin", "Look after a cluster: report, balancer, decommission."
    ),
    "fs": CommandEntry("paxosblock.cli.fs", "Files, with the verbs and flags of `hdfs dfs`."),
    "fsck": CommandEntry(
        "paxosblock.cli.fsck_command", "Check the blocks of files, as the NameNode knows them."
    ),
    "spark": CommandEntry("paxosblock.cli.spark_command", "Jobs on Spark: distcp, fsck, compact."),
    "explain": CommandEntry("paxosblock.cli.explain", "Show a block's votes, replica by replica."),
    "help": CommandEntry("paxosblock.cli.documents", "Show the documents, such as operations."),
    "setup": CommandEntry(
        "paxosblock.cli.setup", "Install what pip does not: raft, secrets, man pages."
    ),
    "bench": CommandEntry(
        "paxosblock.cli.bench", "Run benchmarks, and make reports of their records."
    ),
    "namenode": CommandEntry("paxosblock.cli.node_commands", "Run one NameNode."),
    "datanode": CommandEntry("paxosblock.cli.node_commands", "Run one DataNode."),
    "gateway": CommandEntry(
        "paxosblock.cli.node_commands", "Run one gateway: WebHDFS for Hadoop's programs."
    ),
}
IN_A_CHECKOUT = {
    "bench": CommandEntry("benchmarks.command", ENTRIES["bench"].summary),
    "demo": CommandEntry(
        "examples.demo.command", "Write a real file, kill nodes, verify every byte."
    ),
}
"""Commands that stand beside the package in the repository, and are not in a wheel."""


HELP = """Files as replicated blocks, by consensus.

\b
A first round:
  paxosblock cluster up                  # one NameNode and three DataNodes, in the background
  paxosblock fs put notes.txt /notes.txt
  paxosblock fs cat /notes.txt
  paxosblock explain /notes.txt          # who voted for what
  paxosblock cluster down

Every command has a --help with an example. Exit codes: 0 done, 1 failed, 2 wrong usage; 74 a node
that ended because its disk failed.
"""


def _entries() -> dict[str, CommandEntry]:
    repository = Path(__file__).parents[2]
    return ENTRIES | (IN_A_CHECKOUT if (repository / "pyproject.toml").exists() else {})


def _version(ctx: click.Context, option: click.Parameter, value: bool) -> None:
    if value:
        from paxosblock.base.version import __version__

        click.echo(f"paxosblock {__version__}")
        ctx.exit()


root = LazyGroup(
    "paxosblock",
    entries=_entries(),
    help=HELP,
    params=[
        *common_options(),
        click.Option(
            ["--version"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_version,
            help="Show the version.",
        ),
    ],
)


def main() -> NoReturn:
    """Run the command line of this process and exit."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code. Nothing leaves here as an exception."""
    invocation = Invocation()
    try:
        result = root.main(list(arguments), "paxosblock", standalone_mode=False, obj=invocation)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except TerminatedError as error:
        return 128 + error.signal
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return 2
    except click.UsageError as error:
        click.echo(_usage_line(error), err=True)
        return 2
    except (KeyboardInterrupt, click.Abort):
        return 128 + signal.SIGINT
    except (ReaderLeftError, BrokenPipeError):
        _drop_output()
        return 128 + signal.SIGPIPE
    except OSError as error:
        # About the help, or about the last of the output of a verb, which may have told it.
        _drop_output()
        if not invocation.failures:
            click.echo(f"{invocation.verb or 'paxosblock'}: {reason_of(error)}", err=True)
        return 1
    except Exception as error:
        return _tell_bug(invocation, error)


def _drop_output() -> None:
    """Let buffered output go nowhere, so that it does not fail again at exit."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _usage_line(error: click.UsageError) -> str:
    where = error.ctx.command_path if error.ctx else "paxosblock"
    if isinstance(error, click.NoSuchOption):  # two dashes make any two alike to click
        name, near = error.option_name, error.possibilities or ()
        meant = {each.lstrip("-"): each for each in near}
        text = f"No such option '{name}'{did_you_mean(name.lstrip('-'), (), **meant)}"
    else:
        text = error.format_message()
    message = " ".join(text.split()).removesuffix(".")
    stop = "" if message.endswith("?") else "."
    return f"{where.rpartition(' ')[2]}: {message}{stop} Try '{where} --help'."


def _tell_bug(invocation: Invocation, error: Exception) -> int:
    traced = invocation.debug or invocation.serves
    if traced:
        traceback.print_exception(error, file=sys.stderr)
    what = " ".join(f"{type(error).__name__}: {error}".split())
    hint = "" if traced else " (run again with --debug for the traceback)"
    verb = invocation.verb or "paxosblock"
    click.echo(f"{verb}: this is a bug in paxosblock: {what}{hint}", err=True)
    return 1
