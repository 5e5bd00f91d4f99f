"""Show the rooms:  python -m tests.ways.rooms

Prints, for each room of the package, its files, its lines, and how what stands in it lies on each
other: a module or a room in it is one thing, an *arrow* leads from one thing to another that it
imports, and the *floors* are the things on the longest way along arrows. Each import counts, those
for type checkers too.
"""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import Final, NamedTuple

import grimp

PACKAGE: Final = "paxosblock"


class Room(NamedTuple):
    """A package, and what stands in it."""

    name: str
    files: int
    """Modules that stand in it, without those of rooms in it, and without an empty `__init__`."""
    lines: int
    """Lines of all that is below it."""
    floors: int
    arrows: int


def rooms(package: str = PACKAGE) -> list[Room]:
    """Return the rooms of a package, itself the first one."""
    graph = grimp.build_graph(package, cache_dir=None)
    found = importlib.util.find_spec(package)
    assert found is not None
    assert found.origin is not None
    folder = Path(found.origin).parent
    inner = sorted(name for name in graph.modules if graph.find_children(name))
    return [_room(graph, name, folder.parent / name.replace(".", "/")) for name in inner]


def _room(graph: grimp.ImportGraph, name: str, folder: Path) -> Room:
    things = sorted(graph.find_children(name))
    arrows = {
        (above, below)
        for above, below in permutations(things, 2)
        if graph.direct_import_exists(importer=above, imported=below, as_packages=True)
    }

    @cache
    def floors(thing: str) -> int:
        return 1 + max((floors(below) for above, below in arrows if above == thing), default=0)

    lines = sum(len(each.read_text().splitlines()) for each in folder.rglob("*.py"))
    files = sum(not graph.find_children(each) for each in things)
    return Room(name, files, lines, max(map(floors, things)), len(arrows))


def main() -> None:
    """Print a line for each room."""
    for room in rooms():
        numbers = f"{room.files:3} files {room.floors:2} floors {room.arrows:3} arrows"
        sys.stdout.write(f"{numbers} {room.lines:6} lines  {room.name}\n")


if __name__ == "__main__":
    main()
