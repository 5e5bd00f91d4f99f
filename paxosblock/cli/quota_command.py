"""`paxosblock admin quota`: limits of directories."""

from __future__ import annotations

from collections.abc import Iterable

import click

from paxosblock.api.quota import LIST_QUOTAS, NO_QUOTA, SET_QUOTA, ListQuotas, QuotaUsage, SetQuota
from paxosblock.base.units import parse_size
from paxosblock.cli.fs_names import for_each_path
from paxosblock.cli.fs_sums import HUMAN, QUOTA_HEADS, quota_columns
from paxosblock.cli.group import Verb, read_option
from paxosblock.cli.invocation import Invocation


def _size(_: click.Context, __: click.Parameter, written: str | None) -> int | None:
    if written is None or written.isdecimal():  # as in HDFS, where a number alone is bytes
        return None if written is None else int(written)
    return read_option(parse_size, written)


@click.command("set", cls=Verb)
@click.option("--names", type=int, help="Files and directories at most, the directory included.")
@click.option(
    "--space", callback=_size, metavar="SIZE", help="Room at most, with all replicas: 10g, 1.5TiB."
)
@click.argument("paths", nargs=-1, required=True)
@click.pass_obj
def set_quota(
    invocation: Invocation, *, names: int | None, space: int | None, paths: tuple[str, ...]
) -> None:
    """Limit what directories may hold. (HDFS: dfsadmin -setQuota, -setSpaceQuota)

    \b
      $ paxosblock admin quota set --names 100000 --space 30g /user/ada

    What is there already may be more than the limit: then nothing is added until it is less. The
    directory itself is one of its names. Room is the bytes of files as often as they have replicas;
    a block that is being written counts as a whole one, so a writer needs room for a block of its
    file's block size times its replicas. A quota sticks with a directory that is renamed. The first
    quota of a directory counts what is below it, which takes some seconds for a million names,
    while all else goes on. Only a superuser may do this. Prints nothing when it is done.
    """
    if names is None and space is None:
        raise click.UsageError("give --names or --space, or both")
    _change(invocation, paths, names, space)


@click.command(cls=Verb)
@click.option("--names", is_flag=True, help="Only the limit of names.")
@click.option("--space", is_flag=True, help="Only the limit of room.")
@click.argument("paths", nargs=-1, required=True)
@click.pass_obj
def clear(invocation: Invocation, *, names: bool, space: bool, paths: tuple[str, ...]) -> None:
    """Take limits of directories away. (HDFS: dfsadmin -clrQuota, -clrSpaceQuota)

    \b
      $ paxosblock admin quota clear /user/ada

    Only a superuser may do this. Prints nothing when it is done.
    """
    both = names == space
    of_names = NO_QUOTA if names or both else None
    _change(invocation, paths, of_names, NO_QUOTA if space or both else None)


def _change(
    invocation: Invocation, paths: Iterable[str], names: int | None, space: int | None
) -> None:
    def change(path: str) -> None:
        invocation.tell(invocation.call_once(SET_QUOTA, SetQuota(path, names, space)))

    for_each_path(invocation, paths, change)


@click.command(cls=Verb)
@HUMAN
@click.argument("paths", nargs=-1)
@click.pass_obj
def show(invocation: Invocation, *, human: bool, paths: tuple[str, ...]) -> None:
    """Show limits, and what is left of them; without a path those of all directories that have any.

    \b
      $ paxosblock admin quota show -h
             QUOTA       REM_QUOTA     SPACE_QUOTA REM_SPACE_QUOTA PATHNAME
             97.7 K          97.6 K            30 G          21.3 G /user/ada

    What is left is less than nothing where more was there when the limit was set. Only a superuser
    sees all of them.
    """
    found: list[QuotaUsage] = []

    def look(path: str) -> None:
        found.extend(invocation.call(LIST_QUOTAS, ListQuotas(path)).found)

    if paths:
        for_each_path(invocation, paths, look)
    else:
        look("")
    if found and not invocation.json:
        invocation.say(f"{QUOTA_HEADS}PATHNAME")
    for usage in found:
        invocation.say(f"{quota_columns(usage, human)}{usage.path}", usage)


quota = click.Group(
    "quota",
    short_help="Limit what directories may hold, and show it.",
    help="""Limit how many names a directory may hold, and how much room its replicas may take.

    \b
      $ paxosblock admin quota set --names 100000 --space 30g /user/ada
      $ paxosblock admin quota show
      $ paxosblock fs count -q -v /user/ada
      $ paxosblock fsck --quota                      # counts again
    """,
    commands={"set": set_quota, "clear": clear, "show": show},
)
