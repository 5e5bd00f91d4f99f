"""The modules that hold cases, in the order in which a run without names goes through them."""

from __future__ import annotations

from importlib import import_module
from typing import Final

MODULES: Final = (
    "benchmarks.cases.files",
    "benchmarks.cases.short_circuit",
    "benchmarks.cases.shapes",
    "benchmarks.cases.block_steps",
    "benchmarks.cases.appends",
    "benchmarks.cases.startup",
    "benchmarks.cases.calls",
    "benchmarks.cases.namenodes",
    "benchmarks.cases.reports",
    "benchmarks.cases.scale_model",
    "benchmarks.cases.replicas",
    "benchmarks.cases.sweep",
    "benchmarks.cases.big_files",
    "benchmarks.cases.store",
    "benchmarks.cases.event_loop",
    "benchmarks.cases.healing",
    "benchmarks.cases.outages",
    "benchmarks.cases.spark",
    "benchmarks.cases.beside_hdfs",
    "benchmarks.cases.beside_logs",
    "benchmarks.cases.snapshots",
    "benchmarks.cases.truncates",
    "benchmarks.cases.watch",
    "benchmarks.cases.encrypted",
    "benchmarks.cases.pages",
    "benchmarks.cases.observing",
    "benchmarks.cases.gateways",
    "benchmarks.cases.beside_s3",
    "benchmarks.cases.beside_webhdfs",
)


def load() -> None:
    """Import them all, so that `suite.CASES` is full."""
    for module in MODULES:
        import_module(module)
