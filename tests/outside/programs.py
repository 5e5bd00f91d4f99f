"""Programs of their own: what they print, and that they end."""

from __future__ import annotations

import os
import subprocess
import sys


def run(script: str, *arguments: str, **environment: str) -> str:
    """Return what a program prints. It must end by itself, without an error, and close its files.

    Its log may say that this machine is slow.
    """
    command = [sys.executable, "-W", "error", "-c", script, *arguments]
    done = subprocess.run(
        command,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    assert "Exception ignored" not in done.stderr
    return done.stdout
