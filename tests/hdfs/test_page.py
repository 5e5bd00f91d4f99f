"""docs/hdfs.md and its pictures are what the code says."""

from __future__ import annotations

import inspect
import re

from tests.hdfs import test_known_bugs
from tests.hdfs.transitions import block_transitions, replica_transitions
from tests.make_hdfs import PAGE, PICTURES, WORDS, page, pictures


def test_the_page_is_what_the_code_makes() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: make generate"


def test_the_pictures_are_what_the_code_makes() -> None:
    for name, drawn in pictures().items():
        assert (PICTURES / name).read_text(encoding="utf-8") == drawn, "run: make generate"


def test_hdfs_words_are_for_events_that_there_are() -> None:
    events = {arrow.event for arrow in (*replica_transitions(), *block_transitions())}
    assert set(WORDS) <= events


def test_each_defect_that_the_page_names_has_a_test() -> None:
    named = re.search(r"HDFS-([\d,\s and]+?), which", page())
    assert named is not None
    wanted = set(re.findall(r"\d+", named.group(1)))
    source = inspect.getsource(test_known_bugs)
    assert wanted == set(re.findall(r"def test_hdfs_(\d+)_", source))
