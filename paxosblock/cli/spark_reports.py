"""The lines by which the jobs of `paxosblock spark` report to people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from paxosblock.cli.text import counted, human_size

if TYPE_CHECKING:
    from paxosblock.client.spark.jobs.compact import CompactReport
    from paxosblock.client.spark.jobs.deep_fsck import FsckReport, UnhealthyBlock
    from paxosblock.client.spark.jobs.distcp import CopyReport


def copy_lines(report: CopyReport) -> Iterator[str]:
    """Yield a line for every file that was not copied, and a summary."""
    for failure in report.failures:
        yield f"{failure.source}: not copied: {failure.reason}"
    yield (
        f"{report.target}: {counted(report.copied, 'file')} copied and verified, "
        f"{human_size(report.bytes_copied)} in {report.seconds:.1f} s; "
        f"{report.skipped} were there already, {len(report.failures)} failed"
    )


def compact_lines(report: CompactReport) -> Iterator[str]:
    """Yield a line for every directory."""
    for directory in report.directories:
        if directory.error:
            yield f"{directory.path}: nothing was changed: {directory.error}"
        elif directory.merged:
            yield (
                f"{directory.path}: {directory.merged} files became {directory.into} "
                f"({human_size(directory.size_bytes)}), {directory.left_alone} left alone"
            )
        else:
            files = counted(directory.left_alone, "file")
            yield f"{directory.path}: nothing to merge, {files} left alone"


def fsck_lines(report: FsckReport) -> Iterator[str]:
    """Yield lines for every block that is not healthy, with advice, and a summary."""
    for finding in report.findings:
        yield from _finding_lines(finding)
    for path in report.being_written:
        yield f"{path}: is being written; checked up to its last finalized block"
    counts = {finding.verdict: report.count(finding.verdict) for finding in report.findings}
    verdicts = ", ".join(f"{count} {verdict.value}" for verdict, count in counts.items())
    files, blocks = counted(report.files, "file"), counted(report.blocks, "block")
    yield (
        f"{report.path}: {files}, {blocks}, {counted(report.replicas, 'replica')}, "
        f"{human_size(report.bytes_read)} read in {report.seconds:.1f} s: "
        + (f"blocks: {verdicts}" if verdicts else "healthy")
    )


def _finding_lines(finding: UnhealthyBlock) -> Iterator[str]:
    from paxosblock.client.check import ReplicaHealth
    from paxosblock.client.spark.jobs.deep_fsck import BlockHealth

    where = f"{finding.path}: block {finding.block} at {finding.offset}"
    sound = f"{finding.sound} of {finding.wanted} replicas are sound"
    if finding.verdict is BlockHealth.UNKNOWN:
        yield f"{where}: not checked: {finding.detail}"
        return
    yield f"{where}: {finding.verdict.value}, {sound}"
    for replica in finding.replicas:
        node = f"{replica.member.node or replica.member.storage} ({replica.member.address or '?'})"
        yield f"  {node}: {replica.health.value}: {replica.detail}"
    seen = {replica.health for replica in finding.replicas}
    if finding.verdict is BlockHealth.LOST:
        yield (
            "  No sound replica was found. Start the DataNodes that do not answer; if that does "
            "not help, restore the file from elsewhere."
        )
        return
    if ReplicaHealth.DAMAGED in seen:
        yield "  The NameNode was told and has a damaged one copied again from a sound one."
    if ReplicaHealth.UNREACHABLE in seen:
        yield "  Start the DataNode that does not answer."
    if seen & {ReplicaHealth.MISSING, ReplicaHealth.BEHIND}:
        yield "  The NameNode has it copied again; check again in a minute."
    if ReplicaHealth.DIFFERENT in seen:
        yield "  Stop that DataNode and keep its disk: this must not happen. Please report it."
