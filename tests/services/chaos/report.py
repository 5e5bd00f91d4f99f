"""The actions and results of a campaign, so that an empty one cannot pass for a success."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median


@dataclass
class Report:
    """Counts, and seconds by the name of a failure.

    `outages_s`: the longest time without an acknowledgement that it cost a writer that writes all
    the time. `reads_s`: what reading the idle writers' files took while it lasted.
    """

    outages_s: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    reads_s: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    shortages_s: list[float] = field(default_factory=list)
    """Until a writer's blocks had all replicas again, after the cluster was whole."""
    rounds: int = 0
    writers_killed: int = 0
    writers_closed: int = 0
    bytes_acknowledged: int = 0
    bytes_verified: int = 0
    bytes_followed: int = 0
    blocks_checked: int = 0
    records: Counter[str] = field(default_factory=Counter)
    """Of the file that several append to: records found, cuts, appenders killed."""
    blocks_whole: int = 0
    """Of all files, in the end: each replica of each was read."""

    @property
    def failures(self) -> dict[str, int]:
        """Return how often each took effect."""
        return {name: len(outages) for name, outages in self.outages_s.items()}

    def lines(self) -> Iterator[str]:
        """All of it, for people."""
        yield (
            f"{self.rounds} rounds, {sum(self.failures.values())} failures; writers: "
            f"{self.writers_killed} killed, {self.writers_closed} closed; bytes: "
            f"{self.bytes_acknowledged} acknowledged, {self.bytes_verified} verified, "
            f"{self.bytes_followed} followed; {self.blocks_checked} new blocks have all replicas, "
            f"{max(self.shortages_s, default=0):.1f} s after the end of failures at most; "
            f"in the end all replicas of all {self.blocks_whole} blocks are sound"
        )
        yield "a file that several append to: " + ", ".join(
            f"{count} {name}" for name, count in sorted(self.records.items())
        )
        yield f"{'failure':<40} {'count':>5} {'writers wait':>16} {'idle files read in':>20}"
        yield f"{'':<40} {'':>5} {'p50      max s':>16} {'p50      max s':>20}"
        for name, outages in sorted(self.outages_s.items()):
            reads = _p50_max(self.reads_s[name])
            yield f"{name:<40} {len(outages):>5} {_p50_max(outages):>16} {reads:>20}"


def _p50_max(seconds: list[float]) -> str:
    return f"{median(seconds):5.2f}   {max(seconds):6.2f}" if seconds else "-"
