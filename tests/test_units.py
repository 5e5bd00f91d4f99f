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

from paxosblock.cli.main import root, run
from paxosblock.config import NameNodeConfig, load_config
from paxosblock.host.user import current_user


def units(repository: Path) -> Iterator[tuple[str, str]]:
    """Each unit by a file name for it."""
    for path in (repository / "deploy" / "systemd").iterdir():
        yield path.name, path.read_text()
    page = (repository / "docs" / "three-machines.md").read_text()
    for number, block in enumerate(re.findall(r"^```ini\n(.*?)^```$", page, re.M | re.S)):
        yield f"page-{number}.service", block


def test_there_is_a_unit_for_each_kind_of_node(repository: Path) -> None:
    found = dict(units(repository))
    assert len(found) == 5
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


def setup(tmp_path: Path, role: str, *more: str) -> int:
    user = current_user()
    node = ("setup", "node", role, "--user", user, "--etc", str(tmp_path / "etc"))
    return run([*node, "--units", str(tmp_path / "units"), *more])


NODES = {
    "namenode": ("--listen", "nn1:9870", "--namenodes", "nn1:9870,nn2:9870,nn3:9870"),
    "datanode": ("--listen", "nn1:9864", "--namenodes", "nn1:9870,nn2:9870,nn3:9870"),
}


@pytest.mark.parametrize("role", [*NODES])
def test_setup_node_writes_what_the_repository_has_and_overwrites_nothing(
    role: str, tmp_path: Path, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "disk" / "node"
    words = (*NODES[role], "--path", str(folder))
    assert setup(tmp_path, role, *words) == 0
    told = capsys.readouterr().out
    assert f"next: systemctl enable --now paxosblock-{role}\n" in told
    assert ("--new-cluster" in told) is (role == "namenode")
    assert folder.stat().st_mode & 0o777 == 0o700
    settings = tmp_path / "etc" / f"{role}.toml"
    assert load_config(NameNodeConfig, settings, {}) == NameNodeConfig()
    file = tmp_path / "units" / f"paxosblock-{role}.service"
    unit = file.read_text()
    assert "--new-cluster" not in unit
    for line in (repository / "deploy" / "systemd" / file.name).read_text().splitlines():
        key = line.partition("=")[0]
        if key in {"ProtectSystem", "LimitNOFILE", "TimeoutStopSec", "Restart", "Description"}:
            assert line in unit.splitlines()
        assert key.startswith(("#", " ")) or f"{key}" in unit, line
    written = shlex.split(unit.partition("ExecStart=")[2].partition("Restart=")[0])
    command = root.get_command(click.Context(root), role)
    assert command is not None
    found = command.make_context(role, [word for word in written[2:] if word != "\n"]).params
    assert found["listen"] == NODES[role][1]
    assert found["config"] == settings
    # Again, with settings and a folder that are in use: both stay.
    settings.write_text(f"[{role}]\nlog_format = 'json'\n")
    (folder / "used").touch()
    assert setup(tmp_path, role, *words) == 0
    assert "json" in settings.read_text()
    assert file.read_text() == unit
    # A unit that is another is refused, and nothing is written.
    other = tmp_path / "other"
    assert setup(tmp_path, role, *NODES[role], "--path", str(other)) == 1
    assert f"'{file}': it is there already, and is another" in capsys.readouterr().err
    assert not other.exists()
    assert file.read_text() == unit


def test_setup_node_names_a_user_that_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--user", "no-such-user", *NODES["datanode"], "--path", str(tmp_path / "dn"))
    assert setup(tmp_path, "datanode", *words) == 1
    assert "there is no such user of this machine: useradd" in capsys.readouterr().err
    assert not any(tmp_path.iterdir())


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_finds_no_fault_in_a_unit(repository: Path, tmp_path: Path) -> None:
    for name, unit in units(repository):
        (tmp_path / name).write_text(unit.replace("/opt/paxosblock/bin/paxosblock", "/bin/true"))
        verify = ["systemd-analyze", "verify", str(tmp_path / name)]
        found = subprocess.run(verify, capture_output=True, text=True, check=False, timeout=60)
        assert (found.returncode, found.stderr) == (0, ""), name
