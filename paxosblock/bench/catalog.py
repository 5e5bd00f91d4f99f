"""The modules that hold cases, in the order in which a run without names goes through them."""

from __future__ import annotations

from importlib import import_module
from typing import Final

MODULES: Final = (
    "paxosblock.bench.cases.files",
    "paxosblock.bench.cases.calls",
    "paxosblock.bench.cases.startup",
    "paxosblock.bench.cases.beside_hdfs",
    "paxosblock.bench.cases.beside_logs",
)


def load() -> None:
    """Import them all, so that `suite.CASES` is full."""
    for module in MODULES:
        import_module(module)
