"""One letter begins all keys of one kind."""

from __future__ import annotations

import inspect
import re
from collections import Counter

from paxosblock.namenode.catalog import keys
from paxosblock.namenode.kv import interface, past


def test_each_letter_tells_one_kind() -> None:
    """Keys of two kinds under one letter are read as each other by whoever reads a range."""
    listed = Counter(re.findall(r"^    ([a-zA-Z])(?: \+|  )", keys.__doc__ or "", re.MULTILINE))
    assert listed
    assert set(listed.values()) == {1}
    sources = "".join(map(inspect.getsource, (keys, past, interface)))
    used = re.findall(r'\bb"([a-zA-Z])', sources)
    assert set(used) == set(listed)
