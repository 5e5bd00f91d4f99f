"""One letter begins all keys of one kind."""

from __future__ import annotations

import inspect
import re
from collections import Counter

from paxosblock.namenode.catalog import keys


def test_each_letter_tells_one_kind() -> None:
    """Keys of two kinds under one letter are read as each other by whoever reads a range."""
    listed = Counter(re.findall(r"^    ([a-z])(?: \+|  )", keys.__doc__ or "", re.MULTILINE))
    assert listed
    assert set(listed.values()) == {1}
    used = re.findall(r'\bb"([a-z])', inspect.getsource(keys))
    assert set(used) == set(listed)
