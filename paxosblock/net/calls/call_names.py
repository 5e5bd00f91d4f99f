"""Names of calls, by which the logs of both sides refer to them."""

from __future__ import annotations

import itertools
import os
from typing import Final

_NUMBERS: Final = itertools.count(int.from_bytes(os.urandom(7), "big"))


def new_name() -> str:
    """Return a name for a call: a random start for each process, then counted."""
    return f"{next(_NUMBERS):016x}"
