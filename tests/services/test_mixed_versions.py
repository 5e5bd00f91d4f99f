"""A cluster whose nodes become today's one after the other loses nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.revisions import before, checkout
from tests.services.mixed_versions import upgrade


@pytest.mark.slow
@pytest.mark.parametrize("of", ["the last release", "today"])
def test_a_cluster_whose_nodes_change_one_after_the_other_loses_nothing(
    repository: Path, tmp_path: Path, of: str
) -> None:
    code = tmp_path / "before"
    if of == "today":
        code.mkdir()
        (code / "paxosblock").symlink_to(repository / "paxosblock")
    elif revision := before():
        checkout(revision, code)
    else:
        pytest.skip("this repository has no other revision")
    steps = list(upgrade(code, tmp_path / "cluster"))
    assert len(steps) == 7
    assert sum("runs today's code" in step for step in steps) == 6
