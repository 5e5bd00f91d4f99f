"""The modules that hold cases, in the order in which a run without names goes through them."""

from __future__ import annotations

from importlib import import_module
from typing import Final

MODULES: Final = (
    "paxosblock.bench.cases.files",
    "paxosblock.bench.cases.shapes",
    "paxosblock.bench.cases.block_steps",
    "paxosblock.bench.cases.appends",
    "paxosblock.bench.cases.startup",
    "paxosblock.bench.cases.calls",
    "paxosblock.bench.cases.namenodes",
    "paxosblock.bench.cases.reports",
    "paxosblock.bench.cases.scale_model",
    "paxosblock.bench.cases.replicas",
    "paxosblock.bench.cases.sweep",
    "paxosblock.bench.cases.big_files",
    "paxosblock.bench.cases.store",
    "paxosblock.bench.cases.event_loop",
    "paxosblock.bench.cases.healing",
    "paxosblock.bench.cases.outages",
    "paxosblock.bench.cases.spark",
    "paxosblock.bench.cases.beside_hdfs",
    "paxosblock.bench.cases.beside_logs",
    "paxosblock.bench.cases.truncates",
)


def load() -> None:
    """Import them all, so that `suite.CASES` is full."""
    for module in MODULES:
        import_module(module)
