"""The time a command takes to start: `python -m benchmarks.startup`.

The goals: `paxosblock --help` in 150 ms, `paxosblock fs ls` in 300 ms, both as a user waits for
them: a new process, from its start to its end. The bare interpreter is measured in the same run.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.stats import machine, median, say
from paxosblock.local.cluster import LocalCluster

_NOT_USUAL = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHONDEVMODE")


@dataclass(frozen=True, slots=True)
class Question:
    """A command, and the milliseconds it may take (0: no goal)."""

    name: str
    command: tuple[str, ...]
    goal_ms: int = 0


def questions(namenodes: str) -> tuple[Question, ...]:
    """Return what is measured, against a cluster at `namenodes`."""
    python = sys.executable
    cli = (python, "-m", "paxosblock")
    return (
        Question("python -c pass", (python, "-c", "pass")),
        Question("paxosblock --help", (*cli, "--help"), 150),
        Question("paxosblock fs --help", (*cli, "fs", "--help"), 150),
        Question("paxosblock fs ls /", (*cli, "fs", "ls", "--namenodes", namenodes, "/"), 300),
    )


def measure_ms(command: Sequence[str], rounds: int) -> list[float]:
    """Milliseconds of `rounds` runs, after one that warms the file cache."""
    times = []
    # As users have it: with compiled modules.
    environment = {key: value for key, value in os.environ.items() if key not in _NOT_USUAL}
    for _ in range(rounds + 1):
        started = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
        times.append((time.perf_counter() - started) * 1e3)
    return times[1:]


def main() -> None:
    """Print one line for each question."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="runs of each command")
    rounds = parser.parse_args().rounds
    say(f"{machine()}, {rounds} runs each")
    with LocalCluster() as cluster:
        for question in questions(",".join(cluster.addresses)):
            times = measure_ms(question.command, rounds)
            goal = f"   goal {question.goal_ms} ms" if question.goal_ms else ""
            say(f"{question.name:<22} p50 {median(times):6.1f} ms   max {max(times):6.1f} ms{goal}")


if __name__ == "__main__":
    main()
