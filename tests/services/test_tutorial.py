"""docs/tutorial.md, run as a newcomer would: every block, in one shell, in order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.plain("the page tells of a plain cluster")

QUICK = {
    "PAXOSBLOCK_NAMENODE_DATANODE_STALE_AFTER": "1s",
    "PAXOSBLOCK_NAMENODE_DATANODE_DEAD_AFTER": "2s",
    "PAXOSBLOCK_NAMENODE_REPLICATE_AFTER": "1s",
    "PAXOSBLOCK_NAMENODE_SAFE_MODE_EXTENSION": "0s",
}
"""A newcomer waits for 45 seconds; what happens then is the same."""
ANYTHING = r"(?:.*\n)*"
END = "-- the end of a command --"


@dataclass(frozen=True)
class Step:
    """A command or a program of the page, and what it prints as far as that is shown."""

    line: int
    source: str
    output: tuple[str, ...] = ()
    python: bool = False


def steps(page: str) -> Iterator[Step]:
    """Read the fenced blocks: each line with a prompt is a command, what follows its output."""
    for block in re.finditer(r"^```(console|python)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        line = page.count("\n", 0, block.start()) + 2
        if block[1] == "python":
            yield Step(line, block[2], python=True)
            continue
        for command in re.split(r"^\$ ", block[2], flags=re.MULTILINE)[1:]:
            source, *output = command.splitlines()
            yield Step(line, source, tuple(output))


def pattern(shown: tuple[str, ...]) -> str:
    """Return what matches the output that a page shows: `...` is anything, alone on a line any
    number of lines; columns may be wider."""
    return "".join(ANYTHING if line == "..." else _line(line) for line in shown)


def _line(shown: str) -> str:
    words = (re.escape(word).replace(r"\.\.\.", ".*") for word in shown.split())
    return r"\s*" + r"\s+".join(words) + r"\s*\n"


class Shell:
    """One shell, as a newcomer keeps it open."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, source: str) -> str:
        """Run a command and return what it printed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{source}\necho '{END}'\n")
        self._process.stdin.flush()
        lines = list(iter(self._process.stdout.readline, f"{END}\n"))
        return "".join(lines)

    def close(self) -> None:
        """Leave it."""
        self._process.communicate()


@pytest.fixture
def shell(tmp_path: Path, repository: Path) -> Iterator[Shell]:
    (tmp_path / "bin").mkdir()
    for name, command in (("paxosblock", "-m paxosblock"), ("python", "")):
        script = tmp_path / "bin" / name
        script.write_text(f'#!/bin/sh\nexec {sys.executable} {command} "$@"\n')
        script.chmod(0o755)
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    shell = Shell(tmp_path, os.environ | QUICK | {"PATH": path, "PYTHONPATH": str(repository)})
    yield shell
    shell.run("paxosblock cluster down")
    shell.close()


def test_every_block_of_the_tutorial_does_what_the_page_says(
    shell: Shell, repository: Path, tmp_path: Path
) -> None:
    page = (repository / "docs" / "tutorial.md").read_text(encoding="utf-8")
    found = list(steps(page))
    assert len(found) > 15
    for step in found:
        source = step.source
        if step.python:
            (tmp_path / "step.py").write_text(source)
            source = "python step.py"
        # A newcomer's ports are free; a test's may be another process's.
        source = source.replace("cluster up", "cluster up --base-port 0")
        # On a busy machine commands also say what they wait for.
        printed = re.sub(r"^\w+: waiting: .*\n", "", shell.run(source), flags=re.MULTILINE)
        assert re.fullmatch(pattern(step.output), printed), (
            f"docs/tutorial.md, block at line {step.line}: {step.source}\nprinted:\n{printed}"
        )


def test_the_tutorial_installs_what_its_programs_import(repository: Path) -> None:
    page = (repository / "docs" / "tutorial.md").read_text(encoding="utf-8")
    programs = "\n".join(step.source for step in steps(page) if step.python)
    imported = set(re.findall(r"^(?:import|from) (\w+)", programs, re.MULTILINE)) - {"paxosblock"}
    needed = imported | ({"pyarrow"} if "parquet" in programs else set())
    installs = re.findall(r"`pip install ([^`]+)`", page)
    assert len(installs) == 2
    for line in installs:
        assert needed <= set(line.split()) - {"paxosblock"}, line
        assert "[fsspec]" in line
