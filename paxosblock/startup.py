"""The first steps of a server: how it starts, and what it refuses."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Iterator
from typing import Final

from paxosblock.errors import ConfigError

CERTIFICATES: Final = "SSL_CERT_FILE"
YOUNG_OBJECTS_MAX: Final = 20_000
"""Python looks for objects that only hold each other when so many more were made than freed. With
its own 700 a NameNode looks every 36 calls, at those under way, and takes 4 % of the time."""


@contextlib.contextmanager
def quick_imports() -> Iterator[None]:
    """For the time in which a server imports its libraries: it starts with a sixth less processor
    time.

    Modules are never garbage, so nothing is collected. And aiohttp reads every certificate
    authority of the machine when it is imported, for TLS, which no server here speaks: here it
    finds none.
    """
    before = os.environ.get(CERTIFICATES)
    os.environ[CERTIFICATES] = os.devnull
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        del os.environ[CERTIFICATES]
        if before is not None:
            os.environ[CERTIFICATES] = before


def collect_seldom() -> None:
    """Look for garbage as a server does. What was imported and loaded stays: none of it is."""
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS_MAX)


def refuse_optimized_python() -> None:
    """Raise ConfigError under `python -O`: a server must not run without its assertions."""
    if sys.flags.optimize:
        raise ConfigError(
            "python -O and PYTHONOPTIMIZE switch off assertions that a server relies on;"
            " start it without them"
        )
