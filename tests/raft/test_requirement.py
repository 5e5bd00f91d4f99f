"""raftos is asked for in one line, and only where it is needed."""

from __future__ import annotations

import ast
import importlib.metadata
import tomllib
from pathlib import Path

import pytest

from paxosblock.errors import ConfigError
from paxosblock.namenode.raft.options import RAFTOS, check_raftos

KNOW_RAFTOS = {"contract.py", "state.py", "roles.py", "leader.py", "raft_node.py"}


def test_the_version_that_is_installed_here_is_accepted() -> None:
    check_raftos()
    assert importlib.metadata.version("raftos") == RAFTOS


def test_without_raftos_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    with pytest.raises(
        ConfigError, match=r"^[^\n]*raftos 0\.2\.6[^\n]*; run: paxosblock setup raft$"
    ):
        check_raftos()


def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.2.7")
    with pytest.raises(
        ConfigError, match=r"needs raftos 0\.2\.6, not 0\.2\.7; run: paxosblock setup raft$"
    ):
        check_raftos()


def test_only_the_roles_and_what_they_read_import_raftos(repository: Path) -> None:
    importing = set()
    for path in (repository / "paxosblock" / "namenode").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom | ast.Import) and "raftos" in ast.unparse(node):
                names = [alias.name for alias in node.names]
                module = node.module if isinstance(node, ast.ImportFrom) else names[0]
                if module is not None and module.partition(".")[0] == "raftos":
                    importing.add(path.name)
    assert importing == KNOW_RAFTOS


def test_the_distribution_does_not_name_raftos(repository: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"].values()
    named = [*project["project"]["dependencies"], *(each for extra in extras for each in extra)]
    assert [each for each in named if "raftos" in each] == []
    assert project["dependency-groups"]["namenode"] == [f"raftos=={RAFTOS}"]
