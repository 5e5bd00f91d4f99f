"""`paxosblock spark`: jobs that Spark spreads over its executors."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from paxosblock.cli.fs_names import status_of
from paxosblock.cli.group import CommandEntry, DashGroup, Verb, common_options
from paxosblock.cli.invocation import Invocation, UserError
from paxosblock.cli.progress_bar import progress_bar
from paxosblock.cli.spark_reports import compact_lines, copy_lines, fsck_lines
from paxosblock.errors import ConfigError, NotFoundError, Outcome, UnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HERE = "paxosblock.cli.spark_command"
_LOGGING = Path(__file__).with_name("log4j2.properties")

spark = DashGroup(
    "spark",
    params=common_options(),
    short_help="Jobs on Spark: distcp, fsck, compact.",
    help="""Jobs that Spark spreads over its executors.

\b
  paxosblock spark distcp ./data /data
  paxosblock spark fsck --deep /
  paxosblock spark compact /events

By default they run in a Spark of their own, on all cores of this machine; with --master on that
Spark cluster, whose workers need this package, too. They need Java and
`pip install "paxosblock[spark]"`.
""",
    entries={
        "distcp": CommandEntry(_HERE, "Copy files from anywhere into the cluster, verified."),
        "fsck": CommandEntry(_HERE, "Read and check every replica of every block."),
        "compact": CommandEntry(_HERE, "Make few large files of many small ones."),
    },
)

_MASTERS = ("local", "spark://", "yarn", "k8s://")


def _known_master(ctx: click.Context, option: click.Parameter, value: str) -> str:
    """Refuse a wrong master, which Spark itself reports by a Java traceback."""
    if not value.startswith(_MASTERS):
        raise click.BadParameter(f"{value!r} begins with none of {', '.join(_MASTERS)}")
    return value


_master = click.option(
    "--master",
    default="local[*]",
    show_default=True,
    callback=_known_master,
    help="Spark's master, as for spark-submit.",
)


@click.command(cls=Verb)
@click.argument("source")
@click.argument("target")
@click.option("--update", is_flag=True, help="Replace files whose length differs.")
@click.option("--overwrite", is_flag=True, help="Replace all files that are there.")
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="For the source's file system, as fsspec calls it; may be given several times.",
)
@_master
@click.pass_obj
def distcp(
    invocation: Invocation,
    *,
    source: str,
    target: str,
    update: bool,
    overwrite: bool,
    options: tuple[str, ...],
    master: str,
) -> None:
    """Copy a file, or what is in a directory, from SOURCE into the cluster.

    \b
      $ paxosblock spark distcp ./logs /logs
      $ paxosblock spark distcp s3://bucket/logs /logs --update --option anon=true

    SOURCE is a local path or any URL that fsspec knows. Every copy is read back from the DataNodes
    and compared before it appears under its name. Files that are there already stay, unless
    --update or --overwrite is given. Exit code 1 when a file could not be copied; the others are
    copied nevertheless.
    """
    if update and overwrite:
        raise click.UsageError("--update and --overwrite exclude each other")
    path = invocation.path(target)
    with suppress(NotFoundError):
        _check_there(invocation, path)
    with _spark("distcp", master) as start:
        from paxosblock.client.spark.jobs.distcp import Existing
        from paxosblock.client.spark.jobs.distcp import distcp as run

        existing = Existing.UPDATE if update else Existing.SKIP
        report = run(
            start,
            source,
            invocation.addresses,
            path,
            existing=Existing.OVERWRITE if overwrite else existing,
            storage_options=dict(_pair(option) for option in options),
            watch=_bar("distcp", invocation),
        )
    _tell(invocation, copy_lines(report), report)
    invocation.failures += len(report.failures)


@click.command(cls=Verb)
@click.argument("path", default="/")
@click.option(
    "--deep", is_flag=True, required=True, help="Read all bytes of all replicas; must be given."
)
@_master
@click.pass_obj
def fsck(invocation: Invocation, path: str, deep: bool, master: str) -> None:
    """Read every replica of every block below PATH, and say what to do about what is wrong.

    \b
      $ paxosblock spark fsck --deep /logs
      /logs/a.log: block 7 at 0: impaired, 2 of 3 replicas are sound
        datanode-1 (127.0.0.1:9865): damaged: chunk 3 of block 7 does not match its checksum ...
        The NameNode was told and has a damaged one copied again from a sound one.
      /logs: 12 files, 14 blocks, 42 replicas, 1.2 G read in 3.1 s: blocks: 1 impaired

    Files that are being written are checked up to their last finalized block. Exit code 1 when a
    block is not healthy.
    """
    path = invocation.path(path)
    _check_there(invocation, path)
    with _spark("fsck", master) as start:
        from paxosblock.client.spark.jobs.deep_fsck import fsck as run

        report = run(start, invocation.addresses, path, _bar("fsck", invocation))
    _tell(invocation, fsck_lines(report), report)
    invocation.failures += len(report.findings)


@click.command(cls=Verb)
@click.argument("path")
@click.option("--small", default="64MiB", show_default=True, help="Merge files shorter than this.")
@click.option(
    "--target", default="128MiB", show_default=True, help="Length to merge them to, about."
)
@click.option("--recursive", "-r", is_flag=True, help="Directories below, too.")
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["parquet", "arrow", "csv", "text"]),
    help="What the files hold.  [default: by their names' endings]",
)
@click.option(
    "--header/--no-header",
    default=None,
    help="CSV files begin with a line of column names, or not; needed where all begin alike.",
)
@click.option("--keep-for", default="1h", show_default=True, help="How long to keep small files.")
@_master
@click.pass_obj
def compact(
    invocation: Invocation,
    *,
    path: str,
    small: str,
    target: str,
    recursive: bool,
    file_format: str | None,
    header: bool | None,
    keep_for: str,
    master: str,
) -> None:
    """Merge the small files of the directory PATH into large ones, while others read it.

    \b
      $ paxosblock spark compact /events
      /events: 211 files became 3 (301 M), 2 left alone

    The whole directory changes at once. The small files are kept in its folder `_compacted` for a
    while, for programs that have opened them. Do not compact a directory that a streaming query
    takes as its source: to it, the large files are new ones.
    """
    from paxosblock.base.units import parse_duration, parse_size

    path = invocation.path(path)
    _check_there(invocation, path)
    with _spark("compact", master) as start:
        from paxosblock.client.spark.jobs.compact import CompactOptions
        from paxosblock.client.spark.jobs.compact import compact as run
        from paxosblock.client.spark.jobs.merging import MergeFormat

        options = CompactOptions(
            target_bytes=parse_size(target),
            small_bytes=parse_size(small),
            recursive=recursive,
            format=MergeFormat(file_format) if file_format else None,
            header=header,
            keep_for_s=parse_duration(keep_for),
        )
        report = run(start, invocation.addresses, path, options, _bar("compact", invocation))
    _tell(invocation, compact_lines(report), report)
    invocation.failures += report.failed


def _check_there(invocation: Invocation, path: str) -> None:
    """Ask one question before Spark is even imported: a user who mistyped should know at once, and
    a client would go on asking for half a minute if no NameNode answers.

    Raises:
        NotFoundError: nothing is at `path`.
        UnavailableError: no NameNode answers.
    """
    status_of(invocation, path)


def _pair(written: str) -> tuple[str, str]:
    name, equals, value = written.partition("=")
    if not (name and equals):
        raise UserError(written, "--option takes NAME=VALUE")
    return name, value


def _bar(
    what: str, invocation: Invocation
) -> Callable[[int], AbstractContextManager[Callable[[int], None]]]:
    return partial(progress_bar, what, wanted=not invocation.json)


def _tell(invocation: Invocation, lines: Iterator[str], report: Any) -> None:
    for line in lines:
        invocation.say(line)
    invocation.tell(report)


@contextmanager
def _spark(job: str, master: str) -> Iterator[Callable[[], SparkSession]]:
    """Yield a starter of one command's Spark session, quiet but for errors; it takes many seconds.

    Raises:
        ConfigError: PySpark is not installed.
        UnavailableError: Spark does not start, or a job of it failed.
    """
    try:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ConfigError(f'{error}: pip install "paxosblock[spark]"') from error
    had_one = SparkSession.getActiveSession() is not None
    try:
        try:
            yield partial(_start, f"paxosblock {job}", master)
        finally:
            own = None if had_one else SparkSession.getActiveSession()
            if own is not None:
                own.stop()
    except (PySparkException, Py4JError) as error:
        reason = str(error).strip().splitlines()
        reported = UnavailableError(f"Spark: {reason[0] if reason else type(error).__name__}")
        raise reported.with_outcome(Outcome.UNKNOWN) from error


def _start(name: str, master: str) -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(name).master(master)
    for option in ("spark.ui.enabled", "spark.ui.showConsoleProgress"):
        builder = builder.config(option, "false")
    logging = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"
    return builder.config("spark.driver.extraJavaOptions", logging).getOrCreate()
