"""The time until something happens: `python -m benchmarks.startup [--rounds 20] [--only PART,...]`.

Three parts, all as a user waits for them, in new processes:

commands  each verb from its start to its end, against a cluster of three DataNodes. The goals:
          `paxosblock --help` in 150 ms, `paxosblock fs ls` in 300 ms. The bare interpreter is
          measured in the same run.
imports   time and memory of `import paxosblock`, and of a first call of a `Client`.
install   seconds from an empty environment to the first byte on the disks of three DataNodes: pip
          with an empty cache, from its index; `cluster up`; `fs put`. The wheel is made before.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from benchmarks.stats import machine, median, say
from paxosblock.local.cluster import LocalCluster

REPOSITORY: Final = Path(__file__).resolve().parent.parent
GOALS_MS: Final = {"--help": 150, "fs --help": 150, "fs ls /": 300}

_NOT_USUAL = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHONDEVMODE")

PROGRAM: Final = """
import sys, time
def now():
    rss = next(line for line in open("/proc/self/status") if line.startswith("VmRSS"))
    return time.perf_counter() * 1e3, int(rss.split()[1]) / 1024
seen = [now()]
import paxosblock
seen.append(now())
with paxosblock.Client(sys.argv[1]) as fs:
    fs.stat("/")
    seen.append(now())
    fs.stat("/")
    seen.append(now())
print(*(f"{value:.3f}" for each in seen for value in each))
"""
"""Tells milliseconds and MiB: at the start, after the import, after a first and a second call."""


def commands(local: Path) -> Iterator[tuple[str, ...]]:
    """Yield the words of each command, in an order in which each finds what it needs."""
    yield ("--help",)
    yield ("fs", "--help")
    for words in ("ls /", "mkdir -p /d", "stat /d", f"put -f {local} /d/a", f"append {local} /d/a"):
        yield ("fs", *words.split())
    for words in ("cat /d/a", "head /d/a", "tail /d/a", f"get -f /d/a {local}.copy"):
        yield ("fs", *words.split())
    for words in ("setrep 2 /d/a", "mkdir -p /d/e", "rm -r /d/e"):
        yield ("fs", *words.split())
    for words in ("explain /d/a", "fsck /", "admin report", "admin safemode get"):
        yield tuple(words.split())


def run(command: Sequence[str | Path], **environment: str) -> tuple[float, str]:
    """Return the seconds that a command takes, and what it prints; with compiled modules."""
    usual = {key: value for key, value in os.environ.items() if key not in _NOT_USUAL}
    begun = time.perf_counter()
    done = subprocess.run(
        list(map(str, command)),
        stdout=subprocess.PIPE,
        text=True,
        env=usual | environment,
        check=True,
    )
    return time.perf_counter() - begun, done.stdout


def measure_commands(rounds: int) -> None:
    """A line for each command, after one round that warms the file cache."""
    with LocalCluster() as cluster, tempfile.TemporaryDirectory() as folder:
        local = Path(folder) / "local"
        local.write_bytes(bytes(1024))
        cli = (sys.executable, "-m", "paxosblock", "--namenodes", ",".join(cluster.addresses))
        questions: dict[str, tuple[str, ...]] = {"python -c pass": (sys.executable, "-c", "pass")}
        for words in commands(local):
            name = " ".join(word.replace(folder, "") for word in words)
            questions[name] = (*cli, *words) if words[-1] != "--help" else (*cli[:3], *words)
        times: dict[str, list[float]] = {name: [] for name in questions}
        for _ in range(rounds + 1):
            for name, command in questions.items():
                times[name].append(run(command)[0] * 1e3)
        for name, taken in times.items():
            goal = f"   goal {GOALS_MS[name]} ms" if name in GOALS_MS else ""
            say(f"{name:<28} p50 {median(taken[1:]):6.1f} ms   max {max(taken[1:]):6.1f} ms{goal}")


def measure_imports(rounds: int) -> None:
    """What each step adds: medians."""
    with LocalCluster() as cluster:
        command = (sys.executable, "-c", PROGRAM, cluster.url)
        seen = [list(map(float, run(command)[1].split())) for _ in range(rounds + 1)][1:]
    start_mib = median([each[1] for each in seen])
    say(f"{'the interpreter':<28} {'':15} {start_mib:6.1f} MiB")
    for place, name in enumerate(("import paxosblock", "a first call of a Client", "a second one")):
        ms, mib = (
            median([each[2 * place + 2 + which] - each[2 * place + which] for each in seen])
            for which in (0, 1)
        )
        say(f"{name:<28} p50 {ms:8.1f} ms  {mib:6.1f} MiB more")


def measure_install(rounds: int) -> None:
    """Once, however many rounds: what pip fetches is fetched."""
    with tempfile.TemporaryDirectory(prefix="paxosblock-") as name:
        folder = Path(name)
        pip = ("-m", "pip", "--quiet", "--disable-pip-version-check")
        run((sys.executable, *pip, "wheel", "--no-deps", "--wheel-dir", folder, REPOSITORY))
        (wheel,) = folder.glob("*.whl")
        (folder / "local").write_bytes(b"x")
        own = folder / "environment"
        python, paxosblock = own / "bin" / "python", own / "bin" / "paxosblock"
        steps: dict[str, tuple[str | Path, ...]] = {
            "python -m venv": (sys.executable, "-m", "venv", own),
            "pip install": (python, *pip, "install", "--no-cache-dir", wheel),
            "cluster up": (paxosblock, "cluster", "up", "--path", folder / "c", "--base-port", "0"),
            "fs put": (paxosblock, "fs", "put", folder / "local", "/first"),
        }
        namenodes, total_s = "", 0.0
        try:
            for step, command in steps.items():
                taken_s, out = run(command, PAXOSBLOCK_NAMENODES=namenodes)
                total_s += taken_s
                namenodes = out.rpartition("PAXOSBLOCK_NAMENODES=")[2].strip() or namenodes
                say(f"{step:<28} {taken_s:6.1f} s")
        finally:
            if paxosblock.exists():
                run((paxosblock, "cluster", "down", "--path", folder / "c"))
        say(f"{'the first byte is stored':<28} {total_s:6.1f} s")


PARTS: Final[dict[str, Callable[[int], None]]] = {
    "commands": measure_commands,
    "imports": measure_imports,
    "install": measure_install,
}


def main() -> None:
    """Print one line for each question."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20, help="runs of each command")
    parser.add_argument("--only", default=",".join(PARTS))
    options = parser.parse_args()
    say(f"{machine()}, {options.rounds} runs each")
    for part in options.only.split(","):
        say(f"-- {part}")
        PARTS[part](options.rounds)


if __name__ == "__main__":
    main()
