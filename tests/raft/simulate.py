"""Run many seeds of the simulation:  python -m tests.raft.simulate --seeds 1000 [--first 0]

Prints what happened in total. A seed that shows a violation is printed with it, and the exit code
is 1; `--first SEED --seeds 1` runs it again, the same way.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter

from tests.raft.simulation import simulate


def main() -> int:
    """Run the seeds; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)  # members report the faults that they were given
    total: Counter[str] = Counter()
    failed = 0
    begun = time.monotonic()
    for seed in range(options.first, options.first + options.seeds):
        outcome = simulate(seed)
        total.update({**outcome.counts, "term": 0})
        for violation in outcome.violations:
            sys.stdout.write(f"seed {seed}: {violation}\n")
        failed += bool(outcome.violations)
    del total["term"]
    counts = ", ".join(f"{count} {name}" for name, count in sorted(total.items()))
    seconds = time.monotonic() - begun
    sys.stdout.write(f"{options.seeds} seeds in {seconds:.0f} s, {failed} failed: {counts}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
