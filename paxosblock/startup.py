"""What a server makes sure of before it does anything else."""

from __future__ import annotations

import sys

from paxosblock.errors import ConfigError


def refuse_optimized_python() -> None:
    """Raise ConfigError under `python -O`: a server must not run without its assertions."""
    if sys.flags.optimize:
        raise ConfigError(
            "python -O and PYTHONOPTIMIZE switch off assertions that a server relies on;"
            " start it without them"
        )
