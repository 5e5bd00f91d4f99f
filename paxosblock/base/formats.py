"""The format that every file states, and what happens with a file that a later program wrote.

A file of records begins with a magic whose last byte counts its formats, from "1" on; a text has a
line `format=`. Whatever changes in a later format, the magic, the checksum and their places do not:
so a format is believed only where the checksum is right, and a flipped bit is never taken for a
later format.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from paxosblock.errors import ConfigError

FROM_A_SNAPSHOT: Final = "go back with --rollback to the snapshot that --upgrade made"
FROM_A_COPY: Final = "put back the copy that was made before the upgrade"
OTHER_VERSION: Final = (
    "was written by another version of paxosblock, and this one cannot read it: copy the files of"
    " the cluster with that version into a new cluster"
)
"""Follows the name of a file of an earlier format that is no longer read."""


def refuse_later(name: Path | str, found: int, known: int, way_back: str) -> None:
    """Raise ConfigError if the file `name` is of a later format than the one `known` here.

    `way_back` says what can be done other than starting the program that wrote it.
    """
    if found > known:
        raise ConfigError(
            f"{name} is of format {found}, and this version of paxosblock knows up to {known}:"
            f" start the newer one, or {way_back}"
        )


def refuse_later_magic(
    name: Path | str, found: bytes, known: bytes, way_back: str = FROM_A_COPY
) -> None:
    """As `refuse_later`, by the magic of a file whose checksum is right."""
    if found[:-1] == known[:-1]:
        refuse_later(name, found[-1] - ord("0"), known[-1] - ord("0"), way_back)
