"""Checkouts of this repository at other revisions, for tests."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parent.parent
DAY_S: Final = 24 * 3600


def checkout(revision: str, folder: Path) -> Path:
    """Write the files of a revision to a new folder, and return that."""
    folder.mkdir()
    archive = subprocess.check_output(["git", "-C", REPOSITORY, "archive", revision])
    subprocess.run(["tar", "-x", "-C", folder], check=True, input=archive)
    return folder


def before() -> str:
    """Return the last release; while there is none, what a day before the newest commit was the
    newest. "" where the repository does not go back so far, or there is none.
    """
    released = _git("describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD^")
    if released:
        return released
    newest_s = _git("log", "-1", "--format=%ct", "HEAD")
    return newest_s and _git("rev-list", "-1", f"--before={int(newest_s) - DAY_S}", "HEAD")


def _git(*words: str) -> str:
    command = ["git", "-C", str(REPOSITORY), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
