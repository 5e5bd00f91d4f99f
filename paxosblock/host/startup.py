"""The first steps of a server: quick imports, seldom garbage collections, and refusals."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys
from collections.abc import Iterator
from typing import Final

from paxosblock.base.units import KIB
from paxosblock.errors import ConfigError

CERTIFICATES: Final = "SSL_CERT_FILE"
SERVER_YOUNG_MAX: Final = 20_000
"""Python looks for objects that only hold each other when this many more were made than freed. With
Python's 700 a NameNode looks every 36 calls, at those under way, which takes 4 % of its time."""
BUFFER_BYTES_MIN: Final = 384 * KIB
"""The least length of a buffer that has pages of its own, for `return_freed_memory`: chunks have
them. What a loop reads at a time, up to 256 KiB, has none: new pages cost more than the copy."""
_MMAP_THRESHOLD: Final = -3
"""The name in `malloc.h` of what `mallopt` sets so."""


@contextlib.contextmanager
def quick_imports() -> Iterator[None]:
    """Import the libraries of a server inside this: it starts with a sixth less processor time.

    Modules are never garbage, so nothing is collected. And aiohttp would read every certificate
    authority of the machine at its import, for TLS, which no server here speaks; so it finds none.
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
    """Collect garbage as seldom as a server should; nothing that was imported or loaded is any."""
    gc.freeze()
    gc.set_threshold(SERVER_YOUNG_MAX)


def return_freed_memory() -> None:
    """Let buffers go back to the system as soon as they are freed, where the C library is GNU's.

    Left alone it keeps what programs free and ask for again among what still is in use, so that a
    server stays as large as its largest crowd made it, and half as large again.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").mallopt(_MMAP_THRESHOLD, BUFFER_BYTES_MIN)


def refuse_optimized_python() -> None:
    """Raise ConfigError under `python -O`: a server must not run without its assertions."""
    if sys.flags.optimize:
        raise ConfigError(
            "python -O and PYTHONOPTIMIZE switch off assertions that a server relies on;"
            " start it without them"
        )
