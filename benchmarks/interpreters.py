"""Processor time of a NameNode and of a command on several Pythons, in turns.

    python -m benchmarks.interpreters PYTHON... [--rounds 5] [--seconds 1]

Each PYTHON has paxosblock's dependencies installed and runs this module from the same folder: its
NameNode, its clients and its commands are of that Python alone. A round starts a cluster for each
of them, one after the other. The least of the rounds is printed, as other work on the machine only
adds, with the median behind it, and the load at both ends.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.call_load import run_load
from benchmarks.cases.calls import Names
from benchmarks.host import processor_s
from benchmarks.interpreter import this_build
from benchmarks.stats import median
from paxosblock.client import Client
from paxosblock.local.cluster import LocalCluster

CLIENTS: Final = 64
STARTS: Final = 5
"""Commands that a round starts; the least of them counts, as the first ones read cold files."""
COMMAND: Final = "fs cat"
BARE: Final = "python -c pass"


def measured(seconds: float) -> dict[str, float]:
    """Return microseconds of the NameNode's processor for each kind of call, and milliseconds of
    processor and of time that a cold command takes; of this Python."""
    with tempfile.TemporaryDirectory() as folder, LocalCluster(path=Path(folder) / "c") as cluster:
        figures = asyncio.run(_calls(cluster, seconds))
        with Client(cluster.url) as fs, fs.create("/small") as out:
            out.write(bytes(4096))
        cat = ("-m", "paxosblock", *COMMAND.split(), f"{cluster.url}/small")
        for name, command in ((COMMAND, cat), (BARE, ("-c", "pass"))):
            taken = [_started(command) for _ in range(STARTS)]
            figures[f"{name}, ms of processor"] = min(used for used, _ in taken)
            figures[f"{name}, ms"] = min(waited for _, waited in taken)
    return figures


async def _calls(cluster: LocalCluster, seconds: float) -> dict[str, float]:
    leader, figures = cluster.wait_leader(), dict[str, float]()
    for name, method, requests, _ in Names("tried").kinds():
        before_s = processor_s(leader.pid)
        load = await run_load(leader.address, method, requests, clients=CLIENTS, seconds=seconds)
        used_s = processor_s(leader.pid) - before_s
        figures[f"{name}, us"] = used_s / len(load.latencies) * 1e6
    return figures


def _started(arguments: Sequence[str]) -> tuple[float, float]:
    """Return the milliseconds of processor, and of time, from start to end of a Python."""
    begun_s, before_s = time.perf_counter(), _used_by_children_s()
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
    return (_used_by_children_s() - before_s) * 1e3, (time.perf_counter() - begun_s) * 1e3


def _used_by_children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def compare(pythons: Sequence[str], rounds: int, seconds: float) -> None:
    """Print what each Python takes, as a table in Markdown."""
    sys.stdout.write(f"load {os.getloadavg()[0]:.1f} at the start\n")
    found: dict[str, list[dict[str, float]]] = {}
    for _ in range(rounds):
        for python in pythons:
            command = [python, "-m", "benchmarks.interpreters", "--seconds", str(seconds)]
            told = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
            build, figures = json.loads(told)
            found.setdefault(build, []).append(figures)
    names = list(next(iter(found.values()))[0])
    sys.stdout.write(f"| Python | {' | '.join(names)} |\n|{'---|' * (1 + len(names))}\n")
    for build, those in found.items():
        cells = (_cell([each[name] for each in those]) for name in names)
        sys.stdout.write(f"| {build} | {' | '.join(cells)} |\n")
    sys.stdout.write(f"load {os.getloadavg()[0]:.1f} at the end\n")


def _cell(values: Sequence[float]) -> str:
    return f"{min(values):.1f} ({median(values):.1f})"


def main() -> None:
    """Compare the Pythons that are named; without one, measure this one and print it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pythons", nargs="*")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    if options.pythons:
        compare(options.pythons, options.rounds, options.seconds)
    else:
        sys.stdout.write(f"{json.dumps((str(this_build()), measured(options.seconds)))}\n")


if __name__ == "__main__":
    main()
