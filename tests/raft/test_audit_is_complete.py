"""Every defect that AUDIT.md lists has a test that bears its number."""

from __future__ import annotations

import re
from pathlib import Path

_ROW = re.compile(r"^\| ([PSVLNT]\d+b?) \|", re.MULTILINE)
_TEST = re.compile(r"def test_((?:[psvlnt]\d+b?_)+)")


def test_each_row_of_the_audit_has_a_test_of_its_number(repository: Path) -> None:
    audit = (repository / "paxosblock" / "namenode" / "raft" / "AUDIT.md").read_text()
    rows = {row.lower() for row in _ROW.findall(audit)}
    tests = "".join(file.read_text() for file in Path(__file__).parent.glob("test_*.py"))
    shown = {number for found in _TEST.findall(tests) for number in found.split("_")}
    assert len(rows) == 50
    unused = {"p1", "p2", "p3", "p4", "p5"}
    assert rows - shown == unused, "what raftos cannot do today, and this engine does itself"
