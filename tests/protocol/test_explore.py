"""Every order, loss and repetition of messages in small clusters of the shipped classes.

The state counts are pinned: see `configurations`.
"""

from __future__ import annotations

import pytest

from tests.protocol.configurations import CI, LARGE
from tests.protocol.explore import silent_rules
from tests.protocol.explorer import explore


@pytest.mark.parametrize("name", CI)
def test_every_reachable_state_keeps_the_properties(name: str) -> None:
    config, pinned = CI[name]
    result = explore(config)
    assert result.fault is None, "\n".join((result.fault or "", *result.trace))
    assert silent_rules(config, result) == ()
    assert result.states == pinned


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", LARGE)
def test_the_larger_bounds_keep_the_properties_too(name: str) -> None:
    result = explore(LARGE[name])
    assert result.fault is None, "\n".join((result.fault or "", *result.trace))
    assert result.complete
    assert silent_rules(LARGE[name], result) == ()
