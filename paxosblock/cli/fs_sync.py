"""`paxosblock fs sync`: a directory of this machine and one of the cluster become the same."""

from __future__ import annotations

import os
from functools import partial
from typing import Final

import click
import msgspec

from paxosblock.api.namenode import Kind
from paxosblock.base.wording import counted
from paxosblock.cli.fs_bytes import (
    PRESERVE,
    PRESERVED,
    THREADS,
    bytes_at,
    copying,
    local_bytes,
    tell_failed,
)
from paxosblock.cli.fs_names import status_of
from paxosblock.cli.group import Verb
from paxosblock.cli.invocation import Invocation, UserError
from paxosblock.cli.text import human_size
from paxosblock.client.copies.copy_steps import CopyAction, CopyStep, CopySummary, Sync
from paxosblock.client.names.url import SCHEME
from paxosblock.client.names.walk import base_name

_LOCAL: Final = ("file://", "file:")
_PLANNED: Final = {
    CopyAction.COPIED: "copy",
    CopyAction.MADE: "make",
    CopyAction.DELETED: "delete",
}
"""The steps that are told; the rest is as it should be."""


@click.command(cls=Verb)
@click.option("-n", "--dry-run", "dry_run", is_flag=True, help="Only show what would be done.")
@click.option(
    "--delete", is_flag=True, help="Delete what is in DESTINATION, but not in SOURCE, at the end."
)
@click.option(
    "--by-time",
    "by_time",
    is_flag=True,
    help="Do not read files of the same length and time of change.",
)
@PRESERVE
@THREADS
@click.argument("source")
@click.argument("destination")
@click.pass_obj
def sync(
    invocation: Invocation,
    *,
    dry_run: bool,
    delete: bool,
    by_time: bool,
    preserve: bool,
    at_once: int,
    source: str,
    destination: str,
) -> None:
    """Copy what differs from a local directory into one of the cluster, or the other way.

    \b
      $ paxosblock fs sync data /data            # what is in data, to be in /data
      3 files copied (1.2 M), 14 the same
      $ paxosblock fs sync --delete /data file:/srv/data

    A path that begins with / is in the cluster, every other one on this machine; file:/srv/data is
    an absolute one here. Files differ if their length or their bytes do: those of the same length
    are read on both sides. A file appears, or replaces another one, when it is complete, so a run
    that was interrupted goes on where it was. A file that is changed meanwhile is an error, and is
    copied by the next run.
    """
    here, there = _local(source), _local(destination)
    how = Sync(delete, dry_run, by_time)
    keeps = PRESERVED if preserve else ""

    def tell(step: CopyStep) -> None:
        _tell(invocation, step, dry_run=dry_run)

    if here is not None and there is None:
        path = invocation.path(destination)
        _check_directory(source, os.path.isdir(here) or not os.path.exists(here), "put")
        with copying(invocation, base_name(path), partial(local_bytes, here)) as go_on:
            done = invocation.client.upload(
                here, path, preserve=keeps, sync=how, at_once=at_once, told=tell, progress=go_on
            )
    elif there is not None and here is None:
        path = invocation.path(source)
        _check_directory(source, status_of(invocation, path).kind is Kind.DIRECTORY, "get")
        with copying(invocation, base_name(path), partial(bytes_at, invocation, path)) as go_on:
            done = invocation.client.download(
                path, there, preserve=keeps, sync=how, at_once=at_once, told=tell, progress=go_on
            )
    else:
        where = "in the cluster; file:/DIRECTORY is here" if here is None else "on this machine"
        raise click.UsageError(f"'{source}' and '{destination}' are both {where}")
    invocation.say(_summed(done, dry_run), {"summary": msgspec.to_builtins(done)})


def _tell(invocation: Invocation, step: CopyStep, *, dry_run: bool) -> None:
    if step.error is not None:
        tell_failed(invocation, step.error, step.source or step.path)
    elif step.action in _PLANNED:
        fact: dict[str, object] = {"action": step.action.value}
        fact |= {"source": step.source, "path": step.path}
        fact |= {"size_bytes": step.size} if step.action is CopyAction.COPIED else {}
        if dry_run:
            invocation.say(f"{_PLANNED[step.action]} {step.path}", fact)
        else:
            invocation.tell(fact)


def _local(written: str) -> str | None:
    """Return the path on this machine; None for one in the cluster."""
    for prefix in _LOCAL:
        if written.startswith(prefix):
            return written.removeprefix(prefix)
    return None if written.startswith(("/", SCHEME)) else written


def _check_directory(written: str, is_one: bool, verb: str) -> None:
    if not is_one:
        raise UserError(written, f"is no directory: use {verb}")


def _summed(done: CopySummary, dry_run: bool) -> str:
    files = counted(done.copied, "file")
    parts = [f"{files} {'to copy' if dry_run else 'copied'} ({human_size(done.size)})"]
    parts += [f"{done.same} the same"]
    parts += [f"{done.deleted} {'to delete' if dry_run else 'deleted'}"] if done.deleted else []
    parts += [f"{done.failed} failed"] if done.failed else []
    return ", ".join(parts)
