"""The time until something happens, as a user waits for it, in new processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Final

from benchmarks.suite import Bench, SkipError, case
from paxosblock.local.cluster import LocalCluster

REPOSITORY: Final = Path(__file__).resolve().parents[2]
GOALS_MS: Final = {"--help": 150, "fs --help": 150, "fs ls /": 300, "fs cat /d/a": 130}
INTERRUPTS: Final = 240
INTERRUPTED_FOR_S: Final = 0.06
INTERPRETER: Final = "python -c pass"

_NOT_USUAL: Final = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHONDEVMODE")

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
"""Prints milliseconds and MiB: at the start, after the import, after a first and a second call."""


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


@case("commands")
async def measure_commands(bench: Bench) -> None:
    """How long does each verb take, from its start to its end?

    The limit is the bare interpreter in the same round. One round before warms the file cache.
    """
    cluster = await bench.cluster()
    with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
        asked = await asyncio.to_thread(_questions, cluster, Path(folder), bench.options.small)
        for number in bench.rounds if bench.options.small else (0, *bench.rounds):
            await bench.quiet()
            taken = {
                name: (await asyncio.to_thread(run, command))[0] * 1e3
                for name, command in asked.items()
            }
            bare = taken.pop(INTERPRETER)
            for name, each in taken.items() if number else ():
                bench.emit(name, each, "ms", number, limit=bare, goal=GOALS_MS.get(name))


def _questions(
    cluster: LocalCluster, folder: Path, small: bool
) -> dict[str, tuple[str | Path, ...]]:
    local = folder / "local"
    local.write_bytes(bytes(1024))
    cli = (sys.executable, "-m", "paxosblock", "--namenodes", ",".join(cluster.addresses))
    asked: dict[str, tuple[str | Path, ...]] = {INTERPRETER: (sys.executable, "-c", "pass")}
    for words in list(commands(local))[: 3 if small else None]:
        name = " ".join(word.replace(f"{folder}/", "") for word in words)
        asked[name] = (*cli, *words) if words[-1] != "--help" else (*cli[:3], *words)
    return asked


@case("ctrl-c")
async def measure_interrupts(bench: Bench) -> None:
    """How many Ctrl-Cs in the first 60 ms of a command make it print something, and who prints?

    One new process each quarter of a millisecond. Until the first statement of the script is done
    Python starts, and prints what it likes; behind that nothing may be printed.
    """
    script = REPOSITORY / "bin" / "paxosblock"
    if not script.exists():
        raise SkipError("it starts the script of a checkout")
    moments = 8 if bench.options.small else INTERRUPTS
    command = (sys.executable, script, "fs", "ls", "/")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        raise SkipError("a job in the background ignores Ctrl-C, and so does what it starts")
    for number in bench.rounds:
        printers = Counter(
            [
                await asyncio.to_thread(_interrupted, command, INTERRUPTED_FOR_S * each / moments)
                for each in range(moments)
            ]
        )
        for who, goal in ((Printer.PYTHON, None), (Printer.COMMAND, 0)):
            bench.emit(f"printed by {who.value}", printers[who], f"of {moments}", number, goal=goal)


class Printer(Enum):
    """Tells who printed something as a command was interrupted."""

    NOBODY = "nobody"
    PYTHON = "Python's start"
    COMMAND = "the command"


def _interrupted(command: Sequence[str | Path], after_s: float) -> Printer:
    """Start a command, press Ctrl-C `after_s` later, and return who printed something."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        due_s = time.perf_counter() + after_s
        while time.perf_counter() < due_s:
            pass  # no sleep is as short
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate()
    if not printed:
        return Printer.NOBODY
    # A frame of the script itself is at its end only while its first statement is not done.
    starting = "KeyboardInterrupt" in printed and f"{REPOSITORY / 'paxosblock'}" not in printed
    return Printer.PYTHON if starting else Printer.COMMAND


@case("imports")
async def measure_imports(bench: Bench) -> None:
    """What do `import paxosblock` and the first calls of a `Client` take, in time and memory?"""
    cluster = await bench.cluster()
    command = (sys.executable, "-c", PROGRAM, cluster.url)
    for number in bench.rounds if bench.options.small else (0, *bench.rounds):
        seen = list(map(float, (await asyncio.to_thread(run, command))[1].split()))
        steps = ("import paxosblock", "a first call of a Client", "a second call")
        for place, name in enumerate(steps if number else ()):
            ms, mib = (seen[2 * place + 2 + which] - seen[2 * place + which] for which in (0, 1))
            bench.emit(name, ms, "ms", number)
            bench.emit(name, mib, "MiB", number, limit=seen[1])


@case("install", usual=False)
async def measure_install(bench: Bench) -> None:
    """How long is it from an empty environment to the first byte on the disks of three DataNodes?

    pip with an empty cache, from its index; `cluster up`; `fs put`. The wheel is made before.
    """
    if not (REPOSITORY / "pyproject.toml").exists():
        raise SkipError("it makes a wheel, and this is no checkout")
    for number in bench.rounds:
        steps = await asyncio.to_thread(_install, bench.folder / f"install-{number}")
        for step, seconds in (*steps.items(), ("the first byte is stored", sum(steps.values()))):
            bench.emit(step, seconds, "s", number)


def _install(folder: Path) -> dict[str, float]:
    """Return the seconds of each step. Raises SkipError: pip cannot fetch what is needed."""
    folder.mkdir()
    pip = ("-m", "pip", "--quiet", "--disable-pip-version-check")
    own = folder / "environment"
    python, paxosblock = own / "bin" / "python", own / "bin" / "paxosblock"
    spent, namenodes = {}, ""
    try:
        run((sys.executable, *pip, "wheel", "--no-deps", "--wheel-dir", folder, REPOSITORY))
        (wheel,) = folder.glob("*.whl")
        (folder / "local").write_bytes(b"x")
        steps: dict[str, tuple[str | Path, ...]] = {
            "python -m venv": (sys.executable, "-m", "venv", own),
            "pip install": (python, *pip, "install", "--no-cache-dir", wheel),
            "cluster up": (paxosblock, "cluster", "up", "--path", folder / "c", "--base-port", "0"),
            "fs put": (paxosblock, "fs", "put", folder / "local", "/first"),
        }
        for step, command in steps.items():
            spent[step], out = run(command, PAXOSBLOCK_NAMENODES=namenodes)
            namenodes = out.rpartition("PAXOSBLOCK_NAMENODES=")[2].strip() or namenodes
    except subprocess.CalledProcessError as error:
        raise SkipError(f"`{' '.join(map(str, error.cmd[:4]))} ...` failed") from error
    finally:
        if paxosblock.exists():
            run((paxosblock, "cluster", "down", "--path", folder / "c"))
    return spent
