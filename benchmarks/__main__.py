"""Run the benchmarks: `python -m benchmarks [NAME ...]`; each is a module with its own options.

Those that are not cases of `paxosblock bench` yet. Without names: the store of one NameNode and of
three, what three are asked through RPC; only by name: appends, the steps from block to block, big
files, outages, long block reports, lost DataNodes, the walk over all blocks, the model of large
clusters, event loops and Spark. `benchmarks.against` compares the NameNodes of two checkouts. Run
them on a machine that does nothing else; the tables of benchmarks/README.md came from this command.
"""

from __future__ import annotations

import argparse
import runpy
import sys

from benchmarks.stats import say

DEFAULT = ("kv", "raft", "namenodes")
ALL = (
    *DEFAULT,
    "appends",
    "block_steps",
    "big_files",
    "outages",
    "reports",
    "healing",
    "sweep",
    "scale_model",
    "loop",
    "spark",
)


def main() -> None:
    """Run what was asked for, one after the other."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(ALL)}")
    names = parser.parse_args().names or DEFAULT
    for name in names:
        if name not in ALL:
            parser.error(f"no benchmark {name!r}; there are {', '.join(ALL)}")
    for name in names:
        say(f"== python -m benchmarks.{name}")
        sys.argv = [f"benchmarks.{name}"]
        runpy.run_module(f"benchmarks.{name}", run_name="__main__")


if __name__ == "__main__":
    main()
