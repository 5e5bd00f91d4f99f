"""Assertions about our own code, numbered as in PROTOCOL.md and never switched off."""

from __future__ import annotations


class InvariantError(AssertionError):
    """The program is wrong: a numbered invariant of PROTOCOL.md does not hold.

    What a peer or a disk says is never checked this way; that is a `Nack` or an error with a name.
    """


def invariant(condition: bool, rule: str) -> None:
    """Raise InvariantError naming `rule` unless `condition` holds, also under `python -O`."""
    if not condition:
        raise InvariantError(rule)
