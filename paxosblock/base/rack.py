"""The place of a machine: a rack is a path, such as `/dc1/r7`, whose parts lead from the whole
towards the machine. What fails together, or has a slow way to the others, shares a rack.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DEFAULT_RACK: Final = "/default-rack"
"""The rack of every DataNode that names none (HDFS: the same)."""
RACK_CHARACTERS_MAX: Final = 255
HOST_CHARACTERS_MAX: Final = 255
FAR_AWAY: Final = 2 * RACK_CHARACTERS_MAX
"""The distance where it is not known: no two racks are further apart."""


@dataclass(frozen=True, slots=True)
class Location:
    """The machine `host`, by the name it knows itself by, in `rack`."""

    host: str
    rack: str


def is_rack(text: object) -> bool:
    """True for a path of one or more names, none of them `.` or `..`, and without a space."""
    return (
        isinstance(text, str)
        and len(text) <= RACK_CHARACTERS_MAX
        and text.isprintable()
        and not any(character.isspace() for character in text)
        and text.startswith("/")
        and all(part not in ("", ".", "..") for part in text[1:].split("/"))
    )


def is_host(text: object) -> bool:
    """True for what may be a machine's name: printable, without a space, and not too long."""
    return (
        isinstance(text, str)
        and 0 < len(text) <= HOST_CHARACTERS_MAX
        and text.isprintable()
        and not any(character.isspace() for character in text)
    )


def distance(here: Location, there: Location) -> int:
    """Return how far apart two machines are: 0 for one and the same, else the steps up from one to
    the first part of the racks that both share, and down to the other (HDFS's NetworkTopology).
    """
    if here.host == there.host:
        return 0
    ours, theirs = here.rack.split("/"), there.rack.split("/")
    shared = 0
    for one, other in zip(ours, theirs, strict=False):
        if one != other:
            break
        shared += 1
    return 2 + len(ours) + len(theirs) - 2 * shared
