"""Replaces a file whole."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

OWNER_ONLY: Final = 0o600


def replace_file(file: Path, data: bytes, mode: int = OWNER_ONLY, *, synced: bool = False) -> None:
    """Replace a file so that a reader sees either all of the old one or all of the new one.

    It gets `mode` whatever the process masks. `synced`: so does a reader after a power cut; for
    what cannot be made again.

    Raises:
        OSError: it cannot be written; the old one is still there.
    """
    scratch = file.with_name(f".{file.name}.{os.getpid()}")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, OWNER_ONLY)
    with open(descriptor, "wb") as out:
        os.fchmod(descriptor, mode)
        out.write(data)
        out.flush()
        if synced:
            os.fsync(descriptor)
    scratch.replace(file)
