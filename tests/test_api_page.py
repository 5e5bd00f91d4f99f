"""The page of the Python API is what the code says."""

from __future__ import annotations

import inspect

import paxosblock
from paxosblock import errors
from paxosblock.api import transaction
from tests.make_api import TARGET, made


def test_the_page_is_what_the_docstrings_make() -> None:
    assert TARGET.read_text(encoding="utf-8") == made(), "run: make generate"


def test_every_method_and_every_public_class_is_on_the_page() -> None:
    page = made()
    methods = [name for name in dir(paxosblock.Client) if not name.startswith("_")]
    assert [name for name in methods if f"### `{name}" not in page] == []
    classes = [
        name
        for module in (errors, transaction)
        for name, kind in vars(module).items()
        if inspect.isclass(kind) and kind.__module__ == module.__name__ and name[0] != "_"
    ]
    assert len(classes) > 20
    assert [name for name in classes if f"\n## {name}\n" not in page] == []
