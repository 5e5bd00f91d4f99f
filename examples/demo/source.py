"""The file that the demo writes: one of the user, or one made of real files of this machine."""

from __future__ import annotations

import hashlib
import itertools
import os
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from paxosblock.base.units import MIB
from paxosblock.errors import ConfigError

PIECE_BYTES: Final = MIB


@dataclass(frozen=True, slots=True)
class Source:
    """A local file, its length and the SHA-256 of its bytes, computed before anything is sent."""

    path: Path
    size_bytes: int
    digest: str


def measure(path: Path) -> Source:
    """Read a file to the end.

    Raises:
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return Source(path, file.tell(), digest)


def digest_of_start(path: Path, size_bytes: int) -> str:
    """SHA-256 of the first bytes of a file."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for piece in pieces(file, size_bytes):
            digest.update(piece)
    return digest.hexdigest()


def pieces(file: BinaryIO, size_bytes: int) -> Iterator[bytes]:
    """Yield the next `size_bytes` of a file, piece by piece; fewer when it ends before."""
    while size_bytes > 0 and (piece := file.read(min(size_bytes, PIECE_BYTES))):
        yield piece
        size_bytes -= len(piece)


def build(target: Path, size_bytes: int, advance: Callable[[int], None]) -> None:
    """Fill `target` with the files of this Python installation, one after the other.

    The order is that of their names, and when all of them are not enough they come again.

    Raises:
        ConfigError: there are no files to take.
    """
    with open(target, "wb") as out:
        missing = size_bytes
        for path in itertools.cycle(_at_least_one(_real_files())):
            if missing == 0:
                return
            with open(path, "rb") as file:
                for piece in pieces(file, missing):
                    out.write(piece)
                    missing -= len(piece)
                    advance(len(piece))


def _real_files() -> Iterator[Path]:
    for name in ("stdlib", "purelib"):
        yield from _files_below(sysconfig.get_path(name))


def _files_below(root: str) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(set(folders) - {"__pycache__"})
        for name in sorted(names):
            path = Path(folder, name)
            if path.is_file() and os.access(path, os.R_OK) and path.stat().st_size:
                yield path


def _at_least_one(paths: Iterator[Path]) -> Iterator[Path]:
    first = next(paths, None)
    if first is None:
        raise ConfigError("this Python installation has no readable files: give one with --file")
    return itertools.chain((first,), paths)
