"""The units of systemd, in `deploy/systemd` and in docs/three-machines.md."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from paxosblock.cli.main import root


def units(repository: Path) -> Iterator[tuple[str, str]]:
    """Each unit by a file name for it."""
    for path in (repository / "deploy" / "systemd").iterdir():
        yield path.name, path.read_text()
    page = (repository / "docs" / "three-machines.md").read_text()
    for number, block in enumerate(re.findall(r"^```ini\n(.*?)^```$", page, re.M | re.S)):
        yield f"page-{number}.service", block


def test_there_is_a_unit_for_each_kind_of_node(repository: Path) -> None:
    found = dict(units(repository))
    assert len(found) == 4
    for name, unit in found.items():
        keys = set(re.findall(r"^(\w+)=", unit, re.M))
        wanted = {"After", "User", "ExecStart", "Restart", "LimitNOFILE", "WantedBy"}
        assert wanted <= keys, name
        assert "--new-cluster" not in unit


def test_each_unit_starts_a_command_that_takes_these_options(repository: Path) -> None:
    for name, unit in units(repository):
        line = unit.replace("\\\n", " ").partition("ExecStart=")[2].partition("\n")[0]
        _, node, *words = shlex.split(line)
        command = root.get_command(click.Context(root), node)
        assert command is not None, name
        known = {option for each in command.params for option in each.opts}
        assert [word for word in words if word.startswith("-") and word not in known] == [], name


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_finds_no_fault_in_a_unit(repository: Path, tmp_path: Path) -> None:
    for name, unit in units(repository):
        (tmp_path / name).write_text(unit.replace("/opt/paxosblock/bin/paxosblock", "/bin/true"))
        verify = ["systemd-analyze", "verify", str(tmp_path / name)]
        found = subprocess.run(verify, capture_output=True, text=True, check=False, timeout=60)
        assert (found.returncode, found.stderr) == (0, ""), name
