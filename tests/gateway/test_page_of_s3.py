"""The page of S3 is what the code says."""

from __future__ import annotations

from paxosblock.gateway.s3.s3_door import OPERATIONS
from paxosblock.gateway.s3.s3_operation_table import LACKING
from tests.make_s3 import PAGE, page


def test_the_page_is_what_the_code_makes() -> None:
    made = page()
    assert PAGE.read_text(encoding="utf-8") == made, "run: make generate"
    assert [name for name in [*OPERATIONS, *LACKING] if name not in made] == []
