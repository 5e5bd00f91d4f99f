"""Runs suites of others at a gateway and at HDFS's own WebHDFS, and compares:

    python -m tests.outside.webhdfs [hadoop] [hdfscli]

What passes at HDFS must pass here, but what `differences.py` names with a reason. Needs Java, Maven
and the registries; everything is kept in build/webhdfs-suites. Exit code 1 if a test differs.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paxosblock.host.user import current_user
from tests.outside.webhdfs.differences import BY_TIME, HADOOP, HDFSCLI, Difference
from tests.outside.webhdfs.servers import FOLDER, HERE, LONGEST_S, build, gateway, hdfs, java
from tests.outside.webhdfs.verdicts import Verdicts, complaints, counted, read_junit, read_lines

VERSION_OF_HDFSCLI: Final = "2.7.3"


def hadoop(address: str, folder: Path) -> Verdicts:
    """Run Hadoop's tests of a file system."""
    results = folder / "results"
    with (folder / "suite.log").open("wb") as log:
        run = java(address, results)
        subprocess.run(run, stdout=log, stderr=log, cwd=folder, check=True, timeout=LONGEST_S)
    return read_lines(results)


def hdfscli(address: str, folder: Path) -> Verdicts:
    """Run HdfsCLI's tests of its client, from its archive at the index."""
    python, sources = _hdfscli_of_the_index()
    results = folder / "results"
    settings = {"HDFSCLI_TEST_URL": f"http://{address}", "HDFSCLI_TEST_USER": current_user()}
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull]
    where = [f"--junitxml={results}", f"--rootdir={sources}", str(sources / "test/test_client.py")]
    with (folder / "suite.log").open("wb") as log:
        done = subprocess.run(
            [*command, *where],
            stdout=log,
            stderr=log,
            cwd=sources,
            env=os.environ | settings | {"PYTHONPATH": str(sources)},
            check=False,
            timeout=LONGEST_S,
        )
    if done.returncode not in (0, 1):  # 1: some failed
        sys.exit((folder / "suite.log").read_text())
    return read_junit(results)


def _hdfscli_of_the_index() -> tuple[Path, Path]:
    """Return a Python that has what the tests need, and the folder of the tests."""
    folder, sources = FOLDER / "hdfscli", FOLDER / f"hdfscli/hdfs-{VERSION_OF_HDFSCLI}"
    python = folder / "venv/bin/python"
    if not (sources / "test/util.py").exists():
        venv.create(folder / "venv", with_pip=True, clear=True)
        pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check"]
        wanted = ["docopt", "requests", "six", "pytest", "setuptools<81"]  # 81 has no pkg_resources
        archive = ["--no-deps", "--no-binary", ":all:", f"hdfs=={VERSION_OF_HDFSCLI}"]
        for step in ([*pip, "install", *wanted], [*pip, "download", "-d", str(folder), *archive]):
            subprocess.run(step, check=True, timeout=LONGEST_S)
        unpack = ["tar", "xzf", f"hdfs-{VERSION_OF_HDFSCLI}.tar.gz"]
        subprocess.run(unpack, cwd=folder, check=True, timeout=LONGEST_S)
        (sources / "test/__init__.py").touch()
        (sources / "test/util.py").write_text((HERE / "hdfscli_base.py").read_text())
    return python, sources


@dataclass(frozen=True, slots=True)
class Suite:
    """A suite of others."""

    run: Callable[[str, Path], Verdicts]
    on_purpose: tuple[Difference, ...]


SUITES: Final = {"hadoop": Suite(hadoop, HADOOP), "hdfscli": Suite(hdfscli, HDFSCLI)}
SERVERS: Final = {"gateway": gateway, "hdfs": hdfs}


def compared(name: str, only: str) -> bool:
    """Run a suite at both servers; True if nothing differs that should not."""
    suite, verdicts = SUITES[name], {}
    for server, serve in SERVERS.items():
        if only and server != only:
            continue
        with tempfile.TemporaryDirectory(prefix="paxosblock-") as scratch:
            folder, begun = Path(scratch), time.monotonic()
            with contextlib.ExitStack() as stack:
                address = stack.enter_context(serve(folder))
                verdicts[server] = suite.run(address, folder)
            took = time.monotonic() - begun
        _tell(f"{name} at {server}: {counted(verdicts[server])}, in {took:.0f} s")
        lines = [f"{one.word}\t{test}\t{one.why}" for test, one in sorted(verdicts[server].items())]
        (FOLDER / f"{name}-{server}.tsv").write_text("\n".join(lines) + "\n")
    if only:
        return True
    on_purpose = {test: each.why for each in suite.on_purpose for test in each.tests}
    theirs = {test: end for test, end in verdicts["hdfs"].items() if test not in BY_TIME}
    found = list(complaints(verdicts["gateway"], theirs, on_purpose))
    for complaint in found:
        _tell(complaint)
    return not found


def main() -> int:
    """Run the suites that are named; return the exit code."""
    words = argparse.ArgumentParser(prog="python -m tests.outside.webhdfs")
    words.add_argument("suites", nargs="*", help=f"some of {', '.join(SUITES)}; else all")
    words.add_argument("--only", choices=SERVERS, default="", help="one server, and no comparison")
    chosen = words.parse_args()
    if unknown := set(chosen.suites) - SUITES.keys():
        words.error(f"no suite is named {sorted(unknown)[0]!r}")
    build()
    ends = [compared(name, chosen.only) for name in chosen.suites or SUITES]
    return 0 if all(ends) else 1


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
