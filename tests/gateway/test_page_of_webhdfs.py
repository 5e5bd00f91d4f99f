"""The page of WebHDFS is what the code says."""

from __future__ import annotations

from paxosblock.gateway.webhdfs.operation_table import LACKING, OPERATIONS
from tests.make_webhdfs import PAGE, page


def test_the_page_is_what_the_code_makes() -> None:
    made = page()
    assert PAGE.read_text(encoding="utf-8") == made, "run: make generate"
    assert not OPERATIONS.keys() & LACKING.keys()
    assert [name for name in [*OPERATIONS, *LACKING] if name not in made] == []
