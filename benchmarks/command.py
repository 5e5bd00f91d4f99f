"""`paxosblock bench`: run benchmarks, and make reports of their records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from paxosblock.cli.group import CommandEntry, LazyGroup, LocalVerb
from paxosblock.cli.invocation import Invocation

if TYPE_CHECKING:
    from benchmarks.record import Record


class BenchGroup(LazyGroup):
    """Takes the names of cases in place of a command: `bench write` is `bench run write`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert the command `run` if none is named."""
        if not args or (args[0] not in self.entries and args[0] != "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


bench = BenchGroup(
    "bench",
    entries={
        "run": CommandEntry("benchmarks.command", "Run cases; also without the word run."),
        "report": CommandEntry("benchmarks.command", "Make tables and plots of records."),
    },
    help="""Run the benchmarks, each beside the bare limit of the same run.

\b
  paxosblock bench                           # the usual cases, about 20 minutes
  paxosblock bench --list                    # all cases, and what each asks
  paxosblock bench write calls --rounds 5 --output today.jsonl
  paxosblock bench report today.jsonl --folder pictures

`paxosblock bench run --help` shows the options.
""",
)


@click.command(cls=LocalVerb)
@click.argument("cases", nargs=-1, metavar="[CASE]...")
@click.option("--list", "listing", is_flag=True, help="Show the cases, and run none.")
@click.option(
    "--rounds", type=click.IntRange(1), default=3, show_default=True, help="Rounds of each figure."
)
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    default=2.0,
    show_default=True,
    help="How long to measure in a round, where the case does not end by itself.",
)
@click.option("--max", "most", type=click.IntRange(1), help="Largest number on growth curves.")
@click.option(
    "--small", is_flag=True, help="Run each case at its smallest size, to see that it works."
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    help="Where the nodes, and the tests of the bare disk, write.  [default: the temporary folder]",
)
@click.option("--output", type=click.Path(path_type=Path), help="Add the records to this file.")
@click.pass_obj
def run(
    invocation: Invocation,
    /,
    cases: tuple[str, ...],
    listing: bool,
    output: Path | None,
    **bounds: Any,
) -> None:
    """Run the cases that are named, or the usual ones.

    Progress goes to standard error, the tables to standard output; with --json the records go
    there instead, one JSON object per line. A case that lacks something, such as a peer, is skipped
    and says so.

    \b
      $ paxosblock bench run write read --rounds 5 --folder /mnt/data --output today.jsonl
    """
    from benchmarks import catalog, suite
    from benchmarks.record import encode
    from benchmarks.reporting import report
    from paxosblock.host import loop

    catalog.load()
    if listing:
        _list(invocation)
        return
    wanted = suite.chosen(cases)
    records: list[Record] = []
    with open(output or "/dev/null", "ab") as file:

        def take(record: Record) -> None:
            line = encode(record)
            file.write(line)
            file.flush()
            records.append(record)
            if invocation.json:
                click.echo(line, nl=False)

        failed = loop.run(suite.run_cases(wanted, suite.Options(**bounds), take))
    if records and not invocation.json:
        click.echo(report(records, {}), nl=False)
    invocation.failures += len(failed)


def _list(invocation: Invocation) -> None:
    from benchmarks.suite import CASES

    width = max(map(len, CASES))
    for case in CASES.values():
        named = "" if case.usual else " (only by name)"
        fact = {"case": case.name, "question": case.question, "usual": case.usual}
        invocation.say(f"{case.name:<{width}}  {case.question}{named}", fact)


@click.command(cls=LocalVerb)
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE..."
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write README.md and a picture of each growth curve there, instead of showing the tables.",
)
def report(files: tuple[Path, ...], folder: Path | None) -> None:
    """Make tables of the records in FILEs: median and range over the rounds, ratio to the bare
    limit of the same round, processor time; with --folder also pictures of growth curves.

    \b
      $ paxosblock bench report today.jsonl --folder report
    """
    from benchmarks import reporting as made
    from benchmarks.record import read_records

    records = read_records(files)
    if folder is None:
        click.echo(made.report(records, {}), nl=False)
        return
    made.write(records, folder)
