"""Documents are laid out and worded for their readers: at most 100 columns, plain English."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.test_citations import DOCUMENTS, shown
from tests.test_house_rules import STUMBLES

COLUMNS = 100
CANNOT_BREAK = re.compile(r"\||#|\s*\S*https?:\S*$")
"""Markdown has tables and headings on one line each; a URL has no place to break."""
REPORT = "benchmarks/report/README.md"
"""A command lists machines and figures there, one on each line."""


def prose_and_code(document: Path) -> Iterator[tuple[int, str]]:
    """Numbers and texts of the lines that we wrote: not what a program printed."""
    fence = ""
    for number, line in enumerate(document.read_text(encoding="utf-8").splitlines(), start=1):
        if line.startswith("```"):
            fence = "" if fence else line
        elif fence != "```console" or line.startswith("$ "):
            yield number, line


def test_documents_are_in_plain_english() -> None:
    """A reader stumbles over these; CONTRIBUTING.md tells what to write instead."""
    assert [
        f"{shown(document)}: {found[0]}"
        for document in DOCUMENTS
        for found in STUMBLES.finditer(" ".join(document.read_text(encoding="utf-8").split()))
    ] == []


def test_documents_are_wrapped_at_100_columns() -> None:
    assert [
        f"{shown(document)}:{number}: {len(line)} columns"
        for document in DOCUMENTS
        if shown(document) != REPORT
        for number, line in prose_and_code(document)
        if len(line) > COLUMNS and not CANNOT_BREAK.match(line)
    ] == []
