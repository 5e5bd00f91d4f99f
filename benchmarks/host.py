"""The machine: its description, its quiet disk, and the processor time of processes."""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os
import platform
import subprocess
import sys
import time
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Final

from benchmarks.interpreter import this_build
from benchmarks.record import Host
from paxosblock.base.units import KIB, MIB
from paxosblock.base.version import __version__

REPOSITORY: Final = Path(__file__).resolve().parents[1]
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
LIBRARIES: Final = ("aiohttp", "crc32c", "msgspec", "rocksdict", "uvloop")

QUIET_BYTES: Final = 4 * MIB
"""So many bytes may wait to be written on a quiet machine: logs of others always do."""
QUIET_SECTORS: Final = 256
"""So many sectors may be read and written between two looks."""
LOOK_EVERY_S: Final = 0.1


def progress(text: str) -> None:
    """Print a line on standard error, for the person who waits."""
    sys.stderr.write(f"  {text}\n")
    sys.stderr.flush()


def describe(folder: Path) -> Host:
    """Return the machine as it is now, and the file system of `folder`."""
    device, kind, options = _mount(folder)
    return Host(
        machine=f"{platform.machine()}, {_processor()}".removesuffix(", "),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=_memory()["MemTotal"],
        kernel=f"{platform.system()} {platform.release()}",
        folder_device=device,
        file_system=kind,
        mount_options=options,
        load=round(os.getloadavg()[0], 2),
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        versions={"paxosblock": _own_version(), "python": platform.python_version()} | _installed(),
        python_build=this_build().how,
    )


def _own_version() -> str:
    """Return the version, in a checkout with the revision, and a `+` when it was changed since.

    Without git it is the version alone, and a line on standard error says so.
    """
    if not (REPOSITORY / ".git").exists():
        return __version__
    describe = ("git", "describe", "--always", "--dirty=+", "--exclude=*")
    try:
        told = subprocess.run(describe, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        progress("git is not installed: the records lack the revision of this checkout")
        return __version__
    return f"{__version__} {told.stdout.strip()}".strip()


def _installed() -> dict[str, str]:
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # not every version of paxosblock needs each of them
            continue
    return found


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return ""


def _mount(folder: Path) -> tuple[str, str, str]:
    """Return device, kind and options of the file system that `folder` is in: proc(5)."""
    place, found = folder.resolve(), ("", "", "")
    longest = -1
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        device, point, kind, options, *_ = line.split()
        point = point.encode().decode("unicode_escape")
        if place.is_relative_to(point) and len(point) >= longest:
            longest, found = len(point), (device, kind, options)
    return found


def _memory() -> dict[str, int]:
    """Return the numbers of /proc/meminfo, in bytes."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    return {name: int(rest.split()[0]) * KIB for name, _, rest in (x.partition(":") for x in lines)}


# -- a quiet disk -------------------------------------------------------------------------------


async def quiet(within_s: float) -> bool:
    """Sync everything, and wait until nothing waits to be written and the disks stand still.

    Some disks discard deleted blocks for seconds afterwards, which makes a measurement meanwhile
    slower by half. Return False if it was not quiet `within_s`: the machine does something else.
    """
    await asyncio.to_thread(os.sync)
    end_s, moved = time.perf_counter() + within_s, _sectors()
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        before, moved = moved, _sectors()
        memory = _memory()
        waiting = memory["Dirty"] + memory["Writeback"]
        if waiting <= QUIET_BYTES and moved - before <= QUIET_SECTORS and not _under_way():
            return True
        if time.perf_counter() > end_s:
            return False


def _disks() -> list[list[int]]:
    """Return the fields of each disk behind its name: Documentation/admin-guide/iostats.rst."""
    lines = Path("/proc/diskstats").read_text(encoding="ascii").splitlines()
    return [[int(field) for field in line.split()[3:]] for line in lines]


def _sectors() -> int:
    """Return the sectors that were read, written and discarded since the machine began."""
    return sum(disk[2] + disk[6] + (disk[13] if len(disk) > 13 else 0) for disk in _disks())


def _under_way() -> int:
    return sum(disk[8] for disk in _disks())


# -- memory -------------------------------------------------------------------------------------


def touch_memory(most_bytes: int) -> None:
    """Take so much memory of the system, or a quarter of what there is, write to each page of it
    and give it back.

    A virtual machine gives free memory back to its host, and the first touch of a page that comes
    from there again takes 0.8 to 1.3 s of a processor for a GiB: on whom that falls would depend on
    who freed pages before. Afterwards free pages are at hand for the side that is measured next.
    """
    size_bytes = min(most_bytes, _memory()["MemAvailable"] // 4)
    with mmap.mmap(-1, size_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as room:
        for place in range(0, size_bytes, mmap.PAGESIZE):
            room[place] = 1


# -- processes ----------------------------------------------------------------------------------


def resident_bytes(pid: int | str = "self") -> int:
    """Return the resident memory of a process."""
    return _of_status(pid, "VmRSS") * KIB


def most_resident_bytes(pid: int | str = "self") -> int:
    """Return the most resident memory that a process has ever had."""
    return _of_status(pid, "VmHWM") * KIB


def _of_status(pid: int | str, name: str) -> int:
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        line = next(line for line in status if line.startswith(f"{name}:"))
    return int(line.split()[1])


def processor_s(pid: int | None = None) -> float:
    """Return the processor time that a process (None: this one) has used, user and system."""
    fields = _stat(pid or os.getpid())
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def processor_below_s(pid: int) -> float:
    """Return the processor time of all processes that one has started, and of those that these
    have: of those that run, and of those that have ended, once their parents know it."""
    stats = {}
    for number in map(int, filter(str.isdigit, os.listdir("/proc"))):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended just now
            stats[number] = _stat(number)

    def below(parent: int) -> int:
        ended = int(stats[parent][13]) + int(stats[parent][14])
        children = (child for child, fields in stats.items() if int(fields[1]) == parent)
        own = (int(stats[child][11]) + int(stats[child][12]) + below(child) for child in children)
        return ended + sum(own)

    return below(pid) / TICKS_PER_S


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat behind the name, the state first: proc(5)."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
