"""The documents make a site without a broken link, and with pictures that can be seen."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests import make_site


def test_every_link_of_the_documents_leads_somewhere(capfd: pytest.CaptureFixture[str]) -> None:
    assert make_site.main() == 0, capfd.readouterr().err
    index = (make_site.SITE / "index.html").read_text(encoding="utf-8")
    assert 'href="docs/cli/"' in index
    assert '<script src="http' not in index


@pytest.mark.parametrize("name", ["block.svg", "failover.svg"])
def test_a_picture_is_well_formed_and_says_what_it_shows(repository: Path, name: str) -> None:
    picture = ElementTree.parse(repository / "docs" / "pictures" / name).getroot()
    title = picture.find("{http://www.w3.org/2000/svg}title")
    assert title is not None
    assert title.text
