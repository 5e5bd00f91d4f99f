"""The campaign from the command line."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from tests import secure
from tests.services import chaos
from tests.services.chaos import campaign


def main() -> None:
    """Run one campaign and print what it did."""
    parser = argparse.ArgumentParser(
        description=chaos.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--namenodes", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="keep the cluster with its logs here")
    secure.add_switch(parser)
    options = parser.parse_args()
    with secure.as_told(options):
        _run(options)


def _run(options: argparse.Namespace) -> None:
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    rounds = campaign.decks(options.seed, options.seconds)
    report = campaign.run(options.seed, rounds, options.folder, options.namenodes)
    sys.stdout.write(f"seed {options.seed}: " + "\n".join(report.lines()) + "\n")


if __name__ == "__main__":
    main()
