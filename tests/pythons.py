"""Installs a wheel on each Python that is named and can be had, and tries it: `make test-pythons`.

    python -m tests.pythons python3.11 python3.12 ...

Those of pyenv are at hand, too. Each gets an environment of its own with the wheel that an index
gets and nothing else, and writes and reads a file in a cluster of one NameNode and of three. Exit
code 1 when one fails, or when none is here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
LONGEST_S = 300

TRIAL = """
from paxosblock import Client, LocalCluster
for namenodes in (1, 3):
    with LocalCluster(namenodes=namenodes) as cluster, Client(cluster.url) as fs:
        with fs.create("/tried") as out:
            out.write(bytes(range(256)) * 4096)
            out.hflush()
            cluster.datanodes[0].kill()
            out.write(b"the end")
        with fs.open("/tried") as file:
            data = file.read()
        assert data == bytes(range(256)) * 4096 + b"the end", len(data)
"""


def main(names: list[str]) -> int:
    """Try each; return the exit code."""
    if pyenv := shutil.which("pyenv"):  # it has names for all, which start once they are selected
        versions = subprocess.run([pyenv, "versions", "--bare"], capture_output=True, check=False)
        os.environ["PYENV_VERSION"] = ":".join(versions.stdout.decode().split())
    found = {name: path for name in names if (path := shutil.which(name)) and _starts(path)}
    for name in sorted(set(names) - set(found)):
        _tell(f"{name}: not on this machine")
    with tempfile.TemporaryDirectory(prefix="paxosblock-") as folder:
        os.environ["RAFTOS"] = sysconfig.get_path("purelib")
        _run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", folder, REPOSITORY)
        (wheel,) = Path(folder).glob("*.whl")
        failed = [name for name, path in found.items() if not _tried(name, path, wheel)]
    return 1 if failed or not found else 0


def _starts(python: str) -> bool:
    """True if it is one: a version manager may have a name for one that it has not."""
    return subprocess.run([python, "-V"], capture_output=True, check=False).returncode == 0


def _tried(name: str, python: str, wheel: Path) -> bool:
    started = time.monotonic()
    own = wheel.parent / Path(name).name
    try:
        _run(python, "-m", "venv", own)
        _run(own / "bin" / "python", "-m", "pip", "install", "--quiet", wheel)
        _run(own / "bin" / "python", "-m", "pip", "check")
        _run(own / "bin" / "python", "-c", TRIAL, cwd=own)  # the checkout has the package, too
    except subprocess.CalledProcessError as error:
        _tell(f"{name}: FAILED: {error}\n{error.stderr}")
        return False
    _tell(f"{name}: works, in {time.monotonic() - started:.0f} s")
    return True


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _run(*command: str | Path, cwd: Path = REPOSITORY) -> None:
    subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        check=True,
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
