"""The example in the document is run, and prints what the document says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from paxosblock.cluster import LocalCluster


def test_the_example_of_the_document_prints_what_it_says(
    cluster: LocalCluster, repository: Path
) -> None:
    text = (repository / "docs" / "fsspec.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (expected,) = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    environment = os.environ | {"PAXOSBLOCK_NAMENODES": ",".join(cluster.addresses)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout == expected
