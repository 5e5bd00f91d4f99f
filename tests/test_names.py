"""One word, one thing: a name stands for one class, and for one file, in the whole package."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
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


EMPTY_NAMES = {
    *("bodies", "chance", "core", "ends", "gaps", "held", "look"),
    *("pace", "sight", "standing", "step", "steps", "tender", "together"),
}
"""Words that say nothing of what a module or class is, or of what a function does."""


def _names(body: Iterable[ast.AST]) -> Iterator[str]:
    """The names of classes, methods and functions. One inside a function has no other reader."""
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        if isinstance(node, ast.ClassDef):
            yield from _names(node.body)


def test_no_module_class_or_function_has_a_name_that_says_nothing() -> None:
    found = defaultdict(set)
    for source in sources("paxosblock"):
        modules = (node for node in source.nodes if isinstance(node, ast.Module))
        names = {PurePath(source.name).stem, *(_names(next(modules).body))}
        if empty := {name for name in names if name.strip("_").lower() in EMPTY_NAMES}:
            found[source.name] = empty
    assert found == {}
