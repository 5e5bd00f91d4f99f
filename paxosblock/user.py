"""The user who runs this program: the owner of what it creates."""

from __future__ import annotations

import getpass


def current_user() -> str:
    """The user's name, "" when the system does not know it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
