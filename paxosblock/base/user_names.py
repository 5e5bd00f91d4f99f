"""Names of users and groups."""

from __future__ import annotations

from typing import Final

NAME_CHARACTERS_MAX: Final = 255
NAME_EXPECTED: Final = (
    f"1 to {NAME_CHARACTERS_MAX} characters that can be shown, no space at an end, no ':' and ','"
)


def is_user(name: object) -> bool:
    """True if users and groups may be called so.

    A name is shown in a line, and stands beside others in a list and before a group.
    """
    return (
        isinstance(name, str)
        and 0 < len(name) <= NAME_CHARACTERS_MAX
        and name.isprintable()
        and name.strip() == name
        and not {":", ","} & set(name)
    )
