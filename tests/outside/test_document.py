"""The example in the document is run, and prints what the document says."""

from __future__ import annotations

import re
from pathlib import Path

from paxosblock.local.cluster import LocalCluster
from tests.outside.programs import run


def test_the_example_of_the_document_prints_what_it_says(
    cluster: LocalCluster, repository: Path
) -> None:
    text = (repository / "docs" / "fsspec.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (expected,) = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    assert run(program, PAXOSBLOCK_NAMENODES=",".join(cluster.addresses)) == expected
