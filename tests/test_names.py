"""One word, one thing: a name stands for one class, and for one file, in the whole package."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import PurePath

from tests.test_house_rules import MADE_BY_A_COMMAND, sources

CLASSES_TWICE = {
    "Delete": "a user's operation in a transaction, and a message of PROTOCOL.md (D7): users write"
    " the one, the wire format has the other, and no module knows both",
}
"""Names of classes that stand twice, with the reason."""


def test_a_class_name_stands_once_in_the_package() -> None:
    homes = defaultdict(list)
    for source in sources("paxosblock"):
        if source.name not in MADE_BY_A_COMMAND:
            for node in source.nodes:
                if isinstance(node, ast.ClassDef):
                    homes[node.name].append(source.at(node))
    several = {name: places for name, places in homes.items() if len(places) > 1}
    assert {name: several[name] for name in several.keys() - CLASSES_TWICE.keys()} == {}
    assert CLASSES_TWICE.keys() <= several.keys()


def test_a_file_name_stands_once_in_the_package() -> None:
    homes = defaultdict(list)
    for source in sources("paxosblock"):
        homes[PurePath(source.name).name].append(source.name)
    assert {
        name: places
        for name, places in homes.items()
        if len(places) > 1 and name not in {"__init__.py", "__main__.py"}
    } == {}
