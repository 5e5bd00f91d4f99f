"""Runs suites of others at a gateway and at HDFS's own WebHDFS, and compares:

    python -m tests.outside.webhdfs [hadoop] [hdfscli] [hdfscli-two]

What passes at HDFS must pass here, but what `differences.py` names with a reason. Needs Java, Maven
and the registries; everything is kept in build/webhdfs-suites. Exit code 1 if a test differs.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

from paxosblock.host.user import current_user
from tests.outside.comparison import Comparison, Suite
from tests.outside.verdicts import Verdicts, read_junit, read_lines
from tests.outside.webhdfs.differences import BY_TIME, HADOOP, HDFSCLI
from tests.outside.webhdfs.servers import FOLDER, HERE, LONGEST_S, build, gateway, hdfs, java

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
    return _hdfscli_at(f"http://{address}", folder)


def hdfscli_of_two(address: str, folder: Path) -> Verdicts:
    """Run them with the addresses of two servers, the first of which is dead."""
    with socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))  # nothing listens there
        return _hdfscli_at(f"http://127.0.0.1:{dead.getsockname()[1]};http://{address}", folder)


def _hdfscli_at(url: str, folder: Path) -> Verdicts:
    python, sources = _hdfscli_of_the_index()
    results = folder / "results"
    settings = {"HDFSCLI_TEST_URL": url, "HDFSCLI_TEST_USER": current_user()}
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


COMPARISON: Final = Comparison(
    "tests.outside.webhdfs",
    {
        "hadoop": Suite(hadoop, HADOOP),
        "hdfscli": Suite(hdfscli, HDFSCLI),
        "hdfscli-two": Suite(hdfscli_of_two, HDFSCLI),
    },
    ("gateway", gateway),
    ("hdfs", hdfs),
    FOLDER,
    BY_TIME,
)


if __name__ == "__main__":
    sys.exit(COMPARISON.run(build))
