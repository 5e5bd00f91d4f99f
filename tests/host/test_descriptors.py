"""Runs the tests in which no descriptor is left, in a process that has none but its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = "tests/host/without_descriptors.py"


def test_when_no_descriptor_is_left(repository: Path) -> None:
    """Tests that ran before in this process hold descriptors, high ones too, and give some back."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", TESTS]
    done = subprocess.run(
        command, cwd=repository, capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
