"""Live many lives:  python -m tests.lives --seed 1 --lives 100

Prints what happened in total. A life that shows a mistake, or is not whole in the end, is printed
with its trace, and the exit code is 1; `--seed SEED --lives 1` lives it again, the same way.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections import Counter

from tests.lives.life import Kind, live
from tests.lives.planted_faults import FAULTS, planted

HASH_SEED = "PYTHONHASHSEED"


def main() -> int:
    """Live the lives; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1, help="of the first life; others follow it")
    parser.add_argument("--lives", type=int, default=50)
    parser.add_argument("--fault", choices=sorted(FAULTS), help="plant a fault: it must be found")
    kinds = [each.value for each in Kind]
    parser.add_argument("--kind", choices=kinds, default=kinds[0], help="the users of a life")
    parser.add_argument("--trace", action="store_true", help="print what happened in each life")
    options = parser.parse_args()
    logging.getLogger("asyncio").disabled = True  # of processes that are killed
    total: Counter[str] = Counter()
    failed, begun = 0, time.monotonic()
    for seed in range(options.seed, options.seed + options.lives):
        with planted(options.fault):
            outcome = live(seed, Kind(options.kind))
        total += outcome.counts
        told = (*outcome.mistakes, *outcome.unfinished)
        if told or options.trace:
            sys.stdout.writelines(f"{line}\n" for line in outcome.trace)
        for line in told:
            sys.stdout.write(f"seed {seed}: {line}\n")
        failed += bool(told)
    counts = ", ".join(f"{count} {name}" for name, count in sorted(total.items()))
    seconds = time.monotonic() - begun
    sys.stdout.write(f"{options.lives} lives in {seconds:.0f} s, {failed} failed: {counts}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    if HASH_SEED not in os.environ:  # the order of sets would differ from one process to the next
        os.environ[HASH_SEED] = "0"
        os.execv(sys.executable, sys.orig_argv)
    sys.exit(main())
