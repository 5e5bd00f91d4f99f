"""The documents make a site without a broken link, and with pictures that can be seen."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import reporting
from benchmarks.record import read_records
from tests import make_site


def test_every_link_of_the_documents_leads_somewhere(capfd: pytest.CaptureFixture[str]) -> None:
    assert make_site.main() == 0, capfd.readouterr().err
    index = (make_site.SITE / "index.html").read_text(encoding="utf-8")
    assert 'href="docs/cli/"' in index
    assert '<script src="http' not in index
    chunk = (make_site.SITE / "docs/chunk/index.html").read_text(encoding="utf-8")
    assert 'src="../pictures/chunk.svg"' in chunk


def test_the_report_of_the_benchmarks_is_made_of_the_records_that_are_kept(
    repository: Path, tmp_path: Path
) -> None:
    kept = repository / "benchmarks"
    reporting.write(read_records(sorted((kept / "results").glob("*.jsonl"))), tmp_path)
    made = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    here = {path.name: path.read_text(encoding="utf-8") for path in (kept / "report").iterdir()}
    assert made == here, "run: make generate"
    assert any(name.endswith(".svg") for name in made)


def test_no_diagram_is_left_as_text(repository: Path) -> None:
    """A site without a script that draws would show its source."""
    pages = [page for page in repository.glob("**/*.md") if "build" not in page.parts]
    assert len(pages) > 15
    assert [page for page in pages if "```mermaid" in page.read_text(encoding="utf-8")] == []


@pytest.mark.parametrize("name", ["block.svg", "chunk.svg", "failover.svg", "house.svg"])
def test_a_picture_is_well_formed_and_says_what_it_shows(repository: Path, name: str) -> None:
    picture = ElementTree.parse(repository / "docs" / "pictures" / name).getroot()
    title = picture.find("{http://www.w3.org/2000/svg}title")
    assert title is not None
    assert title.text
