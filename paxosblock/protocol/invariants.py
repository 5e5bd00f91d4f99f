"""Assertions about our own code, numbered as in PROTOCOL.md and never switched off."""

from __future__ import annotations

from collections.abc import Callable


class InvariantError(AssertionError):
    """The program is wrong: a numbered rule of PROTOCOL.md does not hold.

    The word of a peer or a disk is never checked this way; that is a `Nack` or an error with a
    name.
    """

    def __init__(self, rule: str, state: object, led_by: tuple[object, ...]) -> None:
        """`rule` begins with its number; `led_by` is what the `state` came from."""
        causes = "".join(f"; after: {cause!r}" for cause in led_by)
        super().__init__(f"{rule}; state: {state!r}{causes}")
        self.rule, self.state, self.led_by = rule, state, led_by

    @property
    def number(self) -> str:
        """Number of the rule, such as "I1"."""
        return self.rule.partition(" ")[0]


def invariants(state: object, *led_by: object) -> Callable[[bool, str], None]:
    """Return what raises InvariantError with a rule unless a condition holds of `state`.

    `led_by` is what `state` came from: the state before, the message. No text is made while all is
    well, and `python -O` switches nothing off.
    """

    def hold(condition: bool, rule: str) -> None:
        if not condition:
            raise InvariantError(rule, state, led_by)

    return hold


def invariant(condition: bool, rule: str, state: object, *led_by: object) -> None:
    """Check a single rule: its number, and what it says. As `invariants`."""
    if not condition:
        raise InvariantError(rule, state, led_by)
