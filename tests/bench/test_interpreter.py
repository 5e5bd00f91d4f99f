"""The suite says how its Python was built, and `make` prefers one that was built with profiles."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from benchmarks import host, suite
from benchmarks.interpreter import HINT, build_of, this_build
from paxosblock.host import loop

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("prefix", "told", "how", "hint"),
    [
        ("/opt/python", {"CONFIG_ARGS": ""}, "built without profiles, without LTO", HINT),
        (
            "/usr/local",
            {"CONFIG_ARGS": "'--enable-optimizations' '--with-lto'"},
            "built with profiles, with LTO",
            "",
        ),
        (
            "/opt/python",
            {"CONFIG_ARGS": "'--enable-optimizations' '--with-lto=no'", "Py_GIL_DISABLED": 1},
            "free-threaded, built with profiles, without LTO",
            "",
        ),
        ("/usr", {"CONFIG_ARGS": "'--prefix=/usr'"}, "the distribution's", ""),
        ("/opt/python", {"CONFIG_ARGS": None}, "built without profiles, without LTO", HINT),
    ],
)
def test_a_build_is_told_by_its_options_and_without_profiles_there_is_a_hint(
    prefix: str, told: dict[str, object], how: str, hint: str
) -> None:
    build = build_of("CPython 3.13.5", prefix, told)
    assert (str(build), build.hint) == (f"CPython 3.13.5, {how}", hint)


def test_a_run_and_its_records_tell_how_python_was_built(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert host.describe(tmp_path).python_build == this_build().how
    assert loop.run(suite.run_cases([], suite.Options(folder=tmp_path), lambda _: None)) == []
    assert capfd.readouterr().err.startswith(f"  {this_build()}; load ")


@pytest.mark.parametrize(
    ("pythons", "chosen"),
    [
        ({"python3": "plain", "python3.12": "profiled"}, "python3.12"),
        ({"python3": "plain", "python3.12": "unable", "python3.11": "plain"}, "python3"),
        ({"python3": "unable", "python3.13": "profiled", "python3.11": "profiled"}, "python3.13"),
        ({"python3": "unable"}, ""),
    ],
)
def test_make_picks_a_python_with_profiles_before_others(
    pythons: dict[str, str], chosen: str, tmp_path: Path
) -> None:
    """The programs answer as Pythons do: `-c` says if it can, the file if it was profiled."""
    for name, kind in pythons.items():
        able, profiled = int(kind == "unable"), int(kind != "profiled")
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\n[ "$1" = -c ] && exit {able}\nexit {profiled}\n')
        program.chmod(0o755)
    (tmp_path / "bash").symlink_to(shutil.which("bash") or "/bin/bash")
    command = [shutil.which("make") or "make", "--eval=told: ; @echo $(PYTHON)", "told"]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "PYTHON"))
    } | {"PATH": os.fspath(tmp_path)}
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == (os.fspath(tmp_path / chosen) if chosen else "")
