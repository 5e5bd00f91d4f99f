"""The layout: one import package, links to its roles at the root, and a facade that stays light."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import paxosblock

ROLES = ("client", "datanode", "namenode")
SIDE_BY_SIDE = "paxosblock.cli"
"""A room of verbs, which have no order."""


@pytest.fixture(scope="module")
def project(repository: Path) -> dict[str, Any]:
    return tomllib.loads((repository / "pyproject.toml").read_text())


def packages_on_disk(repository: Path) -> Iterator[str]:
    for top in ("paxosblock", "pyspark_paxosblock"):
        for init in (repository / top).rglob("__init__.py"):
            yield ".".join(init.parent.relative_to(repository).parts)


def imported_by(statement: str) -> set[str]:
    """Top-level modules in memory after `statement` ran in a fresh interpreter."""
    program = f"{statement}\nimport sys; print(*{{name.partition('.')[0] for name in sys.modules}})"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    return set(run.stdout.split())


def test_who_only_reads_imports_nothing_that_writes_and_no_version_of_anything() -> None:
    """Together that would be a sixth of the modules that a command loads."""
    program = "import paxosblock.client.blocking.sync, sys; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    needless = {"importlib.metadata", "paxosblock.client.names.truncating"}
    writing = ("block_writer", "file_writer", "failures")
    needless |= {f"paxosblock.client.writing.{name}" for name in writing}
    assert not needless & set(run.stdout.split())


@pytest.mark.parametrize("role", ROLES)
def test_a_role_is_found_at_the_root_by_a_link_that_nothing_needs(
    role: str, repository: Path
) -> None:
    assert (repository / role).readlink() == Path("paxosblock") / role
    assert not (repository / "paxosblock" / role).is_symlink()


def test_an_install_maps_no_folder_so_that_every_tool_sees_a_file_once(
    repository: Path, project: dict[str, Any]
) -> None:
    """One folder above all packages: an editable install is a line in a `.pth` file."""
    assert project["tool"]["setuptools"]["package-dir"] == {"": "."}
    packages = project["tool"]["setuptools"]["packages"]
    assert [name for name in packages if (repository / name.replace(".", "/")).is_symlink()] == []


def test_the_list_of_packages_is_what_is_on_disk(repository: Path, project: dict[str, Any]) -> None:
    listed = project["tool"]["setuptools"]["packages"]
    assert sorted(listed) == sorted(set(packages_on_disk(repository)))


def test_every_room_has_layers_in_which_a_new_module_must_find_its_place(
    repository: Path, project: dict[str, Any]
) -> None:
    layered = {
        room
        for contract in project["tool"]["importlinter"]["contracts"]
        if contract["type"] == "layers" and contract["exhaustive"]
        for room in contract["containers"]
    }
    rooms = {name for name in packages_on_disk(repository) if name.startswith("paxosblock")}
    assert {room for room in rooms - layered if room != SIDE_BY_SIDE} == set()


def test_every_folder_with_code_is_a_package(repository: Path) -> None:
    folders = {
        module.parent
        for top in ("paxosblock", "pyspark_paxosblock", "tests", "examples", "benchmarks")
        for module in (repository / top).rglob("*.py")
    }
    assert [folder for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def test_importing_the_facade_loads_no_network_stack_and_no_codec() -> None:
    loaded = imported_by("import paxosblock")
    assert (
        loaded & {"aiohttp", "asyncio", "msgspec", "uvloop", "rich", "prometheus_client"} == set()
    )


@pytest.mark.parametrize(
    "module",
    [
        "client.async_client",
        "client.blocking.sync",
        "cli.fs_bytes",
        "cli.invocation",
        "net.calls.control",
    ],
)
def test_a_client_loads_no_http_stack(module: str) -> None:
    assert imported_by(f"import paxosblock.{module}") & {"aiohttp", "http"} == set()


@pytest.mark.parametrize("statement", ["import paxosblock", "from paxosblock import Client"])
def test_only_who_asks_for_the_fsspec_file_system_loads_fsspec(statement: str) -> None:
    assert imported_by(statement) & {"fsspec", "pandas", "pyarrow"} == set()


def test_the_facade_names_what_it_can_load() -> None:
    assert set(paxosblock.__all__) <= set(dir(paxosblock))


def test_the_version_is_the_one_of_the_distribution(project: dict[str, Any]) -> None:
    assert paxosblock.__version__ == project["project"]["version"]


def test_asking_the_facade_for_something_else_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"^module 'paxosblock' has no attribute 'Klient'$"):
        paxosblock.Klient  # noqa: B018 - the access is the test
