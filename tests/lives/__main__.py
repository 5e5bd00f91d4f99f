"""Live many lives:  python -m tests.lives --seed 1 --lives 100

Prints what happened in total, and how often two services were at work on one block at once, and two
faults there at once. A life that shows a mistake, or is not whole in the end, is printed with its
trace, and the exit code is 1; `--seed SEED --lives 1 --kind KIND` lives it again, the same way.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter

from tests.lives.apart import live_apart
from tests.lives.life import Kind, Outcome
from tests.lives.pairs import FAULTS as TROUBLES
from tests.lives.pairs import SERVICES, Pair, empty, table
from tests.lives.planted_faults import FAULTS, planted
from tests.lives.world import keep_order_of_sets


def main() -> int:
    """Live the lives; return the exit code."""
    options = _parser().parse_args()
    logging.getLogger("asyncio").disabled = True  # of processes that are killed
    services: Counter[Pair] = Counter()
    faults: Counter[Pair] = Counter()
    failed = False
    for kind in [Kind(each) for each in options.kind] if options.kind else [*Kind]:
        total: Counter[str] = Counter()
        bad, begun = 0, time.monotonic()
        seeds = range(options.seed, options.seed + options.lives)
        with planted(options.fault):
            for outcome in live_apart(seeds, kind, options.jobs):
                total += outcome.counts
                services += outcome.services
                faults += outcome.faults
                bad += _is_bad(kind, outcome, trace=options.trace)
        counts = ", ".join(f"{count} {name}" for name, count in sorted(total.items()))
        seconds = time.monotonic() - begun
        sys.stdout.write(
            f"{options.lives} lives of {kind.value} in {seconds:.0f} s, {bad} failed: "
        )
        sys.stdout.write(f"{counts}\n")
        failed |= bad > 0
    missing = empty(SERVICES, services) + empty(TROUBLES, faults)
    lines = (
        "services at work on one block at once:",
        *table(SERVICES, services),
        "faults at once:",
        *table(TROUBLES, faults),
        "never at once: " + ("; ".join(map(" + ".join, missing)) or "none"),
    )
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 1 if failed or (options.every_pair and missing) else 0


def _is_bad(kind: Kind, outcome: Outcome, *, trace: bool) -> bool:
    """Say what a life showed; its trace, too, if it is wanted or something was wrong."""
    told = (*outcome.mistakes, *outcome.unfinished)
    if told or trace:
        sys.stdout.writelines(f"{line}\n" for line in outcome.trace)
    sys.stdout.writelines(f"{kind.value} seed {outcome.seed}: {line}\n" for line in told)
    sys.stdout.flush()
    return bool(told)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = [each.value for each in Kind]
    parser.add_argument("--seed", type=int, default=1, help="of the first life; others follow it")
    parser.add_argument("--lives", type=int, default=50, help="of each kind")
    parser.add_argument("--jobs", type=int, default=1, help="lives at once, a process each")
    parser.add_argument("--kind", choices=kinds, action="append", help="the users; none: of each")
    parser.add_argument("--fault", choices=sorted(FAULTS), help="plant a fault: it must be found")
    parser.add_argument(
        "--every-pair", action="store_true", help="fail if a pair was never at once"
    )
    parser.add_argument("--trace", action="store_true", help="print what happened in each life")
    return parser


if __name__ == "__main__":
    keep_order_of_sets()
    sys.exit(main())
