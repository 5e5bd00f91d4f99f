"""The sizes of quorums (PROTOCOL.md 4): written here and nowhere else.

The code that collects answers decides which of them count: votes of all members for a write (W3,
`write.py`), promises and votes (P2, P4, `recovery.py`), good answers (R2, `read.py`).

A writer generation needs ALL members, so a recovery must meet only every write quorum (any one
member) and every quorum of an R2 read: recovery_quorum(n) + read_quorum(n) > n.
"""

from __future__ import annotations

import enum


class Tally(enum.Enum):
    """State of a count while answers come in."""

    REACHED = "reached"
    POSSIBLE = "possible"
    IMPOSSIBLE = "impossible"


def read_quorum(member_count: int) -> int:
    """q2: the good answers that an R2 read of a config of `member_count` needs."""
    return member_count // 2 + 1


def recovery_quorum(member_count: int) -> int:
    """qr: the promises (and, for a seal, votes) that a recovery needs."""
    return member_count - read_quorum(member_count) + 1


def tally(yes_count: int, no_count: int, member_count: int, needed: int) -> Tally:
    """Tell whether `needed` of `member_count` members said yes, still can, or cannot any more."""
    if yes_count >= needed:
        return Tally.REACHED
    return Tally.POSSIBLE if member_count - no_count >= needed else Tally.IMPOSSIBLE
