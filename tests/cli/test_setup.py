"""`paxosblock setup raft`, with a real pip in an environment that lacks raftos."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from paxosblock.namenode.raft.options import RAFTOS
from tests.cli.conftest import Paxosblock

LACKING = "raftos"


@dataclass(frozen=True)
class Environment:
    """A Python that has all that this one has, but for raftos."""

    python: Path
    variables: dict[str, str]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.python, "-m", "paxosblock", *arguments],
            env=self.variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=250,
        )


@pytest.fixture
def environment(tmp_path: Path, repository: Path) -> Environment:
    venv.create(tmp_path / "venv")
    shared, wheels = tmp_path / "shared", tmp_path / "wheels"
    shared.mkdir()
    for folder in (Path(each) for each in sys.path if each.endswith("site-packages")):
        for entry in folder.iterdir():
            if not entry.name.startswith(LACKING) and not (shared / entry.name).exists():
                (shared / entry.name).symlink_to(entry)
    wheels.mkdir()
    packed(LACKING, wheels)
    variables = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": f"{repository}:{shared}",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
    }
    return Environment(tmp_path / "venv" / "bin" / "python", variables)


def packed(name: str, folder: Path) -> None:
    """Make a wheel of a distribution that is installed here."""
    there = importlib.metadata.distribution(name)
    with zipfile.ZipFile(folder / f"{name}-{there.version}-py3-none-any.whl", "w") as wheel:
        for file in there.files or ():
            if file.suffix != ".pyc" and ".." not in file.parts:
                wheel.write(str(file.locate()), str(file))


def test_one_command_makes_several_namenodes_possible(
    environment: Environment, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("not to be guessed, and long enough for a key of a cluster")
    secret.chmod(0o600)
    peers = "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"
    node = ("namenode", "--path", str(tmp_path / "node"), "--listen", "127.0.0.1:1")
    several = (*node, "--peers", peers, "--secret-file", str(secret))
    refused = environment.run(*several)
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1].endswith("; run: paxosblock setup raft")

    unasked = environment.run("setup", "raft")
    assert unasked.returncode == 2
    assert f"-m pip install --no-deps raftos=={RAFTOS}\n" in unasked.stderr
    assert "add --yes" in unasked.stderr

    done = environment.run("setup", "raft", "--yes")
    assert (done.returncode, done.stdout) == (
        0,
        f"raftos {RAFTOS} is installed: NameNodes can run\n",
    )
    assert "setup raft" not in environment.run(*several).stderr


def test_a_pip_that_fails_is_told_with_what_was_run(environment: Environment) -> None:
    environment.variables["PIP_FIND_LINKS"] = str(environment.python.parent)
    failed = environment.run("setup", "raft", "--yes")
    assert failed.returncode == 1
    assert "raft: 'raft': failed: " in failed.stderr.splitlines()[-1]


def test_where_it_is_installed_nothing_is_run(paxosblock: Paxosblock) -> None:
    result = paxosblock("setup", "raft")
    assert (result.code, result.err) == (0, "")
    assert result.out == f"raftos {RAFTOS} is installed: NameNodes can run\n"
