"""Assertions about our own code, numbered as in PROTOCOL.md and never switched off."""

from __future__ import annotations

from collections.abc import Callable


class InvariantError(AssertionError):
    """The program is wrong: a numbered rule of PROTOCOL.md does not hold.

    Never raised for what a peer or a disk says: that leads to a `Nack` or an error with a name.
    """

    def __init__(self, rule: str, state: object, led_by: tuple[object, ...]) -> None:
        """`rule` begins with its number; the `state` was made from the values `led_by`."""
        causes = "".join(f"; after: {cause!r}" for cause in led_by)
        super().__init__(f"{rule}; state: {state!r}{causes}")
        self.rule, self.state, self.led_by = rule, state, led_by

    @property
    def number(self) -> str:
        """Number of the rule, such as "I1"."""
        return self.rule.partition(" ")[0]


def invariants(state: object, *led_by: object) -> Callable[[bool, str], None]:
    """Return a function that raises InvariantError with a rule unless a condition of `state` holds.

    `state` was made from the values `led_by`, such as the state before and a message. The error's
    text is made only on failure, and `python -O` does not switch the check off.
    """

    def hold(condition: bool, rule: str) -> None:
        if not condition:
            raise InvariantError(rule, state, led_by)

    return hold


def invariant(condition: bool, rule: str, state: object, *led_by: object) -> None:
    """Check a single rule, as `invariants` does; `rule` is its number and its text."""
    if not condition:
        raise InvariantError(rule, state, led_by)
