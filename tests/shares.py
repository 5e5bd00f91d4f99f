"""Tests of very many cases: `make test` looks at a share of them, `make test-all` at all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar

import pytest

T = TypeVar("T")

IN_SHARES: Final = pytest.mark.parametrize(
    "every", [pytest.param(4, id="a fourth"), pytest.param(1, id="all", marks=pytest.mark.slow)]
)
"""The test gets the argument `every`, for `share`."""


def share(cases: Iterable[T], every: int) -> list[T]:
    """Return each `every`-th of `cases`, the last of them included."""
    return [*cases][::-every]
