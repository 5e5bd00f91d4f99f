"""Plant every fault of the table, one at a time, and see that its suite notices.

    python -m tests.mutants [--area store] [--only NAME] [--jobs 2] [--list]

A mutant of the source is planted in a copy of the checkout, so that the processes which tests
start have it, too. Its suite must pass on the clean copy first: a suite that fails anyway notices
nothing. The exit code is 1 when a mutant lives.
"""

from __future__ import annotations

import argparse
import enum
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.mutants.table import Area, Mutant, all_mutants

TIMEOUT_S: Final = 900.0
"""For one suite: a mutant that makes it hang is noticed by the time limit of a test within."""
HUNG: Final = 124
"""The exit code of a suite that did not end in time: it says nothing about the mutant."""

PASSED: Final = 0
FAILED: Final = 1
"""pytest's exit codes; every other one says that no test had anything to say."""


class Verdict(enum.Enum):
    """The outcome of a mutant."""

    KILLED = "killed"
    LIVES = "LIVES"
    BROKEN = "BROKEN"
    """The suite could not be run, or fails without the mutant, too."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One row of the report."""

    mutant: Mutant
    verdict: Verdict
    seconds: float
    said: str = ""


def main() -> int:
    """Parse the command line, run, report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--area", choices=[area.value for area in Area])
    parser.add_argument("--only", default="", help="a part of the name")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=TIMEOUT_S, help="seconds for a suite")
    parser.add_argument("--list", action="store_true", help="show the table, plant nothing")
    options = parser.parse_args()
    chosen = [
        mutant
        for mutant in all_mutants()
        if options.only in mutant.name and options.area in (None, mutant.area.value)
    ]
    if not chosen:
        parser.error("no mutant has such a name")
    if options.list:
        for mutant in chosen:
            say(f"{mutant.area.value:9} {mutant.name}: {' '.join(mutant.suite)}")
        return 0
    return report(run(chosen, options.jobs, options.timeout))


def run(mutants: Sequence[Mutant], jobs: int, timeout_s: float) -> Iterator[Outcome]:
    """Yield what became of each mutant, in the order of the table."""
    repository = Path(__file__).resolve().parents[2]
    with ThreadPoolExecutor(jobs) as pool:
        suites = {mutant.suite for mutant in mutants if mutant.patch is not None}
        clean = dict(
            zip(
                suites,
                pool.map(lambda suite: on_a_copy(repository, suite, timeout_s), suites),
                strict=True,
            )
        )
        bad = {suite: said for suite, (code, said) in clean.items() if code != PASSED}
        yield from pool.map(lambda mutant: one(repository, mutant, bad, timeout_s), mutants)


def one(
    repository: Path, mutant: Mutant, bad: dict[tuple[str, ...], str], timeout_s: float
) -> Outcome:
    """Plant one mutant and run its suite."""
    if mutant.suite in bad and mutant.patch is not None:
        return Outcome(mutant, Verdict.BROKEN, 0.0, bad[mutant.suite])
    started = time.monotonic()
    code, said = on_a_copy(repository, mutant.suite, timeout_s, mutant)
    # A planted fault has a test of its own, which passes when the fault was noticed.
    killed, lives = (PASSED, FAILED) if mutant.patch is None else (FAILED, PASSED)
    verdict = {killed: Verdict.KILLED, lives: Verdict.LIVES}.get(code, Verdict.BROKEN)
    return Outcome(mutant, verdict, time.monotonic() - started, said)


def on_a_copy(
    repository: Path, suite: tuple[str, ...], timeout_s: float, mutant: Mutant | None = None
) -> tuple[int, str]:
    """Run a suite in a copy of the checkout; return pytest's exit code and its last line."""
    with copy_of(repository) as copy:
        if mutant is not None and mutant.patch is not None:
            mutant.patch.plant(copy)
        try:
            done = subprocess.run(
                [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *suite],
                cwd=copy,
                env=os.environ | {"PYTHONPATH": str(copy)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return HUNG, f"no end after {timeout_s:.0f} s"
    lines = done.stdout.strip().splitlines()
    return done.returncode, lines[-1] if lines else ""


@contextmanager
def copy_of(repository: Path) -> Iterator[Path]:
    """A copy of what git knows of, with its links."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listed, cwd=repository, stdout=subprocess.PIPE, check=True).stdout
    with tempfile.TemporaryDirectory(prefix="paxosblock-mutant-") as folder:
        copy = Path(folder)
        for name in filter(None, names.decode().split("\0")):
            target = copy / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(repository / name, target, follow_symlinks=False)
        yield copy


def report(outcomes: Iterator[Outcome]) -> int:
    """Print a line for each, then the sum; return the exit code."""
    counts = dict.fromkeys(Verdict, 0)
    for outcome in outcomes:
        counts[outcome.verdict] += 1
        mutant = outcome.mutant
        say(
            f"{outcome.verdict.value:7} {outcome.seconds:6.1f} s  "
            f"{mutant.area.value:9} {mutant.name}"
        )
        if outcome.verdict is not Verdict.KILLED:
            say(f"        {' '.join(mutant.suite)}: {outcome.said}")
    say(", ".join(f"{count} {verdict.value}" for verdict, count in counts.items()))
    return int(counts[Verdict.KILLED] < sum(counts.values()))


def say(line: str) -> None:
    """One line, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
