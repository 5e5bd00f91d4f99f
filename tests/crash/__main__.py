"""Crash a DataNode at random:  python -m tests.crash --seed 1 --seconds 60

Lives one seed after the other until the time is over, and prints what happened in total. A life
that shows a mistake is printed with its trace, and the exit code is 1; `--seed SEED --seconds 0`
lives it again, the same way.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import sys
import time
from collections import Counter

from tests.crash.life import live
from tests.crash.planted_faults import FAULTS, planted
from tests.lives.world import keep_order_of_sets


def main() -> int:
    """Live the lives; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1, help="of the first life; others follow it")
    parser.add_argument("--seconds", type=float, default=60, help="until no other life begins")
    parser.add_argument("--fault", choices=sorted(FAULTS), help="plant a fault: it must be found")
    parser.add_argument("--trace", action="store_true", help="print what happened in each life")
    options = parser.parse_args()
    logging.getLogger("asyncio").disabled = True  # of processes that are killed
    total, lives, bad = Counter[str](), 0, 0
    begun = time.monotonic()
    for seed in itertools.count(options.seed):
        with planted(options.fault):
            outcome = live(seed)
        total += outcome.counts
        lives, bad = lives + 1, bad + bool(outcome.mistakes)
        if outcome.mistakes or options.trace:
            sys.stdout.writelines(f"{line}\n" for line in outcome.trace)
        sys.stdout.writelines(f"seed {seed}: {line}\n" for line in outcome.mistakes)
        sys.stdout.flush()
        if time.monotonic() - begun >= options.seconds:
            break
    counts = ", ".join(f"{count} {name}" for name, count in sorted(total.items()))
    seconds = time.monotonic() - begun
    sys.stdout.write(f"{lives} lives in {seconds:.0f} s, {bad} failed: {counts}\n")
    return int(bad > 0)


if __name__ == "__main__":
    keep_order_of_sets()
    sys.exit(main())
