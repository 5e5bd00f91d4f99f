"""The checks can fail: each planted fault is found, with a shortest way to it.

`python -m tests.protocol.explore --fault NAME` prints that way.
"""

from __future__ import annotations

import pytest

from tests.protocol.explorer import explore
from tests.protocol.faults import FAULTS

SLOW = (
    "count every answer",
    "install although sealed",
    "heal whatever was promised",
    "learn what anybody has",
    "learn the longest",
)
NAMES = [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in FAULTS]


@pytest.mark.parametrize("name", NAMES)
def test_a_planted_fault_is_found_and_told(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = FAULTS[name]
    monkeypatch.setattr(fault.owner, fault.name, fault.wrong)
    result = explore(fault.config)
    assert result.fault is not None, "the checks do not see this fault"
    assert fault.says in result.fault
    assert len(result.trace) >= 3
    assert all(result.trace)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_same_bounds_are_clean_without_a_fault() -> None:
    quick = {fault.config for name, fault in FAULTS.items() if name not in SLOW}
    for config in sorted(quick, key=repr):
        assert explore(config).fault is None
