"""What a server refuses before it starts."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = "from paxosblock.startup import refuse_optimized_python as refuse; refuse()"


def run(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *options, "-c", PROGRAM]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("option", ["-O", "-OO"])
def test_a_server_does_not_start_without_its_assertions(option: str) -> None:
    refused = run(option)
    assert refused.returncode == 1
    assert "ConfigError: python -O and PYTHONOPTIMIZE switch off assertions" in refused.stderr


def test_a_server_starts_with_its_assertions() -> None:
    assert run().returncode == 0
