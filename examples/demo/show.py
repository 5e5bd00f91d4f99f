"""The telling of the demo: a timeline as it happens, the votes, and what was verified."""

from __future__ import annotations

from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Final

import click

from examples.demo.source import Source, build, measure
from examples.demo.story import (
    Event,
    Report,
    Stage,
    first_file,
    lost_replica,
    now_ms,
    second_file,
)
from paxosblock.api.status import BlockExplanation
from paxosblock.cli.explain import history_lines
from paxosblock.cli.invocation import Invocation
from paxosblock.cli.progress_bar import Advance, progress_bar
from paxosblock.local.cluster import LocalCluster
from paxosblock.local.cluster_folder import Settings

IMPATIENT: Final[Settings] = {
    "namenode": {
        "datanode_dead_after": "3s",
        "replicate_after": "1s",
        "safe_mode_extension": "1s",
    }
}
"""Nobody wants to look on for the three quarters of a minute for which a lost node is waited."""


class Show:
    """One demo on standard output."""

    def __init__(self, invocation: Invocation) -> None:
        self._invocation = invocation
        self._started_ms = now_ms()
        self._report = Report(self._tell_event)

    def source(self, chosen: str | None, size_bytes: int, scratch: Path) -> Source:
        """Return the file to write, and its digest."""
        path = Path(chosen) if chosen else scratch / "source"
        if not chosen:
            with self._bar("collecting files", size_bytes) as advance:
                build(path, size_bytes, advance)
        source = measure(path)
        what = chosen or "files of this Python installation"
        self._report.mark(f"source: {source.size_bytes} bytes of {what}, sha256 {source.digest}")
        return source

    def play(self, source: Source, path: str | None) -> bool:
        """Run everything; whether all of it was verified."""
        with (
            LocalCluster(4, 3, path, settings=IMPATIENT) as cluster,
            closing(self._invocation) as invocation,
        ):
            invocation.namenodes = cluster.url
            client = invocation.client
            count = f"{len(cluster.namenodes)} NameNodes and {len(cluster.datanodes)}"
            self._report.mark(f"{count} DataNodes are up at {cluster.url}")
            with self._bar("writing", source.size_bytes) as advance:
                stage = Stage(cluster, client, source, self._report, advance)
                first_file(stage)
            second_file(stage)
            lost_replica(stage)
            self._report.mark("all read back")
        return self._tell_result()

    def _bar(self, what: str, size_bytes: int) -> AbstractContextManager[Advance]:
        return progress_bar(what, size_bytes, wanted=not self._invocation.json)

    def _tell_event(self, event: Event) -> None:
        since_ms = event.time_ms - self._started_ms
        fact = {"time_ms": round(since_ms, 3), "event": event.what}
        self._invocation.say(f"{since_ms:>10.1f} ms  {event.what}", fact)

    def _tell_result(self) -> bool:
        for explanation in self._report.recovered:
            self._tell_votes(explanation)
        for check in self._report.checks:
            self._invocation.say(f"{'ok    ' if check.holds else 'FAILED'}  {check.claim}", check)
        verified = self._report.verified
        took_s = (now_ms() - self._started_ms) / 1000
        words = "every byte was verified" if verified else "NOT everything is as it should be"
        fact = {"verified": verified, "seconds": round(took_s, 3)}
        self._invocation.say(f"{words}, in {took_s:.1f} s", fact)
        return verified

    def _tell_votes(self, explanation: BlockExplanation) -> None:
        record = explanation.view.record
        title = f"votes of block {record.block} of {explanation.path}:"
        self._invocation.say(click.style(title, bold=True), explanation)
        for line in history_lines(explanation.history) if not self._invocation.json else ():
            self._invocation.say(f"  {line}")
