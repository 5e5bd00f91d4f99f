"""`paxosblock fsck`: checks that the blocks of files are as they should be."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Iterator
from itertools import islice
from typing import Final

import click
import msgspec

from paxosblock.api.fsck_call import (
    CHECK_FILES,
    CheckedFiles,
    CheckFiles,
    Condition,
    Counts,
    Finding,
)
from paxosblock.api.namenode import DELETE, DeletePath
from paxosblock.api.quota import CHECK_QUOTAS, CheckQuotas
from paxosblock.base.paths import shown
from paxosblock.cli.fs_names import the_one
from paxosblock.cli.group import Verb
from paxosblock.cli.invocation import Invocation, UserError
from paxosblock.cli.text import counted

_HEADINGS: Final = {
    Condition.MISSING: "MISSING",
    Condition.CORRUPT: "CORRUPT",
    Condition.UNCLEAR: "UNCLEAR",
    Condition.UNDER_REPLICATED: "Under replicated",
    Condition.OVER_REPLICATED: "Over replicated",
    Condition.MIS_REPLICATED: "Mis-replicated",
}


_REASONS: Final = {
    Condition.MISSING: "no replica is known of a block",
    Condition.CORRUPT: "all replicas that are left of a block are damaged",
}
"""The reasons for which files are deleted, in words."""
PATHS_SHOWN: Final = 20
"""Paths that a question names; all of them are among the findings."""


class Summary(Counts, kw_only=True):
    """The numbers of a run, as `--json` prints them at the end. Blocks count once per condition."""

    path: str
    status: str = "HEALTHY"
    found: Counter[str] = msgspec.field(default_factory=Counter)
    damaged_replicas: int = 0
    datanodes: int = 0
    racks: int = 0
    safe_mode: bool = False
    deleted_files: int = 0

    def add(self, page: CheckedFiles) -> None:
        """Count a page."""
        self.count(page)
        self.datanodes, self.racks = page.datanodes, page.racks
        self.safe_mode |= page.safe_mode
        for finding in page.findings:
            self.found[finding.condition.value] += 1
            self.damaged_replicas += finding.damaged
            if finding.condition.lost:
                self.status = "CORRUPT"
            elif finding.condition is Condition.UNCLEAR and self.status == "HEALTHY":
                self.status = "UNCLEAR"


@click.command(cls=Verb)
@click.argument("path", default="/")
@click.option(
    "--delete-corrupt",
    "-delete",
    "delete",
    is_flag=True,
    help="Delete files with a block that has no sound replica left; asks for each reason.",
)
@click.option("--yes", is_flag=True, help="With --delete-corrupt: do not ask.")
@click.option("--quota", is_flag=True, help="Count again what quotas have counted, and no more.")
@click.option("--repair", is_flag=True, help="With --quota: mend counts that are wrong.")
@click.pass_obj
def fsck(
    invocation: Invocation, path: str, *, delete: bool, yes: bool, quota: bool, repair: bool
) -> None:
    """Check the blocks of a file, or of all files below a directory (default: /).

    \b
      $ paxosblock fsck /logs
      '/logs/a.log': Under replicated block 7: 2 of 3 replicas
      Status: HEALTHY
       Total dirs:                     1
       ...
      The filesystem under path '/logs' is HEALTHY
      $ paxosblock admin fsck /logs                  # the same

    Nothing is read from DataNodes: this is what the NameNode knows, and what it goes by when it
    copies blocks and takes replicas away. (`paxosblock spark fsck` reads the bytes of files.)

    MISSING: no replica is left, and none may be back in a moment. CORRUPT: every replica that is
    left is damaged. In both cases the status is CORRUPT and the exit code 1. UNCLEAR: replicas are
    known, or may be, but none of just this version: so it is for a moment after a block was ended,
    and after `admin restore`; the exit code is 1, too. A block that is only under-, over- or
    mis-replicated is being mended. The last block of an open file is not looked at.

    --delete-corrupt deletes files that have MISSING or CORRUPT blocks, including the parts of them
    that can still be read. It tells for each of these reasons how many files there are, and which,
    and asks, unless --yes is given. A file with replicas that are only UNCLEAR is never deleted. A
    DataNode that is only switched off would bring its replicas back.

    --quota counts the names and the room below each directory with a quota (`admin quota`), as they
    are at one moment, while all else goes on, and compares that with what its quota goes by then.
    The exit code is 1 if they differ; --repair mends that.
    """
    _check_options(invocation, delete=delete, yes=yes)
    if (repair and not quota) or (quota and delete):
        raise click.UsageError("--repair goes with --quota, and --quota without --delete-corrupt")
    where = the_one(invocation, path)
    if quota:
        _check_quotas(invocation, where, repair=repair)
    else:
        _check_blocks(invocation, where, delete=delete, yes=yes)


def _check_blocks(invocation: Invocation, where: str, *, delete: bool, yes: bool) -> None:
    summary = Summary(path=where)
    lost: dict[Condition, dict[str, None]] = {reason: {} for reason in _REASONS}
    for finding in _findings(invocation, summary):
        invocation.say(_line(finding), finding)
        if delete and finding.condition.lost:
            lost[finding.condition][finding.path] = None
    agreed = {reason for reason, files in lost.items() if files and _agrees(reason, files, yes=yes)}
    if any(lost.values()) and not agreed:
        raise UserError(where, "nothing was deleted")
    if agreed:
        for finding in _findings(invocation, Summary(path=where)):
            if finding.condition in agreed and finding.path in lost[finding.condition]:
                _delete(invocation, summary, finding)
    for line in _summary_lines(summary):
        invocation.say(line)
    invocation.tell(summary)
    invocation.failures += summary.status != "HEALTHY"


def _check_quotas(invocation: Invocation, path: str, *, repair: bool) -> None:
    found = invocation.call(CHECK_QUOTAS, CheckQuotas(path, repair)).checked
    for each in found:
        usage = each.usage
        text = f"{shown(usage.path)}: {counted(each.names, 'name')}, {counted(each.space, 'byte')}"
        if not each.right:
            counts = f"{counted(usage.names, 'name')}, {counted(usage.space, 'byte')}"
            text = f"{text}, but was counted as {counts}{', mended' if each.repaired else ''}"
        invocation.say(text, each)
        invocation.failures += not each.right and not each.repaired
    invocation.say(f"{counted(len(found), 'quota')} counted again")


def _check_options(invocation: Invocation, *, delete: bool, yes: bool) -> None:
    if yes and not delete:
        raise click.UsageError("--yes goes with --delete-corrupt")
    if delete and not yes and (invocation.json or not sys.stdin.isatty()):
        raise click.UsageError("--delete-corrupt asks for a yes: where nobody can be, add --yes")


def _findings(invocation: Invocation, summary: Summary) -> Iterator[Finding]:
    """Yield the findings, and count them: one page at a time, however many files there are."""
    request = CheckFiles(summary.path)
    while True:
        page = invocation.call(CHECK_FILES, request)
        summary.add(page)
        yield from page.findings
        if page.next is None:
            return
        request = CheckFiles(summary.path, page.next)


def _agrees(reason: Condition, files: Collection[str], *, yes: bool) -> bool:
    """Tell which files would be deleted for a reason, and return True if they may be."""
    told = f"{_HEADINGS[reason]}: {_REASONS[reason]} of {counted(len(files), 'file')}"
    names = ", ".join(f"'{path}'" for path in islice(files, PATHS_SHOWN))
    more = ", ..." if len(files) > PATHS_SHOWN else ""
    click.echo(f"{told}: {names}{more}", err=True)
    question = f"Delete {counted(len(files), 'file')}, with all that is in them?"
    return yes or click.confirm(question, err=True)


def _delete(invocation: Invocation, summary: Summary, finding: Finding) -> None:
    """Delete a file with a lost block: that very file, not another that may have its name by now.

    Raises:
        UserError: the block may only seem to be lost.
    """
    if summary.safe_mode:
        why = "nothing is deleted in safe mode: what looks missing may not have been reported yet"
        raise UserError(finding.path, why)
    request = DeletePath(finding.path, file_id=finding.file_id)
    if invocation.call_once(DELETE, request).existed:
        summary.deleted_files += 1
        invocation.say(f"Deleted {finding.path}", {"deleted": finding.path})


def _line(finding: Finding) -> str:
    where = f"'{finding.path}'"
    if finding.condition is Condition.OPEN:
        return f"{where}: is being written"
    what = f"{where}: {_HEADINGS[finding.condition]} block {finding.block}"
    if finding.condition.lost:
        return f"{what}, {counted(finding.size_bytes, 'byte')}"
    if finding.condition is Condition.MIS_REPLICATED:
        return f"{what}: its {finding.counted} replicas share a DataNode or rack"
    if finding.condition is Condition.UNCLEAR:
        return f"{what}: {counted(finding.elsewhere, 'other replica')} known, or not heard of yet"
    damaged = f", {finding.damaged} damaged" if finding.damaged else ""
    return f"{what}: {finding.counted} of {finding.wanted} replicas{damaged}"


def _summary_lines(summary: Summary) -> Iterator[str]:
    """Yield the end of what `hdfs fsck` prints."""
    found, blocks = summary.found, summary.blocks
    average = f"{summary.replicas / blocks:.1f}" if blocks else "0.0"
    rows: list[tuple[str, object]] = [
        ("Number of data-nodes", summary.datanodes),
        ("Number of racks", summary.racks),
        ("Total dirs", summary.directories),
        ("Total size", f"{summary.size_bytes} B"),
        ("Total files", f"{summary.files} ({found[Condition.OPEN.value]} being written)"),
        ("Total blocks", blocks),
        ("Over-replicated blocks", _share(found[Condition.OVER_REPLICATED.value], blocks)),
        ("Under-replicated blocks", _share(found[Condition.UNDER_REPLICATED.value], blocks)),
        ("Mis-replicated blocks", _share(found[Condition.MIS_REPLICATED.value], blocks)),
        ("Average block replication", average),
        ("Missing blocks", found[Condition.MISSING.value]),
        ("Corrupt blocks", found[Condition.CORRUPT.value]),
        ("Unclear blocks", found[Condition.UNCLEAR.value]),
        ("Missing replicas", _share(summary.lacking_replicas, summary.asked_replicas)),
        ("Damaged replicas", summary.damaged_replicas),
    ]
    yield f"Status: {summary.status}"
    for name, value in rows:
        yield f" {name + ':':<28}{value}"
    if summary.safe_mode:
        yield "Safe mode is on: not all blocks have been reported yet."
    yield f"The filesystem under path '{summary.path}' is {summary.status}"


def _share(count: int, of: int) -> str:
    return f"{count} ({100 * count / of if of else 0:.1f} %)"
