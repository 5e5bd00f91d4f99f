"""The documents make a site without a broken link, and with pictures that can be seen."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import growth
from tests import make_site


def test_every_link_of_the_documents_leads_somewhere(capfd: pytest.CaptureFixture[str]) -> None:
    assert make_site.main() == 0, capfd.readouterr().err
    index = (make_site.SITE / "index.html").read_text(encoding="utf-8")
    assert 'href="docs/cli/"' in index
    assert '<script src="http' not in index
    architecture = (make_site.SITE / "docs/architecture/index.html").read_text(encoding="utf-8")
    assert 'src="../pictures/chunk.svg"' in architecture


def test_the_growth_curves_are_drawn_from_the_record_of_the_benchmark() -> None:
    drawn = growth.picture(growth.recorded())
    assert growth.PICTURE.read_text(encoding="utf-8") == drawn, "run: make generate"


def test_no_diagram_is_left_as_text(repository: Path) -> None:
    """A site without a script that draws would show its source."""
    pages = [page for page in repository.glob("**/*.md") if "build" not in page.parts]
    assert len(pages) > 15
    assert [page for page in pages if "```mermaid" in page.read_text(encoding="utf-8")] == []


@pytest.mark.parametrize(
    "name", ["block.svg", "chunk.svg", "failover.svg", "growth.svg", "house.svg"]
)
def test_a_picture_is_well_formed_and_says_what_it_shows(repository: Path, name: str) -> None:
    picture = ElementTree.parse(repository / "docs" / "pictures" / name).getroot()
    title = picture.find("{http://www.w3.org/2000/svg}title")
    assert title is not None
    assert title.text
