"""The files of an install: from a checkout without links, as a wheel, and as an editable one."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest

PACKAGES = ("paxosblock", "pyspark_paxosblock")
WITHOUT_ANOTHER_RAFTOS = """
import importlib.metadata
known = importlib.metadata.files("paxosblock")
importlib.metadata.version = importlib.metadata.distribution = None  # the tests' own raftos
importlib.metadata.files = {"paxosblock": known}.__getitem__
import paxosblock.namenode.raft.store
import raftos
from paxosblock.namenode.raft.options import check_raftos
check_raftos()
print(raftos.__file__)
"""
DATA = {"py.typed", "log4j2.properties"}
"""Files that are no modules and yet belong into a wheel."""
DATA_FOLDERS = {"static", "templates"}
"""Of the status page."""


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    done = ended(*command, cwd=cwd, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def ended(*command: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )


@pytest.fixture(scope="module")
def checkout(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree as git lays it out without links: a file that names its target in place of each."""
    copy = tmp_path_factory.mktemp("checkout")
    for package in PACKAGES:
        shutil.copytree(
            repository / package, copy / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    for folder in ("docs", "bin"):
        shutil.copytree(repository / folder, copy / folder)
    for path in repository.iterdir():
        if path.is_symlink():
            (copy / path.name).write_text(str(path.readlink()))
        elif path.is_file() and not path.name.startswith("."):
            shutil.copy(path, copy)
    return copy


def built(checkout: Path, kind: str, **environment: str) -> zipfile.ZipFile:
    """A wheel of one kind, made without network by the build backend that an install uses."""
    folder = checkout / "-".join((kind, *environment))
    folder.mkdir()
    program = f"from setuptools import build_meta; print(build_meta.build_{kind}({str(folder)!r}))"
    name = run("-c", program, cwd=checkout, **environment).splitlines()[-1]
    return zipfile.ZipFile(folder / name)


def metadata(checkout: Path, **environment: str) -> Message:
    """Return what a package index is told, with the README as the payload."""
    program = "from setuptools import build_meta as build; "
    program += "print(build.prepare_metadata_for_build_wheel('.'))"
    name = run("-c", program, cwd=checkout, **environment).splitlines()[-1]
    return message_from_string((checkout / name / "METADATA").read_text())


@pytest.fixture(scope="module")
def wheel(checkout: Path) -> zipfile.ZipFile:
    return built(checkout, "wheel")


@pytest.fixture(scope="module")
def installed(wheel: zipfile.ZipFile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the wheel has, as an install lays it out."""
    folder = tmp_path_factory.mktemp("site-packages")
    wheel.extractall(folder)
    return folder


def test_a_wheel_of_a_checkout_without_links_has_every_module_and_nothing_else(
    wheel: zipfile.ZipFile, repository: Path
) -> None:
    expected = {
        path.relative_to(repository).as_posix()
        for package in PACKAGES
        for path in (repository / package).rglob("*")
        if path.suffix == ".py" or path.name in DATA or path.parent.name in DATA_FOLDERS
    }
    members = {name for name in wheel.namelist() if ".dist-info/" not in name}
    expected |= {f"paxosblock/documents/{page.name}" for page in (repository / "docs").glob("*.md")}
    (script,) = (name for name in members if ".data/" in name)
    assert script.endswith(".data/scripts/paxosblock")
    assert members - {script} == expected


def test_the_wheel_for_an_index_brings_raftos_with_its_licence_and_needs_no_other_raftos(
    checkout: Path, wheel: zipfile.ZipFile, tmp_path: Path
) -> None:
    published = built(checkout, "wheel", RAFTOS=sysconfig.get_path("purelib"))
    brought = {*published.namelist()} - {*wheel.namelist()}
    assert len(brought) == 13
    assert {"raftos/state.py", "raftos/LICENSE"} <= brought
    published.extractall(tmp_path)
    out = run("-c", WITHOUT_ANOTHER_RAFTOS, cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert out.strip() == str(tmp_path / "raftos" / "__init__.py")


def test_a_wheel_takes_no_raftos_that_differs_from_the_published_one(
    checkout: Path, tmp_path: Path
) -> None:
    there = Path(sysconfig.get_path("purelib"))
    for folder in ("raftos", "raftos-0.2.6.dist-info"):
        shutil.copytree(there / folder, tmp_path / folder)
    with (tmp_path / "raftos" / "timer.py").open("a") as file:
        file.write("# changed\n")
    program = "from setuptools import build_meta; build_meta.build_wheel('nowhere')"
    refused = ended("-c", program, cwd=checkout, RAFTOS=str(tmp_path))
    assert refused.returncode != 0
    assert refused.stderr.splitlines()[-1] == (
        f"RAFTOS={tmp_path}: has not the files of raftos 0.2.6 as published"
    )


def test_the_command_of_a_wheel_runs_and_offers_nothing_that_only_a_checkout_has(
    installed: Path, tmp_path: Path
) -> None:
    out = run("-m", "paxosblock", "--help", cwd=tmp_path, PYTHONPATH=str(installed))
    assert "\n  cluster " in out
    assert "\n  demo " not in out


def test_the_documents_of_a_wheel_are_shown(
    installed: Path, repository: Path, tmp_path: Path
) -> None:
    shown = run("-m", "paxosblock", "help", "operations", cwd=tmp_path, PYTHONPATH=str(installed))
    assert shown == (repository / "docs" / "operations.md").read_text()
    listed = run("-m", "paxosblock", "help", cwd=tmp_path, PYTHONPATH=str(installed))
    assert re.search(r"^operations +Operations$", listed, re.MULTILINE)


def test_the_benchmarks_of_a_wheel_are_said_to_be_in_the_repository(
    installed: Path, tmp_path: Path
) -> None:
    words = ("-m", "paxosblock", "bench", "write", "--rounds", "3")
    refused = ended(*words, cwd=tmp_path, PYTHONPATH=str(installed))
    assert refused.returncode == 1
    assert refused.stderr == (
        "bench: the benchmarks are in the repository and not in the package: run `make bench` in a"
        " checkout\n"
    )


def test_a_package_index_shows_links_that_lead_somewhere(checkout: Path, repository: Path) -> None:
    found = metadata(checkout, PROJECT_URL="https://forge.example/people/paxosblock/")
    tree = f"https://forge.example/people/paxosblock/blob/v{found['Version']}/"
    links = re.findall(r"\]\(([^)#]+)", str(found.get_payload()))
    below = [link.removeprefix(tree) for link in links if link.startswith(tree)]
    assert "docs/operations.md" in below
    assert [link for link in below if not (repository / link).exists()] == []
    assert [link for link in links if not link.startswith("https://")] == []
    urls = dict(re.findall(r"(\w+), (\S+)", " ".join(found.get_all("Project-URL", []))))
    assert urls["Homepage"] == "https://forge.example/people/paxosblock"
    assert (repository / urls["Changelog"].removeprefix(tree)).exists()
    assert (repository / urls["Documentation"].removeprefix(tree)).exists()


def test_without_an_address_a_package_index_shows_no_link_that_is_dead(checkout: Path) -> None:
    found = metadata(checkout)
    assert "](docs/" not in str(found.get_payload())
    assert "users have certificates. Hadoop programs" in " ".join(str(found.get_payload()).split())
    assert found.get_all("Project-URL") is None


def test_an_address_that_is_none_is_refused_in_one_line(checkout: Path) -> None:
    done = subprocess.run(
        [sys.executable, "setup.py", "--version"],
        cwd=checkout,
        env={"PROJECT_URL": "forge.example"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "PROJECT_URL=forge.example: give the repository's address, https://HOST/OWNER/NAME"
    ]


def test_what_is_imported_late_is_in_the_wheel_too(installed: Path, tmp_path: Path) -> None:
    program = "import paxosblock; print(paxosblock.__file__); paxosblock.Client; "
    program += "import paxosblock.namenode.namenode_server, paxosblock.datanode.datanode_server"
    out = run("-c", program, cwd=tmp_path, PYTHONPATH=str(installed))
    assert out.strip() == str(installed / "paxosblock" / "__init__.py")


def test_pyspark_finds_its_data_source_after_an_editable_install(
    checkout: Path, tmp_path: Path
) -> None:
    """PySpark searches modules by the beginning of their name, which an import hook hides."""
    editable = built(checkout, "editable")
    (path_file,) = (name for name in editable.namelist() if name.endswith(".pth"))
    assert editable.read(path_file).decode().strip() == str(checkout)
    editable.extractall(tmp_path)
    program = "import pkgutil, site, sys; site.addsitedir(sys.argv[1]); "
    program += "print(*(m.name for m in pkgutil.iter_modules() if m.name.startswith('pyspark_')))"
    assert run("-I", "-S", "-c", program, tmp_path, cwd=tmp_path).split() == ["pyspark_paxosblock"]
