"""`paxosblock setup completion` and `man`: what is written is what a shell and `man` can use."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from paxosblock.cli import main as command_line
from tests.cli.conftest import Paxosblock
from tests.cli.test_usage import ALL_GROUPS, ALL_VERBS


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a user who has set no other folders."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in ("XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


def test_bash_completes_what_the_written_script_tells_it(
    paxosblock: Paxosblock, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHELL", "/bin/bash")
    result = paxosblock("setup", "completion", "--json")
    target = home / ".local/share/bash-completion/completions/paxosblock"
    assert json.loads(result.out) == {"shell": "bash", "file": str(target)}
    (home / "bin").mkdir()
    (home / "bin/paxosblock").write_text(f'#!/bin/sh\nexec {sys.executable} -m paxosblock "$@"\n')
    (home / "bin/paxosblock").chmod(0o755)
    script = (
        f"source {target}; COMP_WORDS=(paxosblock fs mk); COMP_CWORD=2;"
        "_paxosblock_completion paxosblock; echo ${COMPREPLY[@]}"
    )
    path = f"{home / 'bin'}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "PYTHONPATH": os.pathsep.join(sys.path)}
    completed = subprocess.run(
        ["bash", "-c", script], env=environment, check=True, capture_output=True, text=True
    )
    assert completed.stdout == "mkdir\n"


@pytest.mark.parametrize(
    ("shell", "file", "beginning"),
    [
        ("zsh", ".local/share/zsh/site-functions/_paxosblock", "#compdef paxosblock"),
        ("fish", ".config/fish/completions/paxosblock.fish", "function _paxosblock_completion"),
    ],
)
def test_other_shells_find_their_script_where_they_look(
    paxosblock: Paxosblock, home: Path, shell: str, file: str, beginning: str
) -> None:
    assert paxosblock("setup", "completion", shell).code == 0
    assert (home / file).read_text().startswith(beginning)
    assert paxosblock("setup", "completion", shell, "--print").out.startswith(beginning)


def test_a_shell_that_nobody_knows_is_told(
    paxosblock: Paxosblock, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    result = paxosblock("setup", "completion")
    assert result.code == 2
    assert result.err.startswith("completion: Which shell? One of bash, zsh, fish.")
    assert list(home.iterdir()) == []


def test_every_command_has_a_manual_page_with_the_text_of_its_help(
    paxosblock: Paxosblock, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert paxosblock("setup", "man").code == 0
    folder = home / ".local/share/man/man1"
    pages = {page.name for page in folder.iterdir()}
    commands = {("paxosblock", *words) for words in (*ALL_GROUPS, *ALL_VERBS)}
    assert {f"{'-'.join(words)}.1" for words in commands} <= pages
    shown = (folder / "paxosblock-fs-ls.1").read_text()
    assert ".SH SYNOPSIS\n" in shown
    assert "\\fB\\-R\\fR\nList directories below, too.\n" in shown
    overview = (folder / "paxosblock.1").read_text()
    assert [name for name in command_line.root.entries if f"\\fB{name}\\fR" not in overview] == []


@pytest.mark.skipif(shutil.which("man") is None, reason="there is no man here")
@pytest.mark.parametrize("where", ["home", "environment", "nowhere"])
def test_man_finds_the_pages_as_the_line_says(
    where: str, paxosblock: Paxosblock, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = home / "environment"
    monkeypatch.setattr(sys, "prefix", str(environment))
    for beside in (home / ".local", environment):
        (beside / "bin").mkdir(parents=True)
    first = {"home": f"{home}/.local/bin:", "environment": f"{environment}/bin:", "nowhere": ""}
    monkeypatch.setenv("PATH", first[where] + "/usr/bin:/bin")
    monkeypatch.delenv("MANPATH", raising=False)
    said = paxosblock("setup", "man")
    assert said.code == 0
    tried = said.out.strip().partition("; try: ")[2].replace("man paxosblock", "man -w paxosblock")
    found = subprocess.run(["bash", "-c", tried], capture_output=True, text=True, check=True)
    assert found.stdout.startswith(f"{home}/")


@pytest.mark.skipif(shutil.which("man") is None, reason="there is no man here")
def test_man_reads_every_page_without_a_warning(paxosblock: Paxosblock, tmp_path: Path) -> None:
    assert paxosblock("setup", "man", "--to", tmp_path).code == 0
    for page in tmp_path.iterdir():
        command = ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", str(page)]
        assert subprocess.run(command, check=True, capture_output=True).stderr == b""


def test_a_folder_that_cannot_be_written_is_one_line(
    paxosblock: Paxosblock, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    result = paxosblock("setup", "man", "--to", tmp_path / "file" / "below")
    assert result.code == 1
    assert result.err.startswith(f"man: '{tmp_path}/file/below/paxosblock.1': ")
