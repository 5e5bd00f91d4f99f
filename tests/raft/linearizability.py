"""Is there an order of the operations on one key that explains all answers? (Wing and Gong)

It shares no line with the code under test. An operation takes effect at one moment between its
call and its answer; one whose outcome is unknown at any later moment, or never.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ABSENT = ""
STEPS_MAX = 300_000


class UndecidedError(Exception):
    """The search took too long."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A client's question about one key, and the answer; values are unique.

    `called` and `answered` are times; `answered` is None when the outcome is unknown. By `kind`:

    * "read": it saw `value`, ABSENT for a key that is not there.
    * "write": it wrote `value`; ABSENT deletes.
    * "swap": it wrote `value` if it found `expected`, and `swapped` says whether it did.
    * "delete": it deleted the key, and `swapped` says whether there was one.
    * "ensure": it wrote `value` if the key was absent; `expected` was there afterwards.
    """

    kind: str
    value: str
    called: float
    answered: float | None
    expected: str = ABSENT
    swapped: bool | None = None

    def after(self, state: str) -> str | None:
        """Return the state after this operation, None when its answer contradicts `state`."""
        match self.kind:
            case "read":
                return state if state == self.value else None
            case "write":
                return self.value
            case "ensure":
                after = state or self.value
                return after if self.answered is None or after == self.expected else None
            case "delete":
                changes = state != ABSENT
            case _:
                changes = state == self.expected
        if self.swapped not in (None, changes):
            return None
        return self.value if changes else state


def is_linearizable(history: Sequence[Operation]) -> bool:
    """True if an order exists that starts with an absent key.

    Raises:
        UndecidedError: the search was given up.
    """
    operations = sorted(
        (each for each in history if each.kind != "read" or each.answered is not None),
        key=lambda each: each.called,
    )
    certain = sum(1 << i for i, each in enumerate(operations) if each.answered is not None)
    seen: set[tuple[int, str]] = set()
    stack = [(0, ABSENT)]
    while stack:
        done, state = stack.pop()
        if done & certain == certain:
            return True
        if (done, state) in seen:
            continue
        seen.add((done, state))
        if len(seen) > STEPS_MAX:
            raise UndecidedError
        stack += reversed(_next(operations, done, state))
    return not certain


def _next(operations: Sequence[Operation], done: int, state: str) -> list[tuple[int, str]]:
    found = []
    soonest = float("inf")
    first = (~done & (done + 1)).bit_length() - 1
    for number in range(first, len(operations)):
        if done >> number & 1:
            continue
        each = operations[number]
        if each.called > soonest:
            break  # another one was answered before this one was called
        after = each.after(state)
        if after is not None and not (after == state and each.answered is None):
            found.append((done | 1 << number, after))
        if each.answered is not None:
            soonest = min(soonest, each.answered)
    return found
