"""The members of a group, and what a majority of them is."""

from __future__ import annotations

from collections.abc import Collection

import msgspec


class Roster(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The members that elect a leader and confirm entries, by name."""

    voters: tuple[str, ...]

    def others(self, name: str) -> tuple[str, ...]:
        """Return the members but the one of this name."""
        return tuple(each for each in self.voters if each != name)

    def is_majority(self, names: Collection[str]) -> bool:
        """True if the voters among `names` are more than half of all."""
        return 2 * sum(voter in names for voter in self.voters) > len(self.voters)
