"""The table of mutants can be planted (`make mutants` plants it)."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.mutants.table import SOURCE, Mutant, all_mutants


@pytest.mark.parametrize("mutant", SOURCE, ids=lambda mutant: mutant.name)
def test_a_patch_has_its_place_and_its_suite(mutant: Mutant, repository: Path) -> None:
    assert mutant.patch is not None
    before = (repository / mutant.patch.file).read_text()
    assert mutant.patch.changed(repository) != before
    assert mutant.suite
    assert [
        suite for suite in mutant.suite if not (repository / suite.split("::")[0]).exists()
    ] == []


def test_each_mutant_has_a_name_of_its_own_and_no_area_is_forgotten() -> None:
    mutants = all_mutants()
    assert [name for name, count in Counter(m.name for m in mutants).items() if count > 1] == []
    assert min(Counter(mutant.area for mutant in mutants).values()) >= 10
    assert len(mutants) > 100, "as the Makefile and CONTRIBUTING.md say"


def test_a_suite_that_is_one_case_is_there(repository: Path) -> None:
    """A case that got another name runs nothing, and a mutant of it would only count as broken."""
    cases = {each for mutant in SOURCE for each in mutant.suite if "[" in each}
    files = {each.split("::")[0] for each in cases}
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", *sorted(files)]
    told = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=True)
    assert cases - set(told.stdout.splitlines()) == set()
