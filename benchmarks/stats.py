"""The parts that all benchmarks share: what they say about themselves, and how they count."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Final

TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


def say(line: str = "") -> None:
    """One line on standard output, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def percentile(sample: Sequence[float], fraction: float) -> float:
    """The value below which `fraction` of the sample lies; the sample must not be empty."""
    return sorted(sample)[min(len(sample) - 1, int(len(sample) * fraction))]


def median(sample: Sequence[float]) -> float:
    """The value in the middle."""
    return percentile(sample, 0.5)


def machine() -> str:
    """Machine, cores, load and versions, in one line."""
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("aiohttp", "uvloop"))
    return (
        f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, "
        f"Linux {platform.release()}, Python {platform.python_version()}, {versions}"
    )


def latencies(label: str, seconds: Sequence[float]) -> str:
    """Percentiles of durations, as one line."""
    p50, p99, p999 = (percentile(seconds, part) * 1e3 for part in (0.5, 0.99, 0.999))
    return f"{label:<44} p50 {p50:7.3f} ms  p99 {p99:7.3f} ms  p99.9 {p999:7.3f} ms"


def resident_mib(pid: int | str = "self") -> float:
    """Resident memory of a process in MiB."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        line = next(line for line in status if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def processor_seconds(pid: int | None = None) -> float:
    """Processor time that a process (None: this one) has used, in user and system mode."""
    fields = Path(f"/proc/{pid or os.getpid()}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S
