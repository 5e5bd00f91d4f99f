"""Is a NameNode cheaper than that of another checkout: processor time of the leader for a change?

    git worktree add ../before REVISION
    python -m benchmarks.against ../before [--rounds 5] [--seconds 2] [--namenodes 3]

Both checkouts run their own `benchmarks.namenodes --only speed` in turns, in one run, because a
machine is not as fast in one hour as in another. Shown are the medians for 64 clients, and their
ratio. Processor time, unlike a rate, says about the same on a busy machine.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median

from benchmarks.stats import machine, say

ROW = re.compile(r"^(mkdirs|create), 64 client.* leader (\d+) us", re.MULTILINE)


def leader_us(checkout: Path, options: argparse.Namespace) -> dict[str, int]:
    """Microseconds of the leader for one call of each kind, as that checkout measures them."""
    command = [sys.executable, "-m", "benchmarks.namenodes", "--only", "speed"]
    numbers = ["--seconds", str(options.seconds), "--namenodes", str(options.namenodes)]
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    done = subprocess.run(
        command + numbers, cwd=checkout, env=environment, check=True, text=True, capture_output=True
    )
    return {name: int(used) for name, used in ROW.findall(done.stdout)}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Path, help="the other checkout")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--namenodes", type=int, default=3)
    options = parser.parse_args()
    checkouts = {"before": options.before.resolve(), "now": Path(__file__).resolve().parents[1]}
    used: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    say(f"{machine()}, {options.namenodes} NameNodes")
    for _ in range(options.rounds):
        for name, checkout in checkouts.items():
            for call, microseconds in leader_us(checkout, options).items():
                used[call][name].append(microseconds)
    for call, found in used.items():
        before, now = median(found["before"]), median(found["now"])
        rounds = f"rounds {found['before']} {found['now']}"
        say(f"{call:<8} {before:5.0f} us before  {now:5.0f} us now  {now / before:.2f}   {rounds}")


if __name__ == "__main__":
    main()
