"""The most that the roles send each other in one piece; settings are checked against it."""

from __future__ import annotations

from typing import Final

from paxosblock.base.units import MIB

MAX_CHUNK_BYTES: Final = 16 * MIB
"""Most bytes of a chunk, and of the chunks that one frame carries."""
MAX_BODY_BYTES: Final = 64 * MIB
"""Most bytes in the body of a control call."""
