"""Patterns of names as Hadoop's GlobPattern has them, and `**` beside them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from paxosblock.errors import InvalidRequestError

SIGNS: Final = "*?[{\\"


def is_pattern(path: str) -> bool:
    """True if a path has a sign that stands for others."""
    return any(sign in path for sign in SIGNS)


def refused(pattern: str, why: str) -> InvalidRequestError:
    """Return the error for what is no pattern, in the words of hdfs."""
    return InvalidRequestError(f"'{pattern}': Illegal file pattern: {why}", path=pattern)


def expanded(pattern: str) -> list[str]:
    """Return the patterns in place of one that has a `/` between braces, which have none there."""
    found = _braces_with_slash(pattern)
    if found is None:
        return [pattern]
    begin, parts, end = found
    return [each for part in parts for each in expanded(f"{pattern[:begin]}{part}{pattern[end:]}")]


def _braces_with_slash(pattern: str) -> tuple[int, list[str], int] | None:
    """Return the outermost braces with a `/` between them: their place, their parts, and the place
    behind them; None if there are none."""
    depth, begin, part, place = 0, 0, 0, 0
    parts: list[str] = []
    while place < len(pattern):
        sign = pattern[place]
        if sign == "\\":
            place += 1
        elif sign == "{":
            depth += 1
            if depth == 1:
                begin, parts, part = place, [], place + 1
        elif sign == "," and depth == 1:
            parts.append(pattern[part:place])
            part = place + 1
        elif sign == "}" and depth:
            depth -= 1
            if not depth and "/" in pattern[begin:place]:
                return begin, [*parts, pattern[part:place]], place + 1
        place += 1
    return None


def unescaped(name: str) -> str:
    """Return a name without a sign that stands for others, as it is written in a pattern."""
    return re.sub(r"\\(.)", r"\1", name)


@lru_cache(64)
def compiled(pattern: str) -> re.Pattern[str]:
    """Return the names that a pattern without `/` matches.

    `*` is any text, `?` any character, `[a-z]` one of a class and `[!a]` or `[^a]` one of no class,
    `{a,b}` one of some patterns; a backslash takes the meaning of the next sign away.

    Raises:
        InvalidRequestError: a brace or bracket is not closed, or a range is reversed.
    """
    text, place, braces = [], 0, 0
    while place < len(pattern):
        sign = pattern[place]
        place += 1
        if sign == "\\":
            if place == len(pattern):
                raise refused(pattern, f"Escaped character missing at pos {place}: `{pattern}`")
            text.append(re.escape(pattern[place]))
            place += 1
        elif sign == "[":
            members, place = _class(pattern, place)
            text.append(members)
        elif sign == "{":
            braces += 1
            text.append("(?:")
        elif sign == "}" and braces:
            braces -= 1
            text.append(")")
        elif sign == "," and braces:
            text.append("|")
        else:
            text.append({"*": ".*", "?": "."}.get(sign) or re.escape(sign))
    if braces:
        raise refused(pattern, f"Unclosed group at pos {len(pattern)}: `{pattern}`")
    try:
        return re.compile("".join(text), re.DOTALL)
    except re.error as error:
        raise refused(pattern, str(error)) from error


def _class(pattern: str, place: int) -> tuple[str, int]:
    """Return a class of characters as a regular expression, and the place behind it."""
    negated = pattern[place : place + 1] in ("!", "^")
    place += negated
    members: list[str] = []
    while place < len(pattern):
        sign = pattern[place]
        place += 1
        if sign == "]" and members:
            return f"[{'^' if negated else ''}{''.join(members)}]", place
        if sign == "\\" and place < len(pattern):
            sign, place = pattern[place], place + 1
            members.append(re.escape(sign))
        else:
            members.append(sign if sign == "-" else re.escape(sign))
    raise refused(pattern, f"Unclosed character class at pos {len(pattern)}: `{pattern}`")
