"""Permission bits as people write them: `chmod`'s octal and symbolic modes, as HDFS reads them."""

from __future__ import annotations

import re
from typing import Final

PERMISSION_MAX: Final = 0o1777
"""All bits that a file or directory may have: rwx three times, and the sticky bit."""

UMASK: Final = 0o022
"""The bits that new files and directories lack, unless a client's setting says others."""
OF_FILES: Final = 0o666
OF_DIRECTORIES: Final = 0o777
"""The bits that new ones are asked for with, less the umask."""
UMASK_MAX: Final = 0o777

_OCTAL: Final = re.compile(r"\s*[+]?([01]?)([0-7]{3})\s*", re.ASCII)
_CLAUSE: Final = re.compile(r"\s*([ugoa]*)([+=-]+)([rwxXt]+)([,\s]*)\s*", re.ASCII)
_SHIFTS: Final = {"u": 6, "g": 3, "o": 0}
_BITS: Final = {"r": 4, "w": 2, "x": 1}
_EXECUTE: Final = 1


class Mode:
    """A change that `chmod` is asked for; its result may depend on the bits that are there."""

    def __init__(self, written: str) -> None:
        """Read an octal mode such as 755 or 1777, or clauses such as u+rwX,go=r.

        As in HDFS, a later clause for the same class replaces an earlier one.

        Raises:
            ValueError: it is neither.
        """
        self._clauses: dict[str, tuple[str, str]] = {}
        """By "u", "g", "o": the operator and the letters."""
        self._sticky = "+", False
        self._octal: int | None = None
        if (found := _OCTAL.fullmatch(written)) is not None:
            self._octal = int(found[1] + found[2], 8)
        else:
            self._read(written)

    def _read(self, written: str) -> None:
        at, follows = 0, True
        while at < len(written) or not at:
            found = _CLAUSE.match(written, at)
            if found is None or not follows:
                raise ValueError(f"{written!r} is no mode")
            whom, operator, letters = found[1], found[2][-1], found[3]
            for each in (set(whom) - {"a"}) or _SHIFTS:
                self._clauses[each] = operator, letters
                if each == "o":
                    self._sticky = operator, "t" in letters
            at, follows = found.end(), "," in found[4]

    def applied(self, before: int, *, directory: bool) -> int:
        """Return the bits of a file or directory that has `before`.

        An `X` counts for a directory, and for a file that may be executed already.
        """
        if self._octal is not None:
            return self._octal
        may_execute = directory or bool(before & 0o111)
        after = _combined(self._sticky[0], int(self._sticky[1]), before >> 9 & 1) << 9
        for whom, shift in _SHIFTS.items():
            operator, letters = self._clauses.get(whom, ("+", ""))
            there = before >> shift & 7
            bits = sum(_BITS.get(letter, 0) for letter in set(letters))
            wanted = bits | (_EXECUTE if "X" in letters else 0)
            made = _combined(operator, wanted, there)
            if "X" in letters and not may_execute and not there & _EXECUTE:
                made &= ~_EXECUTE
            after |= made << shift
        return after


def _combined(operator: str, bits: int, there: int) -> int:
    if operator == "+":
        return there | bits
    return there & ~bits if operator == "-" else bits
